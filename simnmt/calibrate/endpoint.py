"""Calibration of a running service through HTTP: its API, sentences one after another, the fitted plane, the profile."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from simnmt.base import VERSION
from simnmt.base.errors import shorten
from simnmt.base.random_streams import stream
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import describe
from simnmt.calibrate.calibration import TOOL, Calibrated, kept_journal, refuse_unwritable
from simnmt.calibrate.endpoint_load import QUICK, Loads, LoadSizes, texts_to_send
from simnmt.calibrate.harness import Case, Listener, Silent, nothing, rounds
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.blocks import Execution
from simnmt.profile.device_profile import SCHEMA_VERSION, DeviceProfile, checked_profile, write_profile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.execution_fit import cell_samples, fit_execution
from simnmt.profile.origin import Conditions, Device, EndpointBlock, LengthUnit, Model, Provenance, ValidRange
from simnmt.service.apis import APIS
from simnmt.service.client import ServiceClient
from simnmt.service.load import cancel_others
from simnmt.service.messages import ServiceError
from simnmt.workload.length_units import Count, unit_and_counter
from simnmt.workload.text_lines import TextLines


def calibration_error(error: ServiceError, url: str) -> CalibrationError:
    """Return the error of a service that could not be measured, as one line without the token."""
    what, status = shorten(error.message, 160), error.status
    what = what if url in what else f"{url}: {what}"
    if status in (401, 403) and not error.is_stated:
        return CalibrationError(f"{what} (HTTP {status})", remedy="it asks for a token: put it into $SIMNMT_TOKEN")
    if status == 502 and not error.is_stated:
        return CalibrationError(what, remedy=error.remedy or "see the service's log, or correct --endpoint or --api")
    if status == 504 and not error.is_stated:
        return CalibrationError(what, remedy="give a longer --timeout, or see the service's log")
    return CalibrationError(what if error.is_stated else f"{what} (HTTP {status})")


TOKEN = "SIMNMT_TOKEN"
"""Environment variable that holds the service's token, which is never printed or written."""
SENTENCES, QUICK_SENTENCES, LEAST_SENTENCES = 24, 12, 4
"""Sentences of the text that are sent: evenly spaced ranks of their length, the shortest and the longest among them."""
ROUNDS, QUICK_ROUNDS = 7, 4
WITHIN_S, QUICK_WITHIN_S = 420.0, 60.0
"""Seconds beyond which no further round begins."""
WARM_UP = 2
"""Requests before those that count: the first ones open connections and fill caches."""
VOCAB = 1 << 16
"""Words of an unknown vocabulary: two bytes a token, as in the C-NMT paper."""
LEAST_SHARE = 0.05
"""Least share of a request's time that is left when the round trip is taken off."""


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Settings of one calibration. Raises `CalibrationError` for an address that the profile must not show."""

    url: str
    api: str
    """A name of `simnmt.service.apis.APIS`."""
    text: str
    """File of sentences, one a line."""
    model: str | None = None
    """Name of the model, as the service calls it."""
    source: str = "de"
    target: str = "en"
    quick: bool = False
    src_unit: str = "word"
    tgt_unit: str = "word"
    timeout_s: float = 60.0
    """Longest time of a request."""
    ca_file: Path | None = None
    """Certificates of authorities, PEM; None: those of the system."""
    seed: int = 1
    workers: int | None = None
    """Requests that the service executes at once; None: as the loads show."""
    kind: str = "plane"
    """`plane`: one request at a time, then loads (`SingleRequests`); `slots`: an engine with continuous batching
    (`simnmt.calibrate.slot_ladder`)."""
    slots: int | None = None
    """Requests that the engine decodes together; None: as it states."""
    chunk: int | None = None
    """Most tokens of its iterations; None: the usual default."""

    def __post_init__(self) -> None:
        if "@" in urlsplit(self.url).netloc:
            raise CalibrationError("--endpoint holds a password, which the profile would show", remedy=f"put it into ${TOKEN}")
        if self.api == "openai" and self.model is None:
            raise CalibrationError("openai needs the name of a model", remedy="give --model NAME, as the service calls it")

    @property
    def counters(self) -> tuple[Count, Count]:
        """Functions that count the source and the target tokens of a text."""
        return unit_and_counter(self.src_unit, "src")[1], unit_and_counter(self.tgt_unit, "tgt")[1]

    def connect(self) -> ServiceClient:
        return APIS[self.api](
            self.url,
            (self.source, self.target),
            self.model or "",
            token=os.environ.get(TOKEN, "").strip(),
            timeout_s=self.timeout_s,
            ca_file=self.ca_file,
            connections=0,  # any number: a request that waits for one here would seem to wait at the service
        )


def journal_header(settings: EndpointSettings, texts: Sequence[str]) -> dict[str, Any]:
    """Return what the measurements of one journal must have in common."""
    facts = {name: str(value) for name, value in asdict(settings).items() if name not in ("text", "ca_file")}
    facts["sentences"] = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    return {"endpoint": facts, "box": {"cpu_model": describe().cpu_model}, "simnmt": VERSION}


def endpoint_profile(
    settings: EndpointSettings,
    path: Path,
    device_name: str | None,
    before: Conditions,
    times: ServiceTimes,
    doubts: Sequence[str] | None = None,
    **blocks: Any,
) -> DeviceProfile:
    """Return the checked profile of a service.

    `before`: state of the box before the measurements; `doubts`: None for those of translations; `blocks`: further cost models.
    """
    execution = times.execution()
    network = f"round trip of {1e3 * times.round_trip_s:.3g} ms taken off" if times.round_trip_s else "network included"
    source = f"measured through HTTP, {network}: {settings.api} at {settings.url}, sentences of {Path(settings.text).name}"
    (src_unit, _), (tgt_unit, _) = unit_and_counter(settings.src_unit, "src"), unit_and_counter(settings.tgt_unit, "tgt")
    ranges = times.counted[["src_len", "tgt_len"]].agg(["min", "max"])
    doubts = times.doubts(collinear=bool(execution.fit.collinear)) if doubts is None else doubts
    profile = DeviceProfile.model_construct(
        schema_version=SCHEMA_VERSION,
        name=path.stem,
        device=Device(name=device_name or f"endpoint {urlsplit(settings.url).netloc}"),
        model=Model(name=settings.model or settings.api, vocab=VOCAB),
        length_unit=LengthUnit(src=src_unit, tgt=tgt_unit),
        valid_range=ValidRange.model_validate(ranges.to_dict("list"), strict=False),
        execution=execution,
        endpoint=times.block(settings, f"GET {APIS[settings.api].echo_path}", doubts),
        conditions=profile_assembly.conditions_block(before, profile_assembly.state(describe()), None, []),
        provenance=Provenance(source=source, date=profile_assembly.now(), tool=TOOL),
        **blocks,
    )
    return checked_profile(profile.model_dump(mode="json"))


def different_sentences(settings: EndpointSettings) -> list[str]:
    """Return the different sentences of the text, from short to long. Raises `CorpusError` for one that cannot be read."""
    _, count = unit_and_counter(settings.src_unit, "src")
    stripped = {line.strip() for line in TextLines(Path(settings.text), kept=True)} - {""}
    return sorted(stripped, key=lambda line: (count(line), line))


def choose_sentences(settings: EndpointSettings) -> list[str]:
    """Return the sentences to send one at a time, from short to long.

    Raises `CalibrationError` for a text with too few different ones, `CorpusError` for one that cannot be read.
    """
    lines = different_sentences(settings)
    if len(lines) < LEAST_SENTENCES:
        what = f"{len(lines)} different sentences do not determine a plane"
        remedy = f"give a text with {LEAST_SENTENCES} or more, of different lengths"
        raise CalibrationError(what, path=Path(settings.text), remedy=remedy)
    number = min(QUICK_SENTENCES if settings.quick else SENTENCES, len(lines))
    return [lines[rank] for rank in np.linspace(0, len(lines) - 1, number).round().astype(int)]


class ServiceTimes:
    """What requests one after another say about a service: which of them count, and the round trip that is taken off."""

    def __init__(self, requests: pd.DataFrame) -> None:
        self.requests = requests
        first_s, echo_s = requests.groupby("case")["seconds"].first(), requests["echo_s"].median()
        later_s = requests.groupby("case")["seconds"].apply(lambda seconds: seconds.iloc[1:].min())
        nearly_all = (later_s / first_s).quantile(0.9)
        # A service that was cold is slow at first too, but then still takes the time of its model.
        self.remembers = bool(nearly_all < 0.1 if np.isnan(echo_s) else nearly_all < 0.3 and later_s.median() < 3.0 * echo_s)
        """Whether nearly every sentence was later answered far faster than at first, and about as fast as an echo: then only
        first requests count."""
        counted = requests.drop_duplicates("case") if self.remembers else requests
        shortest_s = counted.groupby("case")["seconds"].median().min()
        # An echo that is no shorter than every sentence measures something else than the round trip.
        self.round_trip_s = float(echo_s) if echo_s < (1.0 - LEAST_SHARE) * shortest_s else 0.0
        execution_s = (counted["seconds"] - self.round_trip_s).clip(lower=LEAST_SHARE * counted["seconds"])
        self.counted = counted.assign(execution_s=execution_s)

    def execution(self) -> Execution:
        """Return the block `execution`: the plane of the least times at the level of the median request.

        The mean would hold what held up the load generator itself.
        """
        src_len, tgt_len, seconds = (self.counted[name].to_numpy() for name in ("src_len", "tgt_len", "execution_s"))
        execution = fit_execution(src_len, tgt_len, seconds, mode="sentences")
        least = execution.plane.times(1.0 / (execution.fit.level or 1.0))
        expected_s = least.seconds(src_len, tgt_len)
        level = float(np.median(seconds[expected_s > 0.0] / expected_s[expected_s > 0.0]))
        fit = execution.fit.model_copy(update={"level": level})
        samples = cell_samples(src_len, tgt_len, seconds)
        return execution.model_copy(update={"plane": least.times(level), "fit": fit, "samples": samples})

    def block(self, settings: EndpointSettings, echo_name: str, doubts: Sequence[str]) -> EndpointBlock:
        """Return the block `endpoint` of a profile."""
        requests, echoes_s = self.requests, self.requests["echo_s"].dropna()
        return EndpointBlock(
            kind="measured",
            **{key: getattr(settings, key) for key in ("api", "url", "source", "target")},
            sentences=requests["case"].nunique(),
            requests=len(requests),
            mean_s=float(self.counted.groupby("case")["execution_s"].median().mean()),
            echo=echo_name if len(echoes_s) else "",
            echo_s=float(echoes_s.median()) if len(echoes_s) else None,
            round_trip_s=self.round_trip_s,
            doubts=tuple(doubts),
        )

    def doubts(self, *, collinear: bool) -> list[str]:
        """Return reasons to distrust the times. `collinear`: the lengths do not determine the plane."""
        requests, doubts = self.requests, list[str]()
        answers, cut = len(requests), requests["is_cut"].sum()
        long = (requests["tgt_len"] > 3.0 * requests["src_len"] + 20).sum()
        if self.remembers:
            doubts.append("the service remembers translations, so that only the first request of each sentence counts")
        if requests["thinks"].any():
            doubts.append(
                "the model thinks before it translates: a part of the times, not of the lengths (turn it off at the service)"
            )
        if cut:
            doubts.append(f"{cut} of {answers} answers are cut at the longest answer that was allowed")
        if long:
            doubts.append(f"{long} of {answers} answers are implausibly long for a translation (see what the service answers)")
        if collinear:
            doubts.append("source and target lengths do not vary independently: their slopes are not known (give other text)")
        return doubts


class Method(Protocol):
    """A way to measure a service: the cases that are sent in rounds, and the profile that follows from them."""

    name: str
    texts: Sequence[str]
    """Texts from which it sends; the measurements of one journal have them in common."""
    rounds: tuple[int, float]
    """Number of rounds, and the seconds beyond which no further one begins."""

    async def cases(self, run: Callable[..., Any]) -> Mapping[Any, Case]:
        """Return the cases by name, after a look at the service; `run(function, *arguments)` runs a coroutine.

        Raises `ServiceError`, `CalibrationError`.
        """
        ...

    def profile(self, frame: pd.DataFrame, finish: Callable[..., DeviceProfile], listener: Listener) -> DeviceProfile:
        """Return the profile that follows from the rows of the cases. Raises `CalibrationError`.

        `finish(times, doubts, **blocks)`: see `endpoint_profile`.
        """
        ...


class SingleRequests:
    """Sentences one after another, each after an echo, then loads (`simnmt.calibrate.endpoint_load`)."""

    name = "endpoint"

    def __init__(self, settings: EndpointSettings, service: ServiceClient) -> None:
        self._settings, self._service, self._counters = settings, service, settings.counters
        self.texts: Sequence[str] = choose_sentences(settings)
        self.rounds = (QUICK_ROUNDS, QUICK_WITHIN_S) if settings.quick else (ROUNDS, WITHIN_S)
        self._echoes, self._last = True, ""
        self._between = " ".join(self.texts[:2])
        """A text of its own: a service that remembers translations must not know a sentence that counts."""

    async def cases(self, run: Callable[..., Any]) -> Mapping[Any, Case]:
        """Return a case for each sentence, by number."""
        try:
            await self._service.check()
        except ServiceError as error:
            if error.status not in (404, 405):
                raise
            self._echoes = False
        for _ in range(WARM_UP):
            await self._service.measure(self._between)
        return {number: Case(partial(run, self._request, text), prepare=nothing) for number, text in enumerate(self.texts)}

    async def _request(self, text: str) -> dict[str, float]:
        """Send a sentence. Its echo translates nothing; the seconds of that are NaN if the service answers none."""
        service, settings, (count_src, count_tgt) = self._service, self._settings, self._counters
        if text == self._last:  # the service may remember the last text
            await service.measure(self._between)
        self._last = text
        echo_s = (await service.get_body(service.echo_path, settings.timeout_s))[1] if self._echoes else np.nan
        seconds, translation, flags = await service.measure(text)
        if not translation.strip():
            what = f"{settings.url} answered {shorten(text, 40)!r} with an empty translation"
            remedy = "correct --source, --target or --model: a translation's length is part of the measurement"
            raise CalibrationError(what, remedy=remedy)
        return {"seconds": seconds, "echo_s": echo_s, "src_len": count_src(text), "tgt_len": count_tgt(translation), **flags}

    def profile(self, frame: pd.DataFrame, finish: Callable[..., DeviceProfile], listener: Listener) -> DeviceProfile:
        """Return the profile of single requests, completed by loads."""
        settings, times = self._settings, ServiceTimes(frame)
        order, arrivals = (stream(settings.seed, 0, f"{name} of loads") for name in ("texts", "arrivals"))
        loads = Loads(
            finish(times),
            self._service,
            texts_to_send(different_sentences(settings), self.texts, times.remembers, order),
            self._counters,
            QUICK if settings.quick else LoadSizes(),
            arrivals,
            settings.timeout_s,
            listener,
        )
        return loads.measure(settings.workers)


def calibrate_endpoint(
    settings: EndpointSettings,
    out: str | os.PathLike[str],
    method: Callable[[EndpointSettings, ServiceClient], Method] = SingleRequests,
    *,
    device_name: str | None = None,
    listener: Listener = Silent,
    replaces_journal: bool = False,
) -> Calibrated:
    """Measure a running service through HTTP and write its device profile to `out`.

    Each round is kept at once in `OUT.journal.jsonl`; the same call after an interruption resumes from there. Arguments as for
    `simnmt.calibrate.calibration.calibrate`; the device is called by the service's host and port by default.

    Raises:
        InputError: with the measurements so far kept in the journal.
    """
    path, service = Path(out), settings.connect()
    refuse_unwritable(path, "--out")
    measured = method(settings, service)
    with kept_journal(path, journal_header(settings, measured.texts), listener, replaces=replaces_journal) as journal:
        before = profile_assembly.state(describe())
        try:
            frame = _measure(measured, service, settings.seed, journal, listener)
        except ServiceError as error:
            raise calibration_error(error, settings.url) from None
        try:
            profile = measured.profile(frame, partial(endpoint_profile, settings, path, device_name, before), listener)
        except CalibrationError:
            journal.findings.clear()  # other measurements are needed, not more of these
            raise
        write_profile(path, profile)
        journal.remove()
    return Calibrated(profile, tuple(doubt.message for doubt in profile_doubts(profile)))


def _measure(method: Method, service: ServiceClient, seed: int, journal: Journal, listener: Listener) -> pd.DataFrame:
    """Return the rows of the cases of a method. Raises `ServiceError`, `CalibrationError`."""
    loop = asyncio.new_event_loop()

    def run(function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        return loop.run_until_complete(function(*arguments))

    try:
        run(service.__aenter__)
        # CPUs are not watched: a service on this box would count as another program.
        options: dict[str, Any] = {"name": method.name, "shuffle": seed, "watch": None, "listener": listener}
        return rounds(run(method.cases, run), *method.rounds, journal=journal, **options)
    finally:
        run(cancel_others)
        run(service.__aexit__)
        loop.close()
