"""Synthetic lengths: log-normal sources, and targets that follow them closely (FNI-12, FNI-14)."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray


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
        """(src_len, tgt_len) of `size` sentences, shape (size,) each; no length falls below 1."""
        variance = log1p((self.src_sd / self.src_mean) ** 2)
        drawn = generator.lognormal(log(self.src_mean) - variance / 2, sqrt(variance), size)
        src_len = np.maximum(1, np.rint(drawn))
        tgt_len = np.rint(src_len * np.exp(self.spread * generator.standard_normal(size))) + self.end
        return src_len.astype(np.int64), np.maximum(1, tgt_len).astype(np.int64)


EUROPARL = LognormalLengths(26.3, 14.9)
"""Sub-words of the Europarl sentences that were decoded (FNI-14, table 1)."""
OPENSUBTITLES = LognormalLengths(9.4, 6.1)
"""Sub-words of the OpenSubtitles sentences that were decoded (FNI-14, table 1)."""
SENTENCES = {"europarl": 30_000, "opensubtitles": 50_000}
"""Sentences of each of the two mixes (FNI-14)."""
MIXES = {"europarl": EUROPARL, "opensubtitles": OPENSUBTITLES}
"""The two mixes by name."""
