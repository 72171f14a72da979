"""A whole calibration of a running service: check it, send sentences, fit the plane, and write the profile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from simnmt.base import VERSION
from simnmt.base.arrays import Floats
from simnmt.base.files import refuse_replacing
from simnmt.calibrate import preconditions, profile_assembly
from simnmt.calibrate.box import BoxDescription, describe
from simnmt.calibrate.calibration import TOOL, Calibrated, kept_journal
from simnmt.calibrate.endpoint_apis import APIS, Endpoint, refused
from simnmt.calibrate.endpoint_load import EndpointLoad
from simnmt.calibrate.endpoint_settings import EndpointSettings, choose_sentences
from simnmt.calibrate.endpoint_times import LEAST_SHARE, AloneTimes
from simnmt.calibrate.journal import Header, Journal, journal_path
from simnmt.calibrate.measurement import Listener, Silent
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.blocks import Execution, ProfileError, Quantiles
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.execution_fit import cell_samples, fit_execution
from simnmt.profile.origin import (
    Conditions,
    Device,
    EndpointBlock,
    LengthUnit,
    MeasuringConditions,
    Model,
    Provenance,
    RoundTrip,
    StreamedTokens,
    ValidRange,
)
from simnmt.profile.profile_file import checked_profile, read_profile, write_profile
from simnmt.service.messages import ServiceError
from simnmt.workload.length_units import service_unit

VOCAB = 1 << 16
"""Words of an unknown vocabulary: two bytes a token, as in the C-NMT paper."""
LONG_RATIO, LONG_TOKENS = 3.0, 20
"""A translation is implausibly long beyond so many times its source, and so many tokens more."""


def calibrate_endpoint(
    settings: EndpointSettings,
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    device_name: str | None = None,
    listener: Listener = Silent,
    replaces_journal: bool = False,
) -> Calibrated:
    """Measure a running service through HTTP and write its device profile to `out`.

    Each measurement is kept at once in `OUT.journal.jsonl`; the same call after an interruption resumes from there.

    Args:
        settings: the service, its text, and how to measure.
        out: path of the profile; one of the same API there is replaced.
        name: name of the profile; by default that of the file.
        device_name: name of the device; by default the service's host and port.
        listener: receives messages and progress.
        replaces_journal: begin anew where the journal holds measurements of other settings, instead of refusing it.

    Raises:
        CalibrationError, CorpusError, ProfileError: with the measurements so far kept in the journal.
    """
    path = Path(out)
    replaced = endpoint_profile_there(path, settings)
    sentences = choose_sentences(settings)
    endpoint, box = APIS[settings.api](settings), describe(libraries=False)
    header = _header(settings, sentences, box)
    with kept_journal(Journal(journal_path(path), header, replaces=replaces_journal), listener) as journal:
        load = EndpointLoad(endpoint, sentences, settings, journal, listener)
        journal.session(profile_assembly.state(box))
        try:
            measured = asyncio.run(_measure(endpoint, load, box))
        except ServiceError as error:
            raise refused(error, settings) from None
        conditions = profile_assembly.conditions_block(journal.sessions, measured.after, None, [])
        profile = _profile(settings, measured, conditions, name or path.stem, device_name)
        write_profile(path, profile)
        journal.remove()
    return Calibrated(profile, tuple(doubt.message for doubt in profile_doubts(profile)), replaced)


def endpoint_profile_there(path: Path, settings: EndpointSettings) -> bool:
    """Return whether a profile of the same API will be replaced. Raise if `path` is unwritable or holds anything else."""
    preconditions.refuse_unwritable(path, "--out")
    refuse_replacing(path, settings.text, settings.ca_file)
    if not path.exists():
        return False
    remedy = "choose another --out, or remove it"
    try:
        there = read_profile(path)
    except ProfileError as error:
        raise CalibrationError(f"the existing file is not a device profile: {error.what}", path=path, remedy=remedy) from None
    if there.endpoint is None or there.endpoint.api != settings.api:
        subject = "the box itself" if there.endpoint is None else f"the API {there.endpoint.api}"
        raise CalibrationError(f"the existing profile was measured on {subject}", path=path, remedy=remedy)
    return True


@dataclass(frozen=True, slots=True)
class _Measured:
    """Everything that was measured of a service."""

    alone: AloneTimes
    echo_name: str
    after: MeasuringConditions
    """The state of the box after the requests one after another."""


async def _measure(endpoint: Endpoint, load: EndpointLoad, box: BoxDescription) -> _Measured:
    async with endpoint.client:
        echoes = await endpoint.check()
        requests = await load.measure_alone(echoes=echoes)
        after = profile_assembly.state(box)
        busy = any(state.busy for state in [*load.journal.sessions, after])
        return _Measured(AloneTimes(requests, busy=busy), endpoint.echo_name, after)


def _profile(
    settings: EndpointSettings, measured: _Measured, conditions: Conditions, name: str, device_name: str | None
) -> DeviceProfile:
    """Return the checked profile of what was measured."""
    counted, seconds = measured.alone.counted, measured.alone.executions_s()
    src_len, tgt_len = (np.array([getattr(request, side) for request in counted]) for side in ("src_len", "tgt_len"))
    block = _endpoint_block(settings, measured)
    execution = _execution(src_len, tgt_len, seconds, busy=measured.alone.busy)
    counters = settings.counters()
    stated = service_unit(settings.model)
    src_unit, tgt_unit = (stated, stated) if counters is None else (counters[0][0], counters[1][0])
    profile = DeviceProfile.model_construct(
        schema_version=2,
        name=name,
        device=Device(name=device_name or f"endpoint {urlsplit(settings.url).netloc}"),
        model=Model(name=settings.model or settings.api, vocab=VOCAB),
        length_unit=LengthUnit(src=src_unit, tgt=tgt_unit),
        valid_range=ValidRange(
            src_len=(int(src_len.min()), int(src_len.max())), tgt_len=(int(tgt_len.min()), int(tgt_len.max()))
        ),
        execution=execution,
        endpoint=block.model_copy(update={"doubts": _doubts(settings, measured, execution.fit.collinear)}),
        conditions=conditions,
        provenance=Provenance(source=_source(settings, block), date=profile_assembly.now(), tool=TOOL),
    )
    return checked_profile(profile.model_dump(mode="json"))


def _execution(src_len: Floats, tgt_len: Floats, seconds: Floats, *, busy: bool) -> Execution:
    """Return the block `execution`: the plane of the least times at the level of the median request.

    The mean would hold what held up the load generator itself. `busy`: its box was busy; then the least times stand for all,
    since with four times more work than processors the median lay 3 to 10 % above the service's own times, and the least of
    them within 1 %.
    """
    execution = fit_execution(src_len, tgt_len, seconds, mode="sentences")
    least = execution.plane.times(1.0 / (execution.fit.level or 1.0))
    expected_s = least.seconds(src_len, tgt_len)
    level = 1.0 if busy else float(np.median(seconds[expected_s > 0.0] / expected_s[expected_s > 0.0]))
    return execution.model_copy(
        update={
            "plane": least.times(level),
            "fit": execution.fit.model_copy(update={"level": level}),
            "samples": cell_samples(src_len, tgt_len, seconds),
        }
    )


def _source(settings: EndpointSettings, block: EndpointBlock) -> str:
    trip = block.round_trip
    network = "network included" if trip.how == "included" else f"round trip of {1e3 * trip.taken_off_s:.3g} ms taken off"
    return f"measured through HTTP, {network}: {settings.api} at {settings.url}, sentences of {Path(settings.text).name}"


def _endpoint_block(settings: EndpointSettings, measured: _Measured) -> EndpointBlock:
    alone, echoes_s = measured.alone, measured.alone.echoes_s
    return EndpointBlock(
        kind="measured",
        api=settings.api,
        url=settings.url,
        source=settings.source,
        target=settings.target,
        sentences=alone.sentence_s().size,
        requests=len(alone.requests),
        mean_s=float(alone.sentence_s().mean()),
        spread=_spread(measured),
        round_trip=RoundTrip(
            how="echo" if alone.separates_round_trip else "included",
            echo=measured.echo_name if echoes_s else "",
            seconds=Quantiles.of(echoes_s) if echoes_s else None,
            taken_off_s=alone.round_trip_s,
        ),
        streamed=_streamed(measured),
    )


def _spread(measured: _Measured) -> float | None:
    """Return the median over the sentences of the interquartile range over the median of their repeats."""
    spreads = []
    for repeats in measured.alone.executions_by_sentence_s().values():
        if len(repeats) > 1:
            low, middle, high = np.quantile(repeats, (0.25, 0.5, 0.75)).tolist()
            spreads.append((high - low) / middle)
    return float(np.median(spreads)) if spreads else None


def _streamed(measured: _Measured) -> StreamedTokens | None:
    first_s = [request.first_token_s for request in measured.alone.counted if request.first_token_s is not None]
    between_s = [request.between_tokens_s for request in measured.alone.counted if request.between_tokens_s]
    if not first_s or not between_s:
        return None
    shortened_s = [max(seconds - measured.alone.round_trip_s, LEAST_SHARE * seconds) for seconds in first_s]
    return StreamedTokens(first_token=Quantiles.of(shortened_s), between_tokens=Quantiles.of(between_s))


def _doubts(settings: EndpointSettings, measured: _Measured, collinear: bool | None) -> tuple[str, ...]:
    doubts, alone = [], measured.alone
    if alone.remembers:
        doubts.append(
            "repeated sentences were answered far faster: the service remembers translations, so that only the first request "
            "of each sentence counts"
        )
    if any(request.thinks for request in alone.requests):
        doubts.append(
            "the model thinks before it translates: a part of the times, not of the lengths (turn thinking off at the service)"
        )
    if cut := sum(request.is_cut for request in alone.requests):
        doubts.append(
            f"{cut} of {len(alone.requests)} answers are cut at the limit of their tokens (give a greater --max-tokens than "
            f"{settings.max_tokens})"
        )
    if long := [request for request in alone.requests if request.tgt_len > LONG_RATIO * request.src_len + LONG_TOKENS]:
        doubts.append(
            f"{len(long)} of {len(alone.requests)} answers are implausibly long for a translation, such as {long[0].tgt_len} "
            f"tokens of {long[0].src_len} (see what the service answers, and choose --unit)"
        )
    if collinear:
        doubts.append(
            "source and target lengths do not vary independently: their slopes cannot be told apart (give other text)"
        )
    return tuple(doubts)


def _header(settings: EndpointSettings, sentences: Sequence[str], box: BoxDescription) -> Header:
    return {
        "endpoint": settings.as_json(sentences),
        "box": {name: getattr(box, name) for name in ("machine", "cpu_model", "logical_cores", "usable_cpus")},
        "simnmt": VERSION,
    }
