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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import VERSION, random_streams
from simnmt.base.errors import InputError
from simnmt.base.files import written_whole
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.in_situ import Executions, fit_service
from simnmt.calibrate.settings import Gaps
from simnmt.experiment.inputs import Unit, read_inputs
from simnmt.experiment.validated import deployment
from simnmt.live.bars import BarResult, judge_bars
from simnmt.live.calibrated_engines import calibrated_profile, parse_engine
from simnmt.live.cell_comparison import Cell, CellResult, GroupVerdict, Rules, compare_cell, group_verdicts
from simnmt.live.cell_run import LiveRun, LiveTestbed
from simnmt.live.deployment import ReplayedRequests, replayed_requests
from simnmt.live.drawn_paces import BoxPaces, calibration_levels, drawn_paces
from simnmt.live.engine_loop import REFERENCE
from simnmt.live.matched_simulation import Costs, SimulatedRun, Simulations, predicted_costs, simulate_matched, slowed
from simnmt.live.recorded_runs import RUNS, save_runs
from simnmt.nmt.engine import Work
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import read_profile, write_profile
from simnmt.results.envelope import VALIDATION, Deployment
from simnmt.results.run_directory import INPUT
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Override
from simnmt.scenario.source import open_source, profile_path

Progress = Callable[[str], None]
PROTOCOL = "protocol.json"
LEVEL_STEPS = 8
"""Steps of the search for the level of a batching server's costs."""
MEASURING_ROUNDS, MEASURING_LOAD = 3, 0.4
"""Rounds in which the devices are measured in service, one after the other, and the load of the gateway meanwhile."""
ALONE = "alone"
"""Name of the batching of a server that executes one sentence after another."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a validation runs. Raises `InputError` for settings out of range."""

    loads: tuple[float, ...] = (0.2, 0.5, 0.8)
    """Requests a second over the measured capacity of the gateway alone."""
    policies: tuple[str, ...] = ()
    """Names of policies; empty: all of the scenario that can be deployed."""
    batchings: tuple[str, ...] = (ALONE,)
    """`alone`, or batchings of the server such as `{kind: mini, size: 8}`, in YAML."""
    repeats: int = 5
    seconds: float = 12.0
    """Length of a live run, but for the least and the greatest number of requests."""
    requests: tuple[int, int] = (40, 600)
    calibration: int = 120
    """Requests from which each device is measured in service, in each round."""
    draws: int = 20
    """Simulations of each run with other random numbers."""
    seed: int = 1
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        if not self.loads or not all(0.0 < load <= 2.0 for load in self.loads):
            raise InputError("loads are shares of the capacity above 0, 2 at most", remedy="give such as 0.2,0.5,0.8")
        if self.repeats < 1 or self.draws < 2 or self.calibration < 20 or not self.seconds > 0.0:
            raise InputError("repeats, seconds, draws or calibration are too few", remedy="give 1, 1, 2 and 20 or more")


@dataclass(slots=True)
class Bench:
    """The scenario under validation, opened with overrides."""

    scenario: str
    overrides: Sequence[str]
    protocol: Protocol
    folder: Path
    measured: dict[str, Any] = field(default_factory=dict)
    """Overrides by the measurements of this validation: profiles and overheads."""

    def unit(self, cell: Cell, rate_rps: float, requests: int) -> Unit:
        """Return the unit of a cell."""
        source = open_source(self.scenario, list(self.overrides))
        workload = next(iter(source.scenario.workloads))
        values: dict[tuple[str, ...], Any] = {
            ("requests",): requests,
            ("replications",): 1,
            ("seed",): self.protocol.seed,
            ("fit", "inferences"): 0,
            ("workloads", workload, "arrivals"): {"kind": "poisson", "rate_rps": rate_rps},
            ("workloads", workload, "end_nodes"): 1,
            **{tuple(key.split(".")): value for key, value in self.measured.items()},
        }
        more = [Override.of(location, value) for location, value in values.items()]
        if cell.batching != ALONE:
            more.append(_batching(source.scenario, cell.batching))
        source = open_source(self.scenario, [*self.overrides, *more])
        plan = read_inputs(source.scenario, Path.cwd(), source.document)
        case = plan.cases[workload]
        return Unit(plan.scenario, case, cell.link, plan.networks[cell.link], 0)


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """The result of a validation."""

    protocol: Mapping[str, Any]
    cells: list[CellResult]
    groups: list[GroupVerdict]
    deployments: list[Deployment]
    """What is validated, by cell."""
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
            "cells": [
                cell.document() | {"deployment": asdict(deployment)}
                for cell, deployment in zip(self.cells, self.deployments, strict=True)
            ],
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
        progress: called with a line before each step.

    Raises `InputError` for a scenario that has no two devices with measured engines, and `SimnmtError` if the testbed fails.
    """
    bench = Bench(scenario, overrides, protocol, out)
    source = open_source(scenario, list(overrides))
    cells = _planned_cells(bench, source.scenario, engines)
    out.mkdir(parents=True, exist_ok=True)
    written: dict[str, Any] = {"scenario": scenario, "overrides": list(overrides), "cells": [asdict(cell) for cell in cells]}
    written |= {"version": VERSION, "at": datetime.now(timezone.utc).isoformat(timespec="seconds"), **asdict(protocol)}
    written["engines"] = list(engines)
    _write(out / PROTOCOL, written)
    (out / INPUT).write_bytes(source.text)
    progress(f"wrote the protocol to {out / PROTOCOL}")
    for text in engines:
        device, path = calibrated_profile(
            text, list(source.scenario.devices), out, batched=_batches(protocol), progress=progress
        )
        bench.measured[f"devices.{device}.profile"] = str(path.absolute())
    with LiveTestbed(out, any_model) as testbed:
        capacity_rps, measured = _measure_in_service(bench, testbed, cells[0], progress)
        written["capacity_rps"] = capacity_rps
        written["profile_hashes"] = {name: _hash(Path(path)) for name, path in _profiles(bench).items()}
        _write(out / PROTOCOL, written)
        prepared = {cell: _prepared(bench, cell, capacity_rps) for cell in cells}
        runs: dict[Cell, list[LiveRun]] = {cell: [] for cell in cells}
        for repeat in range(protocol.repeats):
            order = random_streams.stream(protocol.seed, repeat, "order of cells").permutation(len(cells))
            for done, number in enumerate(order.tolist(), start=1):
                cell = cells[number]
                unit, requests = prepared[cell]
                progress(f"repeat {repeat + 1} of {protocol.repeats}, cell {done} of {len(cells)}: {_name(cell)}")
                runs[cell].append(testbed.run(unit, cell.policy, requests, link_begin_s=_link_begin_s(repeat, unit)))
    paces = BoxPaces(measured, [run for of_cell in runs.values() for run in of_cell])
    levels = calibration_levels(next(iter(prepared.values()))[0], protocol.draws)
    results = []
    for cell in cells:
        unit, requests = prepared[cell]
        progress(f"simulating {_name(cell)}")
        others = [run for other in cells if other != cell for run in runs[other]]
        drawn = drawn_paces(levels, _other_paces(cell, runs, paces), protocol, len(runs[cell]))
        simulated = [
            _simulations(unit, cell, requests, run, protocol, paces.of(run), others, of_run)
            for run, of_run in zip(runs[cell], drawn, strict=True)
        ]
        results.append(compare_cell(cell, runs[cell], simulated, protocol.rules))
    single = [name for name, settings in source.scenario.policies.items() if settings.single_device]
    deployments = [_deployment(prepared[cell][0], cell) for cell in cells]
    environment = _environment() | {"busy": _is_busy(runs, protocol.rules)}
    validation = Validation(written, results, group_verdicts(results, single), deployments, environment)
    save_runs(out / RUNS, cells, {cell: requests for cell, (_, requests) in prepared.items()}, runs)
    _write(out / VALIDATION, validation.document())
    return validation


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
    for text in engines:
        parse_engine(text, devices)
    for batching in protocol.batchings:
        if batching != ALONE:
            open_source(bench.scenario, [*bench.overrides, _batching(scenario, batching)])
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


def _batching(scenario: Scenario, text: str) -> Override:
    return Override.parse(f"devices.{list(scenario.devices)[1]}.batching={text}")


def _batches(protocol: Protocol) -> bool:
    return any(batching != ALONE for batching in protocol.batchings)


def _deployment(unit: Unit, cell: Cell) -> Deployment:
    rate_rps = getattr(unit.scenario.workloads[unit.case.name].arrivals, "rate_rps", None)
    return deployment(unit.scenario, unit.case, unit.links, cell.policy, rate_rps)


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

    In a batch an execution depends on its company. There the run's own level counts: the costs of steps are multiplied by the
    factor with which the simulated executions take as long as the live ones in the mean.
    """
    local_s, remote_s = mean_overheads_s(others or [run])
    target, count = np.maximum(run.log.target, 0), len(requests.src_len)
    own_s = np.nan_to_num(run.log.execution_s)
    costs = Costs(
        tuple(np.where(target == number, own_s, 0.0) for number in range(2)),
        (np.full(count, local_s), np.full(count, remote_s)),
        _turnarounds_s(others or [run]),
    )

    unit = _without_waking(unit)

    def simulated(factors: Sequence[float]) -> SimulatedRun:
        slow = slowed(unit, factors)
        return simulate_matched(
            slow,
            cell.policy,
            requests,
            costs,
            link_begin_s=run.link_begin_s,
            targets=target,
            references=list(run.references.values()),
        )

    batching = [number for number, one in enumerate(unit.case.targets) if one.decoding is not None]
    factors = [1.0] * len(unit.case.targets)
    result = simulated(factors)
    for _ in range(LEVEL_STEPS if batching else 0):
        for number in batching:
            there = target == number
            if there.any():
                factors[number] *= float(own_s[there].mean() / result.execution_s[there].mean())
        result = simulated(factors)
    return result


def _without_waking(unit: Unit) -> Unit:
    """Return a unit whose boxes, but for batching ones, need no waking up: measured executions contain it."""
    targets = tuple(one if one.decoding else replace(one, waking=None) for one in unit.case.targets)
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


def _prepared(bench: Bench, cell: Cell, capacity_rps: float) -> tuple[Unit, ReplayedRequests]:
    rate_rps = cell.load * capacity_rps
    least, most = bench.protocol.requests
    count = min(max(round(rate_rps * bench.protocol.seconds), least), most)
    unit = bench.unit(cell, rate_rps, count)
    return unit, replayed_requests(unit)


def _measure_in_service(bench: Bench, testbed: LiveTestbed, first: Cell, progress: Progress) -> tuple[float, list[LiveRun]]:
    """Measure both devices as they serve, and write their profiles.

    Returns the gateway's capacity in requests a second, and the runs.
    """
    cell = replace(first, batching=ALONE)
    unit = bench.unit(cell, 1.0, 40)
    devices = [target.device for target in unit.case.targets]
    single = _single_device_policies(unit)
    alone_s = [target.mean_alone_s(unit.case.table) for target in unit.case.targets]
    done = [Executions(Work(REFERENCE.src_len, REFERENCE.tgt_len)) for _ in devices]
    overheads: list[list[NDArray[np.float64]]] = [[], []]
    runs = []
    for turn in range(MEASURING_ROUNDS):
        # Both at the rate of the gateway: the gaps between requests decide how far processes sleep.
        rate_rps = MEASURING_LOAD / alone_s[0]
        for number, device in enumerate(devices):
            progress(f"measuring {device} in service, round {turn + 1} of {MEASURING_ROUNDS}")
            unit = bench.unit(cell, rate_rps, bench.protocol.calibration)
            requests = replayed_requests(replace(unit, replication=turn))
            run = testbed.run(unit, single[number], requests)
            runs.append(run)
            valid = run.valid
            # What keeps the next request waiting counts as execution, and not as overhead.
            turnaround_s = run.turnaround_s[number]
            seconds = run.log.execution_s[valid] + turnaround_s
            alone_s[number] = float(seconds.mean())
            lengths = zip(requests.src_len[valid].tolist(), requests.tgt_len[valid].tolist(), strict=True)
            done[number].works += [Work(src, tgt) for src, tgt in lengths]
            done[number].seconds += seconds.tolist()
            done[number].idle_s += idle_before_s(run).tolist()
            done[number].reference_s += run.references[device].execution_s.tolist()
            overheads[number].append(run.overhead_s[valid] - turnaround_s)
    for number, device in enumerate(devices):
        source = bench.unit(cell, 1.0, 40).scenario
        profile = read_profile(profile_path(source.profile_of(device, unit.case.name), Path.cwd()))
        path = bench.folder / f"{device}.profile.json"
        write_profile(path, _in_service(profile, done[number], rate_rps, testbed.cpus[number]))
        bench.measured[f"devices.{device}.profile"] = str(path.absolute())
        seconds_beyond = np.concatenate(overheads[number])
        if number:  # beyond what the gateway takes for every request
            seconds_beyond = seconds_beyond - float(np.concatenate(overheads[0]).mean())
        sorted_ms = np.maximum(1e3 * np.sort(seconds_beyond), 0.0)
        bench.measured[f"devices.{device}.overhead"] = {"quantiles_ms": sorted_ms.tolist()}
    return 1.0 / alone_s[0], runs


def idle_before_s(run: LiveRun) -> NDArray[np.float64]:
    """Return the seconds that a device idled before each valid request's execution, of a run that used that device alone.

    0 before the first one, and where requests waited. The overheads before executions, nearly equal, cancel out.
    """
    valid = run.valid
    begin_s = (run.log.due_s + run.waiting_s)[valid]
    end_s = begin_s + run.log.execution_s[valid]
    order = np.argsort(begin_s, kind="stable")
    idle_s = np.zeros(len(begin_s))
    idle_s[order[1:]] = np.maximum(begin_s[order[1:]] - end_s[order[:-1]], 0.0)
    return idle_s


def _in_service(profile: DeviceProfile, done: Executions, rate_rps: float, cpus: tuple[int, ...]) -> DeviceProfile:
    block = fit_service(done, Gaps("poisson", rate_rps=rate_rps), neighbour="idle", lengths="the workload", pinned_cpus=cpus)
    return profile.model_copy(update={"in_service": block})


def _single_device_policies(unit: Unit) -> list[str]:
    policies = unit.scenario.policies
    names = {}
    for name, settings in policies.items():
        if settings.single_device:
            names[settings.kind] = name
    if not {"edge", "cloud"} <= names.keys():
        raise InputError("the scenario lacks the policies edge and cloud, by which its devices are measured", remedy="add them")
    return [names["edge"], names["cloud"]]


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
