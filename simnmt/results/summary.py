"""From the runs of all replications to rows, paired comparisons and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.results.device_accounts import BatchAccount, StreamAccount, batch_columns, stream_columns
from simnmt.results.request_log import Log
from simnmt.results.statistics import Estimate, change_percent, latency_quantiles, over_replications

Row = dict[str, Any]
Numbers = dict[str, float | None]
"""The numbers of one run by the column of the summary; None for unknown ones."""
Column = NDArray[np.float64]
Discipline = Literal["back_to_back", "open", "closed"]


@dataclass(frozen=True, slots=True)
class RunKey:
    """Which run: one policy on one workload and network, in one replication."""

    workload: str
    network: str
    policy: str
    replication: int


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a scenario as the summary needs it."""

    name: str
    servers: int
    """Boxes of that kind."""
    workers: int
    """Requests that each executes side by side."""
    batch: int | None = None
    """Sentences that each decodes together at most; None: it does not batch."""
    streamed: bool = False
    """Whether its model is streamed from its disk."""


@dataclass(frozen=True, slots=True)
class BatchesOfDevice:
    """What a run tells of the batches of one device."""

    account: BatchAccount
    saturated_s: float
    """In which one of its boxes could do all that was executed there, its batches never short of sentences."""


def by_cell(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the rows of each workload and network, in the order of the rows."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["workload"], row["network"]), []).append(row)
    return cells


def measure(
    log: Log,
    lost_s: NDArray[np.floating[Any]] | None,
    devices: Sequence[Device],
    discipline: Discipline,
    batched: Sequence[BatchesOfDevice | None] = (),
    streamed: Sequence[StreamAccount | None] = (),
) -> Numbers:
    """Return the numbers of one run.

    `lost_s`: what each judged request lost by going where it went (`request_log.lost_s`), NaN for the others; None if misroutes
    are not known. A load is the work that a
    device gets over the work that it could do: in an open loop until the last request arrives, so that from 1 on its queue
    grows as long as the run lasts; in a closed one until the last is answered; back to back, where nothing waits, there is
    none. The busiest load is that of the busiest box of its kind. `batched`: per device, as far as it batched; its work is what
    it could do with batches as full as they get, since a box that is never asked for much decodes small ones. `streamed`: per
    device, as far as its model was streamed; empty where none was.
    """
    latency_s, arrival_s, target = log["latency_s"], log["arrival_s"], log["target"]
    execution_s = log["t_exe_s"]
    issued_s, makespan_s = float(arrival_s.max()), float((arrival_s + latency_s).max())
    working_s = {"back_to_back": 0.0, "open": issued_s, "closed": makespan_s}[discipline]
    quantiles = latency_quantiles(latency_s)
    numbers: Numbers = {
        "total_latency_s": float(latency_s.sum()),
        "mean_latency_s": float(latency_s.mean()),
        **quantiles,
        "offloaded_share": float((target != 0).mean()),
        **_misrouted(lost_s),
        **_parts(log, latency_s, quantiles),
        "mean_estimate_age_s": float(log["rtt_estimate_age_s"].mean()),
        "mean_energy_j": _known_mean(log["energy_j"]),
        "offered_rps": len(latency_s) / issued_s if discipline != "back_to_back" and issued_s > 0.0 else None,
    }
    for number, device in enumerate(devices):
        there = target == number
        numbers[f"{device.name}_share"] = float(there.mean())
        numbers[f"{device.name}_load"] = numbers[f"{device.name}_busiest_load"] = None
        what = batched[number] if batched else None
        if device.batch is not None:
            account = None if what is None else what.account
            numbers |= batch_columns(
                device.name, device.servers, account, makespan_s, log["t_queue_s"][there], log["first_token_s"][there]
            )
        if device.streamed:
            numbers |= stream_columns(device.name, streamed[number] if streamed else None, makespan_s)
        if working_s > 0.0:
            weights = execution_s[there] if what is None else _shares(log["tgt_len"][there]) * what.saturated_s
            work_s = np.bincount(log["server"][there], weights, minlength=device.servers)
            numbers[f"{device.name}_load"] = float(work_s.sum()) / (device.servers * device.workers * working_s)
            numbers[f"{device.name}_busiest_load"] = float(work_s.max()) / (device.workers * working_s)
    return numbers | {"makespan_s": makespan_s, "throughput_rps": len(latency_s) / makespan_s}


def _misrouted(lost_s: NDArray[np.floating[Any]] | None) -> Numbers:
    """Return the share of the judged requests that were misrouted, and their mean loss."""
    judged_s = None if lost_s is None else lost_s[np.isfinite(lost_s)]
    if judged_s is None or judged_s.size == 0:
        return {"misrouted_share": None, "mean_lost_s": None}
    return {"misrouted_share": float((judged_s > 0.0).mean()), "mean_lost_s": float(judged_s.mean(dtype=np.float64))}


def _shares(tgt_len: NDArray[Any]) -> Column:
    """Return the share of each request in a batched device's work."""
    steps: Column = tgt_len + 1.0
    return steps / steps.sum() if steps.size else steps


Objective = Literal["mean", "p95", "p99"]
"""What a deployment may be judged by."""
OBJECTIVES: Mapping[Objective, str] = {"mean": "mean_latency_s", "p95": "p95_latency_s", "p99": "p99_latency_s"}
"""The key of a row that holds each objective, seconds."""


def objective_name(objective: Objective) -> str:
    """Return what sentences call an objective.

    >>> objective_name("p95")
    'p95 latency'
    """
    return f"{objective} latency"


PARTS = {"queue": "t_queue_s", "execution": "t_exe_s", "transfer": "t_tx_s"}
"""What a latency is made of, and the columns that hold it."""
TAILS = ("p95", "p99")
"""Quantiles of the latency beyond which requests are also looked at apart."""


def _parts(log: Log, latency_s: Column, quantiles: Mapping[str, float | None]) -> Numbers:
    """Return the parts' means over all requests, and over those that take as long as a quantile or longer."""
    slowest = {name: latency_s >= known(quantiles[f"{name}_latency_s"]) for name in TAILS}
    means: Numbers = {}
    for part, column in PARTS.items():
        seconds = log[column]
        means[f"mean_{part}_s"] = float(seconds.mean())
        means |= {f"beyond_{name}_{part}_s": float(seconds[those].mean()) for name, those in slowest.items()}
    return means


def _known_mean(values: Column) -> float | None:
    """Return the mean; None where a value is unknown, lest the known ones stand for all."""
    mean = float(values.mean())
    return None if np.isnan(mean) else mean


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
"""Numbers whose 95 % interval over replications stands beside them, as `..._low` and `..._high`."""


def rows(runs: Mapping[RunKey, Numbers], requests: int) -> list[Row]:
    """Return one row per workload, network and policy: means over the replications, in the order of the runs."""
    grouped = _by_policy(runs)
    table: list[Row] = []
    for (workload, network, policy), replications in grouped.items():
        row: Row = {
            "workload": workload,
            "network": network,
            "policy": policy,
            "replications": len(replications),
            "requests": requests,
        }
        for objective, key in OBJECTIVES.items():
            latencies = [numbers.get(key) for numbers in replications]
            row[spread_key(objective)] = max(map(known, latencies)) / min(map(known, latencies)) if all(latencies) else None
            row[f"{spread_key(objective)}_part"] = _most_spread_part(replications, objective)
        # Where requests wait the oracle is no bound; nor where a policy moves the times at which requests meet the network.
        no_queues = all(value is None for name, value in replications[0].items() if name.endswith("_busiest_load"))
        for name in replications[0]:
            values = [numbers[name] for numbers in replications]
            if any(value is None for value in values):
                row[name] = None
                if name in WITH_INTERVAL:
                    row[f"{name}_low"] = row[f"{name}_high"] = None
                continue
            known_values = [known(value) for value in values]
            bounded = name != "regret_s" or (no_queues and min(known_values) >= 0.0)
            estimate = over_replications(known_values, positive=bounded)
            row[name] = estimate.mean
            if name in WITH_INTERVAL:
                row[f"{name}_low"], row[f"{name}_high"] = estimate.low, estimate.high
        table.append(row)
    return table


def spread_key(objective: Objective) -> str:
    """Return the key of a row that holds the greatest over the least objective of its replications.

    >>> spread_key("p95")
    'p95_latency_spread'
    """
    return OBJECTIVES[objective].removesuffix("_s") + "_spread"


def _most_spread_part(replications: Sequence[Mapping[str, float | None]], objective: Objective) -> str | None:
    """Return the part of the latency that differs most between replications, in the tail where the objective is a quantile.

    None where parts are not known.
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
    for (workload, network, policy), ours in totals_s.items():
        for baseline in baselines:
            if baseline == policy:
                continue
            theirs = totals_s[workload, network, baseline]
            estimate = change_percent(ours, theirs)
            table.append(
                {
                    "workload": workload,
                    "network": network,
                    "policy": policy,
                    "baseline": baseline,
                    "change_percent": estimate.mean,
                    "low_percent": estimate.low,
                    "high_percent": estimate.high,
                    "verdict": _verdict(estimate, ours == theirs),
                }
            )
    return table


def total_latencies_s(runs: Mapping[RunKey, Numbers]) -> dict[tuple[str, str, str], list[float]]:
    """Return the total latency of each replication by workload, network and policy."""
    return {
        key: [known(numbers["total_latency_s"]) for numbers in replications] for key, replications in _by_policy(runs).items()
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
