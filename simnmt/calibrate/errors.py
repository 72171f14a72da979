"""What a calibration refuses: what was asked of it, or what this box cannot do."""

from __future__ import annotations

from simnmt.errors import InputError


class CalibrationError(InputError):
    """A measurement that cannot be begun, or gone on with: says why, and the remedy."""
