"""Calibration of a running service under load: how much longer executions take the more requests are there.

A closed loop finds the knee, the most requests a second that the service answers. Open loops of Poisson arrivals follow at
shares of it. A service of W workers, first in first out, begins an execution when the request arrives, or when the W-th of the
requests before it has left, whichever is later. So seconds and occupancy of each execution follow from when requests were sent
and answered (`reconstruct`). The factors are medians over the time of single requests, by occupancy (`occupancy_points`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.calibrate.harness import Listener, Silent
from simnmt.profile.blocks import OccupancyPoint
from simnmt.profile.cost import Plane
from simnmt.service.client import Exchange
from simnmt.service.load import Load, LoadLog, run_precisely, send_load
from simnmt.service.messages import Answer, ServiceError, TranslateRequest

SHARES = (0.3, 0.5, 0.7)
"""Rates of the open loops, of the knee."""
LEAST_EXECUTIONS = 10
"""Executions of a point; sparser occupancies are joined with their neighbours."""
MOST_WORKERS = 4
"""Workers that are tried, or as many as this box has cores."""
ALIKE = 1.02
"""Spreads that differ by less do not speak for more workers."""
MOST_DRIFT = 0.25
"""Relative change of single requests from before the loads to after them, above which the service changed its speed."""
LEAST_RATIO = 0.01
"""Least time of an execution over the plane's that counts: with too few workers, times can be below 0."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadTimes:
    """Requests of one block in the order in which they were sent; shape (requests,), seconds."""

    arrival_s: Floats
    """When each was sent, and the round trip of an echo later: a request alone then takes its execution."""
    departure_s: Floats
    plane_s: Floats
    """Execution alone, by the plane of single requests."""


def reconstruct(arrival_s: Floats, departure_s: Floats, workers: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return when each execution began, and its occupancy: the requests that were there then, itself included.

    `arrival_s`: rising.
    """
    begin_s, latest_s = np.empty(len(arrival_s)), list[float]()
    for request, (arrives_s, leaves_s) in enumerate(zip(arrival_s.tolist(), departure_s.tolist(), strict=True)):
        if len(latest_s) < workers:
            begin_s[request] = arrives_s
            heappush(latest_s, leaves_s)
        else:
            begin_s[request] = max(arrives_s, latest_s[0])
            if leaves_s > latest_s[0]:
                heapreplace(latest_s, leaves_s)
    arrived = np.searchsorted(arrival_s, begin_s, side="right")
    left = np.searchsorted(np.sort(departure_s), begin_s, side="right")
    return begin_s, np.maximum(arrived - left, 1)


def execution_ratios(blocks: Sequence[LoadTimes], workers: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the time of each execution over the plane's, and its occupancy."""
    ratios, occupancies = list[Floats](), list[NDArray[np.int64]]()
    for block in blocks:
        begin_s, occupancy = reconstruct(block.arrival_s, block.departure_s, workers)
        ratios.append(np.maximum((block.departure_s - begin_s) / block.plane_s, LEAST_RATIO))
        occupancies.append(occupancy)
    return np.concatenate(ratios), np.concatenate(occupancies)


def occupancy_points(ratio: Floats, occupancy: NDArray[np.int64], least: int = LEAST_EXECUTIONS) -> tuple[OccupancyPoint, ...]:
    """Return the median ratio by occupancy; neighbours are joined until a point has `least` executions."""
    groups = list[NDArray[np.int64]]()
    for level in np.unique(occupancy):
        members = np.flatnonzero(occupancy == level)
        if groups and len(groups[-1]) < least:
            groups[-1] = np.concatenate([groups[-1], members])
        else:
            groups.append(members)
    if len(groups) > 1 and len(groups[-1]) < least:
        groups[-2:] = [np.concatenate(groups[-2:])]
    return tuple(
        OccupancyPoint(occupancy=float(occupancy[of].mean()), factor=float(np.median(ratio[of])), executions=len(of))
        for of in groups
    )


def spread(ratio: Floats, occupancy: NDArray[np.int64], points: Sequence[OccupancyPoint]) -> float:
    """Return the mean absolute logarithm of the ratios over the factors of their occupancy."""
    factor = np.interp(occupancy, [point.occupancy for point in points], [point.factor for point in points])
    return float(np.abs(np.log(ratio / factor)).mean())


def choose_workers(blocks: Sequence[LoadTimes], candidates: Sequence[int]) -> int:
    """Return the number of workers with which the executions of one occupancy differ least; of those alike the fewest.

    With too few, executions seem to begin late and take too short a time; with too many, they contain waiting.
    """
    spreads = dict[int, float]()
    for workers in candidates:
        ratio, occupancy = execution_ratios(blocks, workers)
        spreads[workers] = spread(ratio, occupancy, occupancy_points(ratio, occupancy))
    least = min(spreads.values())
    return next(workers for workers, value in spreads.items() if value <= ALIKE * least)


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


class Endpoint(Protocol):
    """What sends one text to a service."""

    async def measure(self, text: str) -> tuple[float, str, Any]:
        """Return the seconds of the request, and the translation."""
        ...


class _Client:
    """Sends the texts of a block through an endpoint, and keeps the translations by the numbers of the requests."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.translations = dict[int, str]()

    async def translate(self, request: TranslateRequest, timeout_s: float) -> Exchange:
        seconds, text, _ = await asyncio.wait_for(self._endpoint.measure(request.texts[0]), timeout_s)
        received_s = time.monotonic()
        if not text.strip():
            raise ServiceError(502, "the service answered with an empty translation under load")
        self.translations[int(request.number)] = text
        return Exchange(Answer((text,), None, (), (0, 0, 0)), received_s - seconds, received_s, {})


@dataclass(frozen=True, slots=True)
class UnderLoad:
    """What the loads say about a service."""

    workers: int
    points: tuple[OccupancyPoint, ...]
    knee_rps: float
    drift: float
    """Relative change of single requests from before the loads to after them."""


class ServiceFails(Exception):
    """A service that does not answer all requests under load."""


class Loads:
    """Sends the blocks of a calibration under load."""

    def __init__(
        self,
        endpoint: Any,
        texts: Sequence[str],
        lengths: tuple[Callable[[str], int], Callable[[str], int]],
        plane: Plane,
        round_trip_s: float,
        sizes: LoadSizes,
        *,
        seed: int = 1,
        timeout_s: float = 60.0,
        listener: Listener = Silent,
    ) -> None:
        """`lengths`: count source and target tokens, in the unit of the plane."""
        self._endpoint, self._lengths, self._plane, self._round_trip_s = endpoint, lengths, plane, round_trip_s
        self._sizes, self._timeout_s, self._listener = sizes, timeout_s, listener
        self._random = np.random.default_rng([seed, 48])
        self._texts = varied(texts, self._random)

    def measure(self, workers: int | None = None) -> UnderLoad:
        """Measure; `workers`: requests that the service executes at once, None to find that out. Raises `ServiceFails`."""
        return run_precisely(self._measure(workers))

    async def _measure(self, workers: int | None) -> UnderLoad:
        sizes, most = self._sizes, workers or max(MOST_WORKERS, os.cpu_count() or 1)
        clients = max(2 * most, 2 * MOST_WORKERS)
        async with self._endpoint:
            before = await self._block(sizes.alone)
            mean_s = float(np.median(before.departure_s - before.arrival_s))
            count = max(4 * clients, ceil(sizes.knee_s / mean_s))
            closed = await self._block(count, clients=clients)
            took_s = closed.departure_s.max() - closed.arrival_s[0]
            if took_s < 0.5 * sizes.knee_s and count < sizes.most:
                count = min(ceil(count * sizes.knee_s / took_s), sizes.most)
                closed = await self._block(count, clients=clients)
            knee = knee_rps(closed.departure_s, clients)
            loops = [await self._open_loop(share * knee) for share in SHARES]
            after = await self._block(sizes.alone)
        blocks = [*loops, closed]
        chosen = workers or choose_workers(blocks, range(1, most + 1))
        levels = [float(np.median((part.departure_s - part.arrival_s) / part.plane_s)) for part in (before, after)]
        return UnderLoad(chosen, occupancy_points(*execution_ratios(blocks, chosen)), knee, levels[1] / levels[0] - 1.0)

    async def _open_loop(self, rate_rps: float) -> LoadTimes:
        sizes = self._sizes
        count = min(max(ceil(rate_rps * sizes.loop_s), sizes.least), sizes.most, max(ceil(rate_rps * sizes.most_s), 2))
        self._listener.say(f"load: {count} requests at {rate_rps:.3g} a second")
        return await self._block(count, np.cumsum(self._random.standard_exponential(count)) / rate_rps)

    async def _block(self, count: int, offsets_s: Floats | None = None, clients: int = 1) -> LoadTimes:
        texts = [next(self._texts) for _ in range(count)]
        requests = [TranslateRequest((text,), False, "", "", number=str(number)) for number, text in enumerate(texts)]
        client: Any = _Client(self._endpoint)
        load = Load(requests, None if offsets_s is None else offsets_s.tolist(), clients)
        log: LoadLog = await send_load(load, [client], timeout_s=self._timeout_s)
        if not log.answered.all():
            raise ServiceFails(f"{count - log.answered.sum()} of {count} requests failed under load: {log.fault}")
        count_src, count_tgt = self._lengths
        tgt_len = [count_tgt(client.translations[number]) for number in range(count)]
        plane_s = np.maximum(self._plane.seconds([count_src(text) for text in texts], tgt_len), 1e-6)
        order = np.argsort(log.sent_s, kind="stable")
        return LoadTimes((log.sent_s + self._round_trip_s)[order], log.received_s[order], plane_s[order])
