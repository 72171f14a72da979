"""The account of one server's batches, under way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simnmt.results.batches import TIMELINE, BatchAccount


class RunningAccount:
    """What one server has done so far, in plain numbers."""

    __slots__ = (
        "_encode_s",
        "_encodings",
        "_last_active",
        "_padded_tokens",
        "_refill_s",
        "_refills",
        "_sentences",
        "_src_tokens",
        "_step_s",
        "_steps",
        "_timeline",
        "_tokens",
    )

    def __init__(self, size: int) -> None:
        self._steps, self._step_s = [0] * (size + 1), [0.0] * (size + 1)
        self._encode_s, self._refill_s = 0.0, 0.0
        self._encodings, self._refills = 0, 0
        self._src_tokens, self._padded_tokens = 0, 0
        self._sentences, self._tokens = 0, 0
        self._timeline: list[tuple[int, int]] = []
        self._last_active = 0

    def encoded(self, src_lens: Sequence[int], seconds: float) -> None:
        """One call of the encoder."""
        self._encodings += 1
        self._encode_s += seconds
        self._src_tokens += sum(src_lens)
        self._padded_tokens += max(src_lens) * len(src_lens)

    def refilled(self, joining: int, seconds: float) -> None:
        """So many sentences have joined."""
        self._refills += 1
        self._refill_s += seconds
        self._sentences += joining

    def stepped(self, before: int, active: int, steps: int, seconds: float) -> None:
        """So many steps of a batch that did not change, after those `before`."""
        self._steps[active] += steps
        self._step_s[active] += seconds
        self._tokens += active * steps
        if active != self._last_active and len(self._timeline) < TIMELINE:
            self._last_active = active
            self._timeline.append((before, active))

    def finished(self) -> BatchAccount:
        """As columns."""
        return BatchAccount(
            size=len(self._steps) - 1,
            steps=np.asarray(self._steps, np.int64),
            step_s=np.asarray(self._step_s, np.float64),
            encode_s=self._encode_s,
            refill_s=self._refill_s,
            encodings=self._encodings,
            refills=self._refills,
            src_tokens=self._src_tokens,
            padded_tokens=self._padded_tokens,
            sentences=self._sentences,
            tokens=self._tokens,
            busy_s=self._encode_s + self._refill_s + sum(self._step_s),
            timeline=np.asarray(self._timeline, np.int64).reshape(-1, 2),
        )
