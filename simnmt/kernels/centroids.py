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


@dataclass(frozen=True, slots=True, eq=False)
class Centroids:
    """r points of the width of a hidden state, with what of them is known beforehand."""

    points: Tensor
    """float32 [r, d]."""
    half_norms: Tensor
    """float32 [r]: minus half of each point's squared norm. What is nearest has the largest product plus this (FVP-05, halved
    and turned round, which rounds nothing)."""
    level: str | None = None
    """Widest of the native kernels to be used, as the variable SIMNMT_KERNELS says it; None for the process's own."""

    @classmethod
    def of(cls, points: Tensor, *, level: str | None = None) -> Centroids:
        """Of float32 [r, d], on any device. Raises `KernelError` for another tensor, and for one with NaN or infinity."""
        check_tensor("points", points, (torch.float32,), (ANY, ANY))
        if not points.numel():
            raise KernelError(f"points of shape {list(points.shape)}: one of one number is the least")
        points = points.detach()
        if points.untyped_storage().nbytes() != 4 * points.numel():
            points = points.clone()  # a view would keep in memory what it is a part of
        if not bool(points.isfinite().all()):
            raise KernelError(f"point {int((~points.isfinite()).any(1).nonzero()[0])} is not finite")
        return cls(points, points.double().square().sum(1).mul(-0.5).float(), level)

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

    def scores(self, hidden: Tensor) -> Tensor:
        """float32 [rows, r]: each centroid's squared norm less twice its product with the row; least is nearest (FVP-05)."""
        return (self._products(hidden) + self.half_norms).mul_(-2.0)

    def _products(self, hidden: Tensor) -> Tensor:
        count, width = self.points.shape
        hidden_at = check_tensor("hidden", hidden, REAL_TYPES, (ANY, width))
        check_beside("hidden", hidden, "the centroids", self.points)
        if hidden.dtype != torch.float32:
            hidden = hidden.detach().float()
            hidden_at = hidden.data_ptr()
        native = functions_at(self.level) if hidden.is_cpu else None
        if native is None:
            return hidden.detach() @ self.points.T
        out = torch.empty((hidden.shape[0], count))
        native.simnmt_row_wise(self.points.data_ptr(), count, width, None, count, hidden_at, hidden.shape[0], out.data_ptr())
        return out

    @property
    def nbytes(self) -> int:
        """Bytes allocated: points and norms (FVP-12)."""
        return self.points.untyped_storage().nbytes() + self.half_norms.untyped_storage().nbytes()


def lowest_argmax(scores: Tensor) -> Tensor:
    """Where each row's maximum is, the lowest of equals: torch's argmax on CUDA promises no such thing.

    Raises `KernelError` for NaN.
    """
    places = torch.arange(scores.shape[1], device=scores.device)
    found = torch.where(scores == scores.max(1, keepdim=True).values, places, scores.shape[1]).min(1).values
    if bool((found == scores.shape[1]).any()):
        raise KernelError("a row has NaN")
    return found
