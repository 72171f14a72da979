"""Measure the devices of a validation as they serve: profiles with a block `in_service`, and overheads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.calibrate.in_situ import Executions, fit_service
from simnmt.calibrate.settings import Gaps
from simnmt.experiment.inputs import Unit
from simnmt.live.cell_comparison import Cell
from simnmt.live.cell_run import LiveRun, LiveTestbed
from simnmt.live.deployment import replayed_requests
from simnmt.live.engine_loop import REFERENCE
from simnmt.live.protocol import ALONE, Bench, Progress
from simnmt.nmt.engine import Work
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import read_profile, write_profile
from simnmt.scenario.source import profile_path

MEASURING_ROUNDS, MEASURING_LOAD = 3, 0.4
"""Rounds in which the devices are measured in service, one after the other, and the load of the gateway meanwhile."""


def measure_in_service(bench: Bench, testbed: LiveTestbed, first: Cell, progress: Progress) -> tuple[float, list[LiveRun]]:
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
        write_profile(path, _with_service(profile, done[number], rate_rps, testbed.cpus[number]))
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


def _with_service(profile: DeviceProfile, done: Executions, rate_rps: float, cpus: tuple[int, ...]) -> DeviceProfile:
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
