"""Cluster sets held against contexts of held-out text: active shares, unions and misses, without decoding again (FVP-08)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.calibrate.vocabulary.study.document import Spread

_BLOCK = 256
"""Steps whose rows' sets are gathered at a time."""
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)
"""Bits set in each byte."""


@dataclass(frozen=True, slots=True)
class HeldOutTokens:
    """What dense greedy decoding of a text wrote, sentence by sentence, each in the order of its steps."""

    tokens: NDArray[np.int64]
    """[steps], end tokens included."""
    sentences: NDArray[np.int64]
    """[steps]: the sentence of each, ascending."""

    def __post_init__(self) -> None:
        if not len(self.tokens) or np.any(np.diff(self.sentences) < 0):
            raise ValueError("steps of at least one sentence, sentence by sentence")

    @property
    def sentence_count(self) -> int:
        """Sentences that have a step."""
        return len(np.unique(self.sentences))


@dataclass(frozen=True, slots=True)
class Outcome:
    """See the fields of `Cell` that have these names."""

    share: Spread
    union: Spread
    union_rows: int
    miss_rate: float
    identical: float


class ActiveBits:
    """Active sets as bits, one row a cluster: for counting many unions at once."""

    def __init__(self, starts: NDArray[np.int64], columns: NDArray[np.int32], vocab: int) -> None:
        """Set i holds `columns[starts[i] : starts[i + 1]]`."""
        active = np.zeros((len(starts) - 1, vocab), dtype=bool)
        active[np.repeat(np.arange(len(starts) - 1), np.diff(starts)), columns] = True
        self._active, self._bits, self.vocab = active, np.packbits(active, axis=1), vocab
        self.sizes: NDArray[np.int64] = active.sum(axis=1)
        """Columns of each set."""

    def holds(self, sets: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each token stands in the set beside it."""
        found: NDArray[np.bool_] = self._active[sets, tokens]
        return found

    def of(self, sets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which columns are active, [sets, vocab]."""
        found: NDArray[np.bool_] = self._active[sets]
        return found

    def unions(self, sets: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """Columns of the union of each step's sets, where the sequence of `sets` runs down `rows` lanes side by side.

        Each lane is a run of the sequence, so that a step has one row of each: decoding whose places are filled again at once.
        What is left over, less than a step of each lane, is left out.
        """
        steps = len(sets) // rows
        lanes = sets[: steps * rows].reshape(rows, steps).T
        parts = []
        for begin in range(0, steps, _BLOCK):
            together = np.bitwise_or.reduce(self._bits[lanes[begin : begin + _BLOCK]], axis=1)
            parts.append(_ONES[together].sum(axis=1, dtype=np.int64))
        return np.concatenate(parts)


def outcome(bits: ActiveBits, nearest: NDArray[np.int64], heldout: HeldOutTokens, rows: int) -> Outcome:
    """Held-out text with these sets; `nearest`: the cluster of each of its steps; `rows`: of the unions, or all there are."""
    hit = bits.holds(nearest, heldout.tokens)
    rows = min(rows, len(nearest))
    _, sentence = np.unique(heldout.sentences, return_inverse=True)
    misses = np.bincount(sentence, weights=~hit)
    return Outcome(
        spread(bits.sizes[nearest], bits.vocab),
        spread(bits.unions(nearest, rows), bits.vocab),
        rows,
        float(1.0 - hit.mean()),
        float((misses == 0).mean()),
    )


def spread(columns: NDArray[np.int64], vocab: int) -> Spread:
    """Shares of the vocabulary, of so many columns."""
    least, p10, median, p90, most = (float(each) / vocab for each in np.quantile(columns, (0.0, 0.1, 0.5, 0.9, 1.0)))
    return Spread(mean=float(columns.mean()) / vocab, least=least, p10=p10, median=median, p90=p90, most=most)
