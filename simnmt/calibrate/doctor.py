"""Findings on what this box can and cannot measure, with reasons and remedies. Needs neither torch nor numpy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Literal

from simnmt.base.packages import install_command
from simnmt.calibrate.box import QUIET_SHARE, BoxDescription, BusyWatch, describe, is_busy
from simnmt.calibrate.energy import find_energy_meter
from simnmt.nmt.engine import supported_types


@dataclass(frozen=True, slots=True)
class Finding:
    """One quantity that can or cannot be measured here, or a warning of something that disturbs measurements."""

    status: Literal["can", "cannot", "warning"]
    topic: str
    """threads, simd, memory, torch, ctranslate2, gpu, energy, clock, load, box."""
    what: str
    remedy: str | None = None
    """Action of the user, as an imperative."""

    def __str__(self) -> str:
        return f"{self.status:<7}  {self.topic:<11}  {self.what}" + (f" ({self.remedy})" if self.remedy else "")


def examine() -> tuple[BoxDescription, list[Finding]]:
    """Return this box and the findings. Missing parts give findings, not exceptions."""
    others_cpus = BusyWatch.over_span()  # first, because loading the libraries is a load too
    box, gpus = describe(), torch_gpus()
    engines = [engine_finding("torch", "models", device) for device in ("cpu", *gpus)]
    engines += [engine_finding("ctranslate2", "ctranslate2", device) for device in ("cpu", "cuda")]
    if gpus:
        gpu = Finding("can", "gpu", ", ".join(f"{device}: {name}" for device, name in gpus.items()))
    else:
        remedy = "install a torch for CUDA and a driver new enough for it, unset CUDA_VISIBLE_DEVICES: docs/how-to/measure.md"
        gpu = Finding("cannot", "gpu", "torch sees no NVIDIA GPU", remedy)
    findings = [*hardware_findings(box, others_cpus), *dict.fromkeys(engines), gpu]
    return box, [*findings, *map(energy_finding, ["cpu", *gpus])]


SMALL_MEMORY_BYTES = 2_000_000_000
"""Marian of the paper's size, torch and a beam need slightly less."""
INT8_UNITS = {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}


def hardware_findings(box: BoxDescription, others_cpus: float | None) -> Iterator[Finding]:
    """Yield findings on threads, vector units, memory, clock, load and neighbours.

    `others_cpus`: CPUs' worth of time that other programs use; None: not known.
    """
    model = (box.cpu_model or box.machine) + (f" in {box.board}" if box.board else "")
    cores = f", {box.allowed_cores} cores" if box.allowed_cores else ""
    yield Finding("can", "threads", f"threads at once: {box.usable_cpus}, {model}{cores}")
    if box.logical_cores and len(box.allowed_cpus) < box.logical_cores:
        yield Finding("warning", "threads", f"this process may use {len(box.allowed_cpus)} of {box.logical_cores} CPUs")
    if box.cpu_quota is not None:
        what = f"a control group grants {box.cpu_quota:g} CPUs' worth of time: work is paused when that is used up"
        yield Finding("warning", "threads", what, "give the container whole CPUs, such as docker run --cpuset-cpus=0-3")

    int8 = "" if INT8_UNITS & set(box.simd) else "; no instructions for int8 products"
    yield Finding("can" if box.simd else "warning", "simd", (", ".join(box.simd) or "no vector extension is known") + int8)
    free_bytes = box.memory_available_bytes or 0
    small = free_bytes < SMALL_MEMORY_BYTES
    what = f"{free_bytes / 1e9:.1f} GB free" + (": large batches will not fit, and are left out" if small else "")
    yield Finding("warning" if small else "can", "memory", what, "end other programs" if small else None)

    speed = "" if box.frequency_mhz is None else f"; {box.frequency_mhz:,.0f} MHz now"
    if box.governor is None:
        what = f"the system shows no clock governor, so the clock cannot be held{speed}"
        yield Finding("cannot", "clock", what, "trust the drift that the profile records")
    elif box.governor in ("performance", "userspace"):
        yield Finding("can", "clock", f"held by governor {box.governor}{speed}")
    else:
        what = f"governor {box.governor}: the clock follows the load{speed}"
        yield Finding("warning", "clock", what, "sudo cpupower frequency-set -g performance")
    if box.jetson is not None:
        what = f"Jetson, {box.jetson}: CPU, GPU and memory clocks depend on it"
        yield Finding("warning", "clock", what, "choose by sudo nvpmodel -m N, then hold with sudo jetson_clocks")

    cpus = box.logical_cores or box.usable_cpus
    if others_cpus is None:
        yield Finding("warning", "load", "the use of the CPUs by other programs is not known", "see top")
    else:
        used = f"others use {others_cpus:.2f} CPUs of {cpus}"
        remedy = f"wait until it is below {QUIET_SHARE * cpus:.1f}: see top"
        busy = Finding("warning", "load", f"{used}: other programs will disturb the times", remedy)
        yield busy if is_busy(others_cpus, box) else Finding("can", "load", f"{used}: quiet")
    if box.virtualisation:
        what = f"{box.virtualisation}: neighbours on the same hardware are invisible"
        yield Finding("warning", "box", what, "compare two calibrations of different hours")


def torch_gpus() -> dict[str, str]:
    """Return the names of the GPUs that torch can compute on, by device."""
    # With a driver that does not match or a library that cannot be loaded, there is no GPU to measure.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        return {f"cuda:{index}": torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return {}


def engine_finding(library: str, extra: str, device: str) -> Finding:
    """Return the compute types of a backend on a device, or the reason why it cannot be used."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module(library)
            types = supported_types(library, device)
    except ModuleNotFoundError as error:
        return Finding("cannot", library, f"{error.name} is not installed", install_command(extra))
    except Exception as error:  # a missing shared library, built for another numpy or driver; each has errors of its own
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        return Finding("cannot", library, f"{library} {version(library)} on {device}: {reason}")
    return Finding("can", library, f"{library} {version(library)} on {device}: {', '.join(types)}")


def energy_finding(device: str) -> Finding:
    """Return the energy counter of a device, or the reasons why it has none."""
    meter, obstacles = find_energy_meter(device)
    if meter is None:
        return Finding("cannot", "energy", f"{device}: {obstacles}")
    meter.close()
    return Finding("can", "energy", f"{device}: {meter.source}, {meter.scope}")
