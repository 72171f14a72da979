"""Validate a scenario: measure its boxes in service, run its cells live and simulated, and compare (CNMT-11, CNMT-12, XP-01).

The protocol (cells, thresholds, rules) is written before anything is measured, and the profiles' hashes before any cell runs.
A cell is a policy under a load, a batching of the server and a link. Each is run live several times, interleaved with the
others, and simulated with the very same requests:

- *structural*: by the executions and targets of that run, and the mean overheads of other runs;
- *simulated*: by the profiles alone, scaled by the reference executions of the run, never by the requests' own times;
- *raw*: by the profiles alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import VERSION, random_streams
from simnmt.base.errors import InputError
from simnmt.base.files import written_whole
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate import processor_use
from simnmt.experiment.cases import Unit
from simnmt.experiment.targets import Target
from simnmt.live.bars import BarResult, judge_bars
from simnmt.live.cell_comparison import Cell, CellResult, GroupVerdict, Rules, compare_cell, group_verdicts
from simnmt.live.cell_run import LiveRun, LiveTestbed
from simnmt.live.deployment import ReplayedRequests, replayed_requests
from simnmt.live.drawn_paces import BoxPaces, calibration_levels, drawn_paces
from simnmt.live.matched_simulation import Costs, SimulatedRun, Simulations, predicted_costs, simulate_matched, slowed
from simnmt.live.protocol import ALONE, Bench, Progress, Protocol, server_batching
from simnmt.live.service_measurement import calibrated_profile, measure_in_service, parse_engine, single_device_policies
from simnmt.live.text import read_texts
from simnmt.results.run_directory import INPUT
from simnmt.scenario.configuration import Scenario

PROTOCOL, VALIDATION = "protocol.json", "validation.json"
FACTOR_STEPS, LARGEST_STEP = 8, 1.5
"""Steps of the search for the factors of sentences in batches, and the most that a step changes one."""


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """The result of a validation."""

    protocol: Mapping[str, Any]
    cells: list[CellResult]
    groups: list[GroupVerdict]
    environment: Mapping[str, Any]

    @property
    def bars(self) -> list[BarResult]:
        """Every bar with its figure."""
        return list(judge_bars(self.cells, self.groups))

    def document(self) -> dict[str, object]:
        """Return the result as JSON."""
        return {
            "protocol": self.protocol,
            "environment": self.environment,
            "cells": [cell.document() for cell in self.cells],
            "groups": [group.document() for group in self.groups],
            "ranking_inversions": sum(len(group.inverted) for group in self.groups),
            "decisions_identical": all(cell.decisions_identical for cell in self.cells),
            "cells_kept_share": sum(not cell.void for cell in self.cells) / len(self.cells),
            "bars": [bar.document() for bar in self.bars],
        }


def validate(
    scenario: str,
    protocol: Protocol,
    out: Path,
    *,
    overrides: Sequence[str] = (),
    engines: Sequence[str] = (),
    any_model: bool = True,
    allow_code: bool = False,
    progress: Progress = lambda text: None,
) -> Validation:
    """Validate a scenario of a gateway and one server on this box; logs and results are written into a new folder `out`.

    Args:
        scenario: file, or `@name` of a shipped one.
        protocol: what to run.
        out: folder for logs and results.
        overrides: of keys of the scenario.
        engines: engines that replace those of the scenario's profiles, such as `cloud=gru:torch:float16_weights`; they are
            calibrated first, quickly and on one thread.
        any_model: accept that gateway and server have models of other weights.
        allow_code: whether modules and files that the scenario names may run.
        progress: called with a line before each step.

    Raises `InputError` for a scenario that has no two devices with measured engines, and `SimnmtError` if the testbed fails.
    """
    bench = Bench(scenario, overrides, protocol, out, allow_code)
    source = bench.source()
    cells = _planned_cells(bench, source.scenario, engines)
    texts = read_texts(Path(protocol.text)) if protocol.text else []
    out.mkdir(parents=True, exist_ok=True)
    written: dict[str, Any] = {"scenario": scenario, "overrides": list(overrides), "cells": [asdict(cell) for cell in cells]}
    written |= {"version": VERSION, "at": datetime.now(timezone.utc).isoformat(timespec="seconds"), **asdict(protocol)}
    written["engines"] = list(engines)
    _write(out / PROTOCOL, written)
    (out / INPUT).write_bytes(source.text)
    progress(f"wrote the protocol to {out / PROTOCOL}")
    _warn_if_busy(protocol.rules, progress)
    for text in engines:
        device, path = calibrated_profile(
            text, list(source.scenario.devices), out, batched=_batches(protocol), progress=progress
        )
        bench.measured[f"devices.{device}.profile"] = str(path.absolute())
    with LiveTestbed(out, any_model) as testbed:
        measured = measure_in_service(bench, testbed, cells[0], progress)
        written |= asdict(measured)
        written["profile_hashes"] = {name: _hash(Path(path)) for name, path in _profiles(bench).items()}
        _write(out / PROTOCOL, written)
        prepared = {cell: _prepared(bench, cell, measured.capacity_rps, texts) for cell in cells}
        runs: dict[Cell, list[LiveRun]] = {cell: [] for cell in cells}
        for repeat in range(protocol.repeats):
            order = random_streams.stream(protocol.seed, repeat, "order of cells").permutation(len(cells))
            for done, number in enumerate(order.tolist(), start=1):
                cell = cells[number]
                unit, requests = prepared[cell]
                progress(f"repeat {repeat + 1} of {protocol.repeats}, cell {done} of {len(cells)}: {_name(cell)}")
                runs[cell].append(testbed.run(unit, cell.policy, requests, link_begin_s=_link_begin_s(repeat, unit)))
    paces = BoxPaces(measured.reference_s, [run for of_cell in runs.values() for run in of_cell])
    levels = calibration_levels(next(iter(prepared.values()))[0], protocol.draws)
    results = []
    for cell in cells:
        unit, requests = prepared[cell]
        progress(f"simulating {_name(cell)}")
        others = [run for other in cells if other != cell for run in runs[other]]
        drawn = drawn_paces(levels, _other_paces(cell, runs, paces), protocol.seed, len(runs[cell]))
        simulated = [
            _simulations(unit, cell, requests.decoded(run.log), run, protocol, paces.of(run), others, of_run)
            for run, of_run in zip(runs[cell], drawn, strict=True)
        ]
        results.append(compare_cell(cell, runs[cell], simulated, protocol.rules))
    single = [name for name, settings in source.scenario.policies.items() if settings.single_device]
    environment = _environment() | {"busy": _is_busy(runs, protocol.rules)}
    validation = Validation(written, results, group_verdicts(results, single), environment)
    _write(out / VALIDATION, validation.document())
    return validation


def _warn_if_busy(rules: Rules, progress: Progress) -> None:
    """Print a line, before anything is measured, if other programs would make the cells void."""
    others = processor_use.others_cpus()
    if others is not None and others > rules.others_cpus:
        progress(
            f"other programs use {others:.2f} processors: a cell in which they use more than {rules.others_cpus} is void "
            "(end them, and begin again)"
        )


def _simulations(
    unit: Unit,
    cell: Cell,
    requests: ReplayedRequests,
    run: LiveRun,
    protocol: Protocol,
    factors: Sequence[float],
    others: Sequence[LiveRun],
    drawn: NDArray[np.float64],
) -> Simulations:
    references = list(run.references.values())

    def simulated(draw: int, factors: Sequence[float]) -> SimulatedRun:
        costs = predicted_costs(unit, requests, draw, factors)
        slow = slowed(unit, factors)
        return simulate_matched(slow, cell.policy, requests, costs, link_begin_s=run.link_begin_s, references=references)

    matched, raw, predicted = (
        [simulated(draw, of_draw) for draw, of_draw in enumerate(factors_of_draws)]
        for factors_of_draws in ([factors] * protocol.draws, [(1.0, 1.0)] * protocol.draws, drawn.tolist())
    )
    return Simulations(structural_run(unit, cell, requests, run, others), matched, raw, predicted)


def _planned_cells(bench: Bench, scenario: Scenario, engines: Sequence[str]) -> list[Cell]:
    """Return the cells of a validation. Raises `InputError` for what cannot be validated, before anything is measured."""
    protocol, devices = bench.protocol, list(scenario.devices)
    if len(devices) != 2:
        raise InputError(f"{bench.scenario} has {len(devices)} devices", remedy="validate a gateway and one server")
    single_device_policies(scenario)
    for text in engines:
        parse_engine(text, devices)
    for batching in protocol.batchings:
        if batching != ALONE:
            bench.source(server_batching(scenario, batching))
    deployable = [name for name, settings in scenario.policies.items() if not settings.knows_truth]
    for name in protocol.policies:
        if name not in deployable:
            what = f"{name} is no policy of the scenario that can be deployed"
            raise InputError(what, remedy=did_you_mean(name, deployable))
    return [
        Cell(policy, batching, load, link)
        for batching in protocol.batchings
        for load in protocol.loads
        for link in scenario.networks
        for policy in protocol.policies or deployable
    ]


def _batches(protocol: Protocol) -> bool:
    return any(batching != ALONE for batching in protocol.batchings)


def _is_busy(runs: Mapping[Cell, Sequence[LiveRun]], rules: Rules) -> bool:
    """Return whether other programs disturbed more than a quarter of the runs."""
    disturbed = [(run.others_cpus or 0.0) > rules.others_cpus for of_cell in runs.values() for run in of_cell]
    return 4 * sum(disturbed) > len(disturbed)


def _other_paces(cell: Cell, runs: Mapping[Cell, Sequence[LiveRun]], paces: BoxPaces) -> NDArray[np.float64]:
    """Return the paces of the runs of other groups; of all runs if there is one group. Shape (runs, devices)."""
    others = [run for other, of_cell in runs.items() if other.group != cell.group for run in of_cell]
    chosen = others or [run for of_cell in runs.values() for run in of_cell]
    return np.array([paces.of(run) for run in chosen])


def structural_run(unit: Unit, cell: Cell, requests: ReplayedRequests, run: LiveRun, others: Sequence[LiveRun]) -> SimulatedRun:
    """Simulate a run by its own executions and targets, with the mean overheads of other runs.

    In a batch an execution depends on its company. There each sentence is slower or faster than the costs of batches say by the
    factor with which it takes as long as it did live; the factors are found in `FACTOR_STEPS` simulations.
    """
    local_s, remote_s = mean_overheads_s(others or [run])
    target, count = np.maximum(run.log.target, 0), len(requests.src_len)
    own_s = np.nan_to_num(run.log.execution_s)
    unit = _with_varying_batches(unit)
    overheads_s, turnarounds_s = (np.full(count, local_s), np.full(count, remote_s)), _turnarounds_s(others or [run])

    def simulated(execution_s: Sequence[NDArray[np.float64]]) -> SimulatedRun:
        return simulate_matched(
            unit,
            cell.policy,
            requests,
            Costs(tuple(execution_s), overheads_s, turnarounds_s),
            link_begin_s=run.link_begin_s,
            targets=target,
            references=list(run.references.values()),
        )

    batching = {number: one.decoding for number, one in enumerate(unit.case.targets) if one.decoding is not None}
    execution_s = [np.where(target == number, own_s, 0.0) for number in range(2)]
    for number, decoding in batching.items():
        execution_s[number] = decoding.cost.solo_s(requests.src_len, requests.tgt_len)
    result = simulated(execution_s)
    for _ in range(FACTOR_STEPS if batching else 0):
        for number in batching:
            there = (target == number) & run.valid
            step = np.clip(own_s[there] / result.execution_s[there], 1.0 / LARGEST_STEP, LARGEST_STEP)
            execution_s[number][there] *= step
        result = simulated(execution_s)
    return result


def _with_varying_batches(unit: Unit) -> Unit:
    """Return a unit whose sentences vary in batches."""

    def one(target: Target) -> Target:
        return target if target.decoding is None else replace(target, decoding=replace(target.decoding, varies=True))

    targets = tuple(map(one, unit.case.targets))
    return replace(unit, case=replace(unit.case, targets=targets))


def _turnarounds_s(runs: Sequence[LiveRun]) -> tuple[float, ...]:
    return tuple(float(np.median(column)) for column in zip(*(run.turnaround_s for run in runs), strict=True))


def mean_overheads_s(runs: Sequence[LiveRun]) -> tuple[float, float]:
    """Return the mean overhead of requests that stay, and by how much that of offloaded ones is greater, over live runs."""
    local, remote = (
        np.concatenate([run.overhead_s[run.valid & (run.log.target == target)] for run in runs]) for target in (0, 1)
    )
    if not local.size or not remote.size:
        return (float(local.mean()), 0.0) if local.size else (0.0, float(remote.mean()))
    return float(local.mean()), float(remote.mean() - local.mean())


def _link_begin_s(repeat: int, unit: Unit) -> float:
    """Return the moment of the series at which a repeat starts: the same for all policies, another in each repeat."""
    return float(random_streams.stream(unit.scenario.seed, repeat, "link begin").random()) * unit.links.link.rtt.duration_s


def _prepared(bench: Bench, cell: Cell, capacity_rps: float, texts: Sequence[str]) -> tuple[Unit, ReplayedRequests]:
    rate_rps = cell.load * capacity_rps
    least, most = bench.protocol.requests
    count = min(max(round(rate_rps * bench.protocol.seconds), least), most)
    unit = bench.unit(cell, rate_rps, count)
    requests = replayed_requests(unit)
    if texts:
        requests = replace(requests, texts=list(islice(cycle(texts), count)), forced=False)
    return unit, requests


def _profiles(bench: Bench) -> dict[str, str]:
    return {key.split(".")[1]: value for key, value in bench.measured.items() if key.endswith(".profile")}


def _environment() -> dict[str, str | int | bool | None]:
    from simnmt.calibrate.box import describe

    box = describe()
    return {"processor": box.cpu_model, "usable_cpus": box.usable_cpus, "governor": box.governor}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write(path: Path, content: Mapping[str, object]) -> None:
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _name(cell: Cell) -> str:
    return f"{cell.policy}, {cell.batching}, load {cell.load:g}, {cell.link}"
