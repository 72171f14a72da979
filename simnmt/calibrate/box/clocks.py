"""The clock: who governs it, and how fast it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from simnmt.calibrate.box.cpu import Processor
from simnmt.calibrate.box.tree import Tree


@dataclass(frozen=True, slots=True)
class Clocks:
    """Of all logical CPUs together; None where the box does not tell."""

    governor: str | None
    frequency_mhz: float | None
    """Mean at this moment."""
    min_mhz: float | None
    max_mhz: float | None


def clocks(tree: Tree, cpus: list[Processor]) -> Clocks:
    """Read cpufreq, and the speeds in /proc/cpuinfo where there is no cpufreq."""
    governors = [tree.text(name) for name in tree.names("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")]
    now = _mhz(tree, "scaling_cur_freq") or [speed for cpu in cpus if (speed := _number(cpu.get("cpu mhz")))]
    return Clocks(
        governor="+".join(dict.fromkeys(filter(None, governors))) or None,
        frequency_mhz=round(sum(now) / len(now), 1) if now else None,
        min_mhz=min(_mhz(tree, "scaling_min_freq"), default=None),
        max_mhz=max(_mhz(tree, "scaling_max_freq"), default=None),
    )


def governors_offered(tree: Tree) -> tuple[str, ...]:
    """Governors that the first CPU's driver knows."""
    return tuple((tree.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors") or "").split())


def on_battery(tree: Tree) -> bool | None:
    """Whether no mains supply is connected, though the box has one; None where it tells of none."""
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
