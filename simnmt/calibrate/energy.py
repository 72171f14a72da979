"""Energy meters of processors (RAPL), GPUs (NVML) and Jetson modules (INA3221). Unreadable is None, never 0.

RAPL: https://docs.kernel.org/power/powercap/powercap.html. NVML: https://docs.nvidia.com/deploy/nvml-api/, untested on a real
GPU. INA3221: https://docs.kernel.org/hwmon/ina3221.html, untested on a real Jetson.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from simnmt.base.packages import install_command
from simnmt.calibrate import box

STILL_S = 0.25
"""Seconds after which a counter counts as not moving: RAPL counts every millisecond, NVML every 20 to 100 ms."""


@dataclass
class EnergyMeter:
    """The energy that a device has used since the meter was opened.

    Read it at least once a minute: between two readings a counter may wrap around once, not twice.
    """

    source: str
    """rapl, ina3221 or nvml."""
    scope: str
    """Parts whose joules are counted, with the system's names of the counters or rails that are summed."""
    resolution_s: float
    """Seconds between two updates or samples: measure at least a hundred times as long."""
    step_j: Callable[[], float]
    """Returns the joules since its last call; may raise any exception."""
    is_sampled: bool = False
    """Whether a thread calls `step_j` every `resolution_s`, which takes some of the interpreter's time."""
    release: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self._sum_j: float | None = 0.0
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._sample, name=f"simnmt-{self.source}", daemon=True)
        if self.is_sampled:
            self._thread.start()

    def read_j(self) -> float | None:
        """Return the joules since the meter was opened; None after the first failed reading."""
        with self._lock:
            if self._sum_j is not None:
                try:
                    self._sum_j += self.step_j()
                except Exception:  # NVML has a class for each error
                    self._sum_j = None
            return self._sum_j

    def close(self) -> None:
        """Release the counter and end a sampling thread. A second call has no effect."""
        if not self._end.is_set():
            self._end.set()
            if self._thread.is_alive():
                self._thread.join()
            with suppress(Exception):
                self.release()

    def _sample(self) -> None:
        while not self._end.wait(self.resolution_s):
            self.read_j()


class FoundMeter(NamedTuple):
    """A meter, or the obstacles to it."""

    meter: EnergyMeter | None
    obstacles: tuple[str, ...] = ()
    """For each source that failed: its name, the reason, and the remedy in parentheses."""


def find_energy_meter(device: str) -> FoundMeter:
    """Open the first counter of `device` ("cpu" or "cuda:N") that moves, or return the obstacle to each source.

    On a Jetson both devices are on the module's rails, and get the same counter.
    """
    kind, _, number = device.partition(":")
    obstacles = []
    for open_source in (_open_rapl if kind == "cpu" else partial(_open_nvml, int(number or 0)), _open_ina3221):
        meter = open_source()
        if isinstance(meter, EnergyMeter):
            return FoundMeter(meter)
        if meter is not None:
            obstacles.append(meter)
    return FoundMeter(None, tuple(obstacles))


def counter_steps(counters_uj: Sequence[Callable[[], int]], ranges_uj: Sequence[int | None]) -> Callable[[], float]:
    """Return a function for the joules since its last call, by counters of microjoules.

    `ranges_uj`: the highest value of each, after which it begins again at 0; None: unknown.
    """
    last_uj = [counter() for counter in counters_uj]

    def step_j() -> float:
        sum_uj = 0
        for at, (counter, range_uj) in enumerate(zip(counters_uj, ranges_uj, strict=True)):
            now_uj = counter()
            if now_uj < last_uj[at] and range_uj is None:
                raise ValueError("the counter went back: perhaps its driver was loaded again")
            sum_uj += now_uj - last_uj[at] + (range_uj + 1 if now_uj < last_uj[at] and range_uj is not None else 0)
            last_uj[at] = now_uj
        return sum_uj / 1e6

    return step_j


def power_steps(read_w: Callable[[], float], now: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    """Return a function for the joules since its last call, of a power that is linear from each reading to the next."""
    last_s, last_w = now(), read_w()

    def step_j() -> float:
        nonlocal last_s, last_w
        begin_s, begin_w = last_s, last_w
        last_s, last_w = now(), read_w()
        return (last_s - begin_s) * (last_w + begin_w) / 2

    return step_j


def _moves(step_j: Callable[[], float]) -> bool:
    """Return whether a counter changes within `STILL_S`: one that does not would give 0 J for everything."""
    for _ in range(25):
        time.sleep(STILL_S / 25)
        if step_j() > 0.0:
            return True
    return False


def _open_rapl() -> EnergyMeter | str:
    """Return the meter of the processor packages. Zones below them are parts, `psys` contains them, `mmio` repeats them."""
    zones = {zone: box.system_text(zone / "name") or "" for zone in sorted(box.ROOT.glob("sys/class/powercap/intel-rapl:*"))}
    packages = {zone: name for zone, name in zones.items() if name.startswith("package")}
    if not packages:
        return (
            "rapl: the system shows no /sys/class/powercap/intel-rapl:*, as virtual machines, containers and Arm boxes do not "
            "(on an x86 box itself: sudo modprobe intel_rapl_msr)"
        )
    counters = [lambda file=zone / "energy_uj": int(file.read_text(encoding="ascii")) for zone in packages]
    try:
        step_j = counter_steps(counters, [box.system_number(zone / "max_energy_range_uj") for zone in packages])
        if not _moves(step_j):
            return "rapl: the counters do not move, as in some virtual machines (measure energy on the hardware itself)"
    except PermissionError:
        # https://www.intel.com/content/www/us/en/security-center/advisory/intel-sa-00389.html
        return (
            "rapl: only root may read the counters, since they can leak secrets, CVE-2020-8694 "
            "(sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj, which lasts until the next boot)"
        )
    except (OSError, ValueError) as error:
        return f"rapl: a counter cannot be read: {error}"
    scope = f"processor packages, without memory modules, disks and fans ({', '.join(packages.values())})"
    return EnergyMeter("rapl", scope, 1e-3, step_j)


def _open_nvml(index: int) -> EnergyMeter | str:
    """Return the meter of `cuda:index`, from its counter (Volta and later) or else its sampled power."""
    try:
        import pynvml
    except ImportError:
        return f"nvml: nvidia-ml-py is not installed ({install_command('nvidia')})"
    try:
        pynvml.nvmlInit()
        handle, scope = _nvml_handle(pynvml, index), "the GPU with its memory and circuits"

        def read_uj() -> int:
            return 1_000 * int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))

        with suppress(Exception):  # Pascal and earlier, and integrated GPUs, have no counter
            step_j = counter_steps([read_uj], [None])
            if _moves(step_j):
                return EnergyMeter("nvml", f"{scope} (total energy)", 0.1, step_j, release=pynvml.nvmlShutdown)
        sampled_j = power_steps(lambda: float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1e3)
        return EnergyMeter("nvml", f"{scope} (power)", 0.05, sampled_j, is_sampled=True, release=pynvml.nvmlShutdown)
    except Exception as error:
        return f"nvml: no energy of cuda:{index}: {error}"


def _nvml_handle(nvml: Any, index: int) -> Any:
    """Return NVML's handle of CUDA's GPU: NVML numbers all GPUs by bus, CUDA the visible ones, the fastest first."""
    with suppress(Exception):
        torch = sys.modules["torch"]  # not worth loading only for this
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(index).uuid}")
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = visible[index] if visible else str(index)
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(name)


SUPPLIES = ("VDD_IN", "POM_5V_IN")
"""Rails that feed all other rails: of Orin NX and Nano, Xavier NX, TX2, and of the first Nano."""
FED = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
"""Rails that another rail feeds (AGX Orin: Jetson Linux developer guide 36.4.3, software-based power consumption modeling)."""


def _open_ina3221() -> EnergyMeter | str | None:
    """Return the meter of the rails whose sum is the module's power, each joule counted once; None without such a monitor."""
    rails = {}
    for chip in sorted(box.ROOT.glob("sys/class/hwmon/hwmon*")):
        for channel in (1, 2, 3) if box.system_text(chip / "name") == "ina3221" else ():  # those above are sums of these
            name = box.system_text(chip / f"in{channel}_label")
            if name and name != "NC" and box.system_number(chip / f"in{channel}_enable") != 0:
                rails[name] = (chip / f"in{channel}_input", chip / f"curr{channel}_input")
    if not rails:
        return None
    whole = [name for name in SUPPLIES if name in rails][:1]
    names = whole or [name for name in rails if FED.get(name) not in rails]

    def read_w() -> float:
        """Return the power, of files in mV and mA."""
        files = (rails[name] for name in names)
        return sum(int(voltage.read_text()) * int(current.read_text()) / 1e6 for voltage, current in files)

    scope = "the whole module, by its supply" if whole else "the sum of the module's rails"
    try:
        # The chip averages over a few to some tens of milliseconds, and each file asks it over I2C.
        return EnergyMeter("ina3221", f"{scope} ({', '.join(names)})", 0.02, power_steps(read_w), is_sampled=True)
    except (OSError, ValueError) as error:
        return f"ina3221: {error} (sudo chmod a+r that folder's *_input files)"
