"""What is configured of a batcher; mini-, maxi- and top-up batching are three settings of it (FNI-08, 09, 10)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

MAXI = 1_280
"""Sentences that the paper collects and sorts (FNI-09)."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How a server forms its batches. Raises `ValueError` for what makes no batch.

    Two questions are apart from each other: in which order sentences are taken (as they arrived, or sorted), and when
    they join (when all are done, or when some are).
    """

    size: int
    """Most sentences decoded together; a beam counts as one sentence."""
    threshold: int = 0
    """The batch is refilled when at most so many are active; 0: only when all are done."""
    collected: int | None = None
    """Sentences that are collected and sorted by source length before they are taken; None: they are taken as they arrived."""
    longest_wait_s: float = 0.0
    """How long the oldest sentence waits for the batch, or the collection, to fill; 0: whoever waits is taken at once."""
    padded_tokens: int | None = None
    """Most source tokens, padding included, that are encoded or decoded together; a longer sentence goes alone."""
    encoded_together: int | None = None
    """Most sentences encoded together; None: as many as are decoded together."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a batch of {self.size}")
        if not 0 <= self.threshold < self.size:
            raise ValueError(f"threshold {self.threshold}: a batch of {self.size} is never above it")
        if self.collected is not None and self.collected < self.size:
            raise ValueError(f"{self.collected} collected: fewer than a batch of {self.size}")
        if not self.longest_wait_s >= 0.0:
            raise ValueError(f"longest_wait_s {self.longest_wait_s}: no time to wait")
        for name in ("padded_tokens", "encoded_together"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} {value}: nothing fits")


def mini(size: int, longest_wait_s: float = inf) -> Batching:
    """In arrival order; a batch begins when the one before is done (FNI-08)."""
    return Batching(size, longest_wait_s=longest_wait_s)


def maxi(size: int, collected: int = MAXI, longest_wait_s: float = inf) -> Batching:
    """Collect, sort by source length, cut into batches (FNI-09)."""
    return Batching(size, collected=collected, longest_wait_s=longest_wait_s)


def top_up(size: int, threshold: int, collected: int | None = None, longest_wait_s: float = 0.0) -> Batching:
    """Refill a batch that still runs when at most `threshold` are active (FNI-10); `collected`: with maxi-batching."""
    return Batching(size, threshold, collected, longest_wait_s)


def immediate(size: int) -> int:
    """The threshold at which a sentence that is done is replaced at once (FNI-10, algorithm 6)."""
    return size - 1


def half_empty(size: int) -> int:
    """The threshold at which a batch is refilled when at least half of it is empty: the authors' choice (FNI-10)."""
    return size // 2
