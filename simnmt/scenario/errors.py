"""The error of a wrong scenario, and the format of keys and values in its messages: on one line, as a user writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from simnmt.base.errors import InputError, printable


class ScenarioError(InputError):
    """A scenario that cannot be run: a fault of its file, of an option that overrides a key, or of data in memory.

    The `path` may be an option as the user wrote it, such as `--set seed=2`.
    """


Location = tuple[str | int, ...]
"""Path to a value in the data: keys of mappings and indices of lists, from the top."""

_BARE_KEY = re.compile(r"[^\s.\"'=:]+")


def format_location(location: Location) -> str:
    """Return a location as the user would write it with `--set`: parts joined by dots, odd keys quoted."""
    parts = ((part, str(part)) for part in location)
    return ".".join(
        text if isinstance(part, int) or (_BARE_KEY.fullmatch(text) and text.isprintable()) else quote_text(text)
        for part, text in parts
    )


def describe_value(value: object) -> str:
    """Describe a value on one line, shortened: `the text 'abc'`, `a list`, `3`, `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if not isinstance(value, (str, bool, int, float)):
        return f"a {type(value).__name__} object"
    text = value if isinstance(value, str) else json.dumps(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return printable(f"the text '{text}'" if isinstance(value, str) else text)


def quote_text(text: str) -> str:
    """Return the text in double quotes, as YAML and `--set` read it."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else char.encode("unicode_escape").decode()
