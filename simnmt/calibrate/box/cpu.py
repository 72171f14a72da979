"""The processor: its name, cores and vector extensions, from /proc/cpuinfo and the topology in /sys."""

from __future__ import annotations

from collections import Counter

from simnmt.calibrate.box.arm_cores import arm_core
from simnmt.calibrate.box.tree import Tree

SIMD_X86 = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
)
SIMD_ARM = ("neon", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "svei8mm", "svebf16", "sme")
"""asimddp is what Arm calls dotprod, asimdhp arithmetic on float16."""

Processor = dict[str, str]


def processors(tree: Tree) -> list[Processor]:
    """What /proc/cpuinfo says of each logical CPU; keys in lower case."""
    found: list[Processor] = []
    for block in (tree.text("proc/cpuinfo") or "").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip().lower(): value.strip() for key, colon, value in pairs if colon}
        if "processor" in fields:
            found.append(fields)
    return found


def machine(cpus: list[Processor]) -> str | None:
    """Instruction set that these processors' lines are written for."""
    if not cpus:
        return None
    if "vendor_id" in cpus[0]:
        return "x86_64"
    wide = "asimd" in cpus[0].get("features", "").split()
    return ("aarch64" if wide else "armv7l") if "cpu implementer" in cpus[0] else None


def cpu_model(cpus: list[Processor]) -> str | None:
    """The processor's name; on Arm those of its cores, with their numbers where they differ."""
    if not cpus:
        return None
    cores = Counter(name for cpu in cpus if (name := arm_core(cpu.get("cpu implementer"), cpu.get("cpu part"))))
    if len(cores) == 1:
        return next(iter(cores))
    if cores:
        return " + ".join(f"{count} x {name}" for name, count in cores.items())
    return cpus[0].get("model name") or None


def simd(cpus: list[Processor]) -> tuple[str, ...]:
    """The vector extensions that every logical CPU has."""
    if not cpus:
        return ()
    flags = set.intersection(*(set(f"{cpu.get('flags', '')} {cpu.get('features', '')}".split()) for cpu in cpus))
    return tuple(name for name in (*SIMD_X86, *SIMD_ARM) if name in flags)


def physical_cores(tree: Tree, cpus: list[Processor]) -> int | None:
    """Cores, however many threads each runs; None where the box does not tell."""
    siblings = {tree.text(name) for name in tree.names("sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")}
    if siblings - {None}:
        return len(siblings - {None})
    cores = {(cpu.get("physical id"), cpu["core id"]) for cpu in cpus if "core id" in cpu}
    return len(cores) or None
