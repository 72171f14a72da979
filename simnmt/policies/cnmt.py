"""C-NMT: send a request wherever its predicted latency is least; Naive: the same with one length for all (CNMT-07, 09, 10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simnmt.policies.decision import Decide, least_total

PredictLength = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""Expected target tokens per source length; shape kept."""


class BelievedPlane(Protocol):
    """The execution time a policy reckons with, for one target."""

    def seconds(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds; broadcasts over its arguments."""
        ...


@dataclass(frozen=True, slots=True)
class CNmt:
    """Chooses the target with the least predicted execution plus transfer time.

    Source: C-NMT, equations (1) and (2), for any number of targets. A tie goes to the target named first, which is the
    gateway itself.
    """

    planes: Sequence[BelievedPlane]
    """One per target, in the targets' order."""
    predict: PredictLength
    """The length regression's `predict` for C-NMT, `constant_length` for Naive, a distribution's `mean`."""
    percentiles: tuple[PredictLength, PredictLength] | None = None
    """Target lengths at the 5th and the 95th percentile: minimise the latter of each request's time instead of its mean."""

    def prepare(self, src_len: NDArray[np.int64]) -> Decide:
        """Predict lengths and execution times once; what is left to a decision is the transfer estimate."""
        return least_total(self.weighed_s(src_len))

    def weighed_s(self, src_len: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Seconds by which the targets are compared, delays apart; one column per target, shape of `src_len`."""
        if self.percentiles is None:
            return self.execution_s(src_len)
        low, high = (predict(src_len) for predict in self.percentiles)
        # A plane rises or falls with the target length all along, so its 95th percentile is its value at one of the two.
        return [np.maximum(plane.seconds(src_len, low), plane.seconds(src_len, high)) for plane in self.planes]

    def execution_s(self, src_len: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Seconds that each target is expected to take, one column per target, shape of `src_len`.

        What the rule reckons with but where it minimises a percentile; what a request adds to a queue in either case.
        """
        tgt_len = self.predict(src_len)
        return [plane.seconds(src_len, tgt_len) for plane in self.planes]

    def predicted_tgt_len(self, src_len: NDArray[np.int64]) -> NDArray[np.float64]:
        """The lengths the rule reckons with."""
        return self.predict(src_len)


def constant_length(tgt_len: float) -> PredictLength:
    """One target length for every request: what makes the rule Naive (CNMT-10)."""
    return lambda src_len: np.full(len(src_len), tgt_len)
