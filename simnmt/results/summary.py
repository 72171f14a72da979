"""Summarise the runs of all replications: numbers of each run, rows, paired comparisons and their effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.results.columns import EARLIER, NO_DEVICE, Executions, deferred_s, executed_on
from simnmt.results.device_accounts import (
    BatchAccount,
    Log,
    StreamAccount,
    batch_columns,
    loads_of,
    model_columns,
    stream_columns,
)
from simnmt.results.metrics import (
    OF_DOCUMENTS,
    STANDARD_METRICS,
    Criteria,
    Metric,
    Objective,
    Sample,
    columns_of,
    objective_metric,
)
from simnmt.results.number_text import digits, duration
from simnmt.results.places import ALL, Place, class_of, wholes
from simnmt.results.requests import read_once
from simnmt.results.statistics import (
    Estimate,
    change_columns,
    change_percent,
    interval_columns,
    is_tie,
    over_replications,
)

Row = dict[str, Any]
Numbers = dict[str, float | None]
"""The numbers of one run by the column of the summary; None for unknown ones."""
Runs = Mapping[Place, Sequence[Numbers]]


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a scenario, with the properties that the summary needs."""

    name: str
    servers: int
    """Boxes of this kind."""
    workers: float
    """Requests that each box executes side by side; of sites with other numbers of workers, the mean of their boxes."""
    batch: int | None = None
    """Most sentences that each box decodes together; None if it does not batch."""
    streamed: bool = False
    """True if its model is streamed from its disk."""
    loads: bool = False
    """True if it loads and evicts models."""
    load_s: tuple[tuple[float, float], ...] = ()
    """Seconds in which it loads the model of each part of a mix, or of the one workload, and the second model of a pivot; 0 for
    a model that stays in memory."""


NO_LOADS: Floats = np.empty((0, 3))


@dataclass(frozen=True, slots=True)
class BatchedWork:
    """What a device executed in batches."""

    account: BatchAccount
    saturated_s: Floats
    """By part of a mix, or of the one workload: seconds in which one box could do all of its work there with full batches."""

    def token_s(self, log: Log, there: NDArray[np.bool_]) -> Floats | float:
        """Return these seconds per target token with the end of the sentence, by request there; `log`: of whole parts."""
        tokens = log["tgt_len"][there] + 1.0
        if len(self.saturated_s) == 1:
            return float(self.saturated_s[0]) / max(float(tokens.sum()), 1.0)
        part = log["part"][there]
        return (self.saturated_s / np.maximum(np.bincount(part, tokens, minlength=len(self.saturated_s)), 1.0))[part]


def measure(
    log: Log,
    decision_regret_s: NDArray[np.float32] | None,
    devices: Sequence[Device],
    discipline: Literal["back_to_back", "open", "closed"],
    batched: Sequence[BatchedWork | None] = (),
    streamed: Sequence[StreamAccount | None] = (),
    extra_work: Sequence[Floats] = (),
    extra_loads: Floats = NO_LOADS,
    *,
    criteria: Criteria | None = None,
    start_s: float = 0.0,
    documents: Log | None = None,
) -> Numbers:
    """Return the numbers of one run.

    A load is the work of a device over the work that it could do: in an open loop until the last request arrives, in a closed
    loop until it is answered; back to back, where nothing waits, there is none.

    Args:
        log: columns of the requests by name.
        decision_regret_s: of each judged request, NaN for the others; None if unknown.
        devices: in the order of the targets, as are the next three, which are empty if no device batches, streams or fails.
        discipline: what sets the pace of the requests.
        batched: work in batches. It loads a box by the seconds of full ones, since a box with little to do decodes small ones.
        streamed: account of the streamed model.
        extra_work: the work of each box that answered no request, as in `FaultAccount`.
        extra_loads: target, box and seconds of each load of a model by a request that got no answer.
        criteria: what else is measured.
        start_s: when the first request of the log was issued, if requests before it are left out as warm-up; else 0.
        documents: the log with the requests that were not answered, in the order of issue, of
            workloads with documents; None if no workload has documents.
    """
    log, criteria = read_once(log), criteria or Criteria()
    target, latency_s, arrival_s = executed_on(log), log["latency_s"], log["arrival_s"]
    requests, issued_s, makespan_s = len(target), float(arrival_s.max()), float((arrival_s + latency_s).max())
    working_s = {"back_to_back": 0.0, "open": issued_s - start_s, "closed": makespan_s - start_s}[discipline]
    is_cached = target == NO_DEVICE
    executions = Executions(log)
    executed = executed_on(executions)
    sent = np.bincount(executed[executed != NO_DEVICE], minlength=max(len(devices), 1))
    quantiles = _quantiles(latency_s, "latency", criteria.metrics)

    def answered(within_s: float | Floats | None) -> int:
        return requests if within_s is None else int(np.count_nonzero(latency_s <= within_s))

    numbers: Numbers = {
        "total_latency_s": float(latency_s.sum()),
        "mean_latency_s": float(latency_s.sum()) / requests,
        **quantiles,
        "offloaded_share": int(sent[1:].sum()) / requests,
        "hit_share": int(is_cached.sum()) / requests if "hit" in log else None,
        **_misrouted(decision_regret_s),
        **_parts(log, known(quantiles["p95_latency_s"])),
        "mean_estimate_age_s": _mean_age_s(log["rtt_estimate_age_s"][~is_cached]),
        "mean_energy_j": None,
        "offered_rps": requests / (issued_s - start_s) if discipline != "back_to_back" and issued_s > start_s else None,
        "deadline_met_share": None if criteria.deadline_s is None else answered(criteria.deadline_s) / requests,
        "goodput_rps": answered(criteria.good_within_s) / (makespan_s - start_s),
        "good_within_s": criteria.good_within_s if isinstance(criteria.good_within_s, float) else None,
    }
    if any(device.batch is not None or device.streamed for device in devices):
        first_s = _first_token_latency_s(log)
        mean_s = float(first_s.sum()) / requests  # NaN unless the first token of every request is known
        numbers["mean_first_token_s"] = None if isnan(mean_s) else mean_s
        numbers |= _quantiles(first_s, "first_token", criteria.metrics)
    if "hit" in log:
        numbers["late_hit_share"] = float(is_cached[requests // 2 :].mean())
    if documents is not None:
        numbers |= document_numbers(documents, criteria.metrics)
    loading = "model_load" in log
    if loading:
        numbers["model_loads"] = float(loads_of(log["model_load"]).sum()) + len(extra_loads)
    for number, device in enumerate(devices):
        there, name, more_loads = target == number, device.name, extra_loads[extra_loads[:, 0] == number]
        here = there if len(executed) == requests else executed == number
        numbers |= {f"{name}_share": int(sent[number]) / requests, f"{name}_load": None, f"{name}_busiest_load": None}
        in_batches = batched[number] if batched else None
        account = None if in_batches is None else in_batches.account
        if device.batch is not None:
            numbers |= batch_columns(
                name, device.servers, account, makespan_s, executions["t_queue_s"][here], log["first_token_s"][there]
            )
        if device.streamed:
            numbers |= stream_columns(name, streamed[number] if streamed else None, makespan_s)
        if device.loads and loading:
            numbers |= model_columns(name, log["model_load"][there], log["load_wait_s"][there], len(more_loads))
        if working_s > 0.0:
            work_s, extra = executions["t_exe_s"][here], extra_work[number] if extra_work else 0.0
            if in_batches is not None:
                token_s = in_batches.token_s(executions, here)
                work_s = (executions["tgt_len"][here] + 1.0) * token_s
                extra = extra * float(np.mean(token_s))  # in target tokens
            work_s = np.bincount(executions["server"][here], work_s, minlength=device.servers) + extra
            if loading and np.any(device.load_s):
                # A box is as busy as its disk if that has more to do than its workers.
                load_s = np.asarray(device.load_s)[log["part"][there] if "part" in log else 0]
                load_s = (load_s * loads_of(log["model_load"][there])).sum(axis=1)
                loading_s = np.bincount(log["server"][there], load_s, minlength=device.servers)
                np.add.at(loading_s, more_loads[:, 1].astype(int), more_loads[:, 2])
                work_s = np.maximum(work_s, device.workers * loading_s)
            numbers[f"{name}_load"] = float(work_s.sum()) / (device.servers * device.workers * working_s)
            numbers[f"{name}_busiest_load"] = float(work_s.max()) / (device.workers * working_s)
    return numbers | {"makespan_s": makespan_s, "throughput_rps": requests / (makespan_s - start_s)}


def with_deadlines_of_all(numbers: Numbers, answered_share: float) -> Numbers:
    """Return numbers of the answered requests with the share of all requests that met the deadline, which no lost one meets."""
    share = numbers["deadline_met_share"]
    return numbers | {"deadline_met_share": None if share is None else share * answered_share}


def _first_token_latency_s(log: Log) -> Floats:
    """Return the time from issuing each request until its first token would be back; NaN on devices that know no steps.

    It takes the same transfer as the whole text, whose bytes are few. A text without tokens has its end instead.
    """
    first_s = log["first_token_s"] + log["t_tx_s"] + log.get("retry_s", 0.0) + deferred_s(log)
    without_tokens = (log["tgt_len"] == 0) & np.isnan(first_s)
    latency_s: Floats = np.where(without_tokens, log["latency_s"], first_s)
    return latency_s


def document_numbers(log: Log, metrics: Sequence[Metric] = ()) -> Numbers:
    """Return the numbers of documents: of the times until all of their sentences are answered, and until the first one is.

    Of a document without an answer to every sentence only the share of answered documents knows. `log`: columns of requests in
    the order of issue, in which sentences of a document are neighbours; of no requests, nothing is known.
    """
    latency_s = log["latency_s"]  # NaN without an answer, and so is the latency of the document
    begins = np.flatnonzero(np.diff(log["document"], prepend=-1))
    whole_s, first_s = np.maximum.reduceat(latency_s, begins), np.minimum.reduceat(latency_s, begins)
    answered = ~np.isnan(whole_s)
    numbers: Numbers = {
        "sentences_per_document": len(latency_s) / len(begins) if len(begins) else None,
        "answered_documents_share": float(answered.mean()) if len(begins) else None,
    }
    samples: dict[Sample, Floats] = {"document": whole_s[answered], "first_sentence": first_s[answered]}
    for sample, values_s in samples.items():
        numbers[f"mean_{sample}_s"] = float(values_s.mean()) if len(values_s) else None
        numbers |= _quantiles(values_s, sample, metrics)
    return numbers


def _quantiles(values_s: Floats, sample: Sample, metrics: Sequence[Metric]) -> Numbers:
    """Return the quantiles of a sample by the standard and some other metrics; None for unknown ones."""
    wanted = {known.column: known for known in (*STANDARD_METRICS, *metrics) if known.sample == sample and known.quantile}
    if not len(values_s):
        return dict.fromkeys(wanted)
    quantiles_s = np.quantile(values_s, [known.quantile for known in wanted.values()]).tolist()
    return {
        name: None if isnan(value_s) or len(values_s) < known.least_requests else value_s
        for (name, known), value_s in zip(wanted.items(), quantiles_s, strict=True)
    }


def _misrouted(decision_regret_s: NDArray[np.float32] | None) -> Numbers:
    """Return the share of the judged requests that were misrouted, and the mean decision regret of all judged ones."""
    judged_s = np.empty(0) if decision_regret_s is None else decision_regret_s[np.isfinite(decision_regret_s)]
    if not judged_s.size:
        return {"misrouted_share": None, "mean_decision_regret_s": None}
    return {
        "misrouted_share": np.count_nonzero(judged_s > 0.0) / judged_s.size,
        "mean_decision_regret_s": float(judged_s.sum(dtype=np.float64)) / judged_s.size,
    }


def _mean_age_s(ages_s: Floats) -> float | None:
    return float(ages_s.sum()) / len(ages_s) if len(ages_s) else None


PARTS = {"queue": "t_queue_s", "execution": "t_exe_s", "transfer": "t_tx_s"}
TRIES = {"retry": "retry_s"}
"""A further part where devices refuse requests: the time lost in earlier tries."""


def _parts(log: Log, p95_s: float) -> Numbers:
    """Return the mean parts of all requests, and of those that take as long as p95 or longer.

    Waits and executions are those on both devices of a request that the first one sent on.
    """
    slowest = log["latency_s"] >= p95_s
    means: Numbers = {}
    for part, column in (PARTS | TRIES).items():
        if part in TRIES and column not in log:
            continue
        seconds = log[column]
        earlier = EARLIER.get(column)
        if earlier is not None and earlier in log:
            seconds = seconds + np.nan_to_num(log[earlier])
        means[f"mean_{part}_s"] = float(seconds.sum()) / len(seconds)
        means[f"beyond_p95_{part}_s"] = float(seconds[slowest].mean())
    return means


def objective_name(objective: Objective) -> str:
    """Return the name of an objective in sentences.

    >>> objective_name("p95"), objective_name("energy_j")
    ('p95 latency', 'mean energy')
    """
    known = objective_metric(objective)
    if known.sample in OF_DOCUMENTS:
        end = "a whole document" if known.sample == "document" else "a first sentence"
        return f"{objective.rpartition('_')[2]} time to {end}"
    return known.label or f"{objective} latency"


def format_objective(
    objective: Objective, value: float, low: float | None = None, high: float | None = None, *, interval: bool = False
) -> str:
    """Return a value of an objective with its unit, with as many digits as its interval allows.

    `interval`: True to show the interval of a latency too.

    >>> format_objective("p95", 0.0682), format_objective("energy_j", 12.345), format_objective("cost_per_request", 0.00002)
    ('68.2 ms', '12.3 J', '0.00002')
    """
    known = objective_metric(objective)
    if not isfinite(value):
        return "infinite"
    return f"{digits(value)} {known.unit}".rstrip() if known.label else duration(value, low, high, interval=interval)


SETTINGS = ("good_within_s",)
"""Numbers that the scenario sets, so that all replications have the same."""
WITH_INTERVAL = ("total_latency_s", "regret_s")
"""Numbers beside the metrics with a 95 % interval over replications, as `..._low` and `..._high`."""


def rows(runs: Runs, requests: int, *, metrics: Sequence[Metric] = (), oracle: str | None = None) -> list[Row]:
    """Return one row per site, workload, network and policy: means over the replications, in the order of the runs.

    `requests`: issued in each run, unless numbers have others. `metrics`: those that were measured beside the standard ones.
    `regret_s` is the total latency above that of the policy `oracle` in the same replication; None without one. Other numbers
    than those metrics and `WITH_INTERVAL` have no interval, which would take most of the time of a sweep's table.
    """
    with_interval = {*WITH_INTERVAL, *columns_of(metrics)}
    has_classes = any(class_of(place.workload) for place in runs)
    table: list[Row] = []
    for place, replications in runs.items():
        row: Row = {**place._asdict(), "replications": len(replications), "requests": requests}
        if has_classes:
            row["class"] = class_of(place.workload) or ALL
        bounds = runs[place if oracle is None else place._replace(policy=oracle)]
        columns = {name: [numbers[name] for numbers in replications] for name in replications[0]}
        columns["regret_s"] = [
            None if oracle is None else known(numbers["total_latency_s"]) - known(bound["total_latency_s"])
            for numbers, bound in zip(replications, bounds, strict=True)
        ]
        # The oracle is no bound if requests wait, nor if a policy moves the times at which requests meet the network.
        no_queues = all(value is None for name, value in replications[0].items() if name.endswith("_busiest_load"))
        if "requests" in replications[0]:  # of a part of a mix; by chance, those of a site differ between replications
            row["requests"] = round(sum(known(numbers["requests"]) for numbers in replications) / len(replications))
        for name, column in columns.items():
            if name in row:
                continue
            values = [value for value in column if value is not None]
            complete = len(values) == len(replications)
            if name in SETTINGS:
                row[name] = column[0]
            elif name not in with_interval:
                row[name] = float(np.mean(values)) if complete else None
            else:
                positive = name != "regret_s" or (no_queues and complete and min(values) >= 0.0)
                row |= interval_columns(name, over_replications(values, positive=positive) if complete else None)
                if name.endswith("_share") and row[f"{name}_high"] is not None:
                    row[f"{name}_high"] = min(row[f"{name}_high"], 1.0)
        table.append(row)
    return table


def comparisons(runs: Runs, baselines: Sequence[str], rows: Sequence[Row] = ()) -> list[Row]:
    """Return each policy against each baseline, paired by replication: percent change of total latency, negative is faster.

    The change is the ratio of the two totals shown in the rows, and its interval covers that ratio. `unstable` names the side
    without a mean (`policy`, `baseline` or `both`), or is None: a change against such a side depends on how long the run lasts.
    `rows`: of the summary, judged for stability.
    """
    totals_s = {place: [known(numbers["total_latency_s"]) for numbers in replications] for place, replications in runs.items()}
    without_mean, table = {Place.of(row) for row in rows if row.get("unstable")}, list[Row]()
    for place, ours in totals_s.items():
        for against in (place._replace(policy=baseline) for baseline in baselines if baseline != place.policy):
            change = change_percent(ours, totals_s[against])
            sides = [side for side, of_side in (("policy", place), ("baseline", against)) if of_side in without_mean]
            table.append(
                {
                    **place._asdict(),
                    "baseline": against.policy,
                    **change_columns(change),
                    "effect": judge_change(change, ours == totals_s[against]),
                    "unstable": "both" if len(sides) == 2 else sides[0] if sides else None,
                }
            )
    return table


def replicated(runs: Runs, metrics: Sequence[Metric] = ()) -> dict[Place, dict[str, list[float | None]]]:
    """Return the value of each replication by place and by column, of the totals and all metrics.

    By these numbers runs are compared and judged. `metrics`: those that were measured beside the standard ones.
    """
    columns = ("total_latency_s", *columns_of(metrics))
    return {
        place: {name: [numbers[name] for numbers in replications] for name in columns if name in replications[0]}
        for place, replications in runs.items()
    }


def judge_change(change: Estimate, same: bool) -> str:
    """Return the effect of a change in percent; `same`: True if all replications are equal."""
    if same:
        return "same"
    if change.low is None:
        return "one replication"
    if not change.excludes_zero:
        return "not distinguishable"
    if is_tie(1.0 + change.mean / 100.0, 1.0):
        return "same"
    return "faster" if change.mean < 0.0 else "slower"


def known(value: float | None) -> float:
    """Return a number that cannot be missing here."""
    assert value is not None
    return value


def warm_up_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each cell on the requests that were left out as warm-up."""
    for cell, (row, *_) in wholes(rows).items():
        if row.get("warm_up_requests"):
            yield (
                f"{cell}: the first {row['warm_up_requests']:,.0f} of {row['requests']:,} requests are "
                "warm-up. Only batches, streams, energy, money, faults, figures and requests.parquet count them."
            )
