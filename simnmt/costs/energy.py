"""Energy of executions; what could not be read stays unknown and is never taken for 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.heldout import heldout_plane_error
from simnmt.costs.relative_plane import fit_relative_plane


@dataclass(frozen=True, slots=True)
class EnergyCost:
    """A plane in joules where energy was measured per cell; else the active power times the execution time."""

    idle_w: float | None = None
    active_w: float | None = None
    """While executing, the idle power included."""
    j_per_src_token: float | None = None
    j_per_tgt_token: float | None = None
    j_fixed: float | None = None

    def joules(self, src_len: ArrayLike, tgt_len: ArrayLike, execution_s: ArrayLike) -> NDArray[np.float64] | None:
        """Energy of each execution; broadcasts over its arguments; None where nothing is known."""
        if self.j_per_src_token is not None and self.j_per_tgt_token is not None and self.j_fixed is not None:
            src, tgt = np.asarray(src_len, np.float64), np.asarray(tgt_len, np.float64)
            return np.maximum(self.j_per_src_token * src + self.j_per_tgt_token * tgt + self.j_fixed, 0.0)
        if self.active_w is not None:
            return self.active_w * np.asarray(execution_s, np.float64)
        return None

    def idle_joules(self, idle_s: ArrayLike) -> NDArray[np.float64] | None:
        """Energy of waiting; None where the idle power is unknown."""
        return None if self.idle_w is None else self.idle_w * np.asarray(idle_s, np.float64)


def fit_energy(
    src_len: ArrayLike, tgt_len: ArrayLike, energy_j: ArrayLike, *, quantile: float = 0.5
) -> dict[str, float | None]:
    """Plane in joules over both lengths, by relative error: `j_per_src_token`, `j_per_tgt_token`, `j_fixed`, `heldout_error`.

    Columns of shape (inferences,), repeats and all. Raises `ValueError` as `fit_relative_plane` does, energies of 0 included:
    a counter that did not move was not read.
    """
    plane = fit_relative_plane(src_len, tgt_len, energy_j, quantile=quantile).plane
    return {
        "j_per_src_token": plane.s_per_src_token,
        "j_per_tgt_token": plane.s_per_tgt_token,
        "j_fixed": plane.s_fixed,
        "heldout_error": heldout_plane_error(src_len, tgt_len, energy_j, quantile=quantile),
    }
