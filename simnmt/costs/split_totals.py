"""Times of whole translations, split into what they take once and their decode steps: for backends that tell only the whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simnmt.costs.bounded_least_squares import bounded_least_squares


def split_totals(tgt_len: ArrayLike, total_s: ArrayLike) -> tuple[float, float, float]:
    """(encode_and_fixed_s, s_first_step, s_per_position) of one batch size and source length, by one fit over all repeats.

    A translation of T tokens takes encode_and_fixed_s + T s_first_step + T (T - 1) / 2 s_per_position, because the step at
    position p, from 0, takes s_first_step + p s_per_position. By relative error, no part below 0; with two target lengths
    steps are alike. Both columns of shape (translations,). Raises `ValueError` for fewer than two target lengths, lengths
    below 1 and times that are not positive.
    """
    length, time = np.asarray(tgt_len, np.float64), np.asarray(total_s, np.float64)
    if length.ndim != 1 or length.shape != time.shape:
        raise ValueError(f"two columns of one length are needed, got shapes {length.shape} and {time.shape}")
    if not (np.isfinite(time).all() and (time > 0.0).all() and np.isfinite(length).all() and (length >= 1.0).all()):
        raise ValueError("target lengths from 1 and positive times are needed")
    distinct = np.unique(length).size
    if distinct < 2:
        raise ValueError("two target lengths at least are needed to tell a step from the rest")
    grown = length * (length - 1.0) / 2.0 * (distinct > 2)
    design = np.column_stack([np.ones_like(length), length, grown]) / time[:, None]
    fixed, first, per_position = bounded_least_squares(design, np.ones_like(time), (True,) * 3).tolist()
    return fixed, first, per_position
