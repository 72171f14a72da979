"""Detect overload: a device that gets requests faster than it serves them has no mean latency, only a growing wait.

A load of 1.3 means that 1.3 seconds of work arrive for each second that a box can work: in an open loop its wait then grows by
0.3 s a second for as long as requests arrive, so every latency depends on how long the run lasts. Backlog and utilisation over
the time of a run are computed by spans of time (`device_timeline`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from simnmt.base.arrays import Floats
from simnmt.results.columns import NO_DEVICE, Executions, deferred_s, executed_on
from simnmt.results.device_accounts import Log
from simnmt.results.places import ALL, Place, by_cell
from simnmt.results.summary import Device, Numbers, Row, Runs, known

LOAD_SUFFIX = "_busiest_load"
_LOAD, _IN = "_overload", "_overloaded_in"
"""Suffixes of the columns of an overloaded device: its load, and the number of replications in which it is overloaded."""


class Overload(NamedTuple):
    """A device with more work than it can do: the load of its busiest box in the overloaded ones of all replications."""

    device: str
    load: float
    replications: int
    of: int

    def __str__(self) -> str:
        partly = f" in {self.replications} of {self.of} replications" if self.replications < self.of else ""
        return f"{self.device}: load {self.load:.2f}{partly}"


def device_names(row: Row) -> list[str]:
    """Return the devices of a row, in the order of the targets."""
    return [key.removesuffix(LOAD_SUFFIX) for key in row if key.endswith(LOAD_SUFFIX)]


def overloads(replications: Sequence[Numbers], requests: int, devices: Sequence[Device]) -> list[Overload]:
    """Return the overloaded devices of an open loop, worst first; `replications`: the numbers of one policy.

    A device counts if its load in all replications together, or in single ones, is so far above 1 that chance alone makes that
    in one run of forty. A run with less excess is too short to judge. A box that gets too much only because few requests fall
    unevenly on many boxes does not count (`_by_chance`).
    """
    overloaded = []
    for device in devices if replications else ():
        loads = [judged_load(numbers, requests, device) for numbers in replications]
        over = loads
        if sum(load.log for load in loads) <= _normal_quantile_beyond(1) * sqrt(sum(load.variance for load in loads)):
            over = [load for load in loads if load.log > _normal_quantile_beyond(len(loads)) * sqrt(load.variance)]
        if over:
            overloaded.append(Overload(device.name, sum(load.shown for load in over) / len(over), len(over), len(loads)))
    return sorted(overloaded, key=_by_extent)


def _by_extent(overload: Overload) -> tuple[int, float]:
    return -overload.replications, -overload.load


class JudgedLoad(NamedTuple):
    """A device's load in one replication, with its uncertainty."""

    shown: float
    """Load of the busiest box, or of all boxes together if chance alone overloads the busiest one."""
    log: float
    """Logarithm of the load by which it is judged."""
    variance: float
    """Variance of that logarithm by chance."""

    @property
    def excess(self) -> float:
        """Logarithm of the load over the greatest one that chance alone makes of 1; above 0 the device is overloaded."""
        return self.log - _normal_quantile_beyond(1) * sqrt(self.variance)


def judged_load(numbers: Numbers, requests: int, device: Device) -> JudgedLoad:
    """Return the load of a device in one replication; `requests`: that the load counts."""
    load, busiest = numbers[f"{device.name}_load"], numbers[device.name + LOAD_SUFFIX]
    if load is None or busiest is None:
        return JudgedLoad(0.0, -inf, 4.0)
    # What arrives by chance is a document, with all of its sentences.
    there = known(numbers[f"{device.name}_share"]) * requests / (numbers.get("sentences_per_document") or 1.0)
    box_requests = max(there / device.servers, 1.0)
    uneven = device.servers == 1 or busiest > _by_chance(device.servers, box_requests) * load
    shown = busiest if load >= 1.0 or uneven else load
    # The logarithm of a ratio of two sums, of service times and of gaps, spreads evenly to both sides; with exponential times
    # its variance is twice the trigamma function of the requests, about 2 / (requests - 1/2).
    candidates = [
        JudgedLoad(shown, log(candidate) if candidate > 0.0 else -inf, 2.0 / (max(count, 1.0) - 0.5))
        for candidate, count in [(load, there), (busiest, box_requests)][: 1 + uneven]
    ]
    return max(candidates, key=lambda candidate: candidate.log / sqrt(candidate.variance))


def _normal_quantile_beyond(chances: int) -> float:
    """Return how many standard deviations the greatest of `chances` normal numbers exceeds by chance in one run of forty."""
    return NormalDist().inv_cdf(1.0 - 0.025 / chances)


def _by_chance(boxes: int, box_requests: float) -> float:
    """Return how many times the average work the busiest box gets by chance in one run of twenty, at `box_requests` a box.

    The work of Poisson arrivals with exponential service times is sub-gamma (variance factor 2, scale 1 service time), which
    bounds the greatest of many: Boucheron, Lugosi and Massart, Concentration Inequalities (2013), theorem 2.6.
    """
    unlikely = log(20.0 * boxes)
    return 1.0 + sqrt(4.0 * unlikely / box_requests) + unlikely / box_requests


def with_stability(rows: Sequence[Row], runs: Runs, open_loops: Mapping[tuple[str, str], Sequence[Device]]) -> list[Row]:
    """Add the columns on overload to each row (docs/reference/results.md#rows); None everywhere for a stable row.

    `open_loops`: by site and workload, the devices of those with an open loop. In other loops clients wait for answers, so no
    queue grows beyond their number. Shared devices are judged by all requests that met at them, also in the rows of few of
    them; the row of all requests stands before those.
    """
    judged, cells, by_place = [], by_cell(rows), dict[Place, list[Overload]]()
    for row in rows:
        place, devices = Place.of(row), open_loops.get((row["site"], row["workload"]), ())
        whole = Place(*place.cell.whole(cells), place.policy)
        if place != whole:
            devices = devices[:1] if place.site != ALL else ()  # a site's own device is the first one
        counted = row["requests"] - round(row.get("warm_up_requests") or 0)
        overloaded = overloads(runs[place], counted, devices)
        if place != whole:
            names = {device.name for device in devices}
            shared = (overload for overload in by_place[whole] if overload.device not in names)
            overloaded = sorted([*overloaded, *shared], key=_by_extent)
        by_place[place] = overloaded
        worst = overloaded[0] if overloaded else None
        columns: Row = {
            "unstable": ", ".join(map(str, overloaded)) or None,
            "unstable_device": worst and worst.device,
            "unstable_replications": worst and worst.replications,
            "backlog_growth": worst and worst.load - 1.0,
            **{f"{name}{key}": None for name in device_names(row) for key in (_LOAD, _IN)},
        }
        for overload in overloaded:
            columns |= {overload.device + _LOAD: overload.load, overload.device + _IN: overload.replications}
        judged.append(row | columns)
    return judged


def is_overloaded(row: Row, device: str) -> bool:
    """Return whether a device is overloaded in a row that was judged."""
    return row.get(device + _LOAD) is not None


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """Means over spans of time, not samples of them, so that nothing short is missed; shape (devices, spans).

    Summed over all spans, a backlog is the sum of the waits (Little's law), and the work is the sum of the executions.
    """

    edges_s: Floats
    """Begin of each span and end of the last one; shape (spans + 1,)."""
    waiting: Floats
    """Waiting requests, at all boxes of a device together."""
    busy_share: Floats
    """Share of a device's workers that execute a request; if it batches, of the places in its batches those of sentences that
    have taken their first step."""


def device_timeline(log: Log, devices: Sequence[Device], spans: int) -> DeviceTimeline:
    """Return the backlog and the utilisation of one run's devices, in the order of the targets, by spans of time (at least 2).

    A request is assumed to reach its queue when half of its transfer time has passed, which is exact if the ways there and back
    take equally long. In a batch it occupies a place from its first step on: before, it is encoded and waits for a place.
    """
    edges_s = edges(
        float(log["arrival_s"].max(initial=0.0)), float((log["arrival_s"] + log["latency_s"]).max(initial=0.0)), spans
    )
    waiting_s, busy_s = (np.zeros((len(devices), edges_s.size - 1)) for _ in range(2))
    log = Executions(log)
    target, execution_s = executed_on(log), log["t_exe_s"]
    entry_s = log["arrival_s"] + log["t_tx_s"] / 2 + log.get("retry_s", 0.0) + deferred_s(log)
    start_s = entry_s + log["t_queue_s"]
    for number in np.unique(target[target != NO_DEVICE]).tolist():
        there = target == number
        starts_s = busy_from_s = start_s[there]
        ends_s = starts_s + execution_s[there]
        waiting_s[number] += presence_s(entry_s[there], starts_s, edges_s)
        if devices[number].batch is not None:
            first_s = entry_s[there] + log["first_token_s"][there]
            busy_from_s = np.where(np.isnan(first_s), ends_s, first_s)
        busy_s[number] += presence_s(busy_from_s, ends_s, edges_s)
    length_s = np.diff(edges_s)
    workers = np.array([device.servers * (device.batch or device.workers) for device in devices], np.float64)
    return DeviceTimeline(edges_s, waiting_s / length_s, busy_s / (workers[:, None] * length_s))


def edges(last_s: float, end_s: float, spans: int) -> Floats:
    """Return the edges of the spans over a run.

    Four fifths of the spans divide the time until the last request is issued evenly, the others divide the remaining time.
    There are no others if that is no longer than one of the spans before it.
    """
    body = spans * 4 // 5
    if last_s <= 0.0 or end_s - last_s <= last_s / body:
        return np.linspace(0.0, end_s or 1.0, spans + 1)
    return np.concatenate([np.linspace(0.0, last_s, body + 1), np.linspace(last_s, end_s, spans - body + 1)[1:]])


def presence_s(begin_s: Floats, end_s: Floats, edges_s: Floats) -> Floats:
    """Return the seconds that all intervals together spend in each span, in one pass whatever their length; shape (spans,).

    Time before the first edge or after the last one is left out.
    """
    present = np.zeros(edges_s.size - 1)
    for moments_s, sign in ((begin_s, 1.0), (end_s, -1.0)):
        within = np.clip(moments_s, edges_s[0], edges_s[-1])
        span = np.clip(np.searchsorted(edges_s, within, side="right") - 1, 0, present.size - 1)
        rest_s = np.bincount(span, edges_s[span + 1] - within, present.size)
        before = np.cumsum(np.bincount(span, minlength=present.size)) - np.bincount(span, minlength=present.size)
        present += sign * (rest_s + before * np.diff(edges_s))
    return np.maximum(present, 0.0)
