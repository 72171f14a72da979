"""A cost beside the model's own, as a fixed part and one that grows with the sentences of a batch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from simnmt.costs.bounded_least_squares import bounded_least_squares

FLOOR = 0.1
"""Share of the usual cost below which a measurement counts no more: what drowns in the clock's noise must not decide."""


@dataclass(frozen=True, slots=True)
class OverheadFit:
    """Seconds = s_fixed + s_per_sentence sentences."""

    s_fixed: float
    s_per_sentence: float
    error: float | None
    """Mean absolute relative error; None where nothing was measurable."""
    how: str
    """What `error` was judged on."""


def fit_overhead(sentences: ArrayLike, time_s: ArrayLike, *, judged: Collection[int] = ()) -> OverheadFit:
    """Fit both parts by relative error, neither below 0, to one time for each number of sentences.

    Sizes of `judged` are kept out of the fit and give the error, where there are any; else it is that on what was fitted.
    Columns of shape (sizes,). Raises `ValueError` where no size is left to fit.
    """
    size, time = np.asarray(sentences, np.float64), np.asarray(time_s, np.float64)
    judging = np.isin(size, list(judged))
    fitted = ~judging
    if not fitted.any():
        raise ValueError("nothing to fit an overhead to")
    usual = float(np.median(time[fitted]))
    if usual <= 0.0:
        return OverheadFit(0.0, 0.0, None, "nothing measurable")
    weight = 1.0 / np.maximum(time, FLOOR * usual)
    design = np.column_stack([np.ones_like(size), size if np.ptp(size[fitted]) > 0.0 else np.zeros_like(size)])
    fixed, per_sentence = bounded_least_squares(
        design[fitted] * weight[fitted, None], time[fitted] * weight[fitted], (True, True)
    ).tolist()
    judges = judging if judging.any() else fitted
    off = np.abs(fixed + per_sentence * size - time) * weight
    how = f"batch sizes {', '.join(f'{each:.0f}' for each in np.unique(size[judges]))}, never fitted"
    return OverheadFit(fixed, per_sentence, float(off[judges].mean()), how if judging.any() else "the sizes fitted")
