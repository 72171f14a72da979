"""JSON values that follow each other in one text, such as one a line: the form of logs that tools write while they measure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_BLANKS = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class JsonFault:
    """The first place of a text that is no JSON."""

    what: str
    line: int
    column: int | None
    """None for a value that is nested too deeply, or holds a number that is too long."""
    in_last_line: bool
    """True if the value that is cut or wrong begins in the last line, where a tool may have been stopped."""


def read_json_values(
    text: str, object_of: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> tuple[list[tuple[int, Any]], JsonFault | None]:
    """Return the values of a text, each with the line at which it begins, up to the first fault; None without a fault.

    `object_of` makes an object from its keys and values, of which a key may come twice; without it the last one counts.

    Example:
        >>> read_json_values('{"a": 1}\\n[2]')
        ([(1, {'a': 1}), (2, [2])], None)
    """
    decoder = json.JSONDecoder(object_pairs_hook=object_of)
    values: list[tuple[int, Any]] = []
    at, start, line = 0, 0, 1
    try:
        while at < len(text):
            start = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
            if start == len(text):
                break
            line += text.count("\n", at, start)
            value, end = decoder.raw_decode(text, start)
            values.append((line, value))
            line += text.count("\n", start, end)
            at = end
    except json.JSONDecodeError as error:
        what = f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        return values, JsonFault(what, error.lineno, error.colno, "\n" not in text[start:].rstrip())
    except (RecursionError, ValueError):
        return values, JsonFault("nested too deeply, or a number too long", line, None, False)
    return values, None
