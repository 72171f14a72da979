"""Energy meters of processors (RAPL) and GPUs (NVML). Unreadable is None, never 0.

RAPL: https://docs.kernel.org/power/powercap/powercap.html. NVML: https://docs.nvidia.com/deploy/nvml-api/, untested on a real
GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simnmt.base.packages import install_command
from simnmt.calibrate import box

STILL_S = 0.25
"""Seconds after which a counter counts as not moving: RAPL counts every millisecond, NVML every 20 to 100 ms."""


@dataclass(frozen=True, slots=True)
class EnergyMeter:
    """The energy that a device has used since the meter was opened.

    Read it at least once a minute: between two readings a counter may wrap around once, not twice.
    """

    source: str
    """rapl or nvml."""
    scope: str
    """Parts whose joules are counted, with the system's names of the counters that are summed."""
    resolution_s: float
    """Seconds between two updates: measure at least a hundred times as long."""
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
    """Open the counter of `device` ("cpu" or "cuda:N"); without one that moves, return the obstacle."""
    kind, _, number = device.partition(":")
    name = "rapl" if kind == "cpu" else "nvml"
    try:
        meter = _open_rapl() if kind == "cpu" else _open_nvml(int(number or 0))
        time.sleep(STILL_S)
        if meter.total_j() > 0.0:
            return meter, ""
        meter.close()
        obstacle = "the counter does not move, as on some virtual machines"
    except PermissionError as error:
        # RAPL can leak secrets: CVE-2020-8694. The permission lasts until the next boot.
        obstacle = f"only root may read {error.filename} (sudo chmod a+r it)"
    except ImportError:
        obstacle = f"nvidia-ml-py is not installed ({install_command('nvidia')})"
    except _NoCounterError as error:
        obstacle = str(error)
    except Exception as error:  # NVML has a class for each error; Pascal and earlier, and integrated GPUs, have no counter
        obstacle = f"it cannot be read: {error}"
    return None, f"{name}: {obstacle}"


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
