"""Lengths without a corpus: log-normal ones that are drawn (FNI-12, FNI-14), and those that a user brings in Python."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p, sqrt
from typing import Any

import numpy as np

from simnmt.base.extension import ExtensionError
from simnmt.base.random_streams import stream
from simnmt.workload.length_table import IntArray, LengthTable
from simnmt.workload.length_units import UNITS


@dataclass(frozen=True, slots=True)
class LognormalLengths:
    """A model of lengths: rounded log-normal source lengths, and target lengths that are a log-normal factor times the source.

    N = max(1, round(log-normal)), M = round(N * exp(spread * z)) + 1 with z standard normal, the 1 being the end symbol: the
    assumption behind the occupancies of FNI-12, since the paper gives the moments of the sources alone.
    """

    src_mean: float
    """Mean source length, tokens."""
    src_sd: float
    """Standard deviation of the source length, tokens."""
    spread: float = 0.12
    """Standard deviation of the logarithm of target over source length."""

    def draw(self, generator: np.random.Generator, size: int) -> tuple[IntArray, IntArray]:
        """Draw (src_len, tgt_len) of `size` sentences, shape (size,) each, at least 1, in random order.

        Draws one source from each `size`-th part of the distribution: the standard deviation of independent draws is off by
        0.9 % for the paper's 30,000 sentences, so that one workload in thirty would not have the moments.
        """
        from scipy.special import ndtri  # here, since it takes a third of the start of a process

        variance = log1p((self.src_sd / self.src_mean) ** 2)
        share = (generator.permutation(size) + generator.random(size)) / size
        drawn = np.exp(log(self.src_mean) - variance / 2 + sqrt(variance) * ndtri(share))
        src_len = np.maximum(1.0, np.rint(drawn))
        tgt_len = np.rint(src_len * np.exp(self.spread * generator.standard_normal(size))) + 1.0
        return src_len.astype(np.int64), tgt_len.astype(np.int64)

    def table(self, sentences: int, name: str = "lognormal") -> LengthTable:
        """Return a length table of `sentences` drawn pairs in subwords, marked as synthetic."""
        source = (
            f"synthetic, {sentences:,} drawn pairs: log-normal source lengths of mean {self.src_mean:g} and standard deviation "
            f"{self.src_sd:g}, targets the source times exp({self.spread:g} z) plus 1"
        )
        pairs = self.draw(stream(0, 0, "lognormal_lengths"), sentences)
        return LengthTable.of_pairs(name, source, "subword", "subword", *pairs, filtered="none", end_of_sentence="target")


MIXES = {"europarl": LognormalLengths(26.3, 14.9), "opensubtitles": LognormalLengths(9.4, 6.1)}
"""Subwords of the decoded sentences of the two mixes (FNI-14, table 1)."""
SENTENCES = {"europarl": 30_000, "opensubtitles": 50_000}
"""Number of sentences of each mix (FNI-14)."""


def lengths_in(value: Any, label: str, src_unit: str, tgt_unit: str) -> LengthTable:
    """Return lengths of a user in these units: texts are counted, and numbers are as they are.

    Raises `ExtensionError`, or `CorpusError` for lengths that make no table.
    """
    if isinstance(value, LengthTable):
        return value
    try:
        pairs, counts = _pairs(value, src_unit, tgt_unit)
        lengths = np.asarray(pairs)
        if lengths.ndim != 2 or lengths.shape[1] != 2 or lengths.dtype.kind not in "iuf" or (lengths % 1).any():
            raise ValueError
    except (AttributeError, TypeError, ValueError, LookupError):
        remedy = "give an array of shape (pairs, 2), a table with src_len and tgt_len or source and target, or pairs of texts"
        raise ExtensionError(f"{label} holds no pairs of whole lengths or of texts", remedy=remedy) from None
    return LengthTable.of_pairs(label, "given in Python", src_unit, tgt_unit, lengths[:, 0], lengths[:, 1], counts)


def _pairs(value: Any, src_unit: str, tgt_unit: str) -> tuple[Any, Any]:
    """Return pairs of lengths, and how often each occurs."""
    if hasattr(value, "columns"):
        if "src_len" in value.columns:
            counts = np.asarray(value["count"]) if "count" in value.columns else 1
            return np.column_stack([value["src_len"], value["tgt_len"]]), counts
        value = list(zip(value["source"], value["target"], strict=True))
    if isinstance(value[0], str) or not isinstance(value[0][0], str):
        return value, 1
    for unit in (src_unit, tgt_unit):
        if unit not in UNITS:
            remedy = f"give lengths, or name profiles that count in {' or '.join(UNITS)}"
            raise ExtensionError(f"texts cannot be counted in the profile's unit {unit}", remedy=remedy)
    counted = [(UNITS[src_unit](source), UNITS[tgt_unit](target)) for source, target in value]
    return [pair for pair in counted if min(pair) > 0], 1
