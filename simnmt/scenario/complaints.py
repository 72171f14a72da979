"""A document checked against a model, every complaint with its place in the file."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from simnmt.names import format_list, nearest
from simnmt.scenario.document import Document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.nodes import Node
from simnmt.scenario.overrides import Override, apply_overrides
from simnmt.scenario.phrases import one_of, phrase, wrong_type
from simnmt.scenario.schema_walk import Schema, SchemaWalk
from simnmt.scenario.wording import Location, described

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_COMPLAINTS = 10
"""How many are shown, one a line."""
_MOST_FAULTS = 100
"""How many are looked at, in the document's order: looking for the names that 20,000 unknown keys may mean takes minutes."""


def validate(
    model: type[ModelT], document: Document | Mapping[str, object], overrides: Iterable[str | Override] = ()
) -> ModelT:
    """The model's instance that the document, with the overrides in place, describes.

    The data is checked as JSON, so that strict models take what a file can say: lists for tuples, texts for
    paths and enums. Raises `ScenarioError`: the first complaint in the document's order, the others in its `others`.
    """
    document = apply_overrides(document, overrides)
    try:
        return model.model_validate_json(json.dumps(document.data))
    except ValidationError as error:
        complaints, left_out = _complaints(_schema_walk(model), document, error)
        first, *others = complaints
    raise ScenarioError(
        first.what,
        path=first.path,
        line=first.line,
        column=first.column,
        remedy=first.remedy,
        override=first.override,
        others=others[: MAX_COMPLAINTS - 1],
        left_out=left_out + max(len(complaints) - MAX_COMPLAINTS, 0),
    )


@functools.cache
def _schema_walk(model: type[BaseModel]) -> SchemaWalk:
    """Return the schema of a model, which pydantic writes anew each time, in 80 ms for a scenario."""
    return SchemaWalk(model)


@dataclass(frozen=True, slots=True)
class _Fault:
    """One of pydantic's errors, understood."""

    error: Mapping[str, Any]
    kind: str
    location: Location
    """The user's keys and indices alone."""
    schema: Schema
    """What was allowed at `location`; for an unknown or a missing key, in the mapping around it."""
    node: Node
    """What stands there."""

    @property
    def keys(self) -> Mapping[str, Node]:
        """What stands in the mapping; empty where it is none."""
        return self.node.content if isinstance(self.node.content, dict) else {}


def _complaints(walk: SchemaWalk, document: Document, error: ValidationError) -> tuple[list[ScenarioError], int]:
    """The first of the complaints, and how many faults were not looked at."""
    faults = [_fault(walk, document, item) for item in error.errors(include_url=False)]
    faults.sort(key=lambda fault: document.position(fault.location, key=True) or (math.inf, math.inf))
    unknown = {fault.location for fault in faults if fault.kind == "extra_forbidden"}
    faults, left_out = faults[:_MOST_FAULTS], len(faults[_MOST_FAULTS:])
    remedies, meant = {}, set()
    for fault in faults:
        if fault.location in unknown:
            *around, key = fault.location
            known = _known_keys(walk, fault, unknown)
            guess = nearest(key, [name for name in known if name not in fault.keys]) or nearest(key, known)
            others = f"known here: {format_list(known, ',')}" if known else "remove it"
            remedies[fault.location] = f"did you mean {guess}?" if guess else others
            meant.add((*around, guess))
    complaints = [
        document.error(fault.location, "unknown key", remedy=remedies[fault.location], key=True)
        if fault.location in unknown
        else _complaint(walk, document, fault)
        for fault in faults
        if fault.kind != "missing" or fault.location not in meant
    ]
    return list({str(complaint): complaint for complaint in complaints}.values()), left_out


def _fault(walk: SchemaWalk, document: Document, error: Mapping[str, Any]) -> _Fault:
    """Part the keys in pydantic's `loc` from the names of branches, which stand in it too."""
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


def _known_keys(walk: SchemaWalk, fault: _Fault, unknown: set[Location]) -> list[str]:
    """The keys of the models that the mapping can be: those that know all its keys but the unknown ones."""
    around = fault.location[:-1]
    taken = {key for key in fault.keys if (*around, key) not in unknown}
    models = [form.get("properties", {}) for form in walk.forms(fault.schema)]
    return list(dict.fromkeys(name for model in models if taken <= model.keys() for name in model))


def _complaint(walk: SchemaWalk, document: Document, fault: _Fault) -> ScenarioError:
    location, value = fault.location, fault.error["input"]
    written = fault.node.text if fault.node.content == value and isinstance(value, (bool, int, float)) else None
    got = written or described(value)
    if fault.kind == "missing":
        return document.error(location, "missing key")
    if fault.kind.startswith("union_tag_") and (kinds := list(walk.tags(fault.schema))):
        name = fault.schema["discriminator"]["propertyName"]
        if fault.kind == "union_tag_invalid":
            what, remedy = one_of(kinds, value[name], described(value[name]))
        else:
            guess = nearest(location[-1], kinds) if location else None
            further = f"; did you mean {guess} by {location[-1]}?" if guess else ""
            what, remedy = "missing key", f"one of {format_list(kinds, ',')}{further}"
        return document.error((*location, name), what, remedy=remedy)
    if fault.kind.startswith("union_tag_") or fault.kind.endswith(("_type", "_parsing", "int_from_float")):
        what, remedy = wrong_type(walk, fault.schema, value, got, location[-1] if location else None)
    else:
        what, remedy = phrase(fault.error, fault.schema, got)
    return document.error(location, what, remedy=remedy, key=fault.error["loc"][-1:] == ("[key]",))
