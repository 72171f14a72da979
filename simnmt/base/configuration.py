"""The base class of every configuration model: refuse unknown keys and silent conversions, freeze what was read.

Each room owns the models of what it builds; `simnmt.scenario` composes them and maps their errors to lines of the file.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticKnownError

EndOfSentence = Literal["none", "source", "target", "both"]
"""Which lengths count the end-of-sentence token. Text, tables and tokenisers count none; a model reads one more source token
than the text has, and takes one more decode step than it emits tokens of text, so measured costs count both."""


def end_tokens(counted: EndOfSentence) -> tuple[int, int]:
    """Return how many end-of-sentence tokens a source and a target length count, 0 or 1 each."""
    return int(counted in ("source", "both")), int(counted in ("target", "both"))


def _refuse_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("literal_error", {"expected": "a number"})
    return value


NO_TRUTH_VALUE = BeforeValidator(_refuse_truth_value)
"""For a literal 1, such as the version of a document: pydantic compares by equality, and Python's True equals 1."""


Content = TypeVar("Content")


def checked_dataclass(kind: type[Content], content: Any) -> Content:
    """Return plain content as the dataclass `kind`, its types and the limits of its fields checked.

    Raises `ValueError`, a line that begins with the key concerned, for content of another type, unknown keys, numbers that are
    not finite, and values out of limits.
    """
    known = {field.name for field in fields(cast(Any, kind))}
    if not isinstance(content, dict):
        raise ValueError(f"not a record of {', '.join(sorted(known))}")
    for name, value in content.items():
        if name not in known:
            raise ValueError(f"{name}: unknown key")
        if not _finite(value):
            raise ValueError(f"{name}: holds a number that is not finite")
    try:
        # As JSON, since strict Python takes nothing but an instance of the dataclass.
        TypeAdapter(kind).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        value = "" if first["type"] == "missing" else f", got {json.dumps(first['input'])[:40]}"
        if not first["loc"]:  # of several fields together: `__post_init__` says of which
            raise ValueError(first["msg"].removeprefix("Value error, ")) from None
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}{value}") from None
    return kind(**content)  # what was checked, not the copy, in which whole numbers among reals have become reals


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    # A whole number, too, where it may stand among reals: beyond their range it would be infinite.
    return not isinstance(value, int | float) or abs(value) <= sys.float_info.max


class Configuration(BaseModel):
    """What a part of a scenario file may say. A unit stands in the key's name; numbers carry none."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)
