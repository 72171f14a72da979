"""What a calibration tells while it runs."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Is told how far a calibration is."""

    def say(self, text: str) -> None:
        """One line that a reader should not miss."""

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        """One more measurement of a part is done; seconds of measuring since the start, and left by what is known now."""


class _Silent:
    def say(self, text: str) -> None:
        pass

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        pass


Silent: Listener = _Silent()
