"""Check a document against a pydantic model and turn each fault into one message with its place and a remedy.

pydantic reports a path that mixes the user's keys with the names of union branches. The model's JSON Schema separates them and
gives the keys and types that were allowed there.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core.core_schema import ErrorType

from simnmt.base.configuration import message_of
from simnmt.base.errors import printable
from simnmt.base.removed import remedy_of_key
from simnmt.base.suggestions import did_you_mean, format_list, nearest
from simnmt.scenario.document import Document, Override, apply_overrides
from simnmt.scenario.errors import Location, ScenarioError, describe_value, format_value
from simnmt.scenario.yaml_text import Node

Schema = Mapping[str, Any]


class SchemaWalk:
    """The JSON Schema of a model, followed from key to key."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.top: Schema = model.model_json_schema()

    def bare(self, schema: Schema) -> Schema:
        """Return the schema behind references, and without a null that is allowed beside it."""
        while True:
            others = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
            if "$ref" in schema:
                schema = self.top["$defs"][schema["$ref"].rpartition("/")[2]]
            elif len(others) == 1:
                schema = others[0]
            else:
                return schema

    def forms(self, schema: Schema) -> list[Schema]:
        """Return the branches of a union, bare; else the schema alone."""
        schema = self.bare(schema)
        parts = schema.get("oneOf") or schema.get("anyOf")
        return [form for part in parts for form in self.forms(part) if form.get("type") != "null"] if parts else [schema]

    def below(self, schema: Schema, part: str | int) -> Schema:
        """Return the schema of the value under a key or an index; {} if the schema has none."""
        subschemas = []
        for form in self.forms(schema):
            properties, others = form.get("properties", {}), form.get("additionalProperties")
            if isinstance(part, int):
                subschemas.append(form.get("items"))
            elif part in properties:
                subschemas.append(properties[part])
            else:
                subschemas += form["patternProperties"].values() if "patternProperties" in form else [others]
        return {"anyOf": [schema for schema in subschemas if isinstance(schema, dict)]}

    def is_tagged(self, schema: Schema) -> bool:
        """Return whether the value selects the branch of a union, so that pydantic's `loc` names the branch."""
        return "oneOf" in self.bare(schema)

    def tags(self, schema: Schema) -> dict[str, Schema]:
        """Return the branches of a union by the word that selects them; empty if a function selects."""
        schema = self.bare(schema)
        words = schema.get("discriminator", {}).get("mapping", {})
        return {word: form for form in schema.get("oneOf", ()) for word, ref in words.items() if form.get("$ref") == ref}

    def branch(self, schema: Schema, tag: str | int) -> Schema:
        """Return the branch that a tag selects; any branch if the schema does not name them."""
        return self.tags(schema).get(str(tag), {"anyOf": self.bare(schema)["oneOf"]})


FaultText = tuple[str, str | None]
"""The fault, and the remedy."""

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
"""Dimension and size of common units, in lower case."""
_QUANTITY = re.compile(r"([-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?) *([^\d\s].*)")


def describe_wrong_type(walk: SchemaWalk, schema: Schema, value: object, got: str, key: str | int | None) -> FaultText:
    """Describe a value that has none of the types of the schema."""
    what = f"expected {_describe_expected(walk, schema)}, got {got}"
    forms = walk.forms(schema)
    types = {form.get("type") for form in forms}
    if types == {"integer"} and isinstance(value, float) and value.is_integer() and abs(value) < 1e18:
        return what, f"write {int(value)}"
    if types in ({"integer"}, {"number"}) and isinstance(value, str):
        remedy = _number_remedy(value.strip())
        if remedy is None and (quantity := _QUANTITY.fullmatch(value.strip())):
            unit, remedy = _unit_remedy(quantity[1], quantity[2], str(key))
            what += unit
        return what, remedy
    if types == {"boolean"}:
        return what, _bool_remedy(value)
    if types == {"string"} and isinstance(value, (bool, int, float)):
        return what, f'write "{got}"'
    if value is None and any("properties" in form and "required" not in form for form in forms):
        return what, "write {} for the defaults"
    return what, None


def _describe_expected(walk: SchemaWalk, schema: Schema) -> str:
    """Describe the values that a schema allows."""
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


def describe_fault(error: Mapping[str, Any], schema: Schema, got: str) -> FaultText:
    """Describe one error about a value; `got`: the value in words."""
    kind: str = error["type"]
    context: Mapping[str, Any] = error.get("ctx") or {}
    if kind == "literal_error" and (allowed := [schema["const"]] if "const" in schema else schema.get("enum")):
        return describe_wrong_choice(allowed, error["input"], got)
    if kind in _BOUNDS:
        sign, name = _BOUNDS[kind]
        return f"must be {sign} {_format_number(context[name])}, got {got}", None
    if kind.endswith(("too_short", "too_long")):
        return _describe_size(context, error["input"], "characters" if kind.startswith("string") else "entries"), None
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}, got {got}", None
    text = printable(" ".join(message_of(error).split()))
    if kind in ("value_error", "assertion_error") or kind not in get_args(ErrorType):  # a validator's own words
        return text, None
    return f"{text[:1].lower()}{text[1:]}, got {got}", None


def _describe_size(context: Mapping[str, Any], value: Any, unit: str) -> str:
    least = context.get("min_length")
    bound = f"takes at most {context['max_length']}" if least is None else f"needs at least {least}"
    return f"{bound} {unit}, has {len(value)}" if value else "must not be empty"


def describe_wrong_choice(allowed: Collection[Any], value: object, got: str) -> FaultText:
    """Describe a value that is none of those allowed."""
    what = f"must be {'' if len(allowed) == 1 else 'one of '}{_format_choices(allowed)}, got {got}"
    same = [choice for choice in allowed if str(choice) == str(value) and type(choice) is not type(value)]
    if same:
        return what, f"write {format_value(same[0])}, {'with' if isinstance(same[0], str) else 'without'} quotes"
    return what, did_you_mean(value, [choice for choice in allowed if isinstance(choice, str)], "") or None


def _format_choices(allowed: Collection[Any]) -> str:
    return format_list((choice if isinstance(choice, str) else format_value(choice) for choice in allowed), ",")


def _number_remedy(text: str) -> str | None:
    """Return how to write a text that was meant to be a number; None if it was not."""
    bare = re.sub(r"(?<=[0-9])[_, '](?=[0-9]{3}\b|[0-9]{3}[_, '])", "", text)
    if not re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", bare):
        return None
    return f"write {bare}" + (" without quotes" if bare == text else "")


def _unit_remedy(number: str, unit_text: str, key: str) -> FaultText:
    """Return an addition to the message and the remedy for a number followed by a unit or another text."""
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


def _bool_remedy(value: object) -> str | None:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in ("yes", "y", "on", "true", 1):
        return "write true"
    return "write false" if word in ("no", "n", "off", "false", 0) else None


def _format_number(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if whole else value)


ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_COMPLAINTS = 10
"""Most errors that are shown, one a line."""
_MOST_FAULTS = 100
"""Most errors that are processed, in the document's order: the search for similar names to 20,000 unknown keys takes
minutes."""


RemedyAt = Callable[[Location], str | None]
"""Returns the remedy for an unknown kind at a place that resembles no known one; None for no remedy."""


def validate(
    model: type[ModelT],
    document: Document | Mapping[str, object],
    overrides: Iterable[str | Override] = (),
    *,
    unknown_kind: RemedyAt = lambda location: None,
) -> ModelT:
    """Return the model's instance that the document, with the overrides applied, describes.

    The data is checked as JSON, so that strict models accept what a file can express: lists for tuples, texts for paths and
    enums. Raises `ScenarioError`: the first error in the document's order, the others in its `others`.
    """
    document = apply_overrides(document, overrides)
    try:
        return model.model_validate_json(json.dumps(document.data))
    except ValidationError as error:
        (first, *others), left_out = _complaints(_schema_walk(model), document, error, unknown_kind)
    first.others = tuple(others[: MAX_COMPLAINTS - 1])
    first.left_out = left_out + max(len(others) + 1 - MAX_COMPLAINTS, 0)
    raise first


@functools.cache
def _schema_walk(model: type[BaseModel]) -> SchemaWalk:
    """Return the schema of a model, cached: pydantic takes 80 ms to write that of a scenario."""
    return SchemaWalk(model)


@dataclass(frozen=True, slots=True)
class _Fault:
    """One of pydantic's errors, with its place in the document and the schema."""

    error: Mapping[str, Any]
    kind: str
    location: Location
    """Keys and indices of the user, without names of branches."""
    schema: Schema
    """The schema at `location`; for an unknown or a missing key, that of the mapping around it."""
    node: Node
    """The value there."""

    @property
    def keys(self) -> Mapping[str, Node]:
        """The keys and values of the mapping there; empty if the value is none."""
        return self.node.content if isinstance(self.node.content, dict) else {}


def _complaints(
    walk: SchemaWalk, document: Document, error: ValidationError, unknown_kind: RemedyAt
) -> tuple[list[ScenarioError], int]:
    """Return the first errors in the document's order, and the number of errors that were not processed."""
    faults = [_fault(walk, document, item) for item in error.errors(include_url=False)]
    faults.sort(key=lambda fault: document.position(fault.location, key=True) or (math.inf, math.inf))
    unknown = {fault.location for fault in faults if fault.kind == "extra_forbidden"}
    faults, left_out = faults[:_MOST_FAULTS], len(faults[_MOST_FAULTS:])
    remedies, meant = {}, set()
    for fault in faults:
        if fault.location in unknown:
            *around, key = fault.location
            known = _known_keys(walk, fault, unknown)
            removed = remedy_of_key(fault.location)
            guess = None if removed else _meant_key(key, known, fault.keys)
            others = f"known here: {format_list(known, ',')}" if known else "remove it"
            remedies[fault.location] = removed or (f"did you mean {guess}?" if guess else others)
            meant.add((*around, guess))
    complaints = [
        document.error(fault.location, "unknown key", remedy=remedies[fault.location], key=True)
        if fault.location in unknown
        else _complaint(walk, document, fault, unknown_kind)
        for fault in faults
        if fault.kind != "missing" or fault.location not in meant
    ]
    return list({str(complaint): complaint for complaint in complaints}.values()), left_out


def _meant_key(key: object, known: Sequence[str], given: Container[str]) -> str | None:
    """Return the known key that an unknown one probably stands for; None if none is like it.

    That is the only known key that begins with it, even if it is given as well: `deadline` lacks the unit of `deadline_ms`, and
    setting that key again is what was meant. Otherwise, a key that is not given comes first.
    """
    longer = [name for name in known if name.startswith(f"{key}_")]
    if len(longer) == 1:
        return longer[0]
    return nearest(key, [name for name in known if name not in given]) or nearest(key, known)


def _fault(walk: SchemaWalk, document: Document, error: Mapping[str, Any]) -> _Fault:
    """Return an error with the user's keys, separated from the names of branches in pydantic's `loc`."""
    kind, loc = error["type"], error["loc"]
    key = loc[-1:] if kind in ("missing", "extra_forbidden") else ()
    location: Location = ()
    schema, node = walk.top, document.root
    for part in loc[: len(loc) - len(key)]:
        below = node.child(part)
        if walk.is_tagged(schema):
            schema = walk.branch(schema, part)
        elif below is not None:  # else the branch of a plain union, or pydantic's mark of an error in a key
            location, schema, node = (*location, part), walk.below(schema, part), below
    return _Fault(error, kind, (*location, *key), walk.bare(schema), node)


def _names_beside(walk: SchemaWalk, document: Document, fault: _Fault) -> list[str]:
    """Return the user's names beside one that an override alone has made, such as the other devices; empty elsewhere."""
    *around, _ = fault.location[:-1] or ("",)
    schema, node = walk.top, document.root
    for part in around:
        below = node.child(part)
        if below is None:
            return []
        schema, node = walk.below(schema, part), below
    is_by_name = not any("properties" in form for form in walk.forms(schema))
    if fault.node.override is None or not is_by_name or not isinstance(node.content, dict):
        return []
    return [str(name) for name, other in node.content.items() if other.override is None]


def _known_keys(walk: SchemaWalk, fault: _Fault, unknown: set[Location]) -> list[str]:
    """Return the keys of the models that the mapping can be: those that have all its keys but the unknown ones."""
    around = fault.location[:-1]
    taken = {key for key in fault.keys if (*around, key) not in unknown}
    models = [form.get("properties", {}) for form in walk.forms(fault.schema)]
    return list(dict.fromkeys(name for model in models if taken <= model.keys() for name in model))


def _complaint(walk: SchemaWalk, document: Document, fault: _Fault, unknown_kind: RemedyAt) -> ScenarioError:
    location, value = fault.location, fault.error["input"]
    written = fault.node.text if fault.node.content == value and isinstance(value, (bool, int, float)) else None
    got = written or describe_value(value)
    if fault.kind == "missing":
        if others := _names_beside(walk, document, fault):
            *_, name, key = location
            what = f"unknown name, and a new one needs the key {key}"
            return document.error(location[:-1], what, remedy=did_you_mean(name, others))
        return document.error(location, "missing key")
    if fault.kind.startswith("union_tag_") and (kinds := list(walk.tags(fault.schema))):
        name = fault.schema["discriminator"]["propertyName"]
        if fault.kind == "union_tag_invalid":
            what, remedy = describe_wrong_choice(kinds, value[name], describe_value(value[name]))
            remedy = remedy or unknown_kind(location)
        elif others := _names_beside(walk, document, replace(fault, location=(*location, name))):
            *_, unknown = location
            what, remedy = f"unknown name, and a new one needs the key {name}", did_you_mean(unknown, others)
            return document.error(location, what, remedy=remedy)
        else:
            guess = nearest(location[-1], kinds) if location else None
            further = f"; did you mean {guess} by {location[-1]}?" if guess else ""
            what, remedy = "missing key", f"one of {format_list(kinds, ',')}{further}"
        return document.error((*location, name), what, remedy=remedy)
    if fault.kind.startswith("union_tag_") or fault.kind.endswith(("_type", "_parsing", "int_from_float")):
        what, remedy = describe_wrong_type(walk, fault.schema, value, got, location[-1] if location else None)
    else:
        what, remedy = describe_fault(fault.error, fault.schema, got)
    return document.error(location, what, remedy=remedy, key=fault.error["loc"][-1:] == ("[key]",))
