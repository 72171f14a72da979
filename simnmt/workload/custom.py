"""Lengths that users bring: arrays and tables of lengths, and texts that are counted here."""

from __future__ import annotations

from typing import Any

import numpy as np

from simnmt.base.extension import ExtensionError
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import UNITS

FORMS = "give an array of shape (pairs, 2), a table with src_len and tgt_len or source and target, or pairs of texts"


def lengths_in(value: Any, label: str, src_unit: str, tgt_unit: str) -> LengthTable:
    """Return lengths in these units: texts are counted, and numbers are as they are.

    Raises `ExtensionError`, or `CorpusError` for lengths that make no table.
    """
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
