"""What a decoder with a part of the vocabulary did: active columns by step and by sentence, misses, copies used (FVP-08)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


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

    def drop_all(self) -> None:
        """None is under way any more."""
        self._under_way = []

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
