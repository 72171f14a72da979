"""Measure the devices of a validation: engines that it names, in the bench, and both devices as they serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.calibration import calibrate
from simnmt.calibrate.settings import Part, Settings
from simnmt.live.cell_comparison import Cell
from simnmt.live.cell_run import LiveRun, LiveTestbed
from simnmt.live.deployment import replayed_requests
from simnmt.live.drawn_paces import reference_times_s
from simnmt.live.protocol import ALONE, Bench, Progress
from simnmt.nmt.engine import Work
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.execution_fit import cell_samples, fit_execution
from simnmt.profile.profile_file import read_profile, write_profile
from simnmt.profile.reconciliation import at_pace
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.source import profile_path


def parse_engine(text: str, devices: Sequence[str]) -> tuple[str, str, str, str | None]:
    """Return device, model, backend and number format of `DEVICE=MODEL[:backend[:compute_type]]`.

    Raises `InputError` for another text or an unknown device.

    Example:
        >>> parse_engine("cloud=gru:torch:float16_weights", ["gateway", "cloud"])
        ('cloud', 'gru', 'torch', 'float16_weights')
        >>> parse_engine("cloud=gru", ["gateway", "cloud"])
        ('cloud', 'gru', 'torch', None)
    """
    device, equals, engine = text.partition("=")
    model, *more = engine.split(":")
    if not equals or not model or len(more) > 2 or not all(more):
        raise InputError(f"--engine {text}: not an engine", remedy="write DEVICE=MODEL[:backend[:compute_type]]")
    if device not in devices:
        raise InputError(f"--engine {text}: the scenario has no device {device}", remedy=did_you_mean(device, devices))
    return device, model, more[0] if more else "torch", more[1] if len(more) > 1 else None


def calibrated_profile(
    text: str, devices: Sequence[str], folder: Path, *, batched: bool, progress: Callable[[str], None]
) -> tuple[str, Path]:
    """Calibrate an engine on one thread in the quick mode; return its device and its profile's file.

    The profile sets the rates of the measurement in service, which then replaces its times; costs of batches stay.

    Args:
        text: the engine, as `parse_engine` reads it.
        devices: of the scenario.
        folder: for the profile.
        batched: True to measure steps and encoders as well, which a batching server needs.
        progress: called with a line.

    Raises `InputError` for an engine that is not known, or cannot be loaded.
    """
    device, model, backend, compute_type = parse_engine(text, devices)
    parts: tuple[Part, ...] = ("execution", "step", "overheads") if batched else ("execution",)
    settings = Settings(model, backend, threads=1, compute_type=compute_type, mode="quick", parts=parts)
    progress(f"calibrating {device}: {model} on {backend}")
    path = folder / f"{device}.calibrated.json"
    calibrate(settings, path, name=f"{device}-{model}")
    return device, path


MEASURING_ROUNDS, MEASURING_LOAD = 3, 0.4
"""Rounds in which the devices are measured in service, one after the other, and the load of the gateway meanwhile."""


@dataclass(frozen=True, slots=True)
class ServiceMeasurement:
    """What the measurement of the devices in service says beside their profiles."""

    capacity_rps: float
    """Of the gateway alone, requests a second."""
    reference_s: dict[str, float]
    """By device, the seconds of a reference execution at the pace that its profile is of."""


@dataclass
class Executions:
    """Executions of a device as it serves, in order."""

    works: list[Work] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def measure_in_service(bench: Bench, testbed: LiveTestbed, first: Cell, progress: Progress) -> ServiceMeasurement:
    """Measure both devices as they serve, and write their profiles.

    Executions are brought to one pace by the reference executions about them, so that the residual of a profile is what differs
    between executions of one pace. The pace is the mean one of the device's own executions.
    """
    cell = replace(first, batching=ALONE)
    unit = bench.unit(cell, 1.0, 40)
    devices = [target.device for target in unit.case.targets]
    single = single_device_policies(unit.scenario)
    alone_s = [target.mean_alone_s(unit.case.table) for target in unit.case.targets]
    done = [Executions() for _ in devices]
    overheads: list[list[NDArray[np.float64]]] = [[], []]
    paces_s: list[list[NDArray[np.float64]]] = [[], []]
    for turn in range(MEASURING_ROUNDS):
        # Both at the rate of the gateway: the gaps between requests decide how far processes sleep.
        rate_rps = MEASURING_LOAD / alone_s[0]
        for number, device in enumerate(devices):
            progress(f"measuring {device} in service, round {turn + 1} of {MEASURING_ROUNDS}")
            unit = bench.unit(cell, rate_rps, bench.protocol.calibration)
            requests = replayed_requests(replace(unit, replication=turn))
            run = testbed.run(unit, single[number], requests)
            valid = run.valid
            # What keeps the next request waiting counts as execution, and not as overhead.
            turnaround_s = run.turnaround_s[number]
            seconds = run.log.execution_s[valid] + turnaround_s
            alone_s[number] = float(seconds.mean())
            lengths = zip(requests.src_len[valid].tolist(), requests.tgt_len[valid].tolist(), strict=True)
            done[number].works += [Work(src, tgt) for src, tgt in lengths]
            done[number].seconds += seconds.tolist()
            paces_s[number].append(reference_times_s(run.references[device], _begin_s(run)))
            overheads[number].append(run.overhead_s[valid] - turnaround_s)
    reference_s = {}
    for number, device in enumerate(devices):
        of_executions_s = np.concatenate(paces_s[number])
        reference_s[device] = float(of_executions_s.mean())
        done[number].seconds = (np.array(done[number].seconds) * reference_s[device] / of_executions_s).tolist()
        source = bench.unit(cell, 1.0, 40).scenario
        profile = read_profile(profile_path(source.profile_of(device, unit.case.name), Path.cwd()))
        path = bench.folder / f"{device}.profile.json"
        write_profile(path, _with_service(profile, done[number]))
        bench.measured[f"devices.{device}.profile"] = str(path.absolute())
        seconds_beyond = np.concatenate(overheads[number])
        if number:  # beyond what the gateway takes for every request
            seconds_beyond = seconds_beyond - float(np.concatenate(overheads[0]).mean())
        sorted_ms = np.maximum(1e3 * np.sort(seconds_beyond), 0.0)
        bench.measured[f"devices.{device}.overhead"] = {"quantiles_ms": sorted_ms.tolist()}
    return ServiceMeasurement(1.0 / alone_s[0], reference_s)


def _begin_s(run: LiveRun) -> NDArray[np.float64]:
    """Return when each valid request's execution began, on the clock of the references: half of what is no wait came before."""
    log, waiting_s = run.log, run.waiting_s
    before_s = (log.latency_s - waiting_s - log.execution_s) / 2
    begin_s: NDArray[np.float64] = (log.due_s - run.begun_s + before_s + waiting_s)[run.valid]
    return begin_s


def _with_service(profile: DeviceProfile, done: Executions) -> DeviceProfile:
    """Return the profile of the executions in service; costs of batches are multiplied by how much longer these take."""
    src, tgt = (np.array([getattr(work, name) for work in done.works], np.float64) for name in ("src_len", "tgt_len"))
    seconds = np.array(done.seconds)
    execution = fit_execution(src, tgt, seconds, mode="every_repeat")
    execution = execution.model_copy(update={"samples": cell_samples(src, tgt, seconds)})
    level = float(seconds.sum() / profile.of_forced_lengths.plane.seconds(src, tgt).sum())
    return at_pace(profile, level).model_copy(update={"execution": execution})


def single_device_policies(scenario: Scenario) -> list[str]:
    """Return the policies by which the gateway and the server are measured. Raises `InputError` if one is missing."""
    policies = scenario.policies
    names = {}
    for name, settings in policies.items():
        if settings.single_device:
            names[settings.kind] = name
    if not {"edge", "cloud"} <= names.keys():
        raise InputError("the scenario lacks the policies edge and cloud, by which its devices are measured", remedy="add them")
    return [names["edge"], names["cloud"]]
