"""A box made of numbers under a whole calibration: what describes it, its disk, and how little is measured of it."""

from __future__ import annotations

from typing import Any

from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.disk import DiskReads
from simnmt.calibrate.settings import Settings

QUICK = Settings("gru", mode="quick", threads=1)
BOX = BoxDescription(
    machine="x86_64", system="Linux 6.1", cpu_model="Abacus 3000", logical_cores=4, allowed_cpus=(0, 1, 2, 3),
    governor="performance", frequency_mhz=3000.0, load_average=(0.1, 0.2, 0.3),
)  # fmt: skip
CANDIDATES = {"gemm": "float32", "candidates": 500}
"""How an engine's decoder was written."""


def disk_samples(*_: Any, **__: Any) -> DiskReads:
    read_s = {size: [0.001 + size / 2e8] * 3 for size in (10**6, 4 * 10**6, 16 * 10**6)}
    return DiskReads(read_s, cold=True, cold_check="made up", file_system="none")
