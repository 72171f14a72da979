"""How the length of a sentence is counted: the units a workload's lengths may be in (CNMT-07)."""

from __future__ import annotations

import re
from collections.abc import Callable

from simnmt.workload.errors import CorpusError, nearest

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


def counter(unit: str) -> Count:
    """What counts in `unit`. Raises `CorpusError` for a unit that is not in `UNITS`."""
    try:
        return UNITS[unit]
    except KeyError:
        raise CorpusError(f"unknown unit {unit!r}", remedy=nearest(unit, UNITS)) from None
