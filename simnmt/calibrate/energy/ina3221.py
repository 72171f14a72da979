"""INA3221: the power monitors on Jetson modules, by hwmon (L4T 34 and later) or by the older ina3221x driver's iio files.

Files and units: https://docs.kernel.org/hwmon/ina3221.html; the older tree: Jetson Linux developer guides up to release 32.
Which rails make the total, beside the code. Untested on a real Jetson.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simnmt.calibrate.box.tree import Tree
from simnmt.calibrate.energy.meter import Obstacle
from simnmt.calibrate.energy.sampled import SampledMeter

SOURCE = "ina3221"
INTERVAL_S = 0.02
"""The chip's own averaging takes a few to some tens of milliseconds, and each file asks it over I2C."""

SUPPLIES = ("VDD_IN", "POM_5V_IN")
"""Rails that feed all the others: Orin NX and Nano, Xavier NX, TX2; the first Nano."""
PARTS = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
"""Rails that another one feeds (AGX Orin: Jetson Linux developer guide 36.4.3, software-based power consumption modeling)."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One supply voltage and the current that flows from it."""

    name: str
    tree: Tree
    voltage: str
    """File in mV."""
    current: str
    """File in mA."""

    def read_w(self) -> float:
        """Watts now. Raises `OSError` where a file is unreadable or holds no number."""
        voltage_mv, current_ma = self.tree.number(self.voltage), self.tree.number(self.current)
        if voltage_mv is None or current_ma is None:
            raise OSError(f"{self.name}: no reading")
        return voltage_mv * current_ma / 1e6


def rails(tree: Tree) -> list[Rail]:
    """Every labelled rail that answers."""
    found: dict[str, Rail] = {}
    for rail in (*_by_hwmon(tree), *_by_iio(tree)):
        # The same chip shows under more than one name.
        if rail.name not in found and None not in (tree.number(rail.voltage), tree.number(rail.current)):
            found[rail.name] = rail
    return list(found.values())


def total(all_rails: Sequence[Rail]) -> list[Rail]:
    """Those rails whose sum is the module's power, each joule counted once."""
    by_name = {rail.name: rail for rail in all_rails}
    for supply in SUPPLIES:
        if supply in by_name:
            return [by_name[supply]]
    return [rail for rail in all_rails if PARTS.get(rail.name) not in by_name]


def open_ina3221(tree: Tree, *, in_thread: bool = True) -> SampledMeter | Obstacle:
    """The module's meter; else why not."""
    counted = total(rails(tree))
    if not counted:
        return _absent(tree)
    names = [rail.name for rail in counted]
    whole = "the whole module, by its supply" if names[0] in SUPPLIES else "the sum of the module's rails"

    def read_w() -> float:
        return sum(rail.read_w() for rail in counted)

    try:
        if read_w() <= 0.0:
            return Obstacle(SOURCE, f"the rails {', '.join(names)} show no power")
        return SampledMeter(SOURCE, whole, names, read_w, INTERVAL_S, in_thread=in_thread)
    except OSError as error:
        return Obstacle(SOURCE, str(error))


def _by_hwmon(tree: Tree) -> Iterator[Rail]:
    chips = [folder for folder in tree.names("sys/class/hwmon/hwmon*") if tree.text(f"{folder}/name") == "ina3221"]
    for chip in (*chips, *tree.names("sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*")):
        for channel in (1, 2, 3):  # those above are sums of these
            name = tree.text(f"{chip}/in{channel}_label")
            if name and name != "NC" and tree.number(f"{chip}/in{channel}_enable") != 0:
                yield Rail(name, tree, f"{chip}/in{channel}_input", f"{chip}/curr{channel}_input")


def _by_iio(tree: Tree) -> Iterator[Rail]:
    for chip in tree.names("sys/bus/i2c/drivers/ina3221x/*/iio*device*"):
        for channel in (0, 1, 2):
            name = tree.text(f"{chip}/rail_name_{channel}")
            if name and name != "NC":
                yield Rail(name, tree, f"{chip}/in_voltage{channel}_input", f"{chip}/in_current{channel}_input")


def _absent(tree: Tree) -> Obstacle:
    closed = [name for name in _files(tree) if _is_closed(tree, name)]
    if closed:
        return Obstacle(SOURCE, f"/{closed[0]} is not readable", "sudo chmod a+r that folder's *_input files")
    return Obstacle(SOURCE, "the system shows no such power monitor; Jetson modules have one")


def _files(tree: Tree) -> Iterator[str]:
    for rail in (*_by_hwmon(tree), *_by_iio(tree)):
        yield from (rail.voltage, rail.current)


def _is_closed(tree: Tree, name: str) -> bool:
    try:
        tree.path(name).read_bytes()
    except PermissionError:
        return True
    except OSError:
        return False
    return False
