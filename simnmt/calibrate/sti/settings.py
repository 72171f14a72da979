"""What of a profile of a streamed model can be chosen, and what is refused before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from simnmt.calibrate.errors import CalibrationError

LENGTHS = (16, 32)
MOST_POSITIONS = 10**6


@dataclass(frozen=True, slots=True)
class StiSettings:
    """Raises `CalibrationError` for what cannot be measured."""

    lengths: tuple[int, ...] = LENGTHS
    """Padded tokens of a text; rising."""
    pace_bytes_per_s: float | None = None
    """Of a slower storage to be imitated; None: as fast as the disk gives."""
    repeats: int = 9
    """Of each read and of each layer's width and length."""
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)):
            raise CalibrationError("no lengths, or some twice or out of order", remedy="give rising --lengths, as in 16,32")
        for length in self.lengths:
            self._positive("--lengths", length)
        self._positive("--repeats", self.repeats)
        self._positive("--threads", self.threads)
        if self.pace_bytes_per_s is not None and not (isfinite(self.pace_bytes_per_s) and self.pace_bytes_per_s > 0.0):
            raise CalibrationError("--pace-mb: no pace", remedy="give a positive number of MB/s, or leave it out")

    def within(self, positions: int) -> None:
        """Raise `CalibrationError` where a text of the greatest length is longer than the model takes."""
        if self.lengths[-1] > positions:
            raise CalibrationError(
                f"--lengths: {self.lengths[-1]} tokens where the model takes {positions}", remedy="give smaller ones"
            )

    @staticmethod
    def _positive(name: str, value: int) -> None:
        if not 1 <= value <= MOST_POSITIONS:
            raise CalibrationError(f"{name}: {value}", remedy="give 1 or more")
