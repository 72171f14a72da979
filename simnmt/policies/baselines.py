"""Baseline policies: every request to one target, and the oracle that knows the true times (CNMT-10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.policies.decision import Decide, least_total


@dataclass(frozen=True, slots=True)
class Fixed:
    """Sends every request to the same target, by its number: GW-only with the first, Server-only with the last."""

    target: int

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        """A constant decision."""
        target = self.target
        return lambda request, delay_s: target

    def predicted_tgt_len(self, src_len: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predicts nothing."""
        return np.full(len(src_len), np.nan)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Chooses the target with the least true latency of this very request.

    The truth comes in by the constructor; whoever runs the oracle hands it true delays as well (the present transfer time,
    and what queues and the states of streamed models take). Back to back no policy is faster where models lie in memory.
    Elsewhere it is greedy: it looks at one request alone, so a policy that leaves a server free for later ones, or warm, may
    beat it.
    """

    execution_s: Sequence[NDArray[np.float64]]
    """True seconds per target, each of shape (requests,)."""

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        """The rule of C-NMT on true times."""
        return least_total(self.execution_s)

    def predicted_tgt_len(self, src_len: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predicts nothing: it knows."""
        return np.full(len(src_len), np.nan)
