"""Description of this box: its hardware, the limits of its speed, and its software. Needs neither torch nor numpy."""

from __future__ import annotations

from simnmt.calibrate.box.describe import BoxDescription, GpuDescription, JetsonDescription, describe

__all__ = ["BoxDescription", "GpuDescription", "JetsonDescription", "describe"]
