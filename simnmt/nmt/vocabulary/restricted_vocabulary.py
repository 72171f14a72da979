"""A restricted vocabulary of a decoder: how its active columns are chosen, multiplied, copied and counted.

The product depends on the number of rows only, or a measured cost model chooses the fastest (FVP-09). Copies of the weights of
recurring columns are kept within a memory budget. The account holds active columns and misses by step and by sentence
(FVP-08).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.columns import SubMatrix, default_method
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.profile.projection_cost import ProductMethod

if TYPE_CHECKING:
    from simnmt.profile.projection_cost import ProjectionCost


@dataclass(slots=True)
class SentenceAccount:
    """Active columns of the steps of one sentence; the columns are those of its whole batch."""

    steps: int = 0
    columns: int = 0
    """Active columns, summed over the steps."""
    missed: int = 0
    """Rows, summed over the steps, whose likeliest token was not active; 0 without an audit."""


@dataclass(slots=True)
class SubsetAccount:
    """Active columns of each step of a decoder; it may collect the steps of several runs, one after the other."""

    clock: Callable[[], float] | None = None
    """Times the stages of each step; None: they are not timed. On a GPU one that waits for it."""
    vocab: int = 0
    """Target tokens of the model."""
    rows: list[int] = field(default_factory=list)
    """Rows of each step: sentences x beam."""
    sentences: list[int] = field(default_factory=list)
    """Active sentences of each step."""
    columns: list[int] = field(default_factory=list)
    """Active columns of each step."""
    audited: list[int] = field(default_factory=list)
    """Rows of each audited step."""
    missed: list[int] = field(default_factory=list)
    """Rows of each audited step whose likeliest token was not active (FVP-08)."""
    assign_s: list[float] = field(default_factory=list)
    """Seconds of each timed step for choosing clusters and their union, or for joining lists."""
    product_s: list[float] = field(default_factory=list)
    """Seconds of each timed step for the product, including a copy of a sub-matrix."""
    search_s: list[float] = field(default_factory=list)
    """Seconds of each timed step for bias, softmax and the best of each row; when scattered, without the choice among these."""
    by_sentence: dict[int, SentenceAccount] = field(default_factory=dict)
    """By the key with which a sentence joined; a sentence that joins with a used key replaces the earlier one."""
    _active: list[int] = field(default_factory=list)
    """Keys of the active sentences, by slot."""

    @property
    def share(self) -> NDArray[np.float64]:
        """Active share of the vocabulary in each step, shape (steps,)."""
        return np.asarray(self.columns, np.float64) / max(self.vocab, 1)

    @property
    def sentence_share(self) -> dict[int, float]:
        """Active share of the vocabulary over the steps of each sentence that took one, by its key."""
        return {key: one.columns / one.steps / max(self.vocab, 1) for key, one in self.by_sentence.items() if one.steps}

    @property
    def miss_rate(self) -> float:
        """Share of the audited rows whose likeliest token was not active (FVP-08); 0 without audited rows."""
        audited = sum(self.audited)
        return sum(self.missed) / audited if audited else 0.0

    def join(self, keys: Sequence[int]) -> None:
        """Append sentences to the active ones."""
        self._active += keys
        self.by_sentence |= {key: SentenceAccount() for key in keys}

    def leave(self, order: Sequence[int]) -> None:
        """Keep the sentences `order`: new slot i is old slot `order[i]`."""
        self._active = [self._active[slot] for slot in order]

    def step(self, vocab: int, rows: int, columns: int, *, missed: Sequence[bool] | None) -> None:
        """Record a step with this number of active columns.

        `missed`: for each row whether its likeliest token was not active; None without an audit.
        """
        self.vocab = vocab
        self.rows.append(rows)
        self.sentences.append(len(self._active))
        self.columns.append(columns)
        if missed is not None:
            self.audited.append(rows)
            self.missed.append(sum(missed))
        beam = rows // max(len(self._active), 1)
        for slot, key in enumerate(self._active):
            one = self.by_sentence[key]
            one.steps += 1
            one.columns += columns
            if missed is not None:
                one.missed += sum(missed[slot * beam : (slot + 1) * beam])

    def seconds(self, assign_s: float, product_s: float, search_s: float) -> None:
        """Record the seconds of the stages of a step."""
        self.assign_s.append(assign_s)
        self.product_s.append(product_s)
        self.search_s.append(search_s)


_MOST_COUNTED_KEYS = 4_096
"""Most keys without a copy whose uses are counted, by their hashes: some hundred kilobytes beside the budget."""


class SubMatrixCache:
    """The most recently used copies of columns of one weight matrix, up to `budget_bytes` in all. Threads may share it.

    A copy is made when `pays(uses)` is true for a key that has been asked for `uses` times since its last copy: the number of
    past uses predicts the number of future ones.
    """

    def __init__(self, budget_bytes: int) -> None:
        """Start empty; a budget of 0 keeps nothing. Raises `NmtError` for less than 0."""
        if budget_bytes < 0:
            raise NmtError(f"a cache of {budget_bytes:,} bytes", remedy="give 0 or more")
        self.budget_bytes = budget_bytes
        self.hits = self.misses = self.made = 0
        """Requests with a copy, requests without one, and copies made."""
        self.nbytes = 0
        """Bytes of all copies."""
        self._kept: OrderedDict[Hashable, SubMatrix] = OrderedDict()
        self._uses: OrderedDict[int, int] = OrderedDict()
        self._weight: Tensor | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, weight: Tensor, columns: Tensor, key: Hashable, pays: Callable[[int], bool]) -> SubMatrix | None:
        """Return the copy of these columns, made now if it pays, or None. Equal keys must mean equal columns."""
        with self._lock:
            self._follow(weight)
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return kept
            self.misses += 1
            uses = self._uses.pop(hash(key), 0) + 1
            needed = SubMatrix.bytes_of(weight, len(columns))
            if needed > self.budget_bytes:
                return None
            if not pays(uses):
                self._uses[hash(key)] = uses
                if len(self._uses) > _MOST_COUNTED_KEYS:
                    self._uses.popitem(last=False)
                return None
            while self._kept and self.nbytes + needed > self.budget_bytes:
                _, oldest = self._kept.popitem(last=False)
                self.nbytes -= oldest.nbytes
            copy = SubMatrix.of(weight, columns)
            self._kept[key] = copy
            self.nbytes += copy.nbytes
            self.made += 1
            return copy

    def __str__(self) -> str:
        asked = self.hits + self.misses
        return (
            f"copies of columns served {self.hits:,} of {asked:,} products: {self.made:,} made, {len(self):,} kept in "
            f"{self.nbytes / 1e6:.1f} of {self.budget_bytes / 1e6:.1f} MB"
        )

    def _follow(self, weight: Tensor) -> None:
        """Free the copies of another weight matrix; the counts stay."""
        before = self._weight
        if before is None or (before.data_ptr(), before.dtype, before.shape) != (weight.data_ptr(), weight.dtype, weight.shape):
            self._kept.clear()
            self._uses.clear()
            self.nbytes, self._weight = 0, weight.detach()


_BUCKETS = 64
"""Classes of the number of active columns: evaluating the cost model takes as long as a small product."""


class ProductChoice:
    """The fastest product by number of rows and active columns, of which the cost model is asked once per bucket."""

    def __init__(self, cost: ProjectionCost | None, vocab: int, width: int) -> None:
        self._cost, self._vocab, self._width = cost, vocab, width
        self._bucket = max(1, vocab // _BUCKETS)
        self._fastest, self._break_even = cache(self._find_fastest), cache(self._find_break_even)

    def method(self, columns: int, rows: int) -> ProductMethod | Literal["dense"]:
        """Return the method of a product; `dense`: of all columns, of which the active ones are then taken."""
        return default_method(rows) if self._cost is None else self._fastest(columns // self._bucket, rows)[0]

    def pays(self, columns: int, rows: int, uses: int) -> bool:
        """Return whether a copy of columns pays that will be multiplied `uses` times; False without a measured cost."""
        return self._cost is not None and uses > self._break_even(columns // self._bucket, rows)

    def _find_fastest(self, bucket: int, rows: int) -> tuple[ProductMethod | Literal["dense"], float]:
        """Return the fastest method without a copy, and its seconds."""
        cost, columns = self._at(bucket)
        method = cost.method(columns, rows, self._width)
        active_s = cost.product_s(columns, rows, self._width, method)
        dense_s = cost.dense.seconds(rows, self._vocab * self._width, self._vocab)
        return ("dense", dense_s) if dense_s < active_s else (method, active_s)

    def _find_break_even(self, bucket: int, rows: int) -> float:
        """Return the number of uses that save as much time as making a copy takes."""
        cost, columns = self._at(bucket)
        saved_s = self._fastest(bucket, rows)[1] - cost.product_s(columns, rows, self._width, "kept")
        return cost.copy_out.seconds(rows, columns * self._width, columns) / saved_s if saved_s > 0.0 else inf

    def _at(self, bucket: int) -> tuple[ProjectionCost, int]:
        """Return the measured cost model and the middle of a bucket."""
        assert self._cost is not None, "asked for only where a cost was measured"
        return self._cost, min(self._vocab, bucket * self._bucket + self._bucket // 2)


class ActiveColumns(NamedTuple):
    """The active columns of a step."""

    columns: Tensor
    """int32 [columns], ascending, on the model's device."""
    key: Hashable
    """Identifies the columns: equal keys mean equal columns, whatever chose them."""


class VocabularySubset(Protocol):
    """The choice of active columns for the active sentences of one decoder."""

    def columns(self, hidden: Tensor) -> ActiveColumns:
        """Return the active columns of all rows together, from the body's output [rows, width] (FVP-06)."""

    def join(self, sources: Sequence[Sequence[int]], beam: int) -> None:
        """Append sentences with these source tokens, of `beam` rows each."""

    def leave(self, order: Sequence[int]) -> None:
        """Keep the sentences `order`: new slot i is old slot `order[i]`."""


@dataclass(frozen=True, slots=True)
class RestrictedVocabulary:
    """The `vocabulary` of a decoder: how active columns are chosen, multiplied and searched.

    `clustered` and `listed` make one with default options; `dataclasses.replace` changes them.
    """

    label: str
    """Its name in messages."""
    vocab: int
    """Target tokens of its model."""
    width: int | None
    """Width of its model's contexts; None if it fits any."""
    begin: Callable[[], VocabularySubset]
    """Makes the subset of a new decoder, without sentences."""
    reads_sources: bool
    """Whether the active columns depend on source tokens."""
    scatter: bool = False
    """Whether products are scattered into [rows, vocab], the rest minus infinity, with softmax and search over all, as in the
    paper (FVP-07). Otherwise the fused kernel searches them, and its columns are mapped back (XP-02): the same tokens."""
    audit: bool = False
    """Whether to make the dense products too, and count the rows whose likeliest token is not active (FVP-08). Changes no
    output."""
    cost: ProjectionCost | None = None
    """The cost model that chooses the product, and whether a copied sub-matrix pays. None: the choice depends on the number of
    rows only, which is the same at each run, and no copy is kept."""
    cache: SubMatrixCache | None = None
    """Where copies are kept."""
    account: SubsetAccount | None = None
    """Records every step."""
    clusters: int = 0
    """Centroids with which each row is compared; 0 for lists."""

    def check(self, model: StepModel) -> None:
        """Raise `NmtError` for a model with another vocabulary or width."""
        width = model.weight.shape[1]
        if self.vocab != model.vocab or self.width not in (None, width):
            expected = f"{self.vocab:,} tokens" + ("" if self.width is None else f" and width {self.width:,}")
            what = f"the vocabulary's parts ({self.label}) are of {expected}, the model of {model.vocab:,} and {width:,}"
            raise NmtError(what, remedy="build them with this model: simnmt vocab build")
