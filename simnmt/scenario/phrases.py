"""What one pydantic error says to the person who wrote the file: the fault and the remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, get_args

from pydantic_core.core_schema import ErrorType

from simnmt.errors import printable
from simnmt.names import did_you_mean, format_list
from simnmt.scenario.schema_walk import Schema, SchemaWalk
from simnmt.scenario.wording import shown

Phrase = tuple[str, str | None]
"""What is wrong, and the remedy."""

_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_BOUNDS = {
    "greater_than": (">", "gt"),
    "greater_than_equal": (">=", "ge"),
    "less_than": ("<", "lt"),
    "less_than_equal": ("<=", "le"),
}
_UNITS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), ("s", 1.0)),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), ("s", 0.001)),
    **dict.fromkeys(("us", "µs", "microseconds"), ("s", 1e-06)),
    **dict.fromkeys(("min", "minute", "minutes"), ("s", 60.0)),
    **dict.fromkeys(("h", "hour", "hours"), ("s", 3600.0)),
    **dict.fromkeys(("bps", "bit/s"), ("bps", 1.0)),
    **dict.fromkeys(("kbps", "kbit/s"), ("bps", 1000.0)),
    **dict.fromkeys(("mbps", "mbit/s"), ("bps", 1000000.0)),
    **dict.fromkeys(("gbps", "gbit/s"), ("bps", 1000000000.0)),
    **dict.fromkeys(("rps", "/s", "req/s", "requests/s"), ("rps", 1.0)),
}
"""Dimension and size of the units that people write, in lower case."""
_QUANTITY = re.compile(r"([-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?) *([^\d\s].*)")


def wrong_type(walk: SchemaWalk, schema: Schema, value: object, got: str, key: str | int | None) -> Phrase:
    """Say that a value is of none of the types that the schema takes."""
    what = f"expected {_expectation(walk, schema)}, got {got}"
    forms = walk.forms(schema)
    types = {form.get("type") for form in forms}
    if types == {"integer"} and isinstance(value, float) and value.is_integer() and abs(value) < 1e18:
        return what, f"write {int(value)}"
    if types in ({"integer"}, {"number"}) and isinstance(value, str):
        remedy = _write_number(value.strip())
        if remedy is None and (quantity := _QUANTITY.fullmatch(value.strip())):
            unit, remedy = _without_unit(quantity[1], quantity[2], str(key))
            what += unit
        return what, remedy
    if types == {"boolean"}:
        return what, _write_bool(value)
    if types == {"string"} and isinstance(value, (bool, int, float)):
        return what, f'write "{got}"'
    if value is None and any("properties" in form and "required" not in form for form in forms):
        return what, "write {} for the defaults"
    return what, None


def _expectation(walk: SchemaWalk, schema: Schema) -> str:
    """What a schema takes, in words."""
    forms = walk.forms(schema)
    if walk.tags(schema):
        name = walk.bare(schema)["discriminator"]["propertyName"]
        return f"a mapping with {name}" if all(name in form.get("required", ()) for form in forms) else "a mapping"
    words = []
    for form in forms:
        required = form.get("required")
        word = _TYPES.get(form.get("type", ""), "a value of another kind")
        words.append(f"{word} with {format_list(required, 'and')}" if required else word)
    return " or ".join(dict.fromkeys(words))


def phrase(error: Mapping[str, Any], schema: Schema, got: str) -> Phrase:
    """Say one error about a value; `got` is the value in words."""
    kind: str = error["type"]
    context: Mapping[str, Any] = error.get("ctx") or {}
    if kind == "literal_error" and (allowed := [schema["const"]] if "const" in schema else schema.get("enum")):
        return one_of(allowed, error["input"], got)
    if kind in _BOUNDS:
        sign, name = _BOUNDS[kind]
        return f"must be {sign} {_number(context[name])}, got {got}", None
    if kind.endswith(("too_short", "too_long")):
        return _size(context, error["input"], "characters" if kind.startswith("string") else "entries"), None
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}, got {got}", None
    text = printable(" ".join(str(error["msg"]).split()))
    if kind == "value_error":
        return text.removeprefix("Value error, "), None
    if kind not in get_args(ErrorType):  # a validator's own words
        return text, None
    return f"{text[:1].lower()}{text[1:]}, got {got}", None


def _size(context: Mapping[str, Any], value: Any, unit: str) -> str:
    least = context.get("min_length")
    bound = f"takes at most {context['max_length']}" if least is None else f"needs at least {least}"
    return f"{bound} {unit}, has {len(value)}" if value else "must not be empty"


def one_of(allowed: Collection[Any], value: object, got: str) -> Phrase:
    """Say that a value is none of those allowed."""
    what = f"must be {'' if len(allowed) == 1 else 'one of '}{_choices(allowed)}, got {got}"
    same = [choice for choice in allowed if str(choice) == str(value) and type(choice) is not type(value)]
    if same:
        return what, f"write {shown(same[0])}, {'with' if isinstance(same[0], str) else 'without'} quotes"
    return what, did_you_mean(value, [choice for choice in allowed if isinstance(choice, str)], "") or None


def _choices(allowed: Collection[Any]) -> str:
    return format_list((choice if isinstance(choice, str) else shown(choice) for choice in allowed), ",")


def _write_number(text: str) -> str | None:
    """How to write a text that was evidently meant to be a number."""
    bare = re.sub(r"(?<=[0-9])[_, '](?=[0-9]{3}\b|[0-9]{3}[_, '])", "", text)
    if not re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", bare):
        return None
    return f"write {bare}" + (" without quotes" if bare == text else "")


def _without_unit(number: str, unit_text: str, key: str) -> Phrase:
    """What to add, and the remedy, where a number was given with a unit or another text behind it."""
    number = number.replace("_", "")
    unit = _UNITS.get(unit_text.strip().lower())
    wanted = _UNITS.get(key.rsplit("_", 1)[-1]) if "_" in key else None
    if wanted is None:
        return "", f"write {number}" if unit else None
    if unit is None:
        return "; the unit stands in the key's name", "write the number alone"
    if unit[0] != wanted[0]:
        return f"; the unit stands in the key's name, and is not {printable(unit_text)}", "write the number alone"
    if unit[1] != wanted[1]:
        number = f"{float(number) * unit[1] / wanted[1]:.12g}"
    return "; the unit stands in the key's name", f"write {number}"


def _write_bool(value: object) -> str | None:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in ("yes", "y", "on", "true", 1):
        return "write true"
    return "write false" if word in ("no", "n", "off", "false", 0) else None


def _number(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if whole else value)
