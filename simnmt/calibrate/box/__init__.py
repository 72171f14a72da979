"""The box at hand: what stands in it, what bounds its speed, and what runs on it. Needs neither torch nor numpy."""

from __future__ import annotations

from simnmt.calibrate.box.describe import BoxDescription, GpuDescription, JetsonDescription, describe

__all__ = ["BoxDescription", "GpuDescription", "JetsonDescription", "describe"]
