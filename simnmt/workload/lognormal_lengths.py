"""Synthetic lengths: log-normal sources, and targets that follow them closely (FNI-12, FNI-14)."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from simnmt.base.random_streams import stream
from simnmt.workload.length_table import LengthTable


@dataclass(frozen=True, slots=True)
class LognormalLengths:
    """A model of lengths: rounded log-normal source lengths, and target lengths that are a log-normal factor times the source.

    N = max(1, round(log-normal)), M = round(N * exp(spread * z)) + end with z standard normal: the assumption behind the
    occupancies of FNI-12, since the paper gives the moments of the sources alone.
    """

    src_mean: float
    """Mean source length, tokens."""
    src_sd: float
    """Standard deviation of the source length, tokens."""
    spread: float = 0.12
    """Standard deviation of the logarithm of target over source length."""
    end: int = 1
    """Tokens of every target besides its text: the end symbol."""

    def draw(self, generator: np.random.Generator, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw (src_len, tgt_len) of `size` sentences, shape (size,) each, at least 1, in random order.

        Draws one source from each `size`-th part of the distribution: the standard deviation of independent draws is off by
        0.9 % for the paper's 30,000 sentences, so that one workload in thirty would not have the moments.
        """
        from scipy.special import ndtri  # here, since it takes a third of the start of a process

        variance = log1p((self.src_sd / self.src_mean) ** 2)
        share = (generator.permutation(size) + generator.random(size)) / size
        drawn = np.exp(log(self.src_mean) - variance / 2 + sqrt(variance) * ndtri(share))
        src_len = np.maximum(1.0, np.rint(drawn))
        tgt_len = np.maximum(1.0, np.rint(src_len * np.exp(self.spread * generator.standard_normal(size))) + self.end)
        return src_len.astype(np.int64), tgt_len.astype(np.int64)

    def table(self, sentences: int, seed: int = 0, name: str = "lognormal") -> LengthTable:
        """Return a length table of `sentences` drawn pairs, marked as synthetic."""
        source = (
            f"synthetic, {sentences:,} pairs drawn with seed {seed}: log-normal source lengths of mean {self.src_mean:g} and "
            f"standard deviation {self.src_sd:g}, targets the source times exp({self.spread:g} z) plus {self.end}"
        )
        pairs = self.draw(stream(seed, 0, "lognormal_lengths"), sentences)
        return LengthTable.of_pairs(
            name, source, UNIT, UNIT, *pairs, filtered="none", end_of_sentence="target" if self.end else "none"
        )


UNIT = "subword"
"""Unit of the lengths of table 1."""
EUROPARL = LognormalLengths(26.3, 14.9)
"""Subwords of the decoded Europarl sentences (FNI-14, table 1)."""
OPENSUBTITLES = LognormalLengths(9.4, 6.1)
"""Subwords of the decoded OpenSubtitles sentences (FNI-14, table 1)."""
MIXES = {"europarl": EUROPARL, "opensubtitles": OPENSUBTITLES}
"""The two mixes by name."""
SENTENCES = {"europarl": 30_000, "opensubtitles": 50_000}
"""Number of sentences of each mix (FNI-14)."""
