"""Execution time of one sentence alone: a plane over source and target length (CNMT-05), its fit, and the residual factor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Seconds


@dataclass(frozen=True, slots=True)
class ExecutionPlane:
    """Execution time of one request alone on a device (CNMT-05)."""

    s_per_src_token: float
    s_per_tgt_token: float
    s_fixed: float

    def seconds(self, src_len: ArrayLike, tgt_len: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds, never negative; broadcasts over its arguments."""
        src, tgt = np.asarray(src_len, np.float64), np.asarray(tgt_len, np.float64)
        return np.maximum(self.s_per_src_token * src + self.s_per_tgt_token * tgt + self.s_fixed, 0.0)

    @property
    def coefficients(self) -> PlaneCoefficients:
        """The coefficients as a profile holds them."""
        return PlaneCoefficients(
            s_per_src_token=self.s_per_src_token, s_per_tgt_token=self.s_per_tgt_token, s_fixed=self.s_fixed
        )

    def times(self, factor: float) -> ExecutionPlane:
        """Return the plane of all times multiplied by one factor."""
        return ExecutionPlane(factor * self.s_per_src_token, factor * self.s_per_tgt_token, factor * self.s_fixed)


LEAST_REQUEST_S = 1e-12
"""Least time of a request; no device is faster, and ratios of smaller times overflow."""


class PlaneCoefficients(Configuration):
    """Coefficients of the execution plane, as a profile holds them."""

    s_per_src_token: Seconds
    s_per_tgt_token: Seconds
    s_fixed: Annotated[float, Field(ge=-10_000.0, le=10_000.0)]

    @model_validator(mode="after")
    def _takes_time(self) -> PlaneCoefficients:
        if self.s_per_src_token + self.s_per_tgt_token + max(self.s_fixed, 0.0) < LEAST_REQUEST_S:
            raise ValueError(f"no request would take as long as {LEAST_REQUEST_S:g} s")
        return self

    @property
    def plane(self) -> ExecutionPlane:
        """The plane of these coefficients."""
        return ExecutionPlane(self.s_per_src_token, self.s_per_tgt_token, self.s_fixed)


@dataclass(frozen=True, slots=True)
class PlaneFit:
    """A fitted plane with the quality of its fit."""

    plane: ExecutionPlane
    inferences: int
    r2: float | None
    """Share of variance explained; None if the times do not vary."""
    mse_ms2: float
    """Mean squared residual, ms squared (the paper prints ms: CNMT-20)."""
    condition_number: float
    """Condition number of the design matrix with columns scaled to unit length; large if the lengths are correlated."""
    collinear: bool
    """True if these lengths do not determine the three coefficients: they are the minimum-norm solution."""


def fit_plane(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike) -> PlaneFit:
    """Fit measured times over both lengths by ordinary least squares (CNMT-05), with the same bits on every processor.

    All columns of shape (inferences,), in tokens and seconds. Raises `ValueError` for no inferences or unequal shapes.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
    if src.ndim != 1 or not src.shape == tgt.shape == time.shape or src.size == 0:
        raise ValueError(f"three columns of one length are needed, got shapes {src.shape}, {tgt.shape}, {time.shape}")
    design = np.column_stack([src, tgt, np.ones_like(src)])
    scale = np.sqrt((design**2).sum(axis=0))
    scale[scale == 0.0] = 1.0
    singular = np.linalg.svd(design / scale, compute_uv=False)
    collinear = src.size < 3 or bool(singular[-1] <= singular[0] * src.size * np.finfo(np.float64).eps)
    coefficients = np.linalg.lstsq(design, time, rcond=None)[0].tolist() if collinear else _coefficients(src, tgt, time)
    residual = time - (coefficients[0] * src + coefficients[1] * tgt + coefficients[2])
    spread = float(((time - time.mean()) ** 2).sum())
    return PlaneFit(
        plane=ExecutionPlane(*coefficients),
        inferences=int(src.size),
        r2=1.0 - float((residual**2).sum()) / spread if spread > 0.0 else None,
        mse_ms2=float((residual**2).mean()) * 1e6,
        # Rounded, since the last bits of singular values depend on the processor.
        condition_number=float("inf") if collinear else float(f"{singular[0] / singular[-1]:.9g}"),
        collinear=collinear,
    )


def _coefficients(src: NDArray[np.float64], tgt: NDArray[np.float64], time: NDArray[np.float64]) -> list[float]:
    """Return the least-squares coefficients (src, tgt, constant) by elimination, from sums of a fixed order."""
    src_aside, tgt_aside = src - src.mean(), tgt - tgt.mean()
    src_square = (src_aside * src_aside).sum()
    tgt_alone = tgt_aside - (src_aside * tgt_aside).sum() / src_square * src_aside
    per_tgt = float((tgt_alone * time).sum() / (tgt_alone * tgt_alone).sum())
    per_src = float((src_aside * (time - per_tgt * tgt_aside)).sum() / src_square)
    return [per_src, per_tgt, float(time.mean() - per_src * src.mean() - per_tgt * tgt.mean())]


@dataclass(frozen=True, slots=True)
class LognormalResidual:
    """A random factor of mean one on the plane's seconds: the spread grows with the time, and so with the lengths.

    Figure 2a of the paper shows such growing bands; the lognormal form is a decision of this project.
    """

    relative_sd: float
    """Standard deviation of the factor; with 0 every execution lies on the plane."""

    def factor(self, standard_normal: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one positive factor per standard normal number; same shape."""
        sigma2 = math.log1p(self.relative_sd**2)
        return np.exp(math.sqrt(sigma2) * standard_normal - 0.5 * sigma2)
