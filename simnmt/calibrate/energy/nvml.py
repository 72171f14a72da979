"""NVML: energy of one NVIDIA GPU with its memory, from its own counter (Volta and later) or else from its sampled power.

Calls and units: https://docs.nvidia.com/deploy/nvml-api/. Untested on a real GPU.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from simnmt.calibrate.energy.meter import EnergyMeter, Obstacle, moves
from simnmt.calibrate.energy.sampled import SampledMeter

SOURCE = "nvml"
POWER_INTERVAL_S = 0.05
COUNTER_RESOLUTION_S = 0.1
_SCOPE = "the GPU with its memory and circuits"


class NvmlCounter:
    """The GPU's energy counter."""

    source = SOURCE
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
    """The meter of `cuda:index`; else why not. `nvml` stands in for the module pynvml."""
    if nvml is None:
        nvml = _module()
    if isinstance(nvml, Obstacle):
        return nvml
    try:
        nvml.nvmlInit()
    except Exception as error:
        return Obstacle(SOURCE, f"no NVIDIA driver answers: {error}", "install the driver, or run where there is a GPU")
    found = _opened(nvml, index, sleep, in_thread)
    if isinstance(found, Obstacle):
        with suppress(Exception):
            nvml.nvmlShutdown()
    return found


def _opened(nvml: Any, index: int, sleep: Callable[[float], None], in_thread: bool) -> EnergyMeter | Obstacle:
    try:
        handle = _handle(nvml, index)
    except Exception as error:
        return Obstacle(SOURCE, f"the driver does not know cuda:{index}: {error}")
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
                SOURCE, _SCOPE, ["power"], read_w, POWER_INTERVAL_S, closing=nvml.nvmlShutdown, in_thread=in_thread
            )
    except Exception as error:
        return Obstacle(SOURCE, f"cuda:{index} tells neither energy nor power: {error}")
    return Obstacle(SOURCE, f"cuda:{index} has no moving energy counter and shows no power")


def _module() -> ModuleType | Obstacle:
    try:
        import pynvml
    except ImportError:
        return Obstacle(SOURCE, "nvidia-ml-py is not installed", "pip install 'simnmt[nvidia]'")
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
