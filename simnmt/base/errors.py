"""Errors that a command reports in one line, and the functions that make foreign text fit for such a line."""

from __future__ import annotations

import os
import reprlib


def printable(text: str) -> str:
    """Return the text with line breaks and control characters as escapes, so that it stays on its line."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def describe_error(error: BaseException, *, most: int = 200) -> str:
    """Return what a library says of an input on one line of at most `most` characters.

    The advice of torch to load a file without `weights_only`, which would run code that the file holds, is not passed on.

    Example:
        >>> describe_error(ValueError("short\\n  of bytes")), describe_error(ValueError())
        ('short of bytes', 'ValueError')
    """
    text = " ".join(str(error).split())
    if "weights_only" in text or "Weights only load failed" in text:
        return "a pickled file that is damaged or holds more than tensors"
    return text[:most] or type(error).__name__


class SimnmtError(Exception):
    """Something that a command reports in one line; `exit_status` is what the command then ends with."""

    exit_status = 1


class InputError(SimnmtError):
    """The input's fault: says where, what, and the remedy.

    Rooms derive their own class (`CorpusError`, `ProfileError`, ...) so that a caller of the library can tell them apart.
    """

    exit_status = 2

    def __init__(
        self,
        what: str,
        *,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
        column: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.what = what
        """The fault itself, without its place."""
        self.path = None if path is None else os.fspath(path)
        self.line = line
        """1 for the first line of the file; None where a line means nothing."""
        self.column = column
        """1 for the first column."""
        self.remedy = remedy
        """What the user can do, as an imperative."""
        super().__init__(str(self))

    def __str__(self) -> str:
        place = "".join(f"{part}:" for part in (self.path, self.line, self.column) if part is not None)
        text = f"{place} {self.what}" if place else self.what
        return printable(f"{text} ({self.remedy})" if self.remedy else text)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shorten(text: object, most: int = 80) -> str:
    """The text itself, what is not printable in it as `?`, shortened to `most` characters; empty for anything but text."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def short_repr(value: object) -> str:
    """The value as Python writes it, shortened: for a complaint about a cell or a key."""
    return _SHORT.repr(value)
