"""What the box itself allows: threads, vector units, memory, clock, quiet, energy counters, disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from simnmt.calibrate import busy
from simnmt.calibrate import disk as disks
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.box.clocks import governors_offered
from simnmt.calibrate.box.mounts import OWN_CACHE
from simnmt.calibrate.box.tree import Tree
from simnmt.calibrate.energy import find_energy_meter
from simnmt.calibrate.finding import Finding

SMALL_MEMORY_BYTES = 2_000_000_000
"""Marian of the paper's size, torch and a beam fit into less, but not by far."""
STEADY = frozenset({"performance", "userspace"})
INT8_UNITS = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")


def threads(box: BoxDescription) -> Iterator[Finding]:
    """How many threads can truly run at once."""
    cores = f", {box.physical_cores} cores" if box.physical_cores else ""
    model = " ".join(filter(None, [box.cpu_model or box.machine, f"in {box.board}" if box.board else None]))
    yield Finding("can", "threads", f"{_counted(box.usable_cpus, 'thread')} at once: {model}{cores}")
    allowed = len(box.allowed_cpus)
    if box.physical_cores and box.usable_cpus > box.physical_cores:
        what = f"{box.usable_cpus} hardware threads share {box.physical_cores} cores"
        yield Finding("warning", "threads", what, f"measure with --threads {box.physical_cores} or fewer")
    if box.logical_cores and 0 < allowed < box.logical_cores:
        yield Finding("warning", "threads", f"this process may use {allowed} of the box's {box.logical_cores} CPUs")
    if box.cpu_quota is not None and box.cpu_quota < (allowed or box.logical_cores or 1):
        what = f"a control group grants {box.cpu_quota:g} CPUs' worth of time: work is paused when that is used up"
        yield Finding("warning", "threads", what, "give the container whole CPUs, such as docker run --cpuset-cpus=0-3")


def simd(box: BoxDescription) -> Iterator[Finding]:
    """Vector extensions, and whether int8 has instructions of its own."""
    if not box.simd:
        yield Finding("warning", "simd", "no vector extension is known: expect slow products")
        return
    int8 = [name for name in INT8_UNITS if name in box.simd]
    yield Finding("can", "simd", ", ".join(box.simd) + ("" if int8 else "; no instructions for int8 products"))


def memory(box: BoxDescription) -> Iterator[Finding]:
    """Whether a model has room."""
    free = [size for size in (box.memory_available_bytes, box.memory_limit_bytes) if size is not None]
    if not free:
        yield Finding("warning", "memory", "how much memory is free cannot be told")
    elif min(free) < SMALL_MEMORY_BYTES:
        what = f"{min(free) / 1e9:.1f} GB free: large batches will not fit, and are left out"
        yield Finding("warning", "memory", what, "end other programs, or add swap for the time of loading")
    else:
        yield Finding("can", "memory", f"{min(free) / 1e9:.1f} GB free")


def clock(box: BoxDescription, tree: Tree) -> Iterator[Finding]:
    """Whether the clock is held."""
    speed = "" if box.frequency_mhz is None else f"; {box.frequency_mhz:,.0f} MHz now"
    if box.governor is None:
        what = f"the system shows no clock governor, so the clock cannot be held{speed}"
        yield Finding("cannot", "clock", what, "trust the drift that the profile records")
    elif set(box.governor.split("+")) <= STEADY:
        yield Finding("can", "clock", f"held by governor {box.governor}{speed}")
    else:
        held = "performance" in governors_offered(tree) or not governors_offered(tree)
        remedy = "sudo cpupower frequency-set -g performance" if held else None
        yield Finding("warning", "clock", f"governor {box.governor}: the clock follows the load{speed}", remedy)
    if box.on_battery:
        yield Finding("warning", "clock", "on battery: most boxes lower their clocks", "connect the mains")
    if box.jetson is not None:
        mode = f"power mode {box.jetson.power_mode}" if box.jetson.power_mode else "the power mode is not known"
        what = f"Jetson, L4T {box.jetson.l4t}, {mode}: CPU, GPU and memory clocks depend on it"
        yield Finding("warning", "clock", what, "choose by sudo nvpmodel -m N, then hold with sudo jetson_clocks")


def load(box: BoxDescription, others_cpus: float | None = None) -> Iterator[Finding]:
    """Whether others compute here: by what they use at this moment where that is known, else by the load average."""
    cpus = busy.counted_cpus(box)
    if others_cpus is not None:
        now, what = others_cpus, f"others use {others_cpus:.2f} of {_counted(cpus, 'CPU')}"
    elif box.load_average is not None:
        now, what = box.load_average[0], f"load average {box.load_average[0]:.2f} on {_counted(cpus, 'CPU')}"
    else:
        yield Finding("warning", "load", "whether the box is quiet cannot be told")
        return
    if busy.is_busy(now, box):
        remedy = f"wait until it is below {busy.QUIET_SHARE * cpus:.1f}: see top"
        yield Finding("warning", "load", f"{what}: others compute here, and will disturb the times", remedy)
    else:
        yield Finding("can", "load", f"{what}: quiet")


def shared(box: BoxDescription) -> Iterator[Finding]:
    """Whether the hardware is ours."""
    if box.virtualisation:
        what = f"{box.virtualisation}: neighbours on the same hardware go unseen"
        yield Finding("warning", "box", what, "compare two calibrations of different hours")


def energy(device: str, root: str | os.PathLike[str] = "/", sleep: Callable[[float], None] = time.sleep) -> Iterator[Finding]:
    """Which counter counts for a device, or why none does."""
    found = find_energy_meter(device, root, sleep=sleep)
    if found.meter is not None:
        rails = ", ".join(found.meter.domains)
        yield Finding("can", "energy", f"{device}: {found.meter.source}, {found.meter.scope} ({rails})")
        found.meter.close()
        return
    why = "; ".join(f"{obstacle.source}: {obstacle.why}" for obstacle in found.obstacles)
    remedies = [obstacle.remedy for obstacle in found.obstacles if obstacle.remedy]
    yield Finding("cannot", "energy", f"{device}: {why}", "; ".join(remedies) or None)


def disk(folder: str | os.PathLike[str]) -> Iterator[Finding]:
    """Whether cold reads can be measured in a folder; nothing is written."""
    try:
        mount = disks.refuse_unfit(folder, 4 * disks.SIZES_BYTES[-1])
    except disks.DiskError as error:
        place = f"{error.path}: " if error.path else ""
        yield Finding("cannot", "disk", f"{place}{error.what}", error.remedy)
        return
    what = f"{os.path.realpath(folder)}: {mount or 'file system unknown'}"
    if mount is not None and mount.kind.partition(".")[0] in OWN_CACHE:
        yield Finding("warning", "disk", f"{what} has a cache of its own: reads are not surely cold", "name a local disk")
    else:
        yield Finding("can", "disk", f"cold reads in {what}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
