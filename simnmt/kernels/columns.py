"""Some columns of the vocabulary: nearest centroids, column sets and their union, products, and scatter (FVP-04 to FVP-07).

Products are computed row by row or from gathered columns.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simnmt.kernels.native_library import KernelError, native
from simnmt.kernels.output_layer import fused_argmax
from simnmt.kernels.output_reference import ANY_SIZE, REAL_TYPES, check_beside, check_tensor


class ColumnSets:
    """r sets of columns of one vocabulary; set i is `columns[starts[i]:starts[i + 1]]`."""

    def __init__(self, starts: Tensor, columns: Tensor, vocab: int) -> None:
        """Keep sets.

        `starts`: int64 [r + 1], 0, then the end of each set; kept on the CPU. `columns`: int32 [n], ascending within each set,
        on any device, on which unions are made. Raises `KernelError` for tensors of other types, for a set that is empty or not
        ascending, and for a column outside the vocabulary.
        """
        check_tensor("starts", starts, (torch.int64,), (ANY_SIZE,))
        check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
        self.starts, self.columns, self.vocab = _owned(starts).cpu(), _owned(columns), vocab
        sound = len(starts) > 1 and int(starts[0]) == 0 and int(starts[-1]) == len(columns) and bool((starts.diff() > 0).all())
        if sound:
            rising = torch.ones(len(columns), dtype=torch.bool, device=columns.device)
            rising[1:] = columns[1:] > columns[:-1]
            rising[starts[:-1].to(columns.device)] = True
            sound = bool(rising.all()) and int(columns.min()) >= 0 and int(columns.max()) < vocab
        if not sound:
            raise KernelError(f"sets of columns are not all filled, ascending, and within a vocabulary of {vocab}")
        with torch.inference_mode(False):  # tensors made in that mode can be written to only in that mode
            self._flags = torch.zeros(vocab, dtype=torch.uint8, device=columns.device)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, index: int) -> Tensor:
        """Return the columns of one set, int32, without a copy."""
        return self.columns[int(self.starts[index]) : int(self.starts[index + 1])]

    def sizes(self) -> Tensor:
        """Return the number of columns of each set, int64 [r]."""
        return self.starts.diff()

    def union(self, chosen: Tensor) -> Tensor:
        """Return the columns of all sets in `chosen`, int64 [k], which may repeat sets; int32, ascending (FVP-06).

        Empty for k = 0; for one set its slice, without a copy. Raises `KernelError` for an unknown set.
        """
        check_tensor("chosen", chosen, (torch.int64,), (ANY_SIZE,))
        sets = sorted(set(chosen.tolist()))
        if sets and (sets[0] < 0 or sets[-1] >= len(self)):
            raise KernelError(f"sets {sets[0]} to {sets[-1]} are not all among the {len(self)}")
        if len(sets) < 2:
            return self.of(sets[0]) if sets else self.columns[:0]
        starts, distinct = self.starts.numpy(), np.array(sets)
        firsts, ends = starts[distinct], starts[distinct + 1]
        with self._lock:  # the flags are shared: two threads would set each other's
            kernels = native() if self.columns.is_cpu else None
            if kernels is None:
                return self._union_by_torch(torch.from_numpy(firsts), torch.from_numpy(ends - firsts))
            union = torch.empty(min(self.vocab, int((ends - firsts).sum())), dtype=torch.int32)
            tables = (tensor.data_ptr() for tensor in (self.starts, self.columns, self._flags))
            count = kernels.simnmt_union(distinct.ctypes.data, len(distinct), *tables, self.vocab, union.data_ptr())
            return union[:count]

    def _union_by_torch(self, firsts: Tensor, sizes: Tensor) -> Tensor:
        """Unite all sets at once, so that a GPU is not called for each set."""
        indices, ends = int(sizes.sum()), sizes.cumsum(0)
        offsets, sizes = torch.stack((firsts - ends + sizes, sizes)).to(self.columns.device)  # one wait for the GPU, not two
        places = offsets.repeat_interleave(sizes, output_size=indices)
        places += torch.arange(indices, device=places.device)
        self._flags[self.columns[places]] = 1
        union = self._flags.nonzero()[:, 0].to(torch.int32)
        self._flags.zero_()
        return union

    @property
    def nbytes(self) -> int:
        """Return the bytes allocated for starts, columns and flags (FVP-12)."""
        return sum(tensor.untyped_storage().nbytes() for tensor in (self.starts, self.columns, self._flags))


def _owned(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if it is a view of a larger tensor, which the view would keep in memory."""
    fills_storage = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if fills_storage else tensor.clone()


@dataclass(frozen=True, slots=True, eq=False)
class Centroids:
    """r points of the width of a hidden state, with prepared norms and mean."""

    points: Tensor
    """float32 [r, d]."""
    half_norms: Tensor
    """float32 [r]: minus half of the squared norm of each point less `mean`. The nearest point has the largest product with a
    hidden state less `mean`, plus this value (FVP-05, halved and negated, which rounds nothing)."""
    mean: Tensor
    """float32 [d]: mean of the points. Without it a common offset of the states that is large beside their deviations would
    take the digits that distinguish the points."""

    @classmethod
    def of(cls, points: Tensor) -> Centroids:
        """Prepare points, float32 [r, d] on any device.

        Raises `KernelError` for another tensor, and for NaN or infinity.
        """
        check_tensor("points", points, (torch.float32,), (ANY_SIZE, ANY_SIZE))
        if not points.numel():
            raise KernelError(f"points of shape {list(points.shape)}: one of one number is the least")
        points = _owned(points.detach())
        if not bool(points.isfinite().all()):
            raise KernelError(f"point {int((~points.isfinite()).any(1).nonzero()[0])} is not finite")
        mean = points.double().mean(0).float()
        return cls(points, (points.double() - mean).square().sum(1).mul(-0.5).float(), mean)

    def __len__(self) -> int:
        return len(self.points)

    def nearest(self, hidden: Tensor) -> Tensor:
        """Return the centroid nearest to each row of `hidden` [rows, d], the lowest among equals, int64 [rows] (FVP-05).

        `hidden` is float32, float16 or bfloat16. Raises `KernelError` for another tensor and for a row that is not finite.
        """
        products = self._products(hidden)
        if not len(products):
            return torch.empty(0, dtype=torch.int64, device=hidden.device)
        try:
            return (fused_argmax if products.is_cpu else _torch_argmax)(products, self.half_norms)
        except KernelError:
            broken = (~hidden.isfinite()).any(1).nonzero()
            if not broken.numel():
                raise
            raise KernelError(f"hidden row {int(broken[0])} is not finite: no centroid is nearest to it") from None

    def _products(self, hidden: Tensor) -> Tensor:
        count, width = self.points.shape
        check_tensor("hidden", hidden, REAL_TYPES, (ANY_SIZE, width))
        check_beside("hidden", hidden, self.points)
        hidden = hidden.detach().float() - self.mean
        kernels = native() if hidden.is_cpu else None
        if kernels is None:
            return hidden @ self.points.T
        out = torch.empty((hidden.shape[0], count))
        kernels.simnmt_row_wise(self.points.data_ptr(), width, None, count, hidden.data_ptr(), len(hidden), out.data_ptr())
        return out

    @property
    def nbytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in (self.points, self.half_norms, self.mean))


def _torch_argmax(products: Tensor, bias: Tensor) -> Tensor:
    """Return the result of `fused_argmax`; torch's own argmax on CUDA does not guarantee the lowest among equals."""
    scores = products + bias
    most = scores.max(1, keepdim=True).values
    if not bool(most.isfinite().all()):
        raise KernelError("a row has NaN, +inf, or nothing but -inf")
    return torch.where(scores == most, torch.arange(scores.shape[1], device=scores.device), scores.shape[1]).min(1).values


def _output(out: Tensor | None, rows: int, columns: int, beside: Tensor) -> Tensor:
    """Return `out` if it is float32 [rows, columns], a new tensor on the device of `beside` for None. Raises `KernelError`."""
    if out is None:
        return torch.empty((rows, columns), dtype=torch.float32, device=beside.device)
    check_tensor("out", out, (torch.float32,), (rows, columns))
    check_beside("out", out, beside)
    return out


def _native_for(*tensors: Tensor) -> ctypes.CDLL | None:
    """Return the compiled kernels if all tensors are float32 on the CPU."""
    return native() if all(tensor.is_cpu and tensor.dtype == torch.float32 for tensor in tensors) else None


def _check_columns(columns: Tensor, vocab: int) -> None:
    """Raise `KernelError` for a column on the CPU outside the vocabulary; the indexing on CUDA checks its own."""
    if columns.is_cpu and len(columns):
        least, most = map(int, columns.aminmax())
        if least < 0 or most >= vocab:
            raise KernelError(f"columns {least} to {most} are not all among the {vocab} of the vocabulary")


GATHERED_FROM_ROWS = 128
"""Rows from which `gather` is faster. Seconds of `row_wise` over those of `gather`, on one thread of an AVX-512 server, for
3,200 to 6,400 columns x 512 and for 3,840 x 1024: 0.55 to 0.62 at 8 rows, 0.84 to 0.86 at 32, 0.96 to 0.98 at 64, 0.98 to 1.01
at 96, 1.03 to 1.04 at 128, 1.09 to 1.13 at 384; for 1,600 x 256: 1.02 at 32 and 1.19 at 128."""


def gathered_products(weight: Tensor, hidden: Tensor, columns: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return products of each row of `hidden` with the `columns` of the vocabulary, without bias, float32 [rows, n] (FVP-07).

    Compiled kernels compute them on the CPU in float32 with one thread, torch elsewhere.

    Args:
        weight: [V, d], float32, float16 or bfloat16.
        hidden: [rows, d], of the same types.
        columns: int32 [n], ascending, within V.
        out: receives the result.

    Raises:
        KernelError: for other tensors and for a column outside the vocabulary.
    """
    weight_at = check_tensor("weight", weight, REAL_TYPES, (ANY_SIZE, ANY_SIZE))
    vocab, width = weight.shape
    hidden_at = check_tensor("hidden", hidden, REAL_TYPES, (ANY_SIZE, width))
    columns_at = check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
    check_beside("hidden", hidden, weight)
    check_beside("columns", columns, weight)
    _check_columns(columns, vocab)
    rows, count = hidden.shape[0], columns.shape[0]
    out = _output(out, rows, count, hidden)
    kernels = _native_for(weight, hidden)
    if kernels is None:
        kind = weight.dtype if weight.is_cuda else torch.float32  # a GPU sums halves in float32
        return out.copy_(hidden.detach().to(kind) @ weight.detach().index_select(0, columns).to(kind).T)
    arguments = weight_at, width, columns_at, count, hidden_at, rows
    if rows < GATHERED_FROM_ROWS:
        kernels.simnmt_row_wise(*arguments, out.data_ptr())
    else:
        scratch = torch.empty(kernels.simnmt_gathered_scratch(width, rows))
        kernels.simnmt_gathered(*arguments, scratch.data_ptr(), out.data_ptr())
    return out


def scatter(products: Tensor, columns: Tensor, vocab: int, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Return `products` [rows, n] plus the `bias` [V] of their `columns`, and -inf elsewhere, float32 [rows, V] (FVP-07).

    `columns`: int32 [n], ascending, within V; `out` receives the result. Raises `KernelError` for other tensors and
    for a column outside the vocabulary.
    """
    columns_at = check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
    products_at = check_tensor("products", products, (torch.float32,), (ANY_SIZE, len(columns)))
    check_beside("columns", columns, products)
    _check_columns(columns, vocab)
    bias_at = None
    if bias is not None:
        bias_at = check_tensor("bias", bias, (torch.float32,), (vocab,))
        check_beside("bias", bias, products)
    rows = products.shape[0]
    out = _output(out, rows, vocab, products)
    kernels = _native_for(products)
    if kernels is not None:
        kernels.simnmt_scatter(products_at, rows, columns_at, len(columns), vocab, bias_at, out.data_ptr())
        return out
    placed = products.detach() if bias is None else products.detach() + bias.detach()[columns]
    return out.fill_(-torch.inf).index_copy_(1, columns.long(), placed)
