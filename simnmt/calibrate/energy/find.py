"""Which energy counter a device has, and why it has none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from simnmt.calibrate.box.cpu import machine, processors
from simnmt.calibrate.box.tree import Tree
from simnmt.calibrate.energy.ina3221 import open_ina3221
from simnmt.calibrate.energy.meter import EnergyMeter, FoundMeter, Obstacle
from simnmt.calibrate.energy.nvml import open_nvml
from simnmt.calibrate.energy.rapl import open_rapl


def find_energy_meter(
    device: str, root: str | os.PathLike[str] = "/", *, sleep: Callable[[float], None] = time.sleep
) -> FoundMeter:
    """Open the first counter that counts for `device` ("cpu" or "cuda:N") and moves; else say why each source does not.

    On a Jetson both devices are on the module's rails, and get the same counter.
    """
    tree = Tree.at(root)
    kind, _, number = device.partition(":")
    obstacles: list[Obstacle] = []
    found: EnergyMeter | Obstacle
    if kind == "cpu":
        found = open_rapl(tree, sleep)
    elif kind == "cuda" and tree.is_this_box:
        found = open_nvml(int(number) if number.isdecimal() else 0, sleep)
    else:
        found = Obstacle("nvml" if kind == "cuda" else kind, "this device has no energy counter that is known here")
    if isinstance(found, Obstacle):
        obstacles.append(found)
        found = open_ina3221(tree)
    if isinstance(found, Obstacle):
        if machine(processors(tree)) != "x86_64":  # where nobody expects such a monitor, its absence explains nothing
            obstacles.append(found)
        return FoundMeter(None, tuple(obstacles))
    return FoundMeter(found, tuple(obstacles))
