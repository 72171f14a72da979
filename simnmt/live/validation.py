"""Validate a scenario: replay its requests live on this box, simulate the same requests, and compare (CNMT-11, CNMT-12, XP-01).

Each site has a gateway; a scenario without sites is one site. Every policy on every network is replayed once a replication, in
another order each time, and each live run is simulated twice:

- *structural*: with its own executions and targets, and the mean overheads of undisturbed runs: the error of queues and links;
- *predicted*: from the profiles alone, as `simnmt run` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, product
from math import isnan, nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import VERSION
from simnmt.base.arrays import Floats
from simnmt.calibrate.box import QUIET_SHARE, BusyWatch
from simnmt.devices import Kind
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.units import kinds, run_unit
from simnmt.live.deployment import Texts
from simnmt.live.engine import EngineSettings
from simnmt.live.validation_runs import (
    FIGURES,
    SHARES,
    LiveRun,
    Progress,
    boxes_of,
    check,
    engines_of,
    errors_of,
    gateways_of,
    replayed_runs,
    unit_at,
)
from simnmt.policies.decision import LeastTotal
from simnmt.policies.estimates import TransferEstimate
from simnmt.results.columns import deferred_s
from simnmt.results.places import ALL
from simnmt.results.requests import Block, Requests
from simnmt.results.summary import Numbers
from simnmt.service.apis import Api
from simnmt.service.load import run_precisely
from simnmt.world.deciders import Beliefs
from simnmt.world.engine import simulate
from simnmt.world.inputs import PolicySetup, World

UNSTEADY = 1.5
"""A run is void if the 90th percentile of its reference executions is above this multiple of their median in all runs."""
ANSWERED = 0.99
"""A run is void if fewer of its requests were answered where the policy sent them."""
LEGEND = (
    "Simulated over live less 1, of means over the replications. Structural: with the executions and targets of the live run. "
    "Predicted: from the profiles alone. Spread: range of the live means over their mean. *: void, the box was disturbed."
)
"""What the columns of the table of errors mean."""
BATCH_STEPS, LARGEST_STEP = 8, 1.5
"""Simulations in which the executions of sentences in batches are fitted to the live ones, and the most that one changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """One policy on one network at one site: means over the replications that are not void, or over all if every one is.

    The first arrays hold `FIGURES`.
    """

    network: str
    policy: str
    site: str
    """`all` for the requests of all sites."""
    live: Floats
    spread: Floats
    """Range of the live figures over the replications, relative but for the shares; NaN with one replication."""
    structural: Floats
    predicted: Floats
    live_means_s: tuple[float, ...]
    voids: tuple[str, ...]
    void: bool

    @property
    def errors(self) -> dict[str, Floats]:
        """Errors of both simulations."""
        return {"structural": errors_of(self.structural, self.live), "predicted": errors_of(self.predicted, self.live)}

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON, with the errors of both simulations."""

        def named(figures: Floats) -> dict[str, float | None]:
            return {name: None if isnan(value) else value for name, value in zip(FIGURES, figures.tolist(), strict=True)}

        columns = {name: named(getattr(self, name)) for name in ("live", "structural", "predicted")}
        spread = None if np.isnan(self.spread[0]) else named(self.spread)
        return asdict(self) | columns | {"spread": spread, "errors": {kind: named(row) for kind, row in self.errors.items()}}

    def cells(self) -> dict[str, str]:
        """Return the texts of its row by the heads of their columns (`LEGEND`)."""

        def percent(value: float, sign: str = "") -> str:
            return "-" if isnan(value) else f"{100 * value:{sign}.1f}"

        cells = {"network": self.network, "policy": self.policy + ("*" if self.void else ""), "site": self.site}
        cells |= {"live ms": f"{1e3 * self.live[0]:.1f}", "spread %": percent(self.spread[0])}
        for kind, errors in self.errors.items():
            cells |= {f"{kind} {name} %": percent(errors[at], "+") for at, name in enumerate(("mean", "p50", "p95"))}
        cells["first token ms"] = "-" if isnan(self.live[5]) else f"{1e3 * self.live[5]:.1f}"
        cells["first token spread %"] = percent(self.spread[5])
        for at, name in ((5, "mean"), (6, "p95")):
            cells[f"predicted first token {name} %"] = percent(self.errors["predicted"][at], "+")
        cells["offloaded % live"] = f"{100 * self.live[3]:.1f}"
        cells["offloaded % predicted"] = f"{100 * self.predicted[3]:.1f}"
        return cells | {f"cached % {name}": f"{100 * getattr(self, name)[4]:.1f}" for name in ("live", "predicted")}


@dataclass(frozen=True, slots=True)
class Ranking:
    """The order of the policies on one network by their mean latency, of those with two runs or more that are not void."""

    network: str
    live: tuple[str, ...]
    predicted: tuple[str, ...]
    inverted: tuple[tuple[str, str], ...]
    """Pairs, the better live first, whose live runs do not overlap and which the prediction ranks the other way."""

    @property
    def sentence(self) -> str:
        """The orders, and the inverted pairs."""
        if len(self.live) < 2:
            return f"{self.network}: nothing is ranked, as fewer than two policies have two runs that are not void"
        pairs = "; ".join(f"{better} before {worse}" for better, worse in self.inverted) or "none"
        orders = f"{self.network}: live {' < '.join(self.live)}; predicted {' < '.join(self.predicted)}"
        return f"{orders}; pairs clearly apart live and inverted in the prediction: {pairs}"


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of a validation."""

    scenario: str
    replications: int
    requests: int
    rows: list[Comparison]
    rankings: list[Ranking]
    others_cpus: float | None = None
    """CPUs' worth of time that other programs used before the live runs or after them; None: not known."""

    @property
    def warning(self) -> str | None:
        """The warning of a busy box, whose runs are all disturbed, so that none stands out as void."""
        cpus, used = os.cpu_count() or 1, self.others_cpus or 0.0
        why = "these errors do not judge the simulation (repeat when simnmt doctor shows no load)"
        is_busy = used > QUIET_SHARE * cpus
        return f"other programs used {used:.1f} of {cpus} CPUs: {why}" if is_busy else None

    @property
    def worst_structural_error(self) -> float:
        """Greatest absolute structural error of a mean that is not void; 0 if every row is void."""
        errors = [abs(float(row.errors["structural"][0])) for row in self.rows if not row.void]
        return max((error for error in errors if not isnan(error)), default=0.0)

    def document(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {"simnmt": VERSION} | asdict(self) | {"rows": [row.document() for row in self.rows]}


def validate(
    plan: RunPlan,
    *,
    policies: Sequence[str] = (),
    any_model: bool = False,
    engines: Mapping[str, EngineSettings] | None = None,
    models: Mapping[str, str] | None = None,
    services: Mapping[str, tuple[str, Api]] | None = None,
    lines: Texts | None = None,
    progress: Progress = lambda text: None,
) -> Validation:
    """Replay the first workload of a scenario, or all its sites, on this box, simulate the same requests, and compare.

    Args:
        plan: the scenario with its inputs; its replications are the repeats.
        policies: names of policies; empty: all that can be deployed.
        any_model: accept engines other than those of the profiles.
        engines: by device, in place of those that the profiles name.
        models: by device, folders with trained weights; others have random ones.
        services: address and API of the devices that are running services.
        lines: texts to send, by their lengths; None: random words.
        progress: called with a line before each run.

    Raises `InputError` for a scenario that cannot run live on one box, or that answers no request when it is simulated, and
    `SimnmtError` if a live run fails.
    """
    scenario = plan.scenario
    names = list(policies) or [name for name, settings in scenario.policies.items() if settings.is_deployable]
    check(plan, names, services or {}, {**(engines or {}), **(models or {})}, has_text=lines is not None)
    others_cpus = [BusyWatch.over_span()]
    predicted: dict[tuple[str, str, str, int], Floats] = {}
    for replication, network in product(range(scenario.replications), plan.networks):
        progress(f"simulating {network}, replication {replication + 1}")
        simulated = run_unit(unit_at(plan, network, replication))
        first = next(iter(simulated.numbers)).workload  # others are of one workload at all sites
        for place, numbers in simulated.numbers.items():
            if place.workload == first:
                predicted[network, place.policy, place.site, replication] = predicted_figures(numbers)
    with TemporaryDirectory(prefix="simnmt-", ignore_cleanup_errors=True) as folder:
        started = engines_of(plan, Path(folder), engines or {}, any_model, services or {}, names, models or {})
        runs = run_precisely(replayed_runs(plan, names, started, Path(folder), progress, lines))
    others_cpus.append(BusyWatch.over_span())
    references_s = [np.concatenate(seconds) for seconds in zip(*(run.references_s for run in runs), strict=True)]
    usual_s = [float(np.median(seconds)) if seconds.size else np.nan for seconds in references_s]
    why_void = {run: _reason_void(run, usual_s) for run in runs}
    rows = [row for cell in product(plan.networks, names) for row in _compared(cell, why_void, predicted)]
    whole = [row for row in rows if row.site == ALL]
    rankings = [_ranked(network, [row for row in whole if row.network == network]) for network in plan.networks]
    greatest = max((cpus for cpus in others_cpus if cpus is not None), default=None)
    return Validation(scenario.name, scenario.replications, scenario.requests, rows, rankings, greatest)


def predicted_figures(numbers: Numbers) -> Floats:
    """Return the `FIGURES` of a simulated run, whose metrics say whether the p95 of the first token is known."""
    columns = ("mean_latency_s", "p50_latency_s", "p95_latency_s", "offloaded_share", "hit_share")
    firsts = (numbers.get(column) for column in ("mean_first_token_s", "p95_first_token_s"))
    figures = [*(numbers[column] or 0.0 for column in columns), *(nan if first is None else first for first in firsts)]
    return np.array(figures, np.float64)


def _compared(
    cell: tuple[str, str], why_void: Mapping[LiveRun, str], predicted: Mapping[tuple[str, str, str, int], Floats]
) -> list[Comparison]:
    """Compare the runs of a network and policy, in all and by site. `why_void`: of every run, empty if it counts."""
    runs = [run for run in why_void if (run.unit.network, run.policy) == cell]
    voids = [why_void[run] for run in runs]
    kept = [run for run in runs if not why_void[run]] or runs
    steady = [run for run, why in why_void.items() if not why]
    simulated = [
        structural_columns(run, [other for other in steady if other is not run]) if run.states_executions else None
        for run in kept
    ]
    parts = runs[0].unit.parts
    sites = {ALL: None} | ({part.site_name: number for number, part in enumerate(parts)} if len(parts) > 1 else {})
    rows = []
    for site, gateway in sites.items():
        live = np.array([run.figures(*run.live_columns, gateway=gateway) for run in kept])
        structural = [
            np.full(len(FIGURES), nan) if columns is None else run.figures(*columns, gateway=gateway)
            for run, columns in zip(kept, simulated, strict=True)
        ]
        scale = live.mean(axis=0)
        scale[SHARES] = 1.0
        spread = np.ptp(live, axis=0) / scale if len(live) > 1 else np.full(len(FIGURES), nan)
        rows.append(
            Comparison(
                *cell,
                site,
                live=live.mean(axis=0),
                spread=spread,
                structural=np.mean(structural, axis=0),
                predicted=np.mean([predicted[(*cell, site, run.unit.replication)] for run in kept], axis=0),
                live_means_s=tuple(live[:, 0].tolist()),
                voids=tuple(filter(None, voids)),
                void=all(voids),
            )
        )
    return rows


def _reason_void(run: LiveRun, usual_s: Sequence[float]) -> str:
    """Return why a run does not count; empty if it does. `usual_s`: by box, the median of its reference executions."""
    answered = float(run.valid.mean())
    if answered < ANSWERED:
        return f"{100 * (1 - answered):.1f} % of the requests were not answered where they were sent"
    for number, box in enumerate(boxes_of(run.unit)):
        seconds = run.references_s[number]
        if not np.isfinite(seconds).all():
            return f"a reference request to {box.name} failed"
        if seconds.size and (run.box == number).any():
            slowdown = float(np.quantile(seconds, 0.9)) / usual_s[number]
            if slowdown > UNSTEADY:
                return f"reference executions of {box.name} took {slowdown:.1f} times as long as usual"
    return ""


def structural_columns(run: LiveRun, others: Sequence[LiveRun]) -> tuple[Floats, NDArray[np.int8]]:
    """Simulate a run with its own executions and targets, and the mean overheads of others, or its own for lack of such.

    Returns the latency of each request, and whether a cache answered it. A request that a cache answered live has the target
    and the execution of the translation that answered it.

    In a batch an execution depends on its company. There each sentence is slower or faster than the costs of batches say by the
    factor with which it takes as long as it did live; `BATCH_STEPS` simulations find the factors.
    """
    requests, log, valid, translated = run.requests, run.log, run.valid, run.translated
    box, target = run.box[translated], run.target[translated]
    gateways, boxes = [_with_varying_batches(unit) for unit in gateways_of(run.unit)], boxes_of(run.unit)
    numbers, overhead_s = range(len(gateways[0].case.targets)), np.zeros(len(target))
    caches = [one.scenario.devices[one.first_device].cache for one in gateways]
    live_s = np.nan_to_num(log.execution_s)[translated]
    busy_s = live_s + np.array(run.turnaround_s)[box]
    execution_s = [np.where(target == number, busy_s, 0.0) for number in numbers]
    is_deferred = np.isfinite(log.deferred_exe_s)[translated]
    first = np.where(is_deferred, 0, target)
    first_s = log.deferred_exe_s[translated] + np.array(run.turnaround_s)[requests.gateway]
    execution_s[0][is_deferred] = first_s[is_deferred]
    batching = [(at, one.number) for at, one in enumerate(boxes) if one.target.decoding is not None]
    hit_overhead_s = np.array([_mean_overhead_s(run, others, at, hits=True) for at in range(len(gateways))])[requests.gateway]
    for at, one in enumerate(boxes):
        overhead_s[box == at] = _mean_overhead_s(run, others, at)
        if one.target.decoding is not None:
            rows = slice(None) if one.gateway is None else requests.gateway == one.gateway
            execution_s[one.number][rows] = one.target.decoding.cost.solo_s(requests.src_len, requests.tgt_len)[rows]
    up_s, down_s = run.link_s()

    def decide_for(block: Block) -> Callable[[int, Sequence[float]], int]:
        return lambda in_block, delay_s: int(first[block.first + in_block])

    def second_for(block: Block) -> LeastTotal:
        return LeastTotal(
            [np.where(is_deferred, np.inf, -np.inf), *(np.where(target == number, 0.0, 1e9) for number in numbers[1:])]
        )

    for step in range(BATCH_STEPS + 1 if batching else 1):
        columns = Requests(
            src_len=requests.src_len,
            tgt_len=requests.tgt_len,
            execution_s=tuple(execution_s),
            uplink_s=(up_s,) * (len(numbers) - 1),
            downlink_s=(down_s,) * (len(numbers) - 1),
            arrival_s=requests.offsets_s,
            node=np.zeros(len(target), np.int32),
            sentence=requests.sentence,
            priority=np.array([unit.rank for unit in gateways], np.int8)[requests.gateway],
        )
        beliefs = [Beliefs(lambda decider, target: TransferEstimate(0.0)) for _ in gateways]
        behind, local = kinds(gateways[0])[1:], [kinds(one)[0] for one in gateways]
        measured = [*map(_as_measured, behind)], [*map(_as_measured, local)]
        world = World(columns, *measured, decider=requests.gateway, caches=caches)
        trail = simulate(world, PolicySetup(decide_for, beliefs, second_for=second_for if is_deferred.any() else None))
        done_s = np.choose(target, execution_s)
        if trail.execution_s is not None:
            done_s = np.where(np.isnan(trail.execution_s[:]), done_s, trail.execution_s[:])
        for at, number in batching if step < BATCH_STEPS else ():
            there = valid & (box == at)
            execution_s[number][there] *= np.clip(live_s[there] / done_s[there], 1.0 / LARGEST_STEP, LARGEST_STEP)
    hit = np.zeros(len(target), np.int8) if trail.hit is None else trail.hit
    latency_s: Floats = trail.queue_s + done_s + np.where(hit > 0, hit_overhead_s, up_s + down_s + overhead_s)
    latency_s = latency_s + deferred_s(trail.columns)
    return latency_s, hit


def _mean_overhead_s(run: LiveRun, others: Sequence[LiveRun], box: int, *, hits: bool = False) -> float:
    measured = [seconds for other in others if (seconds := other.overhead_s(box, hits)).size]
    seconds = np.concatenate(measured or [run.overhead_s(box, hits)])
    return float(seconds.mean()) if seconds.size else 0.0


def _as_measured(kind: Kind) -> Kind:
    """Return boxes that refuse nothing, since what was refused live takes no time here, and that slow no execution down, since
    the live ones were measured beside others."""
    changed = {name: unset for name, unset in (("max_waiting", None), ("occupancy_factors", ())) if hasattr(kind, name)}
    # Kinds with such fields are dataclasses.
    return replace(kind, **changed) if changed else kind  # type: ignore[type-var]


def _with_varying_batches(unit: Unit) -> Unit:
    varying = [
        one if one.decoding is None else replace(one, decoding=replace(one.decoding, varies=True)) for one in unit.case.targets
    ]
    return replace(unit, case=replace(unit.case, targets=tuple(varying)))


def _ranked(network: str, rows: Sequence[Comparison]) -> Ranking:
    rows = [row for row in rows if not row.void and len(row.live_means_s) > 1]
    live = sorted(rows, key=lambda row: row.live[0])
    inverted = tuple(
        (better.policy, worse.policy)
        for better, worse in combinations(live, 2)
        if max(better.live_means_s) < min(worse.live_means_s) and better.predicted[0] > worse.predicted[0]
    )
    predicted = sorted(rows, key=lambda row: row.predicted[0])
    return Ranking(network, tuple(row.policy for row in live), tuple(row.policy for row in predicted), inverted)
