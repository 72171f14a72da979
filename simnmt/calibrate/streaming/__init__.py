"""Calibration of streamed models: `measurements.py` times reads, layers and decoder steps, `profile.py` makes the profile."""

from __future__ import annotations
