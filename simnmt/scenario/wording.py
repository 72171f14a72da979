"""How complaints name keys and show values: each on one line, as the user could write it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from simnmt.errors import printable

Location = tuple[str | int, ...]
"""Where a value lies in the data: keys of mappings and indices of lists, from the top."""

_BARE_KEY = re.compile(r"[^\s.\"'=:]+")


def dotted(location: Location) -> str:
    """A location as the user would write it with `--set`: parts joined by dots, odd keys quoted."""
    return ".".join(map(_part, location))


def _part(part: str | int) -> str:
    bare = isinstance(part, int) or (_BARE_KEY.fullmatch(part) and part.isprintable())
    return str(part) if bare else quoted(str(part))


def described(value: object) -> str:
    """What a value is, in words: `the text 'abc'`, `a list`, `3`, `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return shown(value)


def shown(value: object) -> str:
    """A value on one line, shortened, as the file would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"'{printable(text)}'" if isinstance(value, str) else printable(text)


def quoted(text: str) -> str:
    """The text in double quotes, as YAML and `--set` read it."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    parts = [escapes.get(char) or (char if char.isprintable() else _escape(char)) for char in text]
    return '"' + "".join(parts) + '"'


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
