"""Which length pairs are dropped before anything is fitted or replayed (CNMT-08).

The paper only cites its rules; these are simnmt's. They look at lengths alone, so a filter runs over the few
thousand distinct pairs of a corpus, not over its lines. What they can do has a limit: mismatched sentences of
like length pass. With 10 % of randomly matched pairs added, the shift of the regression's slope falls to 0.25
to 0.47 of itself on the shipped news and documentation tables, but to 0.6 on the small FLORES table and only
to 0.75 on short everyday sentences, where few mismatches look odd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.workload.errors import CorpusError, nearest

IntArray = NDArray[np.int64]
Rule = Callable[[IntArray, IntArray], NDArray[np.bool_]]
"""(src_len, tgt_len) -> True where the pair is to be dropped."""

MAX_LEN = 200
"""Tokens of either side."""
MAX_RATIO = 3
"""Of the longer side to the shorter one ..."""
RATIO_COUNTS_ABOVE = 5
"""... where the longer side has more tokens than this: short phrases differ by more without being wrong."""


def empty(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
    """A side without a token: no sentence to translate."""
    drops: NDArray[np.bool_] = (src_len == 0) | (tgt_len == 0)
    return drops


def too_long(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
    """A side of more than `MAX_LEN` tokens."""
    return (src_len > MAX_LEN) | (tgt_len > MAX_LEN)


def ratio(src_len: IntArray, tgt_len: IntArray) -> NDArray[np.bool_]:
    """Sides of so different a length that one is hardly the translation of the other."""
    longer, shorter = np.maximum(src_len, tgt_len), np.minimum(src_len, tgt_len)
    drops: NDArray[np.bool_] = (longer > RATIO_COUNTS_ABOVE) & (longer > MAX_RATIO * shorter)
    return drops


FILTERS: dict[str, Mapping[str, Rule]] = {
    "cnmt": {"empty": empty, "too_long": too_long, "ratio": ratio},
    "none": {"empty": empty},
}
"""A filter's name -> its rules by name, in the order they are asked; an empty side is never a request."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a filter took out of a corpus."""

    filter: str
    pairs_read: int
    rejects: Mapping[str, int]
    """Pairs by the first rule that dropped them, zeros included, in the filter's order."""

    @property
    def pairs_dropped(self) -> int:
        """Pairs that no longer count."""
        return sum(self.rejects.values())

    @property
    def pairs_kept(self) -> int:
        """Pairs that remain."""
        return self.pairs_read - self.pairs_dropped

    def __str__(self) -> str:
        by_rule = ", ".join(f"{rule} {count}" for rule, count in self.rejects.items())
        return f"{self.filter}: {self.pairs_read} pairs read, {self.pairs_dropped} dropped ({by_rule})"


def keep(name: str, src_len: IntArray, tgt_len: IntArray, count: IntArray) -> tuple[NDArray[np.bool_], Dropped]:
    """Which of the distinct pairs, each occurring `count` times, the filter `name` keeps, and what it drops.

    Raises `CorpusError` for a filter that is not in `FILTERS`.
    """
    if name not in FILTERS:
        raise CorpusError(f"unknown filter {name!r}", remedy=nearest(name, FILTERS))
    kept = np.ones(len(count), dtype=np.bool_)
    rejects = {}
    for rule, drops in FILTERS[name].items():
        rejected = kept & drops(src_len, tgt_len)
        rejects[rule] = int(count[rejected].sum())
        kept &= ~rejected
    return kept, Dropped(filter=name, pairs_read=int(count.sum()), rejects=rejects)
