"""What the batches of one target's servers were like: sizes, times, padding, and the first steps one by one (FNI-12)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

TIMELINE = 2_000
"""Changes of the batch that a timeline holds at most."""


def _no_changes() -> NDArray[np.int64]:
    return np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class BatchAccount:
    """The batches of one target, over all its servers. Raises `ValueError` where the histograms do not fit `size`."""

    size: int
    """Most sentences decoded together."""
    steps: NDArray[np.int64]
    """Decode steps with k sentences active, shape (size + 1,)."""
    step_s: NDArray[np.float64]
    """Seconds in these steps, with the gaps between them; shape (size + 1,)."""
    encode_s: float
    refill_s: float
    encodings: int
    """Calls of the encoder."""
    refills: int
    """Times that sentences joined."""
    src_tokens: int
    """Source tokens encoded."""
    padded_tokens: int
    """The same with the padding to each call's longest sentence."""
    sentences: int
    """Translated."""
    tokens: int
    """Target tokens, a decode step of one sentence each."""
    busy_s: float
    """In which a server encoded, refilled or decoded, all servers together."""
    timeline: NDArray[np.int64] = field(default_factory=_no_changes)
    """(steps taken before, active from there on) at each change of the first server's batch, shape (changes, 2); the first
    `TIMELINE` changes."""

    def __post_init__(self) -> None:
        for name in ("steps", "step_s"):
            if getattr(self, name).shape != (self.size + 1,):
                raise ValueError(f"{name}: {getattr(self, name).shape} for batches of up to {self.size}")

    @property
    def mean_active(self) -> float:
        """Sentences active in a step, on average; NaN without a step."""
        steps = int(self.steps.sum())
        return float(np.dot(self.steps, np.arange(self.size + 1)) / steps) if steps else float("nan")

    @property
    def share_full(self) -> float:
        """Share of the steps with a full batch; NaN without a step."""
        steps = int(self.steps.sum())
        return float(self.steps[self.size] / steps) if steps else float("nan")

    def share_below(self, active: int) -> float:
        """Share of the steps with fewer than so many active; NaN without a step."""
        steps = int(self.steps.sum())
        return float(self.steps[:active].sum() / steps) if steps else float("nan")

    @property
    def padding_share(self) -> float:
        """Share of the encoder's tokens that are padding; NaN where nothing was encoded."""
        return 1.0 - self.src_tokens / self.padded_tokens if self.padded_tokens else float("nan")

    def merged(self, others: Iterable[BatchAccount]) -> BatchAccount:
        """This account and others of batches of the same size as one; the timeline stays this one's. Raises `ValueError`."""
        accounts = (self, *others)
        if any(other.size != self.size for other in accounts):
            raise ValueError(f"batches of {sorted({other.size for other in accounts})} together")
        summed = (each.name for each in fields(self) if each.name not in ("size", "timeline"))
        values: dict[str, Any] = {name: sum(getattr(other, name) for other in accounts) for name in summed}
        return BatchAccount(size=self.size, timeline=self.timeline, **values)

    def as_json(self) -> dict[str, Any]:
        """As JSON keeps it, without the timeline."""
        return {
            each.name: value.tolist() if isinstance(value, np.ndarray) else value
            for each in fields(self)
            if each.name != "timeline"
            for value in (getattr(self, each.name),)
        }
