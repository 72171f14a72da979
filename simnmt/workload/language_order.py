"""Whether a corpus holds its languages in the order that its names claim, judged by its lengths alone.

Compared is the ratio of mean lengths, target to source, with those of the shipped tables of that language pair. Turned
round it is its reciprocal, and it hardly depends on the kind of text (French to English 0.90 to 0.93 on each of the
four corpora at hand). The least-squares slope would not do: it bends towards level whichever side is the source, so that short
everyday sentences have 0.74 from French to English and 0.93 from English to French, both below one.

For a pair such as German and English, which take about as many words, no order can be told.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simnmt import shipped
from simnmt.workload.filters import dropped_share
from simnmt.workload.length_table import LengthTable, read_table

_CLOSE_TO_ONE = 0.05
"""Where a shipped table's ratio is closer to 1 than this (in its logarithm), the two orders are too much alike."""
_NEARER = 2.0
"""How many times nearer to the other order the ratio must be ..."""
_STANDARD_ERRORS = 3.0
"""... and how far beyond 1, lest chance raise an alarm."""
_FEWEST_PAIRS = 30
"""Of fewer not even the standard error is known."""
_FAR = math.log(1.5)
"""A ratio this far from both orders comes of other units, or of lines that do not pair up."""
_MOST = 0.5
"""Of the pairs: where a filter dropped more, those left say nothing of the corpus."""


@dataclass(frozen=True, slots=True)
class _Expected:
    names: tuple[str, ...]
    ratios: tuple[float, ...]

    @property
    def told(self) -> str:
        low, high = (f"{ratio:.2f}" for ratio in (min(self.ratios), max(self.ratios)))
        return f"{low if low == high else f'{low} to {high}'} in {', '.join(self.names)}"


def languages_in(name: str) -> str:
    """The language pair that a table's name begins with, such as `de-en`; empty where it begins with none."""
    match = re.match(r"[a-z]{2}-[a-z]{2}(?![a-z0-9])", name)
    return match[0] if match else ""


def order_warning(table: LengthTable, expect_ratio: float | None = None) -> str | None:
    """One line where source and target seem to be swapped, or not to belong together; None where all is well.

    `expect_ratio`: mean target over mean source tokens that the user expects; without it the shipped tables of the language
    pair say what to expect, counted in the same units. None also where neither is there, where both orders have about
    the same ratio, and where the pairs are too few to judge by, or a filter dropped most of them.
    """
    if table.pairs < _FEWEST_PAIRS or dropped_share(table.filtered) > _MOST:
        return None
    languages = table.languages or languages_in(table.name)
    if expect_ratio is not None:
        expected: _Expected | None = _Expected(("the ratio you expect",), (expect_ratio,))
    else:
        expected = _shipped(languages, table.src_unit, table.tgt_unit)
    if expected is None:
        return _swapped_units(table, languages)
    ratio = table.mean_ratio
    found, logs = math.log(ratio), np.log(expected.ratios)
    told = f"{ratio:.2f} target tokens per source token, where {expected.told}"
    if expect_ratio is not None:
        told = f"{ratio:.2f} target tokens per source token, where you expect {expect_ratio:g}"
    usual = float(logs.mean())
    tellable = bool(np.all(logs * np.sign(usual) >= _CLOSE_TO_ONE))
    beyond = -found * math.copysign(1.0, usual)
    nearer_to_other = _NEARER * abs(found + usual) < abs(found - usual)
    if tellable and nearer_to_other and beyond > _STANDARD_ERRORS * _standard_error(table, ratio):
        pair = f" {languages}" if languages else ""
        return f"source and target{pair} seem to be swapped: {told} (swap them, or mend the names)"
    if min(abs(found - logs).min(), abs(found + usual)) > _FAR + _STANDARD_ERRORS * _standard_error(table, ratio):
        return f"odd lengths: {told} (do the units fit both languages, and do the lines pair up?)"
    return None


def _standard_error(table: LengthTable, ratio: float) -> float:
    """Of the logarithm of the ratio of means, by the delta method."""
    residual = table.tgt_len - ratio * table.src_len
    return math.sqrt(float(residual**2 @ table.count)) / (table.pairs * table.mean_tgt_len)


def _swapped_units(table: LengthTable, languages: str) -> str | None:
    """Units in the wrong order are all that can be seen where the text was counted by the wrong one on each side."""
    if table.src_unit == table.tgt_unit or _shipped(languages, table.tgt_unit, table.src_unit) is None:
        return None
    units = f"{table.src_unit} / {table.tgt_unit}"
    return f"{languages} counted by {units}: units or languages seem to be swapped (swap one of them)"


def _shipped(languages: str, src_unit: str, tgt_unit: str) -> _Expected | None:
    """What the shipped tables of a pair have in these units, those of the opposite direction turned round."""
    if not re.fullmatch("[a-z]{2}-[a-z]{2}", languages):
        return None
    src, tgt = languages.split("-")
    names, ratios = [], []
    for name in shipped.names("traces/lengths"):
        if languages_in(name) not in (f"{src}-{tgt}", f"{tgt}-{src}"):
            continue
        turned = languages_in(name) != languages
        ratio, *units = _ratio_and_units(name)
        if units == ([tgt_unit, src_unit] if turned else [src_unit, tgt_unit]):
            names.append(f"@{name} turned round" if turned else f"@{name}")
            ratios.append(1.0 / ratio if turned else ratio)
    return _Expected(tuple(names), tuple(ratios)) if names else None


@lru_cache
def _ratio_and_units(name: str) -> tuple[float, str, str]:
    table = read_table(shipped.find("traces/lengths", name))
    return table.mean_ratio, table.src_unit, table.tgt_unit
