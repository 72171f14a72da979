"""A part of the vocabulary for a decoder: how its active columns are chosen, multiplied, kept as copies and counted.

The product is made by the number of rows alone, or as a measured cost model says is fastest (FVP-09). Copies of weights of
columns that recur are kept within a budget of memory. The account holds active columns and misses by step and by sentence
(FVP-08).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
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
    """Of one sentence, as long as it was under way; columns are those of the whole batch."""

    steps: int = 0
    columns: int = 0
    """Active ones, summed over its steps."""
    missed: int = 0
    """Rows and steps whose likeliest token was not active; 0 without an audit."""


@dataclass(slots=True)
class SubsetAccount:
    """Told by a decoder of each step; kept over several runs, one after the other, it tells of their steps together."""

    clock: Callable[[], float] | None = None
    """Times the stages of each step; None: they are not timed. On a GPU one that waits for it."""
    vocab: int = 0
    """Target tokens of the model."""
    rows: list[int] = field(default_factory=list)
    """Of each step: sentences x beam."""
    sentences: list[int] = field(default_factory=list)
    """Of each step, under way."""
    columns: list[int] = field(default_factory=list)
    """Of each step, active."""
    audited: list[int] = field(default_factory=list)
    """Of each step that was audited: rows."""
    missed: list[int] = field(default_factory=list)
    """Of these, the rows whose likeliest token was not active (FVP-08)."""
    assign_s: list[float] = field(default_factory=list)
    """Of each timed step: choosing clusters and their union, or joining lists."""
    product_s: list[float] = field(default_factory=list)
    """Of each timed step, with the copy of a sub-matrix where one was made."""
    search_s: list[float] = field(default_factory=list)
    """Of each timed step: bias, softmax and the best of each row; scattered, not the choice among these."""
    by_sentence: dict[int, SentenceAccount] = field(default_factory=dict)
    """By the key that a sentence joined with; one that joins with a key once more begins anew."""
    _under_way: list[int] = field(default_factory=list)

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
        """Share of the audited rows whose likeliest token was not active (FVP-08); 0 where none was audited."""
        audited = sum(self.audited)
        return sum(self.missed) / audited if audited else 0.0

    def join(self, keys: Sequence[int]) -> None:
        """Sentences are appended to those under way."""
        self._under_way += keys
        for key in keys:
            self.by_sentence[key] = SentenceAccount()

    def leave(self, order: Sequence[int]) -> None:
        """Sentence i becomes what sentence `order[i]` was; the others are gone."""
        self._under_way = [self._under_way[slot] for slot in order]

    def step(self, vocab: int, rows: int, columns: int, *, missed: Sequence[bool] | None) -> None:
        """A step with so many active columns was taken; `missed`: of each row, where audited, whether its likeliest was not."""
        self.vocab = vocab
        self.rows.append(rows)
        self.sentences.append(len(self._under_way))
        self.columns.append(columns)
        if missed is not None:
            self.audited.append(rows)
            self.missed.append(sum(missed))
        beam = rows // max(len(self._under_way), 1)
        for slot, key in enumerate(self._under_way):
            one = self.by_sentence[key]
            one.steps += 1
            one.columns += columns
            if missed is not None:
                one.missed += sum(missed[slot * beam : (slot + 1) * beam])

    def seconds(self, assign_s: float, product_s: float, search_s: float) -> None:
        """What the stages of the step took."""
        self.assign_s.append(assign_s)
        self.product_s.append(product_s)
        self.search_s.append(search_s)


_MOST_COUNTED_KEYS = 4_096
"""Keys whose uses are remembered without a copy, by their hashes: some hundred kilobytes beside the budget."""


class SubMatrixCache:
    """The copies used last, up to `budget_bytes` of them together; of one weight at a time. Threads may share it.

    A copy is made once `pays(uses)` says so, of a key that was asked for `uses` times since it last had one: that it will be as
    often again is the best guess there is.
    """

    def __init__(self, budget_bytes: int) -> None:
        """Raises `NmtError` for less than 0; 0 keeps nothing."""
        if budget_bytes < 0:
            raise NmtError(f"a cache of {budget_bytes:,} bytes", remedy="give 0 or more")
        self.budget_bytes = budget_bytes
        self.hits = self.misses = self.made = 0
        """Times that a copy was there, that none was, and that one was made."""
        self.nbytes = 0
        """Bytes that the copies hold."""
        self._kept: OrderedDict[Hashable, SubMatrix] = OrderedDict()
        self._uses: OrderedDict[int, int] = OrderedDict()
        self._weight: Tensor | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, weight: Tensor, columns: Tensor, key: Hashable, pays: Callable[[int], bool]) -> SubMatrix | None:
        """Return the copy of these columns, made now if it pays, else None. Equal keys have equal columns."""
        with self._lock:
            self._belong_to(weight)
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

    def _belong_to(self, weight: Tensor) -> None:
        """Give the copies of another weight back; the counts stay."""
        if self._weight is None or _identity_of(self._weight) != _identity_of(weight):
            self._kept.clear()
            self._uses.clear()
            self.nbytes, self._weight = 0, weight.detach()


def _identity_of(weight: Tensor) -> tuple[object, ...]:
    return weight.data_ptr(), weight.dtype, weight.shape


_BUCKETS = 64
"""Numbers of active columns that are told apart: asking the model takes as long as a small product."""


class ProductChoice:
    """Asks the cost model once for each number of rows and each bucket of active columns."""

    def __init__(self, cost: ProjectionCost | None, vocab: int, width: int) -> None:
        self._cost, self._vocab, self._width = cost, vocab, width
        self._bucket = max(1, vocab // _BUCKETS)
        self._methods: dict[tuple[int, int], ProductMethod | Literal["dense"]] = {}
        self._uses: dict[tuple[int, int], float] = {}
        """That a copy must have more of, to pay."""

    def method(self, columns: int, rows: int) -> ProductMethod | Literal["dense"]:
        """Of one product; `dense`: of all columns, of which the active ones are then taken, beyond a measured break-even."""
        if self._cost is None:
            return default_method(rows)
        place = rows, columns // self._bucket
        if place not in self._methods:
            self._methods[place] = self._fastest(self._cost, self._usual(columns), rows)[0]
        return self._methods[place]

    def pays(self, columns: int, rows: int, uses: int) -> bool:
        """Whether a copy of these columns pays that will be multiplied so many times; without a measured cost none does."""
        if self._cost is None:
            return False
        place = rows, columns // self._bucket
        if place not in self._uses:
            self._uses[place] = self._break_even(self._cost, self._usual(columns), rows)
        return uses > self._uses[place]

    def _fastest(self, cost: ProjectionCost, columns: int, rows: int) -> tuple[ProductMethod | Literal["dense"], float]:
        method = cost.method(columns, rows, self._width)
        active_s = cost.product_s(columns, rows, self._width, method)
        dense_s = cost.dense.seconds(rows, self._vocab * self._width, self._vocab)
        return ("dense", dense_s) if dense_s < active_s else (method, active_s)

    def _break_even(self, cost: ProjectionCost, columns: int, rows: int) -> float:
        """Uses at which what a copy saves, against whatever is fastest without one, is what making it takes."""
        saved_s = self._fastest(cost, columns, rows)[1] - cost.product_s(columns, rows, self._width, "kept")
        return cost.copy_out.seconds(rows, columns * self._width, columns) / saved_s if saved_s > 0.0 else inf

    def _usual(self, columns: int) -> int:
        """The middle of its bucket."""
        return min(self._vocab, columns // self._bucket * self._bucket + self._bucket // 2)


class ActiveColumns(NamedTuple):
    """The active columns of a step, and what they are known by."""

    columns: Tensor
    """int32 [columns], ascending, on the model's device."""
    key: Hashable
    """Equal keys have equal columns, whatever chose them."""


class VocabularySubset(Protocol):
    """Chooses the active columns for the sentences under way; one belongs to one decoder and changes with it."""

    @property
    def label(self) -> str:
        """What it is, for people."""

    def columns(self, hidden: Tensor) -> ActiveColumns:
        """For all rows together, of what the decoder's body left, [rows, width] (FVP-06); no row: no column."""

    def join(self, sources: Sequence[Sequence[int]], beam: int) -> None:
        """So many sentences of these source tokens are appended, of `beam` rows each."""

    def leave(self, order: Sequence[int]) -> None:
        """Sentence i becomes what sentence `order[i]` was; the others are gone."""


@dataclass(frozen=True, slots=True)
class RestrictedVocabulary:
    """What decoders are handed as `vocabulary`: how active columns are chosen, and how they are multiplied and searched."""

    label: str
    """What it is, for people."""
    vocab: int
    """Target tokens of the model that it is for."""
    width: int | None
    """Of what that model's output layer projects; None where any does."""
    begin: Callable[[], VocabularySubset]
    """A subset for a decoder that starts, without any sentence."""
    reads_sources: bool
    """Whether the active columns hang on source tokens."""
    scatter: bool = False
    """The paper's way: products are scattered into [rows, vocab], the rest minus infinity, and softmax and search go over all
    (FVP-07). Otherwise they go to the fused kernel as they are, and its answers are mapped back (XP-02): the same tokens."""
    audit: bool = False
    """Make the dense products too, and count the rows whose likeliest token is not active (FVP-08). Changes no output."""
    cost: ProjectionCost | None = None
    """Says how a product is made, and whether a copied sub-matrix pays. None: by the number of rows alone, which is the same at
    each run, and no copy is kept."""
    cache: SubMatrixCache | None = None
    """Where copies are kept."""
    account: SubsetAccount | None = None
    """Is told of every step."""
    clusters: int = 0
    """Centroids that each row is compared with; 0 where it is none."""

    def check(self, model: StepModel) -> None:
        """Raises `NmtError` for a model with another vocabulary or width than this is for."""
        width = model.weight.shape[1]
        if self.vocab != model.vocab or self.width not in (None, width):
            expected = f"{self.vocab:,} tokens" + ("" if self.width is None else f" and width {self.width:,}")
            what = f"the vocabulary's parts ({self.label}) are of {expected}, the model of {model.vocab:,} and {width:,}"
            raise NmtError(what, remedy="build them with this model: simnmt vocab build")
