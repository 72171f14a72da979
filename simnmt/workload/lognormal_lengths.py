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
    """A source length is a log-normal number of these moments, rounded; a target's is the source's times a log-normal factor.

    N = max(1, round(log-normal)), M = round(N * exp(spread * z)) + end with z standard normal: the assumption behind the
    occupancies of FNI-12, since the paper gives the moments of the sources alone.
    """

    src_mean: float
    """Source tokens of a mean sentence."""
    src_sd: float
    """Their standard deviation, in tokens."""
    spread: float = 0.12
    """Standard deviation of the logarithm of target over source length."""
    end: int = 1
    """Tokens that every target has beside its text: the end symbol."""

    def draw(self, generator: np.random.Generator, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(src_len, tgt_len) of `size` sentences, shape (size,) each, at least 1, in random order.

        One source from each `size`-th part of the distribution: independent ones miss the standard deviation by 0.9 % at the
        paper's 30,000 sentences, so that one workload in thirty would not have its moments.
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
"""What the lengths of table 1 count."""
EUROPARL = LognormalLengths(26.3, 14.9)
"""Sub-words of the Europarl sentences that were decoded (FNI-14, table 1)."""
OPENSUBTITLES = LognormalLengths(9.4, 6.1)
"""Sub-words of the OpenSubtitles sentences that were decoded (FNI-14, table 1)."""
MIXES = {"europarl": EUROPARL, "opensubtitles": OPENSUBTITLES}
"""The two mixes by name."""
SENTENCES = {"europarl": 30_000, "opensubtitles": 50_000}
"""Sentences of each (FNI-14)."""
