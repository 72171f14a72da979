"""This box: processor, memory, clock, limits of this process, load by other programs, pinning. Needs neither torch nor numpy.

psutil counts CPUs and memory, `lscpu` names the processor; the rest are Linux's own files. None stands for what is unknown.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

ROOT = Path("/")
"""Folder of /proc, /sys and /etc; tests put recorded files in their place."""


def system_text(name: str | Path) -> str | None:
    """Return the text of the file `/name` without blanks and NULs around it; None if it is missing, unreadable or empty."""
    try:
        return (ROOT / name).read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n") or None
    except OSError:
        return None


def system_number(name: str | Path) -> int | None:
    """Return the whole number in the file `/name`; None if it holds none."""
    try:
        return int(system_text(name) or "")
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class BoxDescription:
    """One box at one moment."""

    machine: str
    """Instruction set: x86_64, aarch64."""
    system: str
    """Kernel and its release."""
    cpu_model: str | None = None
    board: str | None = None
    """The model in the device tree: Jetson and Raspberry Pi have one."""
    jetson: str | None = None
    """Release and power mode of a Jetson, such as `L4T 36.4.3, power mode 0`."""
    logical_cores: int | None = None
    allowed_cpus: tuple[int, ...] = ()
    """Numbers of the logical CPUs that this process may run on."""
    allowed_cores: int | None = None
    """Number of cores of these CPUs."""
    cpu_quota: float | None = None
    """CPUs' worth of time that the container is granted; None without a quota."""
    simd: tuple[str, ...] = ()
    """Vector extensions used by matrix products, in the kernel's spelling."""
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    """Free memory, or the container's limit if that is less."""
    governor: str | None = None
    """Clock governor; several are joined by +."""
    frequency_mhz: float | None = None
    """Present mean over the CPUs."""
    load_average: tuple[float, float, float] | None = None
    """Over 1, 5 and 15 minutes."""
    virtualisation: str | None = None
    """Hypervisor and container, as far as known."""

    @property
    def usable_cpus(self) -> int:
        """Number of threads that can run at once: allowed CPUs, or a smaller quota; at least 1."""
        return self._granted(len(self.allowed_cpus) or self.logical_cores or 1)

    @property
    def usable_cores(self) -> int:
        """Number of threads that can run at once without sharing a core's vector units; at least 1."""
        return min(self.usable_cpus, self._granted(self.allowed_cores or self.usable_cpus))

    def _granted(self, cpus: int) -> int:
        return max(1, cpus if self.cpu_quota is None else min(cpus, int(self.cpu_quota)))

    def as_json(self) -> dict[str, Any]:
        """Return the description as `simnmt doctor --json` prints it."""
        return asdict(self) | {"usable_cpus": self.usable_cpus, "usable_cores": self.usable_cores}


def describe() -> BoxDescription:
    """Describe this box."""
    processor, memory, allowed = _lscpu(), psutil.virtual_memory(), allowed_cpus()
    governors = map(system_text, sorted(ROOT.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")))
    quota, period = [*(system_text("sys/fs/cgroup/cpu.max") or "max").split(), ""][:2]
    return BoxDescription(
        machine=platform.machine(),
        system=f"{platform.system()} {platform.release()}",
        cpu_model=processor.get("Model name") or platform.processor() or None,
        board=system_text("proc/device-tree/model"),
        jetson=_jetson(),
        logical_cores=psutil.cpu_count(),
        allowed_cpus=allowed,
        allowed_cores=len(set(map(core_of, allowed))),
        cpu_quota=None if quota == "max" else int(quota) / int(period),
        simd=tuple(name for name in SIMD if name in processor.get("Flags", "").split()),
        memory_bytes=memory.total,
        memory_available_bytes=min(memory.available, system_number("sys/fs/cgroup/memory.max") or memory.available),
        governor="+".join(dict.fromkeys(filter(None, governors))) or None,
        frequency_mhz=frequency_mhz(),
        load_average=psutil.getloadavg(),
        virtualisation=_virtualisation(processor.get("Hypervisor vendor")),
    )


def describe_machine() -> str:
    """Return processor, usable CPUs and system of this box in one line."""
    box = describe()
    return f"{box.cpu_model or box.machine}, {box.usable_cpus} CPUs, {box.system}"


SIMD = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    # Arm: asimddp is its dotprod, asimdhp arithmetic on float16.
    *("neon", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "svei8mm", "svebf16", "sme"),
)


@cache
def _lscpu() -> dict[str, str]:
    """Return the fields of util-linux's `lscpu`, which also names Arm cores; several kinds of cores are joined by +."""
    try:
        output = subprocess.run(["lscpu"], env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    fields: dict[str, str] = {}
    for line in output.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        fields[key] = f"{fields[key]} + {value}" if key == "Model name" and key in fields else value
    return fields


def allowed_cpus() -> tuple[int, ...]:
    """Return the numbers of the logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(psutil.cpu_count() or 1))


def core_of(cpu: int) -> str:
    """Return the numbers of all logical CPUs on the core of this one, as the kernel writes them; without topology, its own."""
    return system_text(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def frequency_mhz() -> float | None:
    """Return the present mean clock of the CPUs; None if unknown."""
    try:
        clock = psutil.cpu_freq()
    except (OSError, NotImplementedError):  # psutil has no reader for some Macs and boards
        return None
    return None if clock is None else round(clock.current, 1)


def _virtualisation(hypervisor: str | None) -> str | None:
    """Describe the virtual machine and the container: `virtual machine (KVM); container`."""
    groups = system_text("proc/1/cgroup") or ""
    in_container = any((ROOT / mark).exists() for mark in (".dockerenv", "run/.containerenv"))
    in_container |= any(name in groups for name in ("kubepods", "lxc", "containerd"))
    hints = [f"virtual machine ({hypervisor})" if hypervisor else "", "container" if in_container else ""]
    return "; ".join(filter(None, hints)) or None


def _jetson() -> str | None:
    """Return L4T's release, and the power mode that nvpmodel last set."""
    release = re.match(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([\d.]+)", system_text("etc/nv_tegra_release") or "")
    if release is None:
        return None
    mode = re.search(r"pmode:(\d+)", system_text("var/lib/nvpmodel/status") or "")
    return f"L4T {release[1]}.{release[2]}, power mode {int(mode[1]) if mode else 'not known'}"


SPAN_S = 0.5
"""Seconds of watching. The system counts hundredths of a second: over half a second, a fiftieth of a CPU."""
QUIET_SHARE = 0.1
"""Share of the CPUs in use by other programs above which repeats of a short cell are visibly disturbed."""


def is_busy(others_cpus: float, box: BoxDescription) -> bool:
    """Return whether other processes load this box; `others_cpus`: time that they use of all its CPUs, ours or not."""
    return others_cpus > QUIET_SHARE * (box.logical_cores or box.usable_cpus)


class BusyWatch:
    """Counter of the processor time that other processes use, from its creation on."""

    def __init__(self) -> None:
        self._others_s, self._begin_s = _others_s(), time.monotonic()

    def others_cpus(self) -> float | None:
        """Return the CPUs' worth of time that other processes, and other guests of a hypervisor, used meanwhile."""
        others_s, spent_s = _others_s() - self._others_s, time.monotonic() - self._begin_s
        return max(others_s / spent_s, 0.0) if spent_s > 0.0 else None

    @classmethod
    def over_span(cls) -> float | None:
        """Watch for `SPAN_S`; return the CPUs' worth of time that other processes use.

        Unlike the load average, it does not include what this process did before.
        """
        watch = cls()
        time.sleep(SPAN_S)
        return watch.others_cpus()


def _others_s() -> float:
    """Return the seconds in which the CPUs were neither idle nor waiting for a disk nor working for this process."""
    times = psutil.cpu_times()._asdict()
    # The time of guests is a part of user.
    busy_s = sum(seconds for name, seconds in times.items() if name not in ("idle", "iowait", "guest", "guest_nice"))
    return float(busy_s) - time.process_time()


def choose_cpus(cpus: Iterable[int], threads: int) -> list[int]:
    """Choose as many CPUs as threads, ascending: one of each core before a second of any, the fastest first.

    Among equals the last is chosen, because the first CPUs serve most interrupts.
    """
    taken: Counter[str] = Counter()
    ranked = []
    for cpu in sorted(cpus, reverse=True):
        # Arm and newer x86 kernels rate their cores (1,024 the fastest); otherwise the highest clock separates P- from E-cores.
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        speed = system_number(f"{folder}/cpu_capacity") or system_number(f"{folder}/cpufreq/cpuinfo_max_freq") or 0
        ranked.append((taken[core_of(cpu)], -speed, -cpu))
        taken[core_of(cpu)] += 1
    return sorted(-number for *_, number in sorted(ranked)[:threads])


@contextmanager
def pinned(threads: int | None) -> Iterator[tuple[int, ...]]:
    """Bind this process and its later threads to as many CPUs; yield the CPUs, none if nothing is bound.

    Nothing is bound if the threads take all allowed CPUs, on a system without affinity, and for None.
    """
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if threads is None or threads >= len(before):
        yield ()
        return
    cpus = choose_cpus(before, threads)
    _bind(set(cpus))
    try:
        yield tuple(cpus)
    finally:
        _bind(before)


def _bind(cpus: set[int]) -> None:
    """Bind every thread: affinity belongs to a thread, and existing pools would keep theirs."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            os.sched_setaffinity(int(task.name), cpus)
