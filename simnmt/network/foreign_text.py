"""Text that came from a file, made fit for one line on a terminal: printable, on one line, and short."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

_LISTED = 8

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def named(text: object, most: int = 80) -> str:
    """The text itself, what is not printable in it as `?`, shortened to `most` characters; empty for anything but text."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def quoted(value: object) -> str:
    """The value as Python writes it, shortened: for a complaint about a cell or a key."""
    return _SHORT.repr(value)


def listed(names: Sequence[str]) -> str:
    """The first few names and how many more there are."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(named(name) for name in names[:_LISTED]) + more
