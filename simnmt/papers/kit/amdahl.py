"""Amdahl's law: the end-to-end speed-up that a faster part predicts (FNI-17, XP-07)."""

from __future__ import annotations


def end_to_end(share: float, speed_up: float) -> float:
    """How many times faster the whole is when a `share` of its time (0..1) goes `speed_up` times (> 0) as fast."""
    return 1.0 / (1.0 - share + share / speed_up)


def share_needed(whole: float, part: float) -> float:
    """Share of the whole's time that a part must have had for the whole to be `whole` times faster when it is `part` times.

    Above 1 where no share explains it. `part`: not 1.
    """
    return (1.0 - 1.0 / whole) / (1.0 - 1.0 / part)
