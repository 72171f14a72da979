"""Energy counters of processors, GPUs and Jetson modules, and the choice for a device. Unreadable is None, never 0.

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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from simnmt.base.packages import install_command
from simnmt.calibrate.box.processor import machine, processors, virtualisation
from simnmt.calibrate.box.system_files import Tree
from simnmt.calibrate.energy_meter import EnergyMeter, FoundMeter, Obstacle, SampledMeter, moves

RAPL = "rapl"
_ROOT_ONLY = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj, which lasts until the next boot"


@dataclass(frozen=True, slots=True)
class Counter:
    """One energy counter."""

    name: str
    read_uj: Callable[[], int]
    """Returns the present value in microjoules; may raise any exception."""
    range_uj: int | None = None
    """The highest value, after which the counter begins again at 0; None: unknown."""


@dataclass(slots=True)
class CounterMeter:
    """A meter that adds up counters, past their wrapping around."""

    source: str
    scope: str
    resolution_s: float
    counters: Sequence[Counter]
    closing: Callable[[], object] | None = None
    domains: tuple[str, ...] = field(init=False)
    _last_uj: list[int] = field(init=False)
    _sum_uj: int | None = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.domains = tuple(counter.name for counter in self.counters)
        self._last_uj = [counter.read_uj() for counter in self.counters]

    def read_j(self) -> float | None:
        """Return the joules since the meter was opened; None after the first failed reading."""
        if self._sum_uj is None:
            return None
        try:
            for at, counter in enumerate(self.counters):
                now_uj = counter.read_uj()
                step_uj = now_uj - self._last_uj[at]
                if step_uj < 0:
                    if counter.range_uj is None or counter.range_uj < self._last_uj[at]:
                        raise ValueError("the counter went back, and its range is unknown: perhaps its driver was loaded again")
                    # From the last reading to the highest value, one more to 0, and on to the present value.
                    step_uj += counter.range_uj + 1
                self._sum_uj += step_uj
                self._last_uj[at] = now_uj
        except Exception:  # NVML has a class for each error
            self._sum_uj = None
            return None
        return self._sum_uj / 1e6

    def close(self) -> None:
        """Release the counters."""
        closing, self.closing, self._sum_uj = self.closing, None, None
        if closing is not None:
            with suppress(Exception):
                closing()


def packages(tree: Tree) -> list[Counter]:
    """Return the counters of the processor packages.

    Zones under them (core, dram) are parts or neighbours; `psys` contains them, and `intel-rapl-mmio` repeats them.
    """
    counters = []
    for zone in tree.names("sys/class/powercap/intel-rapl:*"):
        name = tree.text(f"{zone}/name") or ""
        path = tree.path(f"{zone}/energy_uj")
        if name.startswith("package") and path.exists():
            counters.append(Counter(name, partial(_read_number, path), tree.number(f"{zone}/max_energy_range_uj")))
    return counters


def _read_number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


def open_rapl(tree: Tree, sleep: Callable[[float], None] = time.sleep) -> CounterMeter | Obstacle:
    """Return the packages' meter, or the obstacle to it."""
    counters = packages(tree)
    if not counters:
        return _why_no_rapl(tree)
    try:
        meter = CounterMeter(RAPL, "processor packages, without memory modules, disks and fans", 1e-3, counters)
    except PermissionError:
        # https://www.intel.com/content/www/us/en/security-center/advisory/intel-sa-00389.html
        return Obstacle(RAPL, "only root may read the counters, since they can leak secrets (CVE-2020-8694)", _ROOT_ONLY)
    except (OSError, ValueError) as error:
        return Obstacle(RAPL, f"a counter cannot be read: {error}")
    if not moves(lambda: meter.read_j() or 0.0, sleep):
        return Obstacle(RAPL, "the counters do not move, as in some virtual machines", _on_hardware(tree))
    return meter


def _why_no_rapl(tree: Tree) -> Obstacle:
    cpus = processors(tree)
    if machine(cpus) not in (None, "x86_64"):
        return Obstacle(RAPL, "only x86 processors have it")
    if virtualisation(tree, cpus):
        return Obstacle(RAPL, "a virtual machine or container has no access to energy counters", _on_hardware(tree))
    if not tree.path("sys/class").is_dir():
        return Obstacle(RAPL, "it is read from Linux's /sys/class/powercap/intel-rapl:*, and this system has no /sys")
    return Obstacle(RAPL, "the system shows no /sys/class/powercap/intel-rapl:*", "sudo modprobe intel_rapl_msr")


def _on_hardware(tree: Tree) -> str | None:
    return "measure energy on the hardware itself" if virtualisation(tree, processors(tree)) else None


NVML = "nvml"
POWER_INTERVAL_S = 0.05
COUNTER_RESOLUTION_S = 0.1
_SCOPE = "the GPU with its memory and circuits"


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
        counter = Counter("total energy", lambda: 1_000 * int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)))
        if moves(counter.read_uj, sleep):
            return CounterMeter(NVML, _SCOPE, COUNTER_RESOLUTION_S, [counter], nvml.nvmlShutdown)

    def read_w() -> float:
        return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3

    try:
        if read_w() > 0.0:
            closing = nvml.nvmlShutdown
            return SampledMeter(NVML, _SCOPE, ("power",), read_w, POWER_INTERVAL_S, closing=closing, in_thread=in_thread)
    except Exception as error:
        return Obstacle(NVML, f"cuda:{index} reports neither energy nor power: {error}")
    return Obstacle(NVML, f"cuda:{index} has no moving energy counter and shows no power")


def _module() -> ModuleType | Obstacle:
    try:
        import pynvml
    except ImportError:
        return Obstacle(NVML, "nvidia-ml-py is not installed", install_command("nvidia"))
    return pynvml  # type: ignore[no-any-return]


def _handle(nvml: Any, index: int) -> Any:
    """Return NVML's handle of CUDA's GPU: NVML numbers all GPUs by bus, CUDA the visible ones, the fastest first."""
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
"""The chip averages over a few to some tens of milliseconds, and each file asks it over I2C."""

SUPPLIES = ("VDD_IN", "POM_5V_IN")
"""Rails that feed all other rails: of Orin NX and Nano, Xavier NX, TX2, and of the first Nano."""
PARTS = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
"""Rails that another rail feeds (AGX Orin: Jetson Linux developer guide 36.4.3, software-based power consumption modeling)."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One supply rail with files for its voltage and its current."""

    name: str
    tree: Tree
    voltage: str
    """File in mV."""
    current: str
    """File in mA."""

    def read_w(self) -> float:
        """Return the present power. Raises `OSError` if a file is unreadable or holds no number."""
        voltage_mv, current_ma = self.tree.number(self.voltage), self.tree.number(self.current)
        if voltage_mv is None or current_ma is None:
            raise OSError(f"{self.name}: no reading")
        return voltage_mv * current_ma / 1e6


def rails(tree: Tree) -> list[Rail]:
    """Return every labelled rail whose voltage and current can be read."""
    by_name: dict[str, Rail] = {}
    for rail in _rails(tree):
        # The same chip may have more than one folder.
        if rail.name not in by_name and None not in (tree.number(rail.voltage), tree.number(rail.current)):
            by_name[rail.name] = rail
    return list(by_name.values())


def total_rails(all_rails: Sequence[Rail]) -> list[Rail]:
    """Return the rails whose sum is the module's power, each joule counted once."""
    by_name = {rail.name: rail for rail in all_rails}
    for supply in SUPPLIES:
        if supply in by_name:
            return [by_name[supply]]
    return [rail for rail in all_rails if PARTS.get(rail.name) not in by_name]


def open_ina3221(tree: Tree, *, in_thread: bool = True) -> SampledMeter | Obstacle:
    """Return the module's meter, or the obstacle to it."""
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
        return SampledMeter(INA3221, whole, tuple(names), read_w, INTERVAL_S, in_thread=in_thread)
    except OSError as error:
        return Obstacle(INA3221, str(error))


def _rails(tree: Tree) -> Iterator[Rail]:
    """Yield the labelled rails of the hwmon driver, then those of the older iio driver."""
    chips = [folder for folder in tree.names("sys/class/hwmon/hwmon*") if tree.text(f"{folder}/name") == "ina3221"]
    for chip in (*chips, *tree.names("sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*")):
        for channel in (1, 2, 3):  # the channels above are sums of these
            name = tree.text(f"{chip}/in{channel}_label")
            if name and name != "NC" and tree.number(f"{chip}/in{channel}_enable") != 0:
                yield Rail(name, tree, f"{chip}/in{channel}_input", f"{chip}/curr{channel}_input")
    for chip in tree.names("sys/bus/i2c/drivers/ina3221x/*/iio*device*"):
        for channel in (0, 1, 2):
            name = tree.text(f"{chip}/rail_name_{channel}")
            if name and name != "NC":
                yield Rail(name, tree, f"{chip}/in_voltage{channel}_input", f"{chip}/in_current{channel}_input")


def _why_no_ina3221(tree: Tree) -> Obstacle:
    closed = [name for rail in _rails(tree) for name in (rail.voltage, rail.current) if _is_closed(tree, name)]
    if closed:
        return Obstacle(INA3221, f"/{closed[0]} is not readable", "sudo chmod a+r that folder's *_input files")
    return Obstacle(INA3221, "the system shows no such power monitor; Jetson modules have one")


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
    """Open the first counter of `device` ("cpu" or "cuda:N") that moves, or return the obstacle to each source.

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
        attempt = Obstacle("nvml" if kind == "cuda" else kind, "no energy counter is known for this device")
    if isinstance(attempt, Obstacle):
        obstacles.append(attempt)
        attempt = open_ina3221(tree)
    if isinstance(attempt, Obstacle):
        if machine(processors(tree)) != "x86_64":  # x86 boxes have no such monitor: its absence explains nothing
            obstacles.append(attempt)
        return FoundMeter(None, tuple(obstacles))
    return FoundMeter(attempt, tuple(obstacles))
