"""Which target tokens a source token may become, and how probably: what an alignment of parallel text leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.nmt.errors import NmtError

Pair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class LexicalTable:
    """p(target token | source token) without context, sparse, a row per source token (SHARP-02).

    The end mark of the sources stands in each of them: its row is that of the empty word, which target tokens come from that no
    word of the source gives.
    """

    starts: NDArray[np.int64]
    """[source tokens + 1]: row i lies from `starts[i]` to `starts[i + 1]`; a source token that was never seen has none."""
    tokens: NDArray[np.int32]
    """Target tokens of all rows, ascending in each."""
    probabilities: NDArray[np.float64]
    """Theirs; each row that is not empty sums to 1."""
    tgt_vocab: int
    """Target tokens known."""

    @property
    def src_vocab(self) -> int:
        """Source tokens known."""
        return len(self.starts) - 1

    def best(self, count: int, without: Iterable[int] = ()) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Starts, target tokens and probabilities of the `count` most probable of each row, the best first, ties lowest first.

        Of probability 0 there are none, and none of the source tokens `without` any.
        """
        rows = np.repeat(np.arange(self.src_vocab), np.diff(self.starts))
        some = np.flatnonzero((self.probabilities > 0.0) & ~np.isin(rows, list(without)))
        rows = rows[some]
        order = np.lexsort((self.tokens[some], -self.probabilities[some], rows))
        some, rows = some[order], rows[order]
        sizes = np.bincount(rows, minlength=self.src_vocab)
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = some[rank < count]
        starts = np.concatenate(([0], np.cumsum(np.minimum(sizes, count)))).astype(np.int64)
        return starts, self.tokens[kept], self.probabilities[kept].astype(np.float32)


def alignable(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], longest: int | None = None) -> list[Pair]:
    """The pairs that have two sides, neither longer than `longest`. Raises `NmtError` where the sides are not equally many."""
    if len(sources) != len(targets):
        raise NmtError(f"{len(sources):,} sources but {len(targets):,} targets", remedy="line i must translate line i")
    pairs = zip(sources, targets, strict=True)
    return [pair for pair in pairs if all(map(len, pair)) and (longest is None or max(map(len, pair)) <= longest)]


def lexical_table(pairs: NDArray[np.int64], counts: NDArray[np.float64], src_vocab: int, tgt_vocab: int) -> LexicalTable:
    """The table of expected counts: `pairs` are source token x `tgt_vocab` + target token, each once and ascending."""
    sources = pairs // tgt_vocab
    totals = np.bincount(sources, weights=counts, minlength=src_vocab)
    starts = np.searchsorted(sources, np.arange(src_vocab + 1)).astype(np.int64)
    shares = np.divide(counts, totals[sources], out=np.zeros(len(counts)), where=totals[sources] > 0.0)
    return LexicalTable(starts, (pairs % tgt_vocab).astype(np.int32), shares, tgt_vocab)
