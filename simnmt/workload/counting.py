"""How the length of a sentence is counted: the units a workload's lengths may be in (CNMT-07).

A unit is counted here (`word`, `mixed`, `char`) or by a sentencepiece model. Tables and profiles may name further ones,
such as the subwords of a model that is not at hand: such lengths are taken as they are, or come of a stated fertility.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from simnmt.names import did_you_mean, nearest
from simnmt.workload.errors import CorpusError

Count = Callable[[str], int]

_HAN = (
    "\u2e80-\u2fdf"  # radicals
    "\u3005\u3007\u3021-\u3029\u3038-\u303b"  # iteration mark, zero, Suzhou numerals
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # unified and compatibility ideographs
)
_CJK_PUNCTUATION = (
    "\u3001-\u3004\u3006\u3008-\u3020\u302a-\u3037\u303c-\u303f"  # symbols, marks
    "\ufe30-\ufe6b"  # vertical and small forms
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffee"  # full-width marks
)
_MIXED_TOKEN = re.compile(f"[{_HAN}{_CJK_PUNCTUATION}]|[^\\s{_HAN}{_CJK_PUNCTUATION}]+")


def words(text: str) -> int:
    """Runs of characters between white space."""
    return len(text.split())


def mixed(text: str) -> int:
    """Each Han character or CJK punctuation mark counts one, each run of other non-blank characters one.

    Quotation marks, dashes and ellipses that Chinese shares with Latin text (U+2018 and its like) belong to
    the runs.
    """
    return len(_MIXED_TOKEN.findall(text))


def characters(text: str) -> int:
    """Characters (code points) that are not blank."""
    return sum(map(len, text.split()))


UNITS: dict[str, Count] = {"word": words, "mixed": mixed, "char": characters}
"""A unit's name in files and on the command line -> what counts in it."""

MODEL_PREFIX = "sentencepiece:"
"""Before the path of a sentencepiece model where a unit is asked for as a text."""
UNIT_PREFIX = "sentencepiece "
"""Before the digest of a sentencepiece model in the name of its unit."""

_NEAR_MISS = 0.8
"""Likeness from which on a name is taken for a slip of a known one: mixd and words are, subword is not."""


def counter(unit: str) -> Count:
    """What counts in `unit`, a name of `UNITS`. Raises `CorpusError` for another."""
    try:
        return UNITS[unit]
    except KeyError:
        raise CorpusError(f"unknown unit {unit!r}", remedy=did_you_mean(unit, [*UNITS, MODEL_PREFIX + "PATH"])) from None


def unit_and_counter(unit: str, side: Literal["src", "tgt"] = "src") -> tuple[str, Count]:
    """Return the name that lengths in `unit` go by, and what counts them: `unit` is a name of `UNITS` or `sentencepiece:PATH`.

    PATH may be the folder of a translation model, which has a sentencepiece model for each `side`.

    Raises `CorpusError` for an unknown name, and for a model that cannot be used.
    """
    if unit.startswith(MODEL_PREFIX):
        from simnmt.workload.sentencepiece_unit import SentencePieceCounter, model_file

        pieces = SentencePieceCounter(model_file(unit.removeprefix(MODEL_PREFIX), side))
        return pieces.unit, pieces
    return unit, counter(unit)


def source_and_target(units: str) -> tuple[str, str]:
    """Part `SRC:TGT` into the two units, or give both sides the one; paths of models may hold colons themselves.

    Raises `CorpusError` where a side has none.
    """
    model, known = f"{MODEL_PREFIX}.+?", f"{MODEL_PREFIX}.+|{'|'.join(UNITS)}"
    match = re.fullmatch(f"({model})(?::({known}))?", units) or re.fullmatch("([^:]*)(?::(.*))?", units)
    src, tgt = match.groups() if match else (units, None)
    if not src or tgt == "":
        raise CorpusError(f"no unit on one side of {units!r}", remedy="give SRC:TGT, or one unit for both sides")
    return src, src if tgt is None else tgt


def models(src_unit: str, tgt_unit: str) -> list[Path]:
    """Return the files of the sentencepiece models among two units. Raises `CorpusError` for a folder without one."""
    from simnmt.workload.sentencepiece_unit import Side, model_file

    sides: list[tuple[str, Side]] = [(src_unit, "src"), (tgt_unit, "tgt")]
    return [model_file(unit.removeprefix(MODEL_PREFIX), side) for unit, side in sides if unit.startswith(MODEL_PREFIX)]


def checked(unit: str) -> str:
    """The name of a unit that lengths are given in. Raises `CorpusError` for none, a long one, and a slip of a known one."""
    if not unit or len(unit) > 100 or not unit.isprintable():
        raise CorpusError(f"{unit[:20]!r} is no name of a unit", remedy="give a short text on one line, such as word")
    if unit not in UNITS and nearest(unit, UNITS, likeness=_NEAR_MISS) is not None:
        raise CorpusError(f"unknown unit {unit!r}", remedy=did_you_mean(unit, UNITS))
    return unit
