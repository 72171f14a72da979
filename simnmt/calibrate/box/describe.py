"""A box described, from the files of its system and the libraries that are installed."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from math import isfinite
from typing import Any

from simnmt.calibrate.box import clocks, cpu, gpus, jetson, limits, virtual
from simnmt.calibrate.box.description import BoxDescription
from simnmt.calibrate.box.libraries import versions
from simnmt.calibrate.box.topology import logical_cpus
from simnmt.calibrate.box.tree import Tree


def describe(root: str | os.PathLike[str] = "/", *, libraries: bool = True) -> BoxDescription:
    """Describe the box whose `/proc` and `/sys` lie under `root`.

    Another root than `/` is a recorded tree: the running process (its libraries, its GPUs) then tells nothing and is not
    asked. `libraries`: whether torch and NVML are loaded and asked for GPUs, which takes seconds; versions are named anyway.
    """
    tree = Tree.at(root)
    cpus = cpu.processors(tree)
    clock = clocks.clocks(tree, cpus)
    allowed = limits.allowed_cpus(tree)
    known: dict[str, Any] = {
        "machine": cpu.machine(cpus) or "unknown",
        "system": _system(tree),
        "cpu_model": cpu.cpu_model(cpus),
        "board": jetson.board(tree),
        "physical_cores": cpu.physical_cores(tree, cpus),
        "logical_cores": len(cpus) or None,
        "allowed_cpus": allowed,
        "allowed_cores": len({one.core for one in logical_cpus(tree, allowed)}) or None,
        "cpu_quota": limits.cpu_quota(tree),
        "simd": cpu.simd(cpus),
        "memory_bytes": _memory(tree, "MemTotal"),
        "memory_available_bytes": _memory(tree, "MemAvailable"),
        "memory_limit_bytes": limits.memory_limit_bytes(tree),
        "governor": clock.governor,
        "frequency_mhz": clock.frequency_mhz,
        "frequency_min_mhz": clock.min_mhz,
        "frequency_max_mhz": clock.max_mhz,
        "on_battery": clocks.on_battery(tree),
        "load_average": _load_average(tree),
        "virtualisation": virtual.virtualisation(tree, cpus),
        "jetson": jetson.jetson(tree),
    }
    if tree.is_this_box:
        known |= {"machine": platform.machine(), "versions": versions()}
        known |= {name: value for name, value in _asked().items() if known[name] is None}
        if libraries:
            known["gpus"] = gpus.gpus()
    return BoxDescription(**known)


def load_average(root: str | os.PathLike[str] = "/") -> float | None:
    """Processes that wanted a CPU over the last minute; cheap enough to read between measurements."""
    loads = _load_average(Tree.at(root))
    return None if loads is None else loads[0]


def frequency_mhz(root: str | os.PathLike[str] = "/") -> float | None:
    """Mean clock of the CPUs at this moment; cheap enough to read between measurements."""
    tree = Tree.at(root)
    return clocks.clocks(tree, cpu.processors(tree)).frequency_mhz


def _system(tree: Tree) -> str:
    if tree.is_this_box:
        return f"{platform.system()} {platform.release()}"
    words = (tree.text("proc/version") or "").split()
    return f"{words[0]} {words[2]}" if len(words) > 2 else "unknown"


def _memory(tree: Tree, name: str) -> int | None:
    for line in (tree.text("proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key == name and value.split()[:1] and value.split()[0].isdecimal():
            return int(value.split()[0]) * 1024
    return None


def _load_average(tree: Tree) -> tuple[float, float, float] | None:
    try:
        one, five, fifteen = map(float, (tree.text("proc/loadavg") or "").split()[:3])
    except ValueError:
        return None
    return (one, five, fifteen) if isfinite(one + five + fifteen) else None


def _asked() -> dict[str, Any]:
    """What systems without /proc tell through psutil; nothing where it is not installed."""
    told: dict[str, Any] = {"cpu_model": platform.processor() or None, "logical_cores": os.cpu_count()}
    with suppress(Exception):  # not installed, or at a loss itself on a system that hides /proc
        import psutil

        memory = psutil.virtual_memory()
        told |= {"memory_bytes": memory.total, "memory_available_bytes": memory.available}
        told |= {"physical_cores": psutil.cpu_count(logical=False)}
    with suppress(OSError, AttributeError):
        told["load_average"] = os.getloadavg()
    return told
