"""What one pydantic error says to the person who wrote the file: the fault and the remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, get_args

from pydantic_core.core_schema import ErrorType

from simnmt.scenario.schema_walk import Schema, SchemaWalk
from simnmt.scenario.wording import described, listed, near, printable, shown

Phrase = tuple[str, str | None]
"""What is wrong, and the remedy."""

_PLAIN_TYPES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozenset": "a list",
    "dict": "a mapping",
    "none": "nothing",
}
_UNKNOWN = "a value of another kind"
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


def expectation(walk: SchemaWalk, schema: Schema) -> str:
    """What a schema takes, in words."""
    schema = walk.bare(schema)
    kind = schema["type"]
    if kind == "literal":
        return listed(schema["expected"], "or")
    if kind == "tagged-union":
        name = schema["discriminator"]
        given = isinstance(name, str) and all(name in walk.required(part) for part in schema["choices"].values())
        return f"a mapping with {name}" if given else "a mapping"
    if kind == "union":
        return " or ".join(dict.fromkeys(expectation(walk, choice) for choice in walk.choices(schema)))
    if kind in ("model-fields", "typed-dict"):
        required = walk.required(schema)
        return "a mapping" + (f" with {listed(required, 'and')}" if required else "")
    return _PLAIN_TYPES.get(kind, _UNKNOWN)


def phrase(walk: SchemaWalk, error: Mapping[str, Any], key: str | int | None, schema: Schema, written: str | None) -> Phrase:
    """Say one error; `key` is the last part of its place, `written` a number or word as the file has it."""
    kind: str = error["type"]
    context: Mapping[str, Any] = error.get("ctx") or {}
    value = error.get("input")
    got = written if written is not None and not isinstance(value, str) and value is not None else described(value)
    if kind == "missing":
        return "missing key", None
    if kind in ("literal_error", "enum"):
        return _choice(_allowed(schema), value, got, str(context.get("expected", "")))
    if kind in _BOUNDS:
        sign, name = _BOUNDS[kind]
        return f"must be {sign} {_number(context[name])}, got {got}", None
    if kind in ("too_short", "string_too_short", "too_long", "string_too_long"):
        return _size(kind, context, value)
    if kind in ("value_error", "assertion_error"):
        text = re.sub(r"^(Value error|Assertion failed), ", "", str(error["msg"]))
        return printable(" ".join(text.split())), None
    if kind == "finite_number":
        return f"must be a finite number, got {got}", None
    if kind == "multiple_of":
        return f"must be a multiple of {_number(context['multiple_of'])}, got {got}", None
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}, got {got}", None
    if kind.endswith(("_type", "_parsing", "int_from_float")):
        return _wrong_type(walk, kind, value, got, key, schema)
    text = printable(" ".join(str(error["msg"]).split()))
    if kind not in get_args(ErrorType):  # a validator's own words
        return text, None
    return f"{text[:1].lower()}{text[1:]}, got {got}", None


def unknown_key(walk: SchemaWalk, key: str | int, schema: Schema, present: Collection[str]) -> Phrase:
    """Say that a key means nothing, with the name it was meant to be; `present` are the keys given beside it."""
    guess = meant_key(walk, key, schema, present)
    if guess:
        return "unknown key", f"did you mean {guess}?"
    known = _known_keys(walk, schema, present)
    return "unknown key", f"known here: {listed(known)}" if known else "remove it"


def meant_key(walk: SchemaWalk, key: str | int, schema: Schema, present: Collection[str]) -> str | None:
    """The nearest key of the schema, those before the others that are not given yet."""
    known = _known_keys(walk, schema, present)
    return near(key, [name for name in known if name not in present]) or near(key, known)


def _known_keys(walk: SchemaWalk, schema: Schema, present: Collection[str]) -> list[str]:
    """The keys of the model; of a union, those of the models that share most with the keys given."""
    models = [list(walk.fields(choice)) for choice in walk.choices(schema)]
    shared = [len(set(model) & set(present)) for model in models]
    return list(
        dict.fromkeys(name for model, count in zip(models, shared, strict=True) if count == max(shared) for name in model)
    )


def wrong_tag(schema: Schema, value: object, got: str) -> Phrase:
    """Say that a discriminating key names none of the kinds."""
    return _choice([str(tag) for tag in schema.get("choices", ())], value, got, "")


def _allowed(schema: Schema) -> list[Any]:
    if schema["type"] == "enum":
        return [member.value for member in schema["members"]]
    return list(schema.get("expected", ()))


def _choice(allowed: list[Any], value: object, got: str, fallback: str) -> Phrase:
    names = listed(allowed) or fallback
    what = f"must be {names}, got {got}" if len(allowed) == 1 else f"must be one of {names}, got {got}"
    same = [choice for choice in allowed if str(choice) == str(value) and type(choice) is not type(value)]
    if same:
        return what, f"write {shown(same[0])}, {'with' if isinstance(same[0], str) else 'without'} quotes"
    guess = near(value, [choice for choice in allowed if isinstance(choice, str)])
    return what, f"did you mean {guess}?" if guess else None


def _size(kind: str, context: Mapping[str, Any], value: object) -> Phrase:
    text = kind.startswith("string")
    unit = "characters" if text else "entries"
    if kind.endswith("short"):
        least = context["min_length"]
        if not value:
            return "must not be empty", None
        return (
            f"needs at least {least} {unit}, has {len(value) if isinstance(value, (str, list, dict)) else 'fewer'}",
            None,
        )
    most = context["max_length"]
    return (
        f"takes at most {most} {unit}, has {len(value) if isinstance(value, (str, list, dict)) else 'more'}",
        None,
    )


def _wrong_type(walk: SchemaWalk, kind: str, value: object, got: str, key: str | int | None, schema: Schema) -> Phrase:
    expected = expectation(walk, schema)
    if expected == _UNKNOWN:
        named = kind.split("_")[0]
        expected = _PLAIN_TYPES.get({"string": "str", "mapping": "dict", "model": "dict"}.get(named, named), expected)
    what = f"expected {expected}, got {got}"
    if schema["type"] == "int" and isinstance(value, float) and value.is_integer() and abs(value) < 1e18:
        return what, f"write {int(value)}"
    if schema["type"] in ("int", "float") and isinstance(value, str):
        remedy = _write_number(value.strip())
        if remedy is None and (quantity := _QUANTITY.fullmatch(value.strip())):
            unit, remedy = _without_unit(quantity[1], quantity[2], str(key))
            what += unit
        return what, remedy
    if schema["type"] == "bool":
        return what, _write_bool(value)
    if schema["type"] == "str" and isinstance(value, (bool, int, float)):
        return what, f'write "{got}"'
    if value is None and any(walk.fields(choice) and not walk.required(choice) for choice in walk.choices(schema)):
        return what, "write {} for the defaults"
    return what, None


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
