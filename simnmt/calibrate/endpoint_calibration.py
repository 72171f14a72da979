"""A whole calibration of a running service: check it, send sentences, fit the plane and the knee, and write the profile."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from simnmt.base import VERSION
from simnmt.base.files import refuse_replacing
from simnmt.calibrate import preconditions, profile_assembly
from simnmt.calibrate.box import BoxDescription, describe
from simnmt.calibrate.calibration import TOOL, Calibrated, kept_journal
from simnmt.calibrate.endpoint_apis import APIS, Endpoint, refused
from simnmt.calibrate.endpoint_load import AloneRequest, EndpointLoad, is_saturated, times_by_sentence
from simnmt.calibrate.endpoint_settings import EndpointSettings, choose_sentences
from simnmt.calibrate.journal import Header, Journal, journal_path
from simnmt.calibrate.measurement import Listener, Silent
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.blocks import Conditions, ProfileError, Quantiles
from simnmt.profile.device_profile import (
    Device,
    DeviceProfile,
    Execution,
    LengthUnit,
    Model,
    Provenance,
    ValidRange,
)
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.endpoint_block import EndpointBlock, LoadLevel, RoundTrip, StreamedTokens
from simnmt.profile.execution_fit import cell_samples, fit_execution
from simnmt.profile.profile_file import checked_profile, read_profile, write_profile
from simnmt.service.messages import ServiceError
from simnmt.service.precise_timers import run_precisely

Floats = NDArray[np.float64]
VOCAB = 1 << 16
"""Words of an unknown vocabulary: two bytes a token, as in the C-NMT paper."""
LEAST_SHARE = 0.05
"""Least share of a request's time that is left when the round trip is taken off."""
REMEMBERED, REMEMBERED_WITHOUT_ECHO, NEARLY_ALL, AS_AN_ECHO = 0.3, 0.1, 0.9, 3.0
"""A service remembers translations if so many of the sentences later took less than this share of their first time, and no
longer than three echoes. A service that was cold is slow at first too, but then still takes the time of its model."""
NEAR_KNEE = 0.9
"""Share of the greatest throughput from which a level counts for the knee."""
LATE_SHARE = 0.1
"""Share of a sentence's time that the generator may send late."""


def calibrate_endpoint(
    settings: EndpointSettings,
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    device_name: str | None = None,
    listener: Listener = Silent,
) -> Calibrated:
    """Measure a running service through HTTP and write its device profile to `out`.

    Each measurement is kept at once in `OUT.journal.jsonl`; the same call after an interruption resumes from there.

    Args:
        settings: the service, its text, and how to measure.
        out: path of the profile; one of the same API there is replaced.
        name: name of the profile; by default that of the file.
        device_name: name of the device; by default the service's host and port.
        listener: receives messages and progress.

    Raises:
        CalibrationError, CorpusError, ProfileError: with the measurements so far kept in the journal.
    """
    path = Path(out)
    replaced = endpoint_profile_there(path, settings)
    sentences = choose_sentences(settings)
    endpoint, box = APIS[settings.api](settings), describe(libraries=False)
    with kept_journal(Journal(journal_path(path), _header(settings, sentences, box)), listener) as journal:
        load = EndpointLoad(endpoint, sentences, settings, journal, listener)
        journal.session(profile_assembly.state(box))
        try:
            measured = run_precisely(_measure(endpoint, load))
        except ServiceError as error:
            raise refused(error, settings) from None
        conditions = profile_assembly.conditions_block(journal.sessions, profile_assembly.state(box), None, [])
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

    requests: Sequence[AloneRequest]
    ladder: Sequence[LoadLevel]
    echo_name: str
    remembers: bool
    """Whether the service remembers translations, so that only the first request of each sentence counts."""

    @property
    def counted(self) -> list[AloneRequest]:
        """The requests that count for the plane."""
        if not self.remembers:
            return list(self.requests)
        first = {request.sentence: request for request in reversed(self.requests)}
        return list(first.values())

    @property
    def echoes_s(self) -> list[float]:
        return [request.echo_s for request in self.requests if request.echo_s is not None]

    @property
    def round_trip_s(self) -> float:
        """Median of the echoes; 0 without any."""
        return float(np.median(self.echoes_s)) if self.echoes_s else 0.0

    def executions_s(self) -> Floats:
        """Return the time of each counted request less the round trip."""
        elapsed_s = np.array([request.elapsed_s for request in self.counted])
        return np.maximum(elapsed_s - self.round_trip_s, LEAST_SHARE * elapsed_s)


async def _measure(endpoint: Endpoint, load: EndpointLoad) -> _Measured:
    async with endpoint.client:
        echoes = await endpoint.check()
        requests = await load.measure_alone(echoes=echoes)
        remembers = _remembers(requests)
        measured = _Measured(requests, (), endpoint.echo_name, remembers)
        if load.settings.max_concurrency == 1 or remembers:
            return measured
        ladder = await load.measure_ladder(_alone_s(measured, len(load.sentences)))
        return _Measured(requests, ladder, endpoint.echo_name, remembers)


def _remembers(requests: Sequence[AloneRequest]) -> bool:
    """Return whether nearly every sentence was later answered far faster than at first, and about as fast as an echo."""
    by_sentence = times_by_sentence([request.sentence for request in requests], [request.elapsed_s for request in requests])
    repeated = [times for times in by_sentence.values() if len(times) > 1]
    if not repeated:
        return False
    later_s = np.array([min(times[1:]) for times in repeated])
    nearly_all = float(np.quantile(later_s / np.array([times[0] for times in repeated]), NEARLY_ALL))
    echoes_s = [request.echo_s for request in requests if request.echo_s is not None]
    if not echoes_s:
        return nearly_all < REMEMBERED_WITHOUT_ECHO
    return nearly_all < REMEMBERED and float(np.median(later_s)) < AS_AN_ECHO * float(np.median(echoes_s))


def _alone_s(measured: _Measured, sentences: int) -> Floats:
    """Return the median time of each sentence, shape (sentences,)."""
    numbers, seconds = np.array([request.sentence for request in measured.counted]), measured.executions_s()
    return np.array([float(np.median(seconds[numbers == number])) for number in range(sentences)])


def _profile(
    settings: EndpointSettings, measured: _Measured, conditions: Conditions, name: str, device_name: str | None
) -> DeviceProfile:
    """Return the checked profile of what was measured."""
    counted, seconds = measured.counted, measured.executions_s()
    src_len, tgt_len = (np.array([getattr(request, side) for request in counted]) for side in ("src_len", "tgt_len"))
    block = _endpoint_block(settings, measured)
    execution = _execution(src_len, tgt_len, seconds, busy=bool(conditions.busy))
    counters = settings.counters()
    stated = "token of the service" if settings.model is None else f"token of {settings.model}"[:100]
    src_unit, tgt_unit = (stated, stated) if counters is None else (counters[0][0], counters[1][0])
    profile = DeviceProfile.model_construct(
        schema_version=1,
        name=name,
        device=Device(name=device_name or f"endpoint {urlsplit(settings.url).netloc}"),
        model=Model(name=settings.model or settings.api, vocab=VOCAB),
        length_unit=LengthUnit(src=src_unit, tgt=tgt_unit),
        valid_range=ValidRange(
            src_len=(int(src_len.min()), int(src_len.max())), tgt_len=(int(tgt_len.min()), int(tgt_len.max()))
        ),
        execution=execution,
        endpoint=block.model_copy(update={"doubts": _doubts(settings, measured, block, execution.fit.collinear)}),
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
    least = execution.plane.plane.times(1.0 / (execution.fit.level or 1.0))
    expected_s = least.seconds(src_len, tgt_len)
    level = 1.0 if busy else float(np.median(seconds[expected_s > 0.0] / expected_s[expected_s > 0.0]))
    return execution.model_copy(
        update={
            "plane": least.times(level).coefficients,
            "fit": execution.fit.model_copy(update={"level": level}),
            "samples": cell_samples(src_len, tgt_len, seconds),
        }
    )


def _source(settings: EndpointSettings, block: EndpointBlock) -> str:
    network = "network included" if block.round_trip.how == "included" else block.round_trip.describe()
    return f"measured through HTTP, {network}: {settings.api} at {settings.url}, sentences of {Path(settings.text).name}"


def _endpoint_block(settings: EndpointSettings, measured: _Measured) -> EndpointBlock:
    alone_s = _alone_s(measured, 1 + max(request.sentence for request in measured.requests))
    knee_concurrency, knee_rps = _knee(measured.ladder)
    echoes_s = measured.echoes_s
    return EndpointBlock(
        kind="measured",
        api=settings.api,
        url=settings.url,
        source=settings.source,
        target=settings.target,
        sentences=len(alone_s),
        requests=len(measured.requests),
        mean_s=float(alone_s.mean()),
        spread=_spread(measured),
        round_trip=RoundTrip(
            how="echo" if echoes_s else "included",
            echo=measured.echo_name if echoes_s else "",
            seconds=Quantiles.of(echoes_s) if echoes_s else None,
        ),
        streamed=_streamed(measured),
        ladder=tuple(measured.ladder),
        knee_concurrency=knee_concurrency,
        knee_rps=knee_rps,
    )


def _spread(measured: _Measured) -> float | None:
    """Return the median over the sentences of the interquartile range over the median of their repeats."""
    by_sentence = times_by_sentence([request.sentence for request in measured.counted], measured.executions_s().tolist())
    spreads = []
    for repeats in by_sentence.values():
        if len(repeats) > 1:
            low, middle, high = np.quantile(repeats, (0.25, 0.5, 0.75)).tolist()
            spreads.append((high - low) / middle)
    return float(np.median(spreads)) if spreads else None


def _streamed(measured: _Measured) -> StreamedTokens | None:
    first_s = [request.first_token_s for request in measured.counted if request.first_token_s is not None]
    between_s = [request.between_tokens_s for request in measured.counted if request.between_tokens_s]
    if not first_s or not between_s:
        return None
    shortened_s = [max(seconds - measured.round_trip_s, LEAST_SHARE * seconds) for seconds in first_s]
    return StreamedTokens(first_token=Quantiles.of(shortened_s), between_tokens=Quantiles.of(between_s))


def _knee(ladder: Sequence[LoadLevel]) -> tuple[float | None, float | None]:
    """Return the sentences at once and the requests a second at most: the mean of the saturated levels near the greatest."""
    saturated = [level for level in ladder if is_saturated(level)]
    most = max((level.executed for level in saturated), default=0.0)
    near = [level for level in saturated if level.executed >= NEAR_KNEE * most]
    if most <= 0.0:
        return None, None
    return float(np.mean([level.executed for level in near])), float(np.mean([level.throughput_rps for level in near]))


def _doubts(settings: EndpointSettings, measured: _Measured, block: EndpointBlock, collinear: bool | None) -> tuple[str, ...]:
    doubts = []
    if block.round_trip.how == "included":
        doubts.append("times contain the network's round trip, which a scenario's link adds again (give it an RTT near 0)")
    elif measured.round_trip_s > block.mean_s:
        doubts.append(
            f"the round trip taken off, {1e3 * measured.round_trip_s:.3g} ms, is longer than a mean execution, "
            f"{1e3 * block.mean_s:.3g} ms: the fixed part and the knee are uncertain (measure from beside the service)"
        )
    if measured.remembers:
        doubts.append(
            "repeated sentences were answered far faster: the service remembers translations, so that only the first request "
            "of each sentence counts and no ladder was measured"
        )
    if collinear:
        doubts.append(
            "source and target lengths do not vary independently: their slopes cannot be told apart (give other text)"
        )
    if any(level.answered < level.requests for level in block.ladder):
        last = block.ladder[-1]
        doubts.append(
            f"at a concurrency of {last.concurrency:g} the service answered {last.answered} of {last.requests} requests in time"
        )
    if block.ladder and block.knee_concurrency is None:
        doubts.append(
            f"the knee was not reached at a concurrency of {block.ladder[-1].concurrency:g} (give a greater --max-concurrency "
            f"than {settings.max_concurrency})"
        )
    if any(level.lateness_p99_s > LATE_SHARE * block.mean_s for level in block.ladder):
        late_s = max(level.lateness_p99_s for level in block.ladder)
        doubts.append(f"requests of the ladder were sent up to {1e3 * late_s:.3g} ms late (measure from a quiet box)")
    return tuple(doubts)


def _header(settings: EndpointSettings, sentences: Sequence[str], box: BoxDescription) -> Header:
    return {
        "endpoint": settings.as_json(sentences),
        "box": {name: getattr(box, name) for name in ("machine", "cpu_model", "logical_cores", "usable_cpus")},
        "simnmt": VERSION,
    }
