"""A whole calibration: load the model, measure by plan, fit, and write the profile."""

from __future__ import annotations

import os
from dataclasses import dataclass

from simnmt.calibrate.progress import Listener, Silent
from simnmt.calibrate.settings import Settings
from simnmt.costs import DeviceProfile


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What came of a calibration."""

    profile: DeviceProfile
    warnings: tuple[str, ...]
    """What may have spoilt the numbers, or was left out; one sentence each."""
    replaced: bool
    """Whether another profile stood at the same place before."""


def calibrate(
    settings: Settings,
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    device_name: str | None = None,
    listener: Listener = Silent,
) -> Calibrated:
    """Measure a model on this box and write its device profile to `out`.

    Each measurement is kept at once in `OUT.journal.jsonl`; the same call after an interruption goes on from there, and the
    journal goes when the profile is written. `name` and `device_name`: of the profile and of the box, by default the file's
    and the processor's. Raises `CalibrationError`, `NmtError` and `DiskError`, in each case with what was measured kept.
    """
    raise NotImplementedError
