"""A document checked against a model, every complaint with its place in the file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from simnmt.scenario.document import Document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.nodes import Node
from simnmt.scenario.overrides import Override, apply_overrides
from simnmt.scenario.phrases import expectation, meant_key, phrase, unknown_key, wrong_tag
from simnmt.scenario.schema_walk import SchemaWalk, Trail
from simnmt.scenario.wording import Location, described, listed, near

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_COMPLAINTS = 10
"""How many are shown, one a line."""


def validate(
    model: type[ModelT],
    document: Document | Mapping[str, object],
    overrides: Iterable[str | Override] = (),
    *,
    context: Any = None,
) -> ModelT:
    """The model's instance that the document, with the overrides in place, describes.

    The data is checked as JSON, so that strict models take what a file can say: lists for tuples, texts for
    paths and enums. `context` is handed to the model's validators. Raises `ScenarioError`: the first
    complaint in the document's order, the others in its `others`.
    """
    document = apply_overrides(document, overrides)
    try:
        return model.model_validate_json(json.dumps(document.data), context=context)
    except ValidationError as error:
        complaint = _combined(_complaints(model, document, error))
    raise complaint


@dataclass(frozen=True, slots=True)
class _Fault:
    """One of pydantic's errors, understood."""

    error: Mapping[str, Any]
    loc: Location
    """As pydantic has it, labels of branches included."""
    trail: Trail

    @property
    def kind(self) -> str:
        kind: str = self.error["type"]
        return kind

    def label(self, depth: int) -> str | None:
        """The branch taken at the union `depth` parts down `loc`."""
        return next((branch.label for branch in self.trail.branches if branch.depth == depth), None)


def _complaints(model: type[BaseModel], document: Document, error: ValidationError) -> list[ScenarioError]:
    walk = SchemaWalk(model)
    faults = []
    for item in error.errors(include_url=False):
        loc: Location = item["loc"]
        faults.append(_Fault(item, loc, walk.trail(loc, ends_at_key=item["type"] in ("missing", "extra_forbidden"))))
    faults = _without_misspelt(walk, document, _meant(walk, document, faults))
    faults.sort(key=lambda fault: _order(document, fault))
    complaints = {str(complaint): complaint for complaint in (_complaint(walk, document, fault) for fault in faults)}
    return list(complaints.values())


def _combined(complaints: list[ScenarioError]) -> ScenarioError:
    first, *others = complaints
    return ScenarioError(
        first.what,
        path=first.path,
        line=first.line,
        column=first.column,
        remedy=first.remedy,
        override=first.override,
        others=others[: MAX_COMPLAINTS - 1],
        left_out=max(len(complaints) - MAX_COMPLAINTS, 0),
    )


def _order(document: Document, fault: _Fault) -> tuple[float, float]:
    return document.position(fault.trail.location, key=True) or (math.inf, math.inf)


def _at(document: Document, location: Location) -> Node | None:
    node, depth = document.nearest(location)
    return node if depth == len(location) else None


def _keys(document: Document, location: Location) -> Mapping[str, Node]:
    node = _at(document, location)
    return node.content if node is not None and isinstance(node.content, dict) else {}


def _complaint(walk: SchemaWalk, document: Document, fault: _Fault) -> ScenarioError:
    location, schema, value = fault.trail.location, fault.trail.schema, fault.error.get("input")
    if fault.kind == "extra_forbidden":
        what, remedy = unknown_key(walk, location[-1], schema, _keys(document, location[:-1]))
        return document.error(location, what, remedy=remedy, key=True)
    if fault.kind == "union_tag_invalid" and isinstance(name := schema.get("discriminator"), str):
        tag = value.get(name) if isinstance(value, Mapping) else fault.error["ctx"]["tag"]
        what, remedy = wrong_tag(schema, tag, described(tag))
        if name in _keys(document, location):
            return document.error((*location, name), what, remedy=remedy)
        return document.error(location, f"{name} {what}", remedy=remedy, key=True)
    if fault.kind == "union_tag_not_found" and isinstance(name := schema.get("discriminator"), str):
        kinds = list(map(str, schema["choices"]))
        guess = near(location[-1], kinds) if location else None
        remedy = f"one of {listed(kinds)}" + (f"; did you mean {guess} by {location[-1]}?" if guess else "")
        return document.error((*location, name), "missing key", remedy=remedy)
    if fault.kind == "no_branch":
        return document.error(location, f"expected {expectation(walk, schema)}, got {_keys_or_value(value)}")
    node = _at(document, location)
    written = node.text if node is not None and node.content == value else None
    what, remedy = phrase(walk, fault.error, location[-1] if location else None, schema, written)
    if fault.kind in ("value_error", "assertion_error") and node is not None and not node.override:
        labels = list(dict.fromkeys(_overrides_below(node)))
        remedy = remedy or (f"with {listed(labels, 'and')}" if labels else None)
    return document.error(location, what, remedy=remedy, key=fault.loc[-1:] == ("[key]",))


def _keys_or_value(value: object) -> str:
    return f"a mapping with {listed(value, 'and')}" if isinstance(value, Mapping) and value else described(value)


def _overrides_below(node: Node) -> list[str]:
    if node.override:
        return [node.override]
    below = node.content.values() if isinstance(node.content, dict) else node.content if isinstance(node.content, list) else ()
    return [label for child in below for label in _overrides_below(child)]


def _without_misspelt(walk: SchemaWalk, document: Document, faults: list[_Fault]) -> list[_Fault]:
    """Drop the complaint about a missing key where an unknown one beside it was evidently meant to be it."""
    meant = {(*fault.loc[:-1], _meant_key(walk, document, fault)) for fault in faults if fault.kind == "extra_forbidden"}
    return [fault for fault in faults if fault.kind != "missing" or fault.loc not in meant]


def _meant_key(walk: SchemaWalk, document: Document, fault: _Fault) -> str | None:
    location = fault.trail.location
    return meant_key(walk, location[-1], fault.trail.schema, _keys(document, location[:-1]))


def _meant(walk: SchemaWalk, document: Document, faults: list[_Fault]) -> list[_Fault]:
    """Keep, of every union, only what its evidently meant branch has to say; the innermost unions first."""
    unions = {fault.loc[: branch.depth] for fault in faults for branch in fault.trail.branches}
    for union in sorted(unions, key=len, reverse=True):
        groups: dict[str, list[_Fault]] = {}
        rest = []
        for fault in faults:
            label = fault.label(len(union)) if fault.loc[: len(union)] == union else None
            if label is None:
                rest.append(fault)
            else:
                groups.setdefault(label, []).append(fault)
        trail = walk.trail(union)
        scores = {label: _distance(walk, document, group, trail.location) for label, group in groups.items()}
        best = min(scores, key=scores.__getitem__)
        if scores[best][0] or _tells_nothing(walk, document, trail):
            node = _at(document, trail.location)
            value = None if node is None else node.plain()
            outer = tuple(branch for branch in groups[best][0].trail.branches if branch.depth < len(union))
            kept = [_Fault({"type": "no_branch", "input": value}, union, Trail(trail.location, outer, trail.schema))]
        else:
            kept = groups[best]
        faults = rest + kept
    return faults


def _distance(walk: SchemaWalk, document: Document, group: list[_Fault], union: Location) -> tuple[bool, int, float, int]:
    """How far the data is from a branch: another shape, another kind, keys that do not fit, faults."""
    other_shape = any(
        fault.trail.location == union and (fault.kind.endswith("_type") or fault.kind in ("no_branch", "none_required"))
        for fault in group
    )
    other_kind = sum(
        fault.kind == "union_tag_invalid"
        or (fault.kind == "literal_error" and len(fault.trail.schema.get("expected", ())) == 1)
        for fault in group
    )
    keys = 0.0
    for fault in group:
        if fault.kind == "extra_forbidden":
            keys += 0.25 if _meant_key(walk, document, fault) else 1.0
        elif fault.kind in ("missing", "union_tag_not_found"):
            keys += 1.0
    return other_shape, other_kind, keys, len(group)


def _tells_nothing(walk: SchemaWalk, document: Document, trail: Trail) -> bool:
    """Whether a mapping shares no key, not even a misspelt one, with any of the models that it could be."""
    node = _at(document, trail.location)
    if node is None or not isinstance(node.content, dict):
        return False
    choices = walk.choices(trail.schema)
    models = [choice for choice in choices if walk.fields(choice)]
    if len(models) < 2 or any(choice["type"] in ("dict", "any") for choice in choices):
        return False
    known = {name for choice in models for name in walk.fields(choice)}
    return not any(near(key, known) for key in node.content)
