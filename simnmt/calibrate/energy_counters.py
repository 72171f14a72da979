"""Energy counters of processors, GPUs and Jetson modules, and which of them a device has. Unreadable is None, never 0.

RAPL: x86 packages under /sys/class/powercap, https://docs.kernel.org/power/powercap/powercap.html.
NVML: one NVIDIA GPU with its memory, from its own counter (Volta and later) or its sampled power,
https://docs.nvidia.com/deploy/nvml-api/; untested on a real GPU.
INA3221: power monitors on Jetson modules, by hwmon (L4T 34 and later, https://docs.kernel.org/hwmon/ina3221.html) or by the
older ina3221x driver's iio files (Jetson Linux developer guides up to release 32); untested on a real Jetson.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from simnmt.calibrate.box.processor import machine, processors, virtualisation
from simnmt.calibrate.box.system_files import Tree
from simnmt.calibrate.energy_meter import EnergyMeter, FoundMeter, Obstacle, SampledMeter, moves

RAPL = "rapl"
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

    source = RAPL
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
    """Return the packages that have a counter.

    Zones under them (core, dram) are parts or neighbours; `psys` contains them, and `intel-rapl-mmio` repeats them.
    """
    counted_packages = []
    for zone in tree.names("sys/class/powercap/intel-rapl:*"):
        name = tree.text(f"{zone}/name") or ""
        if name.startswith("package") and tree.path(f"{zone}/energy_uj").exists():
            counted_packages.append(Package(name, tree.path(f"{zone}/energy_uj"), tree.number(f"{zone}/max_energy_range_uj")))
    return counted_packages


def open_rapl(tree: Tree, sleep: Callable[[float], None] = time.sleep) -> RaplMeter | Obstacle:
    """Return the packages' meter, or the obstacle to it."""
    counted_packages = packages(tree)
    if not counted_packages:
        return _why_no_rapl(tree)
    try:
        meter = RaplMeter(counted_packages)
    except PermissionError:
        # https://www.intel.com/content/www/us/en/security-center/advisory/intel-sa-00389.html
        return Obstacle(RAPL, "only root may read the counters, since they can leak secrets (CVE-2020-8694)", _ROOT_ONLY)
    except (OSError, ValueError) as error:
        return Obstacle(RAPL, f"a counter cannot be read: {error}")
    if not moves(lambda: meter.read_j() or 0.0, sleep):
        return Obstacle(RAPL, "the counters stand still, as those of some virtual machines do", _on_hardware(tree))
    return meter


def _why_no_rapl(tree: Tree) -> Obstacle:
    cpus = processors(tree)
    if machine(cpus) not in (None, "x86_64"):
        return Obstacle(RAPL, "only x86 processors have it")
    if virtualisation(tree, cpus):
        return Obstacle(RAPL, "a virtual machine or container is shown no energy counters", _on_hardware(tree))
    if not tree.path("sys/class").is_dir():
        return Obstacle(RAPL, "it is read from Linux's /sys/class/powercap/intel-rapl:*, and this system has no /sys")
    return Obstacle(RAPL, "the system shows no /sys/class/powercap/intel-rapl:*", "sudo modprobe intel_rapl_msr")


def _on_hardware(tree: Tree) -> str | None:
    return "measure energy on the hardware itself" if virtualisation(tree, processors(tree)) else None


NVML = "nvml"
POWER_INTERVAL_S = 0.05
COUNTER_RESOLUTION_S = 0.1
_SCOPE = "the GPU with its memory and circuits"


class NvmlCounter:
    """The GPU's energy counter."""

    source = NVML
    scope = _SCOPE
    domains: tuple[str, ...] = ("total energy",)
    resolution_s = COUNTER_RESOLUTION_S

    def __init__(self, read_mj: Callable[[], int], closing: Callable[[], object]) -> None:
        self._read_mj = read_mj
        self._closing: Callable[[], object] | None = closing
        self._first_mj: int | None = read_mj()

    def read_j(self) -> float | None:
        """Joules since the meter was opened; None from the first failed reading on, or once the driver was loaded anew."""
        if self._first_mj is None:
            return None
        try:
            energy_mj = self._read_mj() - self._first_mj
        except Exception:  # NVML's errors are a class a code
            energy_mj = -1
        if energy_mj < 0:
            self._first_mj = None
            return None
        return energy_mj / 1e3

    def close(self) -> None:
        """Let go of NVML."""
        closing, self._closing, self._first_mj = self._closing, None, None
        if closing is not None:
            with suppress(Exception):
                closing()


def open_nvml(
    index: int, sleep: Callable[[float], None] = time.sleep, nvml: Any = None, *, in_thread: bool = True
) -> EnergyMeter | Obstacle:
    """Return the meter of `cuda:index`, or the obstacle to it. `nvml` replaces the module pynvml."""
    if nvml is None:
        nvml = _module()
    if isinstance(nvml, Obstacle):
        return nvml
    try:
        nvml.nvmlInit()
    except Exception as error:
        return Obstacle(NVML, f"no NVIDIA driver answers: {error}", "install the driver, or run where there is a GPU")
    meter = _opened(nvml, index, sleep, in_thread)
    if isinstance(meter, Obstacle):
        with suppress(Exception):
            nvml.nvmlShutdown()
    return meter


def _opened(nvml: Any, index: int, sleep: Callable[[float], None], in_thread: bool) -> EnergyMeter | Obstacle:
    try:
        handle = _handle(nvml, index)
    except Exception as error:
        return Obstacle(NVML, f"the driver does not know cuda:{index}: {error}")
    with suppress(Exception):  # Pascal and earlier, and integrated GPUs, have no counter

        def read_mj() -> int:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))

        if moves(read_mj, sleep):
            return NvmlCounter(read_mj, nvml.nvmlShutdown)

    def read_w() -> float:
        return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3

    try:
        if read_w() > 0.0:
            return SampledMeter(
                NVML, _SCOPE, ["power"], read_w, POWER_INTERVAL_S, closing=nvml.nvmlShutdown, in_thread=in_thread
            )
    except Exception as error:
        return Obstacle(NVML, f"cuda:{index} tells neither energy nor power: {error}")
    return Obstacle(NVML, f"cuda:{index} has no moving energy counter and shows no power")


def _module() -> ModuleType | Obstacle:
    try:
        import pynvml
    except ImportError:
        return Obstacle(NVML, "nvidia-ml-py is not installed", "pip install 'simnmt[nvidia]'")
    return pynvml  # type: ignore[no-any-return]


def _handle(nvml: Any, index: int) -> Any:
    """NVML counts all GPUs in the order of the bus, CUDA only those it may see and the fastest first."""
    with suppress(Exception):
        torch = sys.modules["torch"]  # not worth loading only for this
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(index).uuid}")
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if visible:
        name = visible[index]
        if not name.isdecimal():
            return nvml.nvmlDeviceGetHandleByUUID(name)
        index = int(name)
    return nvml.nvmlDeviceGetHandleByIndex(index)


INA3221 = "ina3221"
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
    """Return every labelled rail whose voltage and current can be read."""
    by_name: dict[str, Rail] = {}
    for rail in (*_by_hwmon(tree), *_by_iio(tree)):
        # The same chip shows under more than one name.
        if rail.name not in by_name and None not in (tree.number(rail.voltage), tree.number(rail.current)):
            by_name[rail.name] = rail
    return list(by_name.values())


def total_rails(all_rails: Sequence[Rail]) -> list[Rail]:
    """Those rails whose sum is the module's power, each joule counted once."""
    by_name = {rail.name: rail for rail in all_rails}
    for supply in SUPPLIES:
        if supply in by_name:
            return [by_name[supply]]
    return [rail for rail in all_rails if PARTS.get(rail.name) not in by_name]


def open_ina3221(tree: Tree, *, in_thread: bool = True) -> SampledMeter | Obstacle:
    """The module's meter; else why not."""
    counted = total_rails(rails(tree))
    if not counted:
        return _why_no_ina3221(tree)
    names = [rail.name for rail in counted]
    whole = "the whole module, by its supply" if names[0] in SUPPLIES else "the sum of the module's rails"

    def read_w() -> float:
        return sum(rail.read_w() for rail in counted)

    try:
        if read_w() <= 0.0:
            return Obstacle(INA3221, f"the rails {', '.join(names)} show no power")
        return SampledMeter(INA3221, whole, names, read_w, INTERVAL_S, in_thread=in_thread)
    except OSError as error:
        return Obstacle(INA3221, str(error))


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


def _why_no_ina3221(tree: Tree) -> Obstacle:
    closed = [name for name in _files(tree) if _is_closed(tree, name)]
    if closed:
        return Obstacle(INA3221, f"/{closed[0]} is not readable", "sudo chmod a+r that folder's *_input files")
    return Obstacle(INA3221, "the system shows no such power monitor; Jetson modules have one")


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


def find_energy_meter(
    device: str, root: str | os.PathLike[str] = "/", *, sleep: Callable[[float], None] = time.sleep
) -> FoundMeter:
    """Open the first counter that counts for `device` ("cpu" or "cuda:N") and moves; else return why each source does not.

    On a Jetson both devices are on the module's rails, and get the same counter.
    """
    tree = Tree.at(root)
    kind, _, number = device.partition(":")
    obstacles: list[Obstacle] = []
    attempt: EnergyMeter | Obstacle
    if kind == "cpu":
        attempt = open_rapl(tree, sleep)
    elif kind == "cuda" and tree.is_this_box:
        attempt = open_nvml(int(number) if number.isdecimal() else 0, sleep)
    else:
        attempt = Obstacle("nvml" if kind == "cuda" else kind, "this device has no energy counter that is known here")
    if isinstance(attempt, Obstacle):
        obstacles.append(attempt)
        attempt = open_ina3221(tree)
    if isinstance(attempt, Obstacle):
        if machine(processors(tree)) != "x86_64":  # where nobody expects such a monitor, its absence explains nothing
            obstacles.append(attempt)
        return FoundMeter(None, tuple(obstacles))
    return FoundMeter(attempt, tuple(obstacles))
