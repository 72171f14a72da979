"""Everything to one target: the single-device baselines of the paper (CNMT-10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.policies.decision import Decide


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
