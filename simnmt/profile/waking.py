"""Waking up: what an execution takes longer because its box idled before it.

On the box of a testbed, sentences took 6 ms longer after 30 ms of idling than right after another one, and 2 ms longer after
8 ms, whatever their length: the processor slept, and caches were lost. The added time rises with the gap to a limit.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simnmt.base.configuration import Configuration
from simnmt.base.least_squares import bounded_least_squares
from simnmt.profile.blocks import NotNegative, Positive

Floats = NDArray[np.float64]
TIME_CONSTANTS_S = tuple(1e-3 * 2.0**power for power in range(8))
"""Time constants that are tried, 1 to 128 ms: shorter than that is no gap, longer is hardly met in service."""
LEAST_EXECUTIONS = 40
LEAST_RANGE_S = 1e-3
"""Least difference between the longest and the shortest gap from which their effect can follow."""
CLEAR_Z = 3.0
"""Standard errors by which the added time must exceed 0."""


class WakingCost(Configuration):
    """Seconds that an execution takes longer after an idle gap: `seconds` * (1 - exp(-gap / `time_constant_s`)).

    Example:
        >>> waking = WakingCost(seconds=0.006, time_constant_s=0.01, mean_s=0.003)
        >>> [round(waking.after(gap_s), 4) for gap_s in (0.0, 0.01, 1.0)]
        [0.0, 0.0038, 0.006]
    """

    seconds: Positive
    """After a long gap."""
    time_constant_s: Positive
    mean_s: NotNegative
    """Mean over the executions of the measurement, which the plane of the block contains."""
    standard_error_s: Annotated[float, Field(ge=0.0)] = 0.0
    """Standard error of `seconds`."""

    def after(self, idle_s: float) -> float:
        """Return the seconds added to an execution after a gap."""
        return self.seconds * -math.expm1(-idle_s / self.time_constant_s)

    def added_s(self, idle_s: Floats) -> Floats:
        """Return the seconds added to executions after gaps; same shape."""
        added_s: Floats = -self.seconds * np.expm1(-idle_s / self.time_constant_s)
        return added_s

    def times(self, factor: float) -> WakingCost:
        """Return the cost of a box that is slower by a factor."""
        update: dict[str, Any] = {name: factor * getattr(self, name) for name in ("seconds", "mean_s", "standard_error_s")}
        return self.model_copy(update=update)


def fit_waking(src_len: Floats, tgt_len: Floats, seconds: Floats, idle_s: Floats) -> WakingCost | None:
    """Fit the cost of waking up to executions in service, beside a plane over both lengths; by relative error.

    Columns of shape (executions,): tokens, seconds, and seconds of idling before each execution. Returns None for fewer than
    40 executions, and for executions that do not clearly depend on the gap.
    """
    if seconds.size < LEAST_EXECUTIONS or np.ptp(idle_s) < LEAST_RANGE_S:
        return None
    weight = 1.0 / np.full_like(seconds, seconds.mean())
    best: tuple[float, float, float, float] | None = None
    for _ in range(3):  # with the weights of the fit before, as the plane itself is fitted
        best, fitted_s = min(
            (_fit_at(time_constant_s, src_len, tgt_len, seconds, idle_s, weight) for time_constant_s in TIME_CONSTANTS_S),
            key=lambda fit: fit[0][0],
        )
        weight = 1.0 / np.maximum(fitted_s, 1e-3 * seconds.min())
    assert best is not None
    _, time_constant_s, waking_s, error_s = best
    if waking_s <= 0.0 or waking_s < CLEAR_Z * error_s:
        return None
    cost = WakingCost(seconds=waking_s, time_constant_s=time_constant_s, mean_s=0.0, standard_error_s=error_s)
    return cost.model_copy(update={"mean_s": float(cost.added_s(idle_s).mean())})


def _fit_at(
    time_constant_s: float, src_len: Floats, tgt_len: Floats, seconds: Floats, idle_s: Floats, weight: Floats
) -> tuple[tuple[float, float, float, float], Floats]:
    """Return (squared relative error, time constant, seconds, standard error) of the fit, and its times."""
    woken = -np.expm1(-idle_s / time_constant_s)
    columns = np.column_stack([src_len, tgt_len, np.ones_like(seconds), woken])
    design, measured = columns * weight[:, None], seconds * weight
    coefficients = bounded_least_squares(design, measured)
    squares = float(((design @ coefficients - measured) ** 2).sum())
    covariance = np.linalg.pinv(design.T @ design) * squares / max(seconds.size - design.shape[1], 1)
    error_s = float(np.sqrt(max(covariance[3, 3], 0.0)))
    return (squares, time_constant_s, float(coefficients[3]), error_s), columns @ coefficients
