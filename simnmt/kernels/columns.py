"""Some columns of the vocabulary: nearest centroids, column sets and their union, products, and scatter (FVP-04 to FVP-07).

Products are taken row by row, from gathered columns, or from a kept copy.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.arrays import allocated_bytes, allocated_size, huge_pages
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import NativeLibrary, native_at
from simnmt.kernels.output_layer import fused_argmax
from simnmt.kernels.tensor_checks import (
    ANY_SIZE,
    REAL_TYPES,
    check_beside,
    check_columns,
    check_tensor,
    missing_column_error,
    output_tensor,
    raise_for_column,
)
from simnmt.profile.projection_cost import PRODUCT_METHODS, ProductMethod


class Union(NamedTuple):
    """The columns of some sets together."""

    columns: Tensor
    """int32, ascending."""
    sets: tuple[int, ...]
    """Those sets, ascending, each once: equal ones have equal columns."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSets:
    """r sets of columns of one vocabulary; set i is `columns[starts[i]:starts[i + 1]]`.

    Raises `KernelError` for tensors of other types, for a set that is empty or not ascending, and for a column that the
    vocabulary has not.
    """

    starts: Tensor
    """int64 [r + 1]: 0, then where each set ends. Always on the CPU."""
    columns: Tensor
    """int32 [n], ascending within each set. On any device: unions are made there."""
    vocab: int
    level: str | None = None
    """Widest of the native kernels to be used, as the variable SIMNMT_KERNELS says it; None for the process's own."""
    _flags: Tensor = field(init=False, repr=False)
    _lock: threading.Lock = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_tensor("starts", self.starts, (torch.int64,), (ANY_SIZE,))
        check_tensor("columns", self.columns, (torch.int32,), (ANY_SIZE,))
        for name in ("starts", "columns"):
            object.__setattr__(self, name, _owned(getattr(self, name)))
        object.__setattr__(self, "starts", self.starts.cpu())
        self._check()
        with torch.inference_mode(False):  # else they could be written to in that mode alone
            object.__setattr__(self, "_flags", torch.zeros(self.vocab, dtype=torch.uint8, device=self.columns.device))
        object.__setattr__(self, "_lock", threading.Lock())

    def _check(self) -> None:
        starts, columns = self.starts, self.columns
        if len(starts) < 2 or int(starts[0]) != 0 or int(starts[-1]) != columns.numel():
            raise KernelError(f"starts of {len(starts) - 1} sets do not run from 0 to the {columns.numel()} columns")
        sizes = self.starts.diff()
        if not bool((sizes > 0).all()):
            raise KernelError(f"set {int((sizes <= 0).nonzero()[0])} of {len(self)} is empty")
        least, most = int(columns.min()), int(columns.max())
        if least < 0 or most >= self.vocab:
            raise missing_column_error(least if least < 0 else most, self.vocab)
        ends = torch.zeros(columns.numel(), dtype=torch.bool, device=columns.device)
        ends[self.starts[1:].to(columns.device) - 1] = True
        fallen = (columns[1:] <= columns[:-1]) & ~ends[:-1]
        if bool(fallen.any()):
            at = int(fallen.nonzero()[0])
            culprit = int(torch.searchsorted(self.starts, at, right=True)) - 1
            raise KernelError(f"set {culprit}: its columns are not ascending, each once")

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, index: int) -> Tensor:
        """int32: one set's own columns, no copy. Raises `KernelError` for a set that there is not."""
        if not 0 <= index < len(self):
            raise KernelError(f"set {index} is not among the {len(self)}")
        return self.columns[int(self.starts[index]) : int(self.starts[index + 1])]

    def sizes(self) -> Tensor:
        """int64 [r]: columns of each set."""
        return self.starts.diff()

    def union(self, chosen: Tensor) -> Tensor:
        """int32, ascending: the columns of all sets in `chosen`, int64 [k], each set as often as it likes (FVP-06).

        Empty for k = 0; of one set alone its own slice, without a copy. Raises `KernelError` for a set that there is not.
        """
        return self.united(chosen).columns

    def united(self, chosen: Tensor) -> Union:
        """As `union`, with the sets that it is of."""
        check_tensor("chosen", chosen, (torch.int64,), (ANY_SIZE,))
        distinct = sorted(set(chosen.tolist()))
        if not distinct:
            return Union(self.columns[:0], ())
        first, last = distinct[0], distinct[-1]
        if first < 0 or last >= len(self):
            raise KernelError(f"set {first if first < 0 else last} is not among the {len(self)}")
        return Union(self.of(first) if first == last else self._union_of(np.array(distinct)), tuple(distinct))

    def _union_of(self, distinct: NDArray[np.int64]) -> Tensor:
        starts = self.starts.numpy()
        firsts = starts[distinct]
        sizes = starts[distinct + 1] - firsts
        with self._lock:  # the flags are this object's: two threads would mark each other's
            native = native_at(self.level) if self.columns.is_cpu else None
            if native is None:
                return self._union_by_torch(torch.from_numpy(firsts), torch.from_numpy(sizes))
            return self._union_by(native, distinct, int(sizes.sum()))

    def _union_by(self, native: NativeLibrary, distinct: NDArray[np.int64], indices: int) -> Tensor:
        union = torch.empty(min(self.vocab, indices), dtype=torch.int32)
        count = native.cdll.simnmt_union(
            distinct.ctypes.data,
            len(distinct),
            self.starts.data_ptr(),
            self.columns.data_ptr(),
            self._flags.data_ptr(),
            self.vocab,
            union.data_ptr(),
        )
        return union[:count]

    def _union_by_torch(self, firsts: Tensor, sizes: Tensor) -> Tensor:
        """Unite all sets at once, so that a GPU is not called for each set."""
        indices, ends = int(sizes.sum()), sizes.cumsum(0)
        offsets, sizes = (per_set.to(self.columns.device) for per_set in (firsts - ends + sizes, sizes))
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
    """Return the tensor, or a copy if it is a view of a larger one, which the view would keep in memory."""
    fills_storage = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if fills_storage else tensor.clone()


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
        check_tensor("points", points, REAL_TYPES, (ANY_SIZE, ANY_SIZE))
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
        check_tensor("hidden", hidden, REAL_TYPES, (ANY_SIZE, width))
        check_beside("hidden", hidden, "the centroids", self.points)
        hidden = hidden.detach().float() - self.mean
        if self.points.dtype != torch.float32:  # a product in their type would be rounded to it, and another seem the nearest
            parts = (self.points[first : first + _WIDENED].float() for first in range(0, count, _WIDENED))
            return torch.cat([hidden @ part.T for part in parts], dim=1)
        native = native_at(self.level) if hidden.is_cpu else None
        if native is None:
            return hidden @ self.points.T
        out = torch.empty((hidden.shape[0], count))
        at = hidden.data_ptr()
        native.cdll.simnmt_row_wise(self.points.data_ptr(), count, width, None, count, at, hidden.shape[0], out.data_ptr())
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


@dataclass(frozen=True, slots=True, eq=False)
class SubMatrix:
    """Some columns of a weight, copied and laid out for the quickest product: packed on the CPU in float32, else as they were.

    In packed order memory is read as one stream: of 15,000 x 1024 a row takes two thirds of what it does from columns that lie
    scattered, forty rows four fifths.
    """

    columns: Tensor
    """int32 [n], ascending, within the vocabulary."""
    width: int
    nbytes: int
    """Bytes allocated for the copy; the columns are whose they were."""
    _kept: Tensor
    _native: NativeLibrary | None = field(repr=False)

    @classmethod
    def of(cls, weight: Tensor, columns: Tensor, *, level: str | None = None) -> SubMatrix:
        """Copy these columns of `weight` [V, d]. Arguments and errors as of `gathered_products`."""
        weight_at = check_tensor("weight", weight, REAL_TYPES, (ANY_SIZE, ANY_SIZE))
        columns_at = check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
        check_beside("columns", columns, "weight", weight)
        vocab, width = weight.shape
        native = native_at(level) if weight.is_cpu and weight.dtype == torch.float32 else None
        if native is None:
            check_columns(columns, vocab)
            rows = weight.detach().index_select(0, columns)
            return cls(columns, width, rows.untyped_storage().nbytes(), rows, None)
        packed = huge_pages(native.cdll.simnmt_packed_size(len(columns), width), np.float32)
        raise_for_column(
            native.cdll.simnmt_pack_columns(weight_at, vocab, width, columns_at, len(columns), packed.ctypes.data),
            columns,
            vocab,
        )
        return cls(columns, width, allocated_bytes(packed), torch.from_numpy(packed), native)

    @staticmethod
    def bytes_of(weight: Tensor, columns: int, *, level: str | None = None) -> int:
        """Bytes that a copy of so many columns of `weight` [V, d] would have allocated."""
        width = weight.shape[1]
        native = native_at(level) if weight.is_cpu and weight.dtype == torch.float32 else None
        if native is None:
            return columns * width * weight.element_size()
        return allocated_size(4 * native.cdll.simnmt_packed_size(columns, width))

    def products(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """As `gathered_products` of the same columns."""
        hidden_at = check_tensor("hidden", hidden, REAL_TYPES, (ANY_SIZE, self.width))
        check_beside("hidden", hidden, "the kept columns", self._kept)
        rows, count = hidden.shape[0], len(self.columns)
        out = output_tensor(out, rows, count, hidden)
        if self._native is None:
            return out.copy_(multiplied(self._kept, hidden.detach()))
        if hidden.dtype != torch.float32:
            hidden = hidden.detach().float()
            hidden_at = hidden.data_ptr()
        scratch = torch.empty(rows * (self.width + 1))
        self._native.cdll.simnmt_product_float32(
            hidden_at, rows, self._kept.data_ptr(), count, self.width, False, scratch.data_ptr(), out.data_ptr()
        )
        return out


def multiplied(gathered: Tensor, hidden: Tensor) -> Tensor:
    """`hidden` @ gathered.T by torch: in float32 on the CPU, in the weight's own type on CUDA, whose units sum in float32."""
    kind = gathered.dtype if gathered.is_cuda else torch.float32
    return hidden.to(kind) @ gathered.to(kind).T


GATHERED_FROM_ROWS = 128
"""Rows from which `gather` is the faster. One thread of an AVX-512 server, seconds of `row_wise` over those of `gather`: of
3,200 to 6,400 columns x 512, and of 3,840 x 1024, 0.55 to 0.62 at 8 rows, 0.84 to 0.86 at 32, 0.96 to 0.98 at 64, 0.98 to
1.01 at 96, 1.03 to 1.04 at 128, 1.09 to 1.13 at 384; of 1,600 x 256 1.02 at 32 and 1.19 at 128."""


def default_method(rows: int) -> ProductMethod:
    """The one for so many rows, whatever the machine: the same at each run, as no measurement's is."""
    return "gather" if rows >= GATHERED_FROM_ROWS else "row_wise"


def gathered_products(
    weight: Tensor,
    hidden: Tensor,
    columns: Tensor,
    *,
    method: ProductMethod = "row_wise",
    out: Tensor | None = None,
    level: str | None = None,
) -> Tensor:
    """float32 [rows, n]: products of each row of `hidden` with the `columns` of the vocabulary, without bias (FVP-07).

    `weight`: [V, d], `hidden`: [rows, d], both float32, float16 or bfloat16; `columns`: int32 [n], ascending, within V.
    `method`: `row_wise` takes dot products straight from the weight's rows and copies nothing, `gather` takes a few columns at
    a time, which a cache holds, packed and then multiplied. `out` takes the result where it is given. Compiled
    kernels on the CPU in float32, by one thread (`level`: the widest of them, as the variable SIMNMT_KERNELS says it), torch
    elsewhere. Raises `KernelError` for other tensors and for a column that there is not.
    """
    weight_at = check_tensor("weight", weight, REAL_TYPES, (ANY_SIZE, ANY_SIZE))
    vocab, width = weight.shape
    hidden_at = check_tensor("hidden", hidden, REAL_TYPES, (ANY_SIZE, width))
    columns_at = check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
    check_beside("hidden", hidden, "weight", weight)
    check_beside("columns", columns, "weight", weight)
    if method not in PRODUCT_METHODS:
        raise KernelError(f"method {method!r}: one of {', '.join(PRODUCT_METHODS)} is needed")
    rows, count = hidden.shape[0], columns.shape[0]
    out = output_tensor(out, rows, count, hidden)
    native = native_at(level) if weight.is_cpu and weight.dtype == hidden.dtype == torch.float32 else None
    if native is None:
        check_columns(columns, vocab)
        return out.copy_(multiplied(weight.detach().index_select(0, columns), hidden.detach()))
    if method == "row_wise":
        unsound = native.cdll.simnmt_row_wise(weight_at, vocab, width, columns_at, count, hidden_at, rows, out.data_ptr())
    else:
        scratch = torch.empty(native.cdll.simnmt_gathered_scratch(width, rows))
        unsound = native.cdll.simnmt_gathered(
            weight_at, vocab, width, columns_at, count, hidden_at, rows, scratch.data_ptr(), out.data_ptr()
        )
    raise_for_column(unsound, columns, vocab)
    return out


def scatter(
    products: Tensor,
    columns: Tensor,
    vocab: int,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    *,
    level: str | None = None,
) -> Tensor:
    """float32 [rows, V]: `products` [rows, n] plus the `bias` [V] of their `columns` there, -inf everywhere else (FVP-07).

    `columns`: int32 [n], ascending, within V. `out` takes the result where it is given; `level` as of `gathered_products`.
    Raises `KernelError` for other tensors and for a column that there is not.
    """
    columns_at = check_tensor("columns", columns, (torch.int32,), (ANY_SIZE,))
    products_at = check_tensor("products", products, (torch.float32,), (ANY_SIZE, len(columns)))
    check_beside("columns", columns, "products", products)
    bias_at = None
    if bias is not None:
        bias_at = check_tensor("bias", bias, (torch.float32,), (vocab,))
        check_beside("bias", bias, "products", products)
    rows = products.shape[0]
    out = output_tensor(out, rows, vocab, products)
    native = native_at(level) if products.is_cpu else None
    if native is not None:
        unsound = native.cdll.simnmt_scatter(products_at, rows, columns_at, len(columns), vocab, bias_at, out.data_ptr())
        raise_for_column(unsound, columns, vocab)
        return out
    check_columns(columns, vocab)
    placed = products.detach() if bias is None else products.detach() + bias.detach()[columns]
    return out.fill_(-torch.inf).index_copy_(1, columns.long(), placed)
