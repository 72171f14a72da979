"""Energy meters of processors (RAPL), GPUs (NVML) and Jetson modules (INA3221). Unreadable is None, never 0.

RAPL: https://docs.kernel.org/power/powercap/powercap.html. NVML: https://docs.nvidia.com/deploy/nvml-api/, untested on a real
GPU. INA3221: https://docs.kernel.org/hwmon/ina3221.html, untested on a real Jetson.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simnmt.base.packages import install_command
from simnmt.calibrate import box

STILL_S = 0.25
"""Seconds after which a counter counts as not moving: RAPL counts every millisecond, NVML every 20 to 100 ms."""
SAMPLE_S = 0.02
"""Seconds between two samples of a Jetson's power. The chip averages over a few to some tens of milliseconds."""


@dataclass(frozen=True, slots=True)
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
    total_j: Callable[[], float]
    """Returns the joules since the meter was opened; may raise any exception."""
    close: Callable[[], object] = lambda: None
    """Releases the counter."""

    def read_j(self) -> float | None:
        """Return the joules since the meter was opened; None if the counter fails."""
        try:
            return self.total_j()
        except Exception:  # NVML has a class for each error
            return None


def find_energy_meter(device: str) -> tuple[EnergyMeter | None, str]:
    """Open the first counter of `device` ("cpu" or "cuda:N") that moves; without one, return what hinders each source.

    On a Jetson both devices are on the module's rails, and get the same counter.
    """
    kind, _, number = device.partition(":")
    first = ("rapl", _open_rapl) if kind == "cpu" else ("nvml", partial(_open_nvml, int(number or 0)))
    obstacles = []
    for name, open_source in (first, ("ina3221", _open_ina3221)):
        try:
            meter = open_source()
            time.sleep(STILL_S)
            if meter.total_j() > 0.0:
                return meter, ""
            meter.close()
            obstacles.append(f"{name}: the counter does not move, as on some virtual machines")
        except PermissionError as error:  # noqa: PERF203
            # RAPL can leak secrets: CVE-2020-8694. The permission lasts until the next boot.
            obstacles.append(f"{name}: only root may read {error.filename} (sudo chmod a+r it)")
        except ImportError:
            obstacles.append(f"{name}: nvidia-ml-py is not installed ({install_command('nvidia')})")
        except _NoCounterError as error:
            if name != "ina3221":
                obstacles.append(f"{name}: {error}")
        except Exception as error:  # NVML has a class for each error; Pascal and earlier, and integrated GPUs, have no counter
            obstacles.append(f"{name}: it cannot be read: {error}")
    return None, "; ".join(obstacles)


class _NoCounterError(Exception):
    pass


def joules_since(read_uj: Callable[[], int], range_uj: int | None = None) -> Callable[[], float]:
    """Return a function for the joules from now on, by a counter of microjoules.

    `range_uj`: its highest value, after which it begins again at 0; None: unknown.
    """
    last_uj, sum_uj = read_uj(), 0

    def total_j() -> float:
        nonlocal last_uj, sum_uj
        step_uj = read_uj() - last_uj
        if step_uj < 0 and range_uj is None:
            raise ValueError("the counter went back: perhaps its driver was loaded again")
        last_uj += step_uj
        sum_uj += step_uj % (range_uj + 1) if range_uj is not None else step_uj
        return sum_uj / 1e6

    return total_j


def _open_rapl() -> EnergyMeter:
    """Return the meter of the processor packages. Zones below them are parts, `psys` contains them, `mmio` repeats them."""
    zones = {zone: box.system_text(zone / "name") or "" for zone in sorted(box.ROOT.glob("sys/class/powercap/intel-rapl:*"))}
    packages = {zone: name for zone, name in zones.items() if name.startswith("package")}
    if not packages:
        raise _NoCounterError("no counters, as on virtual machines and Arm boxes (else: sudo modprobe intel_rapl_msr)")

    def counter(zone: Path) -> Callable[[], float]:
        return joules_since(lambda: int((zone / "energy_uj").read_text()), box.system_number(zone / "max_energy_range_uj"))

    counters = list(map(counter, packages))
    scope = f"processor packages, without memory modules, disks and fans ({', '.join(packages.values())})"
    return EnergyMeter("rapl", scope, 1e-3, lambda: sum(total_j() for total_j in counters))


def _open_nvml(index: int) -> EnergyMeter:
    """Return the meter of `cuda:index`, a counter of Volta and later cards."""
    import pynvml

    pynvml.nvmlInit()
    if pynvml.nvmlDeviceGetCount() == 1:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    else:  # NVML and CUDA number several GPUs differently; torch knows the identifier of each
        import torch

        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(index).uuid}")
    total_j = joules_since(lambda: 1_000 * int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)))
    return EnergyMeter("nvml", "the GPU with its memory and circuits", 0.1, total_j, close=pynvml.nvmlShutdown)


SUPPLIES = ("VDD_IN", "POM_5V_IN")
"""Rails that feed all other rails: of Orin NX and Nano, Xavier NX, TX2, and of the first Nano."""
FED = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
"""Rails that another rail feeds (AGX Orin: Jetson Linux developer guide 36.4.3, software-based power consumption modeling)."""


def _open_ina3221() -> EnergyMeter:
    """Return the meter of the rails whose sum is the module's power, each joule counted once."""
    rails = {}
    for chip in box.ROOT.glob("sys/class/hwmon/hwmon*"):
        for channel in (1, 2, 3) if box.system_text(chip / "name") == "ina3221" else ():  # those above are sums of these
            if (name := box.system_text(chip / f"in{channel}_label")) and name != "NC":
                rails[name] = (chip / f"in{channel}_input", chip / f"curr{channel}_input")
    names = [name for name in SUPPLIES if name in rails] or [name for name in rails if FED.get(name) not in rails]
    if not names:
        raise _NoCounterError

    def read_w() -> float:
        """Return the power, of files in mV and mA."""
        return sum(int(rails[name][0].read_text()) * int(rails[name][1].read_text()) / 1e6 for name in names)

    power = _SampledPower(read_w)
    return EnergyMeter("ina3221", f"the module ({', '.join(sorted(names))})", SAMPLE_S, power.total_j, power.close)


class _SampledPower(threading.Thread):
    """The joules of a power that is sampled every `SAMPLE_S`, and linear from each sample to the next."""

    def __init__(self, read_w: Callable[[], float]) -> None:
        super().__init__(name="simnmt-power", daemon=True)
        self._read_w, self._ended, self._joules = read_w, threading.Event(), 0.0
        self._last_s, self._last_w = time.perf_counter(), read_w()
        self.start()

    def run(self) -> None:
        with suppress(OSError, ValueError):  # the thread ends, which `total_j` reports
            while not self._ended.wait(SAMPLE_S):
                now_s, now_w = time.perf_counter(), self._read_w()
                self._joules += (now_s - self._last_s) * (self._last_w + now_w) / 2.0
                self._last_s, self._last_w = now_s, now_w

    def total_j(self) -> float:
        if not self.is_alive():
            raise OSError("the power could not be read")
        return self._joules

    def close(self) -> None:
        self._ended.set()
        self.join()
