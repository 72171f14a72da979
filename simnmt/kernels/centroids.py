"""The nearest centroid of each hidden state, by products and squared norms alone (FVP-05)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from simnmt.kernels.errors import KernelError
from simnmt.kernels.gathered_arguments import ANY, REAL_TYPES, check_beside, check_tensor
from simnmt.kernels.native_columns import functions_at
from simnmt.kernels.output_layer import fused_argmax

__all__ = ["Centroids"]

_WIDENED = 256
"""Points of half precision that are made float32 at a time: what a cache holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Centroids:
    """r points of the width of a hidden state, with what of them is known beforehand."""

    points: Tensor
    """[r, d]: float32, or float16 or bfloat16, which take half the memory and are widened a part at a time (FVP-18)."""
    half_norms: Tensor
    """float32 [r]: minus half of the squared norm of each point less `mean`. What is nearest has the largest product with a
    hidden state less `mean`, plus this (FVP-05, halved and turned round, which rounds nothing)."""
    mean: Tensor
    """float32 [d]: of the points. Without it a common offset of the states, large beside their deviations, takes the digits
    that tell the points apart."""
    level: str | None = None
    """Widest of the native kernels to be used, as the variable SIMNMT_KERNELS says it; None for the process's own."""

    @classmethod
    def of(cls, points: Tensor, *, level: str | None = None) -> Centroids:
        """Of [r, d], float32, float16 or bfloat16, on any device, kept in their type.

        Raises `KernelError` for another tensor, and for one with NaN or infinity.
        """
        check_tensor("points", points, REAL_TYPES, (ANY, ANY))
        if not points.numel():
            raise KernelError(f"points of shape {list(points.shape)}: one of one number is the least")
        points = points.detach()
        if points.untyped_storage().nbytes() != points.element_size() * points.numel():
            points = points.clone()  # a view would keep in memory what it is a part of
        if not bool(points.isfinite().all()):
            raise KernelError(f"point {int((~points.isfinite()).any(1).nonzero()[0])} is not finite")
        mean = points.double().mean(0).float()
        return cls(points, (points.double() - mean).square().sum(1).mul(-0.5).float(), mean, level)

    def __len__(self) -> int:
        return len(self.points)

    def nearest(self, hidden: Tensor) -> Tensor:
        """int64 [rows]: the centroid nearest to each row of `hidden` [rows, d], the lowest of equals (FVP-05).

        float32, float16 or bfloat16. Raises `KernelError` for another tensor and for a row that is not finite.
        """
        products = self._products(hidden)
        if not len(products):
            return torch.empty(0, dtype=torch.int64, device=hidden.device)
        try:
            if products.is_cpu:
                return fused_argmax(products, self.half_norms, level=self.level)
            return lowest_argmax(products + self.half_norms)
        except KernelError:
            broken = (~hidden.isfinite()).any(1).nonzero()
            if not broken.numel():
                raise
            raise KernelError(f"hidden row {int(broken[0])} is not finite: no centroid is nearest to it") from None

    def _products(self, hidden: Tensor) -> Tensor:
        count, width = self.points.shape
        check_tensor("hidden", hidden, REAL_TYPES, (ANY, width))
        check_beside("hidden", hidden, "the centroids", self.points)
        hidden = hidden.detach().float() - self.mean
        if self.points.dtype != torch.float32:  # a product in their type would be rounded to it, and another seem the nearest
            parts = (self.points[first : first + _WIDENED].float() for first in range(0, count, _WIDENED))
            return torch.cat([hidden @ part.T for part in parts], dim=1)
        native = functions_at(self.level) if hidden.is_cpu else None
        if native is None:
            return hidden @ self.points.T
        out = torch.empty((hidden.shape[0], count))
        at = hidden.data_ptr()
        native.simnmt_row_wise(self.points.data_ptr(), count, width, None, count, at, hidden.shape[0], out.data_ptr())
        return out

    @property
    def nbytes(self) -> int:
        """Bytes allocated: points, norms and mean (FVP-12)."""
        return sum(tensor.untyped_storage().nbytes() for tensor in (self.points, self.half_norms, self.mean))


def lowest_argmax(scores: Tensor) -> Tensor:
    """Where each row's maximum is, the lowest of equals: torch's argmax on CUDA promises no such thing.

    Raises `KernelError` for a row with NaN or +inf, and for one of -inf alone.
    """
    places = torch.arange(scores.shape[1], device=scores.device)
    most = scores.max(1, keepdim=True).values
    if not bool(most.isfinite().all()):
        raise KernelError("a row has NaN, +inf, or nothing but -inf")
    return torch.where(scores == most, places, scores.shape[1]).min(1).values
