"""RAPL: energy of x86 processor packages, which Linux shows under /sys/class/powercap for Intel and AMD alike.

Names and units: https://docs.kernel.org/power/powercap/powercap.html.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simnmt.calibrate.box.cpu import machine, processors
from simnmt.calibrate.box.tree import Tree
from simnmt.calibrate.box.virtual import virtualisation
from simnmt.calibrate.energy.meter import Obstacle, moves

SOURCE = "rapl"
_ROOT_ONLY = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj, which lasts until the next boot"


@dataclass(frozen=True, slots=True)
class Package:
    """One processor package's counter."""

    name: str
    counter: Path
    """Microjoules since some moment."""
    range_uj: int | None
    """The highest value before it begins again at 0."""

    def read_uj(self) -> int:
        """The counter as it stands. Raises `OSError`, `ValueError`."""
        return int(self.counter.read_text(encoding="ascii"))


class RaplMeter:
    """Adds up the packages' counters, past their wrapping around."""

    source = SOURCE
    scope = "processor packages, without memory modules, disks and fans"
    resolution_s = 1e-3

    def __init__(self, packages: Sequence[Package]) -> None:
        self._packages = packages
        self.domains = tuple(package.name for package in packages)
        self._last_uj = [package.read_uj() for package in packages]
        self._sum_uj: int | None = 0

    def read_j(self) -> float | None:
        """Joules since the meter was opened; None from the first failed reading on."""
        if self._sum_uj is None:
            return None
        try:
            for at, package in enumerate(self._packages):
                now_uj = package.read_uj()
                step_uj = now_uj - self._last_uj[at]
                if step_uj < 0:
                    if package.range_uj is None or package.range_uj < self._last_uj[at]:
                        raise ValueError("the counter went back, and does not tell its range")
                    # From the last reading to the highest value, one more to 0, and on to where it stands.
                    step_uj += package.range_uj + 1
                self._sum_uj += step_uj
                self._last_uj[at] = now_uj
        except (OSError, ValueError):
            self._sum_uj = None
            return None
        return self._sum_uj / 1e6

    def close(self) -> None:
        """Nothing to let go of."""


def packages(tree: Tree) -> list[Package]:
    """The packages that have a counter.

    Zones under them (core, dram) are parts or neighbours; `psys` contains them, and `intel-rapl-mmio` repeats them.
    """
    found = []
    for zone in tree.names("sys/class/powercap/intel-rapl:*"):
        name = tree.text(f"{zone}/name") or ""
        if name.startswith("package") and tree.path(f"{zone}/energy_uj").exists():
            found.append(Package(name, tree.path(f"{zone}/energy_uj"), tree.number(f"{zone}/max_energy_range_uj")))
    return found


def open_rapl(tree: Tree, sleep: Callable[[float], None] = time.sleep) -> RaplMeter | Obstacle:
    """The packages' meter; else why not."""
    found = packages(tree)
    if not found:
        return _absent(tree)
    try:
        meter = RaplMeter(found)
    except PermissionError:
        # https://www.intel.com/content/www/us/en/security-center/advisory/intel-sa-00389.html
        return Obstacle(SOURCE, "only root may read the counters, since they can leak secrets (CVE-2020-8694)", _ROOT_ONLY)
    except (OSError, ValueError) as error:
        return Obstacle(SOURCE, f"a counter cannot be read: {error}")
    if not moves(lambda: meter.read_j() or 0.0, sleep):
        return Obstacle(SOURCE, "the counters stand still, as those of some virtual machines do", _on_hardware(tree))
    return meter


def _absent(tree: Tree) -> Obstacle:
    cpus = processors(tree)
    if machine(cpus) not in (None, "x86_64"):
        return Obstacle(SOURCE, "only x86 processors have it")
    if virtualisation(tree, cpus):
        return Obstacle(SOURCE, "a virtual machine or container is shown no energy counters", _on_hardware(tree))
    if not tree.path("sys/class").is_dir():
        return Obstacle(SOURCE, "it is read from Linux's /sys/class/powercap/intel-rapl:*, and this system has no /sys")
    return Obstacle(SOURCE, "the system shows no /sys/class/powercap/intel-rapl:*", "sudo modprobe intel_rapl_msr")


def _on_hardware(tree: Tree) -> str | None:
    return "measure energy on the hardware itself" if virtualisation(tree, processors(tree)) else None
