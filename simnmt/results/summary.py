"""Summarise the runs of all replications: rows, paired comparisons and their verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, isnan
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.columns import AnyColumn
from simnmt.base.random_streams import blocks_of
from simnmt.results.device_accounts import BatchAccount, StreamAccount, batch_columns, stream_columns
from simnmt.results.request_log import Log, parts, read_once
from simnmt.results.statistics import (
    QUANTILES,
    Estimate,
    change_columns,
    change_percent,
    interval_columns,
    latency_quantiles,
    over_replications,
)

Row = dict[str, Any]
Numbers = dict[str, float | None]
"""The numbers of one run by the column of the summary; None for unknown ones."""
Column = NDArray[np.float64]
Discipline = Literal["back_to_back", "open", "closed"]


@dataclass(frozen=True, slots=True)
class RunKey:
    """The key of a run: one policy on one workload and network, in one replication."""

    workload: str
    network: str
    policy: str
    replication: int


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a scenario, with the properties that the summary needs."""

    name: str
    servers: int
    """Boxes of this kind."""
    workers: int
    """Requests that each box executes side by side."""
    batch: int | None = None
    """Most sentences that each box decodes together; None if it does not batch."""
    streamed: bool = False
    """True if its model is streamed from its disk."""


@dataclass(frozen=True, slots=True)
class BatchesOfDevice:
    """The batches of one device in one run."""

    account: BatchAccount
    saturated_s: float
    """Seconds in which one box could do all the work of the device with full batches."""


def by_cell(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the rows of each workload and network, in the order of the rows."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["workload"], row["network"]), []).append(row)
    return cells


def measure(
    log: Log,
    lost_s: AnyColumn | None,
    devices: Sequence[Device],
    discipline: Discipline,
    batched: Sequence[BatchesOfDevice | None] = (),
    streamed: Sequence[StreamAccount | None] = (),
) -> Numbers:
    """Return the numbers of one run.

    A load is the work of a device over the work that it could do: in an open loop until the last request arrives, so that from
    1 on its queue grows as long as the run lasts; in a closed loop until the last is answered; back to back, where nothing
    waits, there is none. The busiest load is that of the busiest box.

    Args:
        log: columns of the requests by name.
        lost_s: loss of each judged request by its target (`request_log.lost_s`), NaN for the others; None if unknown.
        devices: in the order of the targets.
        discipline: what sets the pace of the requests.
        batched: batches per device. The work of a device that batches is its work with full batches, since a box with little to
            do decodes small ones.
        streamed: account per streamed device; empty if none is streamed.
    """
    log = read_once(log)
    totals = _Totals(len(devices), [device.servers for device in devices])
    for part in parts(log):
        totals.add(part, [bool(batched) and batched[number] is not None for number in range(len(devices))])
    issued_s, makespan_s, requests = totals.issued_s, totals.makespan_s, totals.requests
    working_s = {"back_to_back": 0.0, "open": issued_s, "closed": makespan_s}[discipline]
    quantiles = latency_quantiles(lambda: (part["latency_s"] for part in parts(log)))
    numbers: Numbers = {
        "total_latency_s": totals.sums["latency_s"],
        "mean_latency_s": totals.sums["latency_s"] / requests,
        **quantiles,
        "offloaded_share": (requests - int(totals.sent[0])) / requests,
        **_misrouted(lost_s),
        **_parts(log, totals, quantiles),
        "mean_estimate_age_s": totals.sums["rtt_estimate_age_s"] / requests,
        "mean_energy_j": _known(totals.sums["energy_j"] / requests),
        "offered_rps": requests / issued_s if discipline != "back_to_back" and issued_s > 0.0 else None,
    }
    for number, device in enumerate(devices):
        numbers[f"{device.name}_share"] = int(totals.sent[number]) / requests
        numbers[f"{device.name}_load"] = numbers[f"{device.name}_busiest_load"] = None
        what = batched[number] if batched else None
        if device.batch is not None:
            account, there = None if what is None else what.account, log["target"] == number
            numbers |= batch_columns(
                device.name, device.servers, account, makespan_s, log["t_queue_s"][there], log["first_token_s"][there]
            )
        if device.streamed:
            numbers |= stream_columns(device.name, streamed[number] if streamed else None, makespan_s)
        if working_s > 0.0:
            work_s = totals.work[number]
            if what is not None:
                # The share of each box in the work of full batches.
                work_s = work_s / max(work_s.sum(), 1.0) * what.saturated_s
            numbers[f"{device.name}_load"] = float(work_s.sum()) / (device.servers * device.workers * working_s)
            numbers[f"{device.name}_busiest_load"] = float(work_s.max()) / (device.workers * working_s)
    return numbers | {"makespan_s": makespan_s, "throughput_rps": requests / makespan_s}


SUMMED = ("latency_s", "rtt_estimate_age_s", "energy_j", "t_queue_s", "t_exe_s", "t_tx_s")


class _Totals:
    """Sums and counts over the parts of a log."""

    def __init__(self, devices: int, servers: Sequence[int]) -> None:
        self.requests = 0
        self.issued_s = self.makespan_s = -inf
        """When the last request was issued, and answered."""
        self.sums = dict.fromkeys(SUMMED, 0.0)
        self.sent = np.zeros(max(devices, 1), np.int64)
        """Requests by device."""
        self.work = [np.zeros(boxes) for boxes in servers]
        """By device and box, seconds of execution; of a device that batches, target tokens with the end of the sentence."""

    def add(self, part: Log, batches: Sequence[bool]) -> None:
        """Add a part; `batches`: by device."""
        latency_s, arrival_s, target = part["latency_s"], part["arrival_s"], part["target"]
        self.requests += len(latency_s)
        self.issued_s = max(self.issued_s, float(arrival_s.max()))
        self.makespan_s = max(self.makespan_s, float((arrival_s + latency_s).max()))
        for name in SUMMED:
            self.sums[name] += float(part[name].sum())
        for number, boxes in enumerate(self.work):
            there = target == number
            self.sent[number] += int(there.sum())
            weights = part["tgt_len"][there] + 1.0 if batches[number] else part["t_exe_s"][there]
            self.work[number] = boxes + np.bincount(part["server"][there], weights, minlength=boxes.size)


def _misrouted(lost_s: AnyColumn | None) -> Numbers:
    """Return the share of the judged requests that were misrouted, and their mean loss."""
    judged, misrouted, total_s = 0, 0, 0.0
    for rows in blocks_of(slice(0, 0 if lost_s is None else len(lost_s))):
        assert lost_s is not None
        of_block = lost_s[rows]
        judged_s = of_block[np.isfinite(of_block)]
        judged += judged_s.size
        misrouted += int((judged_s > 0.0).sum())
        total_s += float(judged_s.sum(dtype=np.float64))
    if not judged:
        return {"misrouted_share": None, "mean_lost_s": None}
    return {"misrouted_share": misrouted / judged, "mean_lost_s": total_s / judged}


Objective = Literal["mean", "p95", "p99"]
"""Latencies by which a deployment may be judged."""
OBJECTIVES: Mapping[Objective, str] = {"mean": "mean_latency_s", "p95": "p95_latency_s", "p99": "p99_latency_s"}
"""The key of a row that holds each objective, seconds."""


def objective_name(objective: Objective) -> str:
    """Return the name of an objective in sentences.

    >>> objective_name("p95")
    'p95 latency'
    """
    return f"{objective} latency"


PARTS = {"queue": "t_queue_s", "execution": "t_exe_s", "transfer": "t_tx_s"}
"""Parts of a latency, and the columns that hold them."""
TAILS = ("p95", "p99")
"""Quantiles of the latency beyond which requests are also summarised separately."""


def _parts(log: Log, totals: _Totals, quantiles: Mapping[str, float | None]) -> Numbers:
    """Return the mean parts of all requests, and of those that take as long as a quantile or longer."""
    beyond = {(name, part): 0.0 for part in PARTS for name in TAILS}
    slow = dict.fromkeys(TAILS, 0)
    for of_log in parts(log):
        latency_s = of_log["latency_s"]
        slowest = {name: latency_s >= known(quantiles[f"{name}_latency_s"]) for name in TAILS}
        for name, those in slowest.items():
            slow[name] += int(those.sum())
        for part, column in PARTS.items():
            seconds = of_log[column]
            for name, those in slowest.items():
                beyond[name, part] += float(seconds[those].sum())
    means: Numbers = {}
    for part, column in PARTS.items():
        means[f"mean_{part}_s"] = totals.sums[column] / totals.requests
        means |= {f"beyond_{name}_{part}_s": beyond[name, part] / slow[name] for name in TAILS}
    return means


def _known(mean: float) -> float | None:
    """Return a mean; None if a value is unknown, so that known values do not represent all."""
    return None if isnan(mean) else mean


def with_regret(runs: Mapping[RunKey, Numbers], oracle: str | None) -> dict[RunKey, Numbers]:
    """Add `regret_s`: total latency above the oracle's in the same replication; None where there is no oracle."""
    regrets: dict[RunKey, Numbers] = {}
    for key, numbers in runs.items():
        regret: float | None = None
        if oracle is not None:
            best = runs[RunKey(key.workload, key.network, oracle, key.replication)]
            regret = known(numbers["total_latency_s"]) - known(best["total_latency_s"])
        regrets[key] = {**numbers, "regret_s": regret}
    return regrets


WITH_INTERVAL = ("total_latency_s", "p50_latency_s", *OBJECTIVES.values(), "regret_s")
"""Numbers with a 95 % interval over replications, as `..._low` and `..._high`."""


def rows(runs: Mapping[RunKey, Numbers], requests: int) -> list[Row]:
    """Return one row per workload, network and policy: means over the replications, in the order of the runs."""
    table: list[Row] = []
    for (workload, network, policy), replications in _by_policy(runs).items():
        row: Row = {
            "workload": workload,
            "network": network,
            "policy": policy,
            "replications": len(replications),
            "requests": requests,
        }
        for objective, key in OBJECTIVES.items():
            latencies_s = [known(numbers[key]) for numbers in replications if numbers.get(key)]
            complete = len(latencies_s) == len(replications)
            row[spread_key(objective)] = max(latencies_s) / min(latencies_s) if complete else None
            row[f"{spread_key(objective)}_part"] = _most_spread_part(replications, objective)
        # The oracle is no bound if requests wait, nor if a policy moves the times at which requests meet the network.
        no_queues = all(value is None for name, value in replications[0].items() if name.endswith("_busiest_load"))
        for name in replications[0]:
            values = [value for numbers in replications if (value := numbers[name]) is not None]
            estimate = None
            if len(values) == len(replications):
                positive = name != "regret_s" or (no_queues and min(values) >= 0.0)
                estimate = over_replications(values, positive=positive)
            columns = interval_columns(name, estimate)
            row |= columns if name in WITH_INTERVAL else {name: columns[name]}
        table.append(row)
    return table


def spread_key(objective: Objective) -> str:
    """Return the column with the ratio of the greatest to the least objective of the replications.

    >>> spread_key("p95")
    'p95_latency_spread'
    """
    return OBJECTIVES[objective].removesuffix("_s") + "_spread"


def _most_spread_part(replications: Sequence[Numbers], objective: Objective) -> str | None:
    """Return the part of the latency that differs most between replications; None if parts are unknown.

    If the objective is a quantile, the parts are those of the tail.
    """
    over = "mean" if objective == "mean" else f"beyond_{objective}"
    means = {part: [numbers.get(f"{over}_{part}_s") for numbers in replications] for part in PARTS}
    if any(value is None for values in means.values() for value in values):
        return None
    ranges = {part: max(map(known, values)) - min(map(known, values)) for part, values in means.items()}
    return max(ranges, key=ranges.__getitem__)


def comparisons(runs: Mapping[RunKey, Numbers], baselines: Iterable[str]) -> list[Row]:
    """Return each policy against each baseline, paired by replication: percent change of total latency, negative is faster.

    The change is the ratio of the two totals shown in the rows, and its interval covers that ratio.
    """
    totals_s = total_latencies_s(runs)
    table: list[Row] = []
    for ((workload, network, policy), ours), baseline in product(totals_s.items(), list(baselines)):
        if baseline != policy:
            theirs = totals_s[workload, network, baseline]
            change = change_percent(ours, theirs)
            place = {"workload": workload, "network": network, "policy": policy, "baseline": baseline}
            table.append({**place, **change_columns(change), "verdict": _verdict(change, ours == theirs)})
    return table


def total_latencies_s(runs: Mapping[RunKey, Numbers]) -> dict[tuple[str, str, str], list[float]]:
    """Return the total latency of each replication by workload, network and policy."""
    return {
        key: [known(numbers["total_latency_s"]) for numbers in replications] for key, replications in _by_policy(runs).items()
    }


REPLICATED = ("total_latency_s", "mean_latency_s", *(f"{name}_latency_s" for name in QUANTILES))
"""Numbers of which a run keeps the value of each replication: by them it is compared and judged."""


def replicated(runs: Mapping[RunKey, Numbers]) -> dict[tuple[str, str, str], dict[str, list[float | None]]]:
    """Return the value of each replication by workload, network and policy, and by column (`REPLICATED`)."""
    return {
        key: {name: [numbers.get(name) for numbers in replications] for name in REPLICATED}
        for key, replications in _by_policy(runs).items()
    }


def _verdict(change: Estimate, same: bool) -> str:
    if change.low is None:
        return "one replication"
    if same:
        return "same"
    if not change.excludes_zero:
        return "not distinguishable"
    return "faster" if change.mean < 0.0 else "slower"


def _by_policy(
    runs: Mapping[RunKey, Numbers],
) -> dict[tuple[str, str, str], list[Numbers]]:
    grouped: dict[tuple[str, str, str], list[Numbers]] = {}
    for key in sorted(runs, key=lambda key: key.replication):
        grouped.setdefault((key.workload, key.network, key.policy), []).append(runs[key])
    return grouped


def known(value: float | None) -> float:
    """Return a number that cannot be missing here."""
    assert value is not None
    return value
