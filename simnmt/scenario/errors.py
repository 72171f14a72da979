"""The error of a wrong scenario, and the format of keys and values in its messages: on one line, as a user writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from simnmt.base.errors import InputError, printable


class ScenarioError(InputError):
    """A scenario that cannot be run: a fault of its file, of an option that overrides a key, or of data in memory."""

    def __init__(
        self,
        what: str,
        *,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
        column: int | None = None,
        remedy: str | None = None,
        override: str | None = None,
    ) -> None:
        self.override = override
        """The option that caused the fault, as the user wrote it; None if the file did."""
        self.others: tuple[ScenarioError, ...] = ()
        """Further errors of the same scenario, each of one line."""
        self.left_out = 0
        """Number of errors that are not listed."""
        remedy = None if remedy is None else printable(remedy)
        super().__init__(printable(what), path=path, line=line, column=column, remedy=remedy)

    @property
    def lines(self) -> list[str]:
        """This fault, each further one, and a line on those that are not listed."""
        first = f"{self.override}: " if self.override else ""
        lines = [first + super().__str__(), *map(str, self.others)]
        return lines + ([f"... and {self.left_out} more"] if self.left_out else [])

    def __str__(self) -> str:
        lines = self.lines
        faults = 1 + len(self.others) + self.left_out
        return "\n".join([f"{faults} faults, the first: {lines[0]}", *lines[1:]] if faults > 1 else lines)


Location = tuple[str | int, ...]
"""Path to a value in the data: keys of mappings and indices of lists, from the top."""

_BARE_KEY = re.compile(r"[^\s.\"'=:]+")


def format_location(location: Location) -> str:
    """Return a location as the user would write it with `--set`: parts joined by dots, odd keys quoted."""
    return ".".join(map(_format_part, location))


def _format_part(part: str | int) -> str:
    bare = isinstance(part, int) or (_BARE_KEY.fullmatch(part) and part.isprintable())
    return str(part) if bare else quote_text(str(part))


def describe_value(value: object) -> str:
    """Describe a value: `the text 'abc'`, `a list`, `3`, `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, str):
        return f"the text {format_value(value)}"
    return format_value(value)


def format_value(value: object) -> str:
    """Return a value on one line, shortened, as the file would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"'{printable(text)}'" if isinstance(value, str) else printable(text)


def quote_text(text: str) -> str:
    """Return the text in double quotes, as YAML and `--set` read it."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    parts = [escapes.get(char) or (char if char.isprintable() else _escape(char)) for char in text]
    return '"' + "".join(parts) + '"'


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
