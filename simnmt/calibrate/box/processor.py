"""The processor: name, cores, vector extensions, topology, clock, and whether it is virtual; from /proc/cpuinfo and /sys.

/proc/cpuinfo gives only the numbers of an Arm core's MIDR_EL1 register. Their names follow the Linux kernel's
arch/arm64/include/asm/cputype.h and the technical reference manuals behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from simnmt.calibrate.box.system_files import Tree, parse_ranges

_ARM = {
    0xC07: "Cortex-A7",
    0xC09: "Cortex-A9",
    0xC0F: "Cortex-A15",
    0xD03: "Cortex-A53",
    0xD04: "Cortex-A35",
    0xD05: "Cortex-A55",
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD09: "Cortex-A73",
    0xD0A: "Cortex-A75",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse-N1",
    0xD0D: "Cortex-A77",
    0xD0E: "Cortex-A76AE",
    0xD40: "Neoverse-V1",
    0xD41: "Cortex-A78",
    0xD42: "Cortex-A78AE",
    0xD44: "Cortex-X1",
    0xD46: "Cortex-A510",
    0xD47: "Cortex-A710",
    0xD48: "Cortex-X2",
    0xD49: "Neoverse-N2",
    0xD4B: "Cortex-A78C",
    0xD4D: "Cortex-A715",
    0xD4E: "Cortex-X3",
    0xD4F: "Neoverse-V2",
    0xD80: "Cortex-A520",
    0xD81: "Cortex-A720",
    0xD82: "Cortex-X4",
    0xD83: "Neoverse-V3AE",
    0xD84: "Neoverse-V3",
    0xD85: "Cortex-X925",
    0xD87: "Cortex-A725",
    0xD8E: "Neoverse-N3",
}
_MAKERS = {
    0x41: ("Arm", _ARM),
    0x42: ("Broadcom", {0x516: "Vulcan"}),
    0x43: ("Cavium", {0x0A1: "ThunderX", 0x0AF: "ThunderX2"}),
    0x46: ("Fujitsu", {0x001: "A64FX"}),
    0x48: ("HiSilicon", {0xD01: "TaiShan v110"}),
    0x4E: ("NVIDIA", {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel"}),
    0x51: ("Qualcomm", {0x001: "Oryon", 0x800: "Kryo 2xx Gold", 0x801: "Kryo 2xx Silver"}),
    0x61: ("Apple", {0x022: "M1 Icestorm", 0x023: "M1 Firestorm", 0x032: "M2 Blizzard", 0x033: "M2 Avalanche"}),
    0xC0: ("Ampere", {0xAC3: "Ampere-1", 0xAC4: "Ampere-1A"}),
}


def arm_core(implementer: str | None, part: str | None) -> str | None:
    """Return the name of a core by its numbers in /proc/cpuinfo, such as `Arm Cortex-A78AE`; None if it is not an Arm core.

    A core that is not in the table is named by its numbers.
    """
    try:
        maker, model = int(implementer or "", 0), int(part or "", 0)
    except ValueError:
        return None
    name, parts = _MAKERS.get(maker, (f"Arm implementer {maker:#04x}", {}))
    return f"{name} {parts.get(model) or f'part {model:#05x}'}"


SIMD_X86 = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
)
SIMD_ARM = ("neon", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "svei8mm", "svebf16", "sme")
"""asimddp is Arm's dotprod, asimdhp arithmetic on float16."""

Processor = dict[str, str]


def processors(tree: Tree) -> list[Processor]:
    """Return the fields of each logical CPU in /proc/cpuinfo; keys in lower case."""
    entries: list[Processor] = []
    for block in (tree.text("proc/cpuinfo") or "").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip().lower(): value.strip() for key, colon, value in pairs if colon}
        if "processor" in fields:
            entries.append(fields)
    return entries


def machine(cpus: list[Processor]) -> str | None:
    """Return the instruction set of these processors."""
    if not cpus:
        return None
    if "vendor_id" in cpus[0]:
        return "x86_64"
    wide = "asimd" in cpus[0].get("features", "").split()
    return ("aarch64" if wide else "armv7l") if "cpu implementer" in cpus[0] else None


def cpu_model(cpus: list[Processor]) -> str | None:
    """Return the processor's name; on Arm the names of its cores, with their numbers if they differ."""
    if not cpus:
        return None
    cores = Counter(name for cpu in cpus if (name := arm_core(cpu.get("cpu implementer"), cpu.get("cpu part"))))
    if len(cores) == 1:
        return next(iter(cores))
    if cores:
        return " + ".join(f"{count} x {name}" for name, count in cores.items())
    return cpus[0].get("model name") or None


def simd(cpus: list[Processor]) -> tuple[str, ...]:
    """Return the vector extensions of all logical CPUs."""
    if not cpus:
        return ()
    flags = set.intersection(*(set(f"{cpu.get('flags', '')} {cpu.get('features', '')}".split()) for cpu in cpus))
    return tuple(name for name in (*SIMD_X86, *SIMD_ARM) if name in flags)


def physical_cores(tree: Tree, cpus: list[Processor]) -> int | None:
    """Return the number of cores, whatever their number of threads; None if unknown."""
    siblings = {tree.text(name) for name in tree.names("sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")}
    if siblings - {None}:
        return len(siblings - {None})
    cores = {(cpu.get("physical id"), cpu["core id"]) for cpu in cpus if "core id" in cpu}
    return len(cores) or None


_CPU = "sys/devices/system/cpu/cpu"


@dataclass(frozen=True, slots=True)
class LogicalCpu:
    """One CPU as the system counts them."""

    number: int
    core: tuple[int, ...]
    """Numbers of all logical CPUs of its core, with its own."""
    speed: int
    """Speed compared with other CPUs of the box, greater is faster; 0 if unknown."""


def logical_cpus(tree: Tree, numbers: Iterable[int]) -> list[LogicalCpu]:
    """Return these CPUs; if the system has no topology, each is a core, and all have the same speed."""
    numbers = list(numbers)
    # Arm and newer x86 kernels rate their cores (1,024 the fastest); otherwise the highest clock separates P- from E-cores.
    speeds = [tree.number(f"{_CPU}{number}/cpu_capacity") for number in numbers]
    if None in speeds:
        speeds = [tree.number(f"{_CPU}{number}/cpufreq/cpuinfo_max_freq") for number in numbers]
    cores = [parse_ranges(tree.text(f"{_CPU}{number}/topology/thread_siblings_list") or "") or (number,) for number in numbers]
    return [LogicalCpu(*cpu) for cpu in zip(numbers, cores, (speed or 0 for speed in speeds), strict=True)]


def clocks(tree: Tree, cpus: list[Processor]) -> dict[str, str | float | None]:
    """Return the clock fields of a `BoxDescription`, from cpufreq or else the speeds in /proc/cpuinfo."""
    governors = [tree.text(name) for name in tree.names("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")]
    now = _mhz(tree, "scaling_cur_freq") or [speed for cpu in cpus if (speed := _number(cpu.get("cpu mhz")))]
    return {
        "governor": "+".join(dict.fromkeys(filter(None, governors))) or None,
        "frequency_mhz": round(sum(now) / len(now), 1) if now else None,
        "frequency_min_mhz": min(_mhz(tree, "scaling_min_freq"), default=None),
        "frequency_max_mhz": max(_mhz(tree, "scaling_max_freq"), default=None),
    }


def governors_offered(tree: Tree) -> tuple[str, ...]:
    """Return the governors that the driver of the first CPU offers."""
    return tuple((tree.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors") or "").split())


def on_battery(tree: Tree) -> bool | None:
    """Return whether the box has a mains supply that is not connected; None if it has none."""
    supplies = [name.rpartition("/")[0] for name in tree.names("sys/class/power_supply/*/type") if tree.text(name) == "Mains"]
    connected = [tree.number(f"{supply}/online") for supply in supplies]
    return None if not connected or None in connected else not any(connected)


def _mhz(tree: Tree, name: str) -> list[float]:
    khz: Iterable[int | None] = (tree.number(file) for file in tree.names(f"sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}"))
    return [speed / 1e3 for speed in khz if speed]


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None


_MACHINES = ("qemu", "kvm", "vmware", "virtualbox", "innotek", "xen", "bochs", "parallels", "virtual machine", "hvm domu")
_CLOUDS = ("google compute engine", "amazon ec2", "openstack", "alibaba cloud", "digitalocean", "hetzner")
"""Makers whose name alone indicates a virtual machine, except for products called metal."""


def virtualisation(tree: Tree, cpus: list[Processor]) -> str | None:
    """Describe the virtual machine or container: `virtual machine (QEMU Standard PC)`, `container (docker)`; None if none."""
    hints = []
    maker = " ".join(filter(None, (tree.text(f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name"))))
    hypervisor = tree.text("sys/hypervisor/type")
    flagged = any("hypervisor" in cpu.get("flags", "").split() for cpu in cpus)
    named = maker.lower()
    hosted = any(name in named for name in _MACHINES) or (any(name in named for name in _CLOUDS) and "metal" not in named)
    if flagged or hosted or hypervisor or tree.text("proc/device-tree/hypervisor/compatible"):
        which = maker or hypervisor
        hints.append(f"virtual machine ({which})" if which else "virtual machine")
    container = _container(tree)
    if container:
        hints.append(f"container ({container})")
    return "; ".join(hints) or None


def _container(tree: Tree) -> str | None:
    if tree.path(".dockerenv").exists():
        return "docker"
    if tree.path("run/.containerenv").exists():
        return "podman"
    groups = tree.text("proc/1/cgroup") or ""
    return next((name for name in ("kubepods", "docker", "lxc", "containerd") if name in groups), None)
