"""Calibration of a running service under load: how much longer executions take the more requests are there.

A closed loop finds the knee, the most requests a second that the service answers. Open loops of Poisson arrivals follow at
shares of it. A service of W workers, first in first out, begins an execution when the request arrives, or when the W-th of the
requests before it has left, whichever is later. So seconds and occupancy of each execution follow from when requests were sent
and answered (`reconstruct`). The factors are the seconds over those of the plane of single requests, by occupancy
(`Executions.points`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from heapq import heappushpop
from math import ceil, inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.base.errors import shorten
from simnmt.calibrate.harness import Listener, Silent
from simnmt.devices import Fifo
from simnmt.policies.decision import Fixed
from simnmt.policies.estimates import TransferEstimate
from simnmt.profile.blocks import OccupancyPoint, factors_by_occupancy
from simnmt.profile.cost import ResidualQuantiles
from simnmt.profile.device_profile import DeviceProfile
from simnmt.results.requests import Requests
from simnmt.service.client import Exchange
from simnmt.service.load import Load, run_precisely, send_load
from simnmt.service.messages import Answer, ServiceError, TranslateRequest
from simnmt.workload.length_units import Count
from simnmt.world.deciders import Beliefs
from simnmt.world.engine import simulate
from simnmt.world.inputs import PolicySetup, World

SHARES = (0.3, 0.5, 0.7)
"""Rates of the open loops, of the knee."""
LEAST_EXECUTIONS = 25
"""Executions of a point; sparser occupancies are joined with their neighbours. With 10 of them, a factor of 0.82
stood between neighbours of 1.02 and 0.98 (measured, LibreTranslate on one core)."""
MOST_WORKERS = 4
"""Workers that are tried, or as many as this box has cores."""
ALIKE = 1.15
"""Greatest ratio of two spreads that count as equal: too few workers about double the spread, too many add a tenth."""
MOST_DRIFT = 0.25
"""Relative change of single requests from before the loads to after them, above which the service changed its speed."""
MOST_REPLAY_ERROR = 0.25
"""Relative error of replayed mean latencies above which the figures are doubtful."""
PROBES, CACHED_SHARE = 3, 0.5
"""Texts that are sent twice in succession, and the share of the first time below which a cache has answered."""
LEAST_RATIO, MOST_RATIO = 0.05, 3.0
"""Times over the usual ones of their occupancy that count as these: the box did something else, or the order was another."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadTimes:
    """Requests of one block in the order in which they were sent; shape (requests,), seconds."""

    arrival_s: Floats
    """When each was sent, and the round trip of an echo later: a request alone then takes its execution."""
    departure_s: Floats
    plane_s: Floats
    """Execution alone, by the plane of single requests."""

    @property
    def latency_s(self) -> Floats:
        """Seconds from the arrival to the departure."""
        return self.departure_s - self.arrival_s


def reconstruct(arrival_s: Floats, departure_s: Floats, workers: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return when each execution began, and its occupancy: the requests that were there then, itself included.

    One worker may serve requests in any order: that of their departures. `arrival_s`: rising.
    """
    begin_s, latest_s = np.empty(len(arrival_s)), [-inf] * workers
    order = np.argsort(departure_s, kind="stable") if workers == 1 else np.arange(len(arrival_s))
    for request in order.tolist():
        begin_s[request] = max(float(arrival_s[request]), latest_s[0])
        heappushpop(latest_s, float(departure_s[request]))
    arrived = np.searchsorted(arrival_s, begin_s, side="right")
    left = np.searchsorted(np.sort(departure_s), begin_s, side="right")
    return begin_s, np.maximum(arrived - left, 1)


class Executions:
    """The executions of some blocks, as they were with so many workers; columns of shape (executions,)."""

    def __init__(self, blocks: Sequence[LoadTimes], workers: int) -> None:
        parts = [reconstruct(block.arrival_s, block.departure_s, workers) for block in blocks]
        self.occupancy = np.concatenate([occupancy for _, occupancy in parts])
        self.plane_s = np.concatenate([block.plane_s for block in blocks])
        seconds = [block.departure_s - begin_s for block, (begin_s, _) in zip(blocks, parts, strict=True)]
        self.ratio: Floats = np.concatenate(seconds) / self.plane_s
        """Seconds over the plane's; below 0 where the order of service was another."""

    def points(self, least: int = LEAST_EXECUTIONS) -> tuple[OccupancyPoint, ...]:
        """Return the seconds over the plane's by occupancy; neighbours are joined until a point has `least` executions."""
        groups = list[NDArray[np.int64]]()
        for level in np.unique(self.occupancy):
            members = np.flatnonzero(self.occupancy == level)
            if groups and len(groups[-1]) < least:
                groups[-1] = np.concatenate([groups[-1], members])
            else:
                groups.append(members)
        if len(groups) > 1 and len(groups[-1]) < least:
            groups[-2:] = [np.concatenate(groups[-2:])]
        return tuple(self._point(group) for group in groups)

    def _point(self, group: NDArray[np.int64]) -> OccupancyPoint:
        """Return the point of some executions: all their seconds over all those of the plane, since work decides the waits."""
        ratio, plane_s = self.ratio[group], self.plane_s[group]
        factor = float(np.average(np.minimum(ratio, MOST_RATIO * np.median(ratio)), weights=plane_s))
        return OccupancyPoint(
            occupancy=float(self.occupancy[group].mean()), factor=min(max(factor, 1e-3), 1e3), executions=len(group)
        )

    def residual(self, points: Sequence[OccupancyPoint]) -> Floats:
        """Return the seconds of each execution over the plane's and its factor, within the bounds that count."""
        factors = factors_by_occupancy(points)
        off = self.ratio / np.array(factors)[np.minimum(self.occupancy, len(factors)) - 1]
        within: Floats = np.clip(off, LEAST_RATIO, MOST_RATIO)
        return within


def replay_error(loops: Sequence[LoadTimes], workers: int, factors: Sequence[float]) -> float:
    """Return the mean relative error of the mean latency of an open loop in the world.

    There, executions take the plane's seconds times the factors, by occupancy from 1 on.
    """
    box = Fifo(workers=workers, occupancy_factors=tuple(factors))
    policy = PolicySetup(lambda block: Fixed(0), (Beliefs(lambda decider, target: TransferEstimate(0.0)),))
    errors = list[float]()
    for loop in loops:
        requests = Requests(np.ones(len(loop.plane_s), np.int64), (loop.plane_s,), arrival_s=loop.arrival_s - loop.arrival_s[0])
        trail = simulate(World(requests, (), (box,)), policy)
        errors.append(abs(float((trail.queue_s + trail.execution_s).mean() / loop.latency_s.mean()) - 1.0))
    return float(np.mean(errors))


def choose_workers(blocks: Sequence[LoadTimes], candidates: Sequence[int]) -> int:
    """Return the workers with which executions of one occupancy differ least; of equal spreads (`ALIKE`) the fewest.

    With too few, executions seem to begin late and to take too short a time; with too many, they contain waiting.
    """
    spreads = dict[int, float]()
    for workers in candidates:
        executions = Executions(blocks, workers)
        spreads[workers] = float(np.abs(np.log(executions.residual(executions.points()))).mean())
    least = min(spreads.values())
    return next(workers for workers, spread in spreads.items() if spread <= ALIKE * least)


def knee_rps(departure_s: Floats, clients: int) -> float:
    """Return the requests a second of a closed loop, without the first and the last answer of as many as there are clients."""
    ordered = np.sort(departure_s)[clients:-clients]
    return float((len(ordered) - 1) / (ordered[-1] - ordered[0]))


def varied(texts: Sequence[str], random: np.random.Generator) -> Iterator[str]:
    """Yield texts for ever, in random order; a text comes again after half of the others at the earliest."""
    order = random.permutation(len(texts))
    half = len(texts) // 2
    while True:
        yield from (texts[place] for place in order)
        order = np.concatenate([random.permutation(order[:half]), random.permutation(order[half:])])


def texts_to_send(texts: Sequence[str], sent: Sequence[str], is_once: bool, random: np.random.Generator) -> Iterator[str]:
    """Return the texts of the loads, in random order; `is_once`: each once, and none of those that were `sent`."""
    if not is_once:
        return varied(texts, random)
    unsent = sorted({*texts} - {*sent})
    return (unsent[place] for place in random.permutation(len(unsent)))


@dataclass(frozen=True, slots=True)
class LoadSizes:
    """How long the blocks of a calibration are."""

    knee_s: float = 6.0
    loop_s: float = 20.0
    """Of each open loop, unless it then has fewer than `least` or more than `most` requests."""
    least: int = 40
    most: int = 600
    most_s: float = 120.0
    alone: int = 12
    """Single requests before the loads, and after them."""


QUICK = LoadSizes(knee_s=2.5, loop_s=5.0, least=25, most_s=20.0, alone=6)


class NotMeasured(Exception):
    """Why a service could not be measured under load."""


def loaded_profile(
    before: DeviceProfile, workers: int, executions: Executions, drift: float, error: float, **facts: Any
) -> DeviceProfile:
    """Return the profile of single requests, `before`, with the executions under load.

    `drift`: relative change of single requests from before the loads to after them; `error`: see `replay_error`; `facts`: of
    the block `endpoint`.
    """
    points = executions.points()
    residual = executions.residual(points)
    update = {
        "workers": workers,
        "by_occupancy": points,
        "residual_quantiles": ResidualQuantiles.of(residual),
        "residual_relative_sd": float(residual.std() / residual.mean()),
    }
    doubts = list[str]()
    if abs(drift) > MOST_DRIFT:
        doubts.append(f"the service changed its speed: single requests took {100 * drift:+.0f} % after the loads")
    if error > MOST_REPLAY_ERROR:
        doubts.append(f"a replay of the loads errs by {100 * error:.0f} % in mean latency")
    loaded = before.model_copy(update={"execution": before.execution.model_copy(update=update)})
    return _with_endpoint(loaded, doubts, **facts)


def _with_endpoint(profile: DeviceProfile, doubts: Sequence[str], **facts: Any) -> DeviceProfile:
    assert profile.endpoint is not None
    facts["doubts"] = (*profile.endpoint.doubts, *doubts)
    return profile.model_copy(update={"endpoint": profile.endpoint.model_copy(update=facts)})


class Service(AbstractAsyncContextManager[Any], Protocol):
    """A client of a service, to be used within `async with`."""

    async def measure(self, text: str) -> tuple[float, str, Any]:
        """Send one text; return the seconds of the request, the translation, and its flags."""
        ...


class _Sender:
    """Sends the texts of a block for `send_load`, and keeps the translations by the numbers of the requests."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.translations = dict[int, str]()

    async def translate(self, request: TranslateRequest, timeout_s: float | None = None) -> Exchange:
        seconds, text, _ = await self._service.measure(request.texts[0])
        received_s = time.monotonic()
        if not text.strip():
            raise ServiceError(502, "an empty translation")
        self.translations[int(request.number)] = text
        return Exchange(Answer((text,), None, (), (0, 0, 0)), received_s - seconds, received_s, {})


@dataclass(frozen=True, slots=True)
class Loads:
    """The blocks of a calibration under load."""

    profile: DeviceProfile
    """Of single requests, without their round trip."""
    service: Service
    texts: Iterator[str]
    """To send, in this order."""
    counters: tuple[Count, Count]
    """Count the source and the target tokens of a text."""
    sizes: LoadSizes
    random: np.random.Generator
    """Of the arrivals."""
    timeout_s: float = 60.0
    """Longest time of a request."""
    listener: Listener = Silent

    def measure(self, workers: int | None = None) -> DeviceProfile:
        """Return the profile with the time under load, or with a doubt that says why that was not measured.

        `workers`: requests that the service executes at once; None to find that out.
        """
        try:
            return run_precisely(self._measure(workers))
        except (NotMeasured, ServiceError) as reason:
            return _with_endpoint(self.profile, [f"not measured under load: {reason}"])

    async def _measure(self, workers: int | None) -> DeviceProfile:
        sizes, most = self.sizes, workers or max(MOST_WORKERS, os.cpu_count() or 1)
        clients = 2 * max(most, MOST_WORKERS)
        async with self.service:
            remembers_last = await self._remembers_last()
            before = await self._block(sizes.alone)
            count = max(min(ceil(sizes.knee_s / before.latency_s.mean()), sizes.most), 4 * clients)
            closed = await self._block(count, clients=clients)
            took_s = closed.departure_s.max() - closed.arrival_s[0]
            if took_s < 0.5 * sizes.knee_s and count < sizes.most:
                closed = await self._block(min(ceil(count * sizes.knee_s / took_s), sizes.most), clients=clients)
            knee = knee_rps(closed.departure_s, clients)
            loops = [await self._open_loop(share * knee) for share in SHARES]
            after = await self._block(sizes.alone)
        chosen = workers or choose_workers([*loops, closed], range(1, most + 1))
        executions = Executions([*loops, closed], chosen)
        error = replay_error(loops, chosen, factors_by_occupancy(executions.points()))
        drift = float(np.median(after.latency_s / after.plane_s) / np.median(before.latency_s / before.plane_s) - 1.0)
        facts = {"knee_rps": knee, "remembers_last": remembers_last}
        return loaded_profile(self.profile, chosen, executions, drift, error, **facts)

    async def _remembers_last(self) -> bool:
        """Return whether texts that are sent twice in succession take far less time the second time."""
        shares = []
        for _ in range(PROBES):
            text = self._next_text()
            (first_s, _, _), (again_s, _, _) = [await self.service.measure(text) for _ in range(2)]
            shares.append((again_s - self._round_trip_s) / max(first_s - self._round_trip_s, 1e-6))
        return float(np.median(shares)) < CACHED_SHARE

    async def _open_loop(self, rate_rps: float) -> LoadTimes:
        sizes = self.sizes
        count = min(max(ceil(rate_rps * sizes.loop_s), sizes.least), sizes.most, ceil(rate_rps * sizes.most_s) + 1)
        self.listener.say(f"load: {count} requests at {rate_rps:.3g} a second")
        return await self._block(count, np.cumsum(self.random.standard_exponential(count)) / rate_rps)

    async def _block(self, count: int, offsets_s: Floats | None = None, clients: int = 1) -> LoadTimes:
        """Send so many texts, at these moments or by clients that wait for their answers."""
        texts = [self._next_text() for _ in range(count)]
        requests = [TranslateRequest((text,), False, "", "", number=str(number)) for number, text in enumerate(texts)]
        sender = _Sender(self.service)
        load = Load(requests, None if offsets_s is None else offsets_s.tolist(), clients)
        log = await send_load(load, [sender], timeout_s=self.timeout_s)
        if not log.answered.all():
            raise NotMeasured(f"{count - log.answered.sum()} of {count} requests failed: {shorten(log.fault, 120)}")
        count_src, count_tgt = self.counters
        tgt_len = [count_tgt(sender.translations[number]) for number in range(count)]
        plane_s = np.maximum(self.profile.plane.seconds([count_src(text) for text in texts], tgt_len), 1e-6)
        order = np.argsort(log.sent_s, kind="stable")
        return LoadTimes((log.sent_s + self._round_trip_s)[order], log.received_s[order], plane_s[order])

    @property
    def _round_trip_s(self) -> float:
        return 0.0 if self.profile.endpoint is None else self.profile.endpoint.round_trip_s

    def _next_text(self) -> str:
        if (text := next(self.texts, None)) is None:
            raise NotMeasured("it remembers translations, and the text has too few different sentences")
        return text
