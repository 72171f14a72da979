"""What a search finds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation."""

    tokens: tuple[int, ...]
    """Without the start token and, where it ended by itself, without the end token."""
    score: float | None
    """Sum of log-probabilities (natural), the end token's included, divided by how many they are to the power of the
    length penalty, which is 1 in greedy search; None where none was asked for."""
    steps: int = field(default=0, compare=False)
    """Decode steps taken for the sentence: its tokens and the end in greedy search; a beam runs on beyond its best."""
