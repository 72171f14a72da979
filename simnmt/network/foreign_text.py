"""Text that came from a file, made fit for one line on a terminal: printable, on one line, and short."""

from __future__ import annotations

import reprlib

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
