"""Lengths that users bring: arrays and tables of lengths, and texts that are counted here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base.extension import Extended, Extension, ExtensionError
from simnmt.workload.configuration import Lengths
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import UNITS

FORMS = "give an array of shape (pairs, 2), a table with src_len and tgt_len or source and target, or pairs of texts"


class CustomLengths(Extended, Lengths):
    """The configuration of lengths that a user brings; they count in the unit of the first device profile."""

    def load(self, base: Path) -> LengthTable:
        """Return the lengths of texts in words, and of numbers as they are."""
        return self.load_in("word", "word")

    def load_in(self, src_unit: str, tgt_unit: str) -> LengthTable:
        """Return the lengths in these units. Raises `ExtensionError`, or `CorpusError` for lengths that make no table."""
        value, label = self.extension.value, self.kind
        if isinstance(value, LengthTable):
            return value
        try:
            pairs, counts = _pairs(value, src_unit, tgt_unit)
            lengths = np.asarray(pairs)
            if lengths.ndim != 2 or lengths.shape[1] != 2 or not len(lengths) or lengths.dtype.kind not in "iuf":
                raise ValueError
            whole = lengths.astype(np.int64)
            if (whole != lengths).any():
                raise ExtensionError(f"{label} holds lengths that are no whole numbers", remedy="give tokens")
        except (TypeError, ValueError, LookupError):
            raise ExtensionError(f"{label} holds no pairs of lengths or texts", remedy=FORMS) from None
        return LengthTable.of_pairs(label, "given in Python", src_unit, tgt_unit, whole[:, 0], whole[:, 1], counts)


def custom_lengths(extension: Extension) -> CustomLengths:
    """Return the configuration of a user's lengths."""
    return CustomLengths(kind=extension.label, extension=extension)


def _pairs(value: Any, src_unit: str, tgt_unit: str) -> tuple[Any, Any]:
    """Return pairs of lengths, and how often each occurs."""
    if hasattr(value, "columns"):
        if "src_len" in value.columns:
            counts = np.asarray(value["count"]) if "count" in value.columns else 1
            return np.column_stack([value["src_len"], value["tgt_len"]]), counts
        value = list(zip(value["source"], value["target"], strict=True))
    if isinstance(value[0], str):
        raise TypeError("a text is no pair")
    if not isinstance(value[0][0], str):
        return value, 1
    for unit in (src_unit, tgt_unit):
        if unit not in UNITS:
            remedy = f"give lengths, or name profiles that count in {' or '.join(UNITS)}"
            raise ExtensionError(f"texts cannot be counted in the profile's unit {unit}", remedy=remedy)
    count_src, count_tgt = UNITS[src_unit], UNITS[tgt_unit]
    if not all(isinstance(text, str) for pair in value for text in pair):
        raise TypeError("a text is missing")
    counted = [(count_src(source), count_tgt(target)) for source, target in value]
    return [pair for pair in counted if min(pair) > 0], 1
