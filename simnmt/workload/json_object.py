"""One row of JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from simnmt.errors import InputError

ONE_A_LINE = "write one JSON object a line"


def json_object(
    text: str | bytes, fault: Callable[..., InputError], *, first: bool, wanted: str = "an object", remedy: str = ONE_A_LINE
) -> dict[str, Any]:
    """The object that a line holds.

    `fault` makes the room's error at the line, `first` says whether it is the file's first, `wanted` what the object is for.
    """
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        if first and text.strip() in ("[", "{", b"[", b"{"):
            remedy = "it looks like one JSON text over many lines: write it with jq -c"
        raise fault(f"no JSON: {error.msg}", column=error.colno, remedy=remedy) from None
    except UnicodeDecodeError:
        raise fault("no JSON: bytes that are not UTF-8", remedy=remedy) from None
    except ValueError:  # a number of thousands of digits
        raise fault("no JSON that can be read: a number too long", remedy=remedy) from None
    except RecursionError:
        raise fault("nested too deeply to be a row", remedy=remedy) from None
    if not isinstance(row, dict):
        if isinstance(row, list):
            remedy = "write each row on a line of its own, e.g. with jq -c '.[]'"
        raise fault(f"{json_kind(row)}, not {wanted}", remedy=remedy)
    return row


def json_kind(value: object) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
    return kinds.get(type(value), "a number")
