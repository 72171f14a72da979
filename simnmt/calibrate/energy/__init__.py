"""Energy counters, read by ourselves: RAPL and INA3221 by sysfs, NVML by NVIDIA's library. Unreadable is None, never 0."""

from __future__ import annotations

from simnmt.calibrate.energy.find import find_energy_meter
from simnmt.calibrate.energy.meter import EnergyMeter, FoundMeter, Obstacle

__all__ = ["EnergyMeter", "FoundMeter", "Obstacle", "find_energy_meter"]
