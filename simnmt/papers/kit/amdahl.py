"""Amdahl's law: the end-to-end speed-up that a faster part predicts (FNI-17, XP-07)."""

from __future__ import annotations


def end_to_end(share: float, speed_up: float) -> float:
    """Return the speed-up of the whole if a `share` of its time (0..1) gets `speed_up` (> 0) times as fast."""
    return 1.0 / (1.0 - share + share / speed_up)


def share_needed(whole: float, part: float) -> float:
    """Return the share of the time that a part had if its speed-up `part` (not 1) makes the whole `whole` times as fast.

    The result is above 1 if no share explains the speed-up.
    """
    return (1.0 - 1.0 / whole) / (1.0 - 1.0 / part)
