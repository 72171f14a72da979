"""Errors that a command reports in one line, and functions that make foreign text fit for such a line."""

from __future__ import annotations

import os
import re
import reprlib


def printable(text: str) -> str:
    """Return the text with line breaks and control characters as escapes, so that it stays on its line."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def describe_error(error: BaseException) -> str:
    """Return a library's error about an input as one line of at most 200 characters.

    Leaves out torch's advice to load a file without `weights_only`, which would run code from the file.
    """
    text = " ".join(str(error).split())
    if "weights_only" in text or "Weights only load failed" in text:
        return "a pickled file that is damaged or holds more than tensors"
    return text[:200] or type(error).__name__


STANDARD = "-"
"""Name that stands for standard input where a file is read, and for standard output where one is written."""


def name_of_path(path: str | os.PathLike[str]) -> str:
    """Return what a file is called in messages: `-` is standard input."""
    text = os.fspath(path)
    # A URL given as a path has lost a slash: hf:/x was hf://x.
    return "<stdin>" if text == STANDARD else re.sub(r"^([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", r"\1://", text)


class Interrupted(SystemExit):
    """A signal that ends the program; not an `Exception`, so that no handler takes it for a failure.

    A `SystemExit`, since asyncio logs any other exception that meets it between two reads of a socket, and goes on.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)  # SimPy makes a copy from the arguments
        self.number, self.code = number, 128 + number


class SimnmtError(Exception):
    """An error that a command reports in one line before it ends with `exit_status`."""

    exit_status = 1


class InputError(SimnmtError):
    """A fault of the input, with its place and the remedy.

    Rooms derive their own class (`CorpusError`, `ProfileError`, ...), so that callers of the library can distinguish them.

    Example:
        >>> try:
        ...     simnmt.run("@quikstart")
        ... except simnmt.InputError as error:
        ...     print(error)
        @quikstart: nothing of that name is shipped under scenarios (did you mean @quickstart?)
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
        self.path = None if path is None else name_of_path(path)
        self.line = line
        """1 for the first line of the file; None if a line means nothing."""
        self.column = column
        """1 for the first column."""
        self.remedy = remedy
        """Advice to the user, as an imperative."""
        super().__init__(str(self))

    def __str__(self) -> str:
        place = "".join(f"{part}:" for part in (self.path, self.line, self.column) if part is not None)
        text = f"{place} {self.what}" if place else self.what
        return printable(f"{text} ({self.remedy})" if self.remedy else text)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shorten(text: object, most: int = 80) -> str:
    """Return a text on one line of at most `most` characters, with `?` for unprintable ones; empty for anything but text."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def short_repr(value: object) -> str:
    """Return the shortened `repr` of a value, for a message about a cell or a key."""
    return _SHORT.repr(value)
