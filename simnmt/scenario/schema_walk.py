"""Which keys of the user's a pydantic error is about, and what was allowed there.

pydantic's `loc` holds, beside the user's keys, a label for each branch of a union that it tried. Walking
the model's core schema along `loc` tells the two apart, whatever a key or a branch is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from simnmt.scenario.wording import Location

Schema = Mapping[str, Any]
_WRAPPERS = {
    "model": "schema",
    "default": "schema",
    "nullable": "schema",
    "function-before": "schema",
    "function-after": "schema",
    "function-wrap": "schema",
    "model-field": "schema",
    "typed-dict-field": "schema",
    "custom-error": "schema",
    "lax-or-strict": "strict_schema",
    "json-or-python": "json_schema",
}


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a plain union on the way to an error."""

    depth: int
    """How many parts of pydantic's `loc` lead to the union."""
    label: str
    """pydantic's name of the branch."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What a `loc` means."""

    location: Location
    """The user's keys and indices alone."""
    branches: tuple[Branch, ...]
    """Outermost first."""
    schema: Schema
    """What was allowed at `location`, or for an unknown key at the mapping that holds it."""


Reading = tuple[Location, tuple[Branch, ...], Schema]
"""One way to read a `loc`: as the fields of a `Trail`."""


class SchemaWalk:
    """The core schema of a model, to be walked along the `loc` of its errors."""

    def __init__(self, model: type[BaseModel]) -> None:
        schema: Any = model.__pydantic_core_schema__
        self._definitions: dict[str, Schema] = {}
        if schema["type"] == "definitions":
            self._definitions = {part["ref"]: part for part in schema["definitions"]}
            schema = schema["schema"]
        self._top: Schema = schema

    def trail(self, loc: Location, *, ends_at_key: bool = False) -> Trail:
        """Read a `loc`; where the schema does not explain it (a hand-written validator), all its parts are
        taken for keys."""
        steps = loc[:-1] if ends_at_key else loc
        if loc and loc[-1] == "[key]":
            steps = loc[:-2]
        for location, branches, schema in self._walk(self._top, steps, 0):
            tail = loc[-2:-1] if loc and loc[-1] == "[key]" else loc[len(steps) :]
            return Trail((*location, *tail), branches, self.bare(schema))
        return Trail(tuple(part for part in loc if part != "[key]"), (), {"type": "any"})

    def bare(self, schema: Schema) -> Schema:
        """The schema without what wraps it: defaults, None allowed, validators."""
        while True:
            kind = schema["type"]
            if kind == "definition-ref":
                schema = self._definitions[schema["schema_ref"]]
            elif kind in _WRAPPERS:
                schema = schema[_WRAPPERS[kind]]
            elif kind == "chain":
                schema = schema["steps"][0]
            elif kind == "definitions":
                self._definitions.update({part["ref"]: part for part in schema["definitions"]})
                schema = schema["schema"]
            else:
                return schema

    def choices(self, schema: Schema) -> list[Schema]:
        """The branches of a union, bare; else the schema alone."""
        schema = self.bare(schema)
        if schema["type"] == "union":
            parts = [part[0] if isinstance(part, tuple) else part for part in schema["choices"]]
        elif schema["type"] == "tagged-union":
            parts = list(schema["choices"].values())
        else:
            return [schema]
        return [choice for part in parts for choice in self.choices(part)]

    def fields(self, schema: Schema) -> dict[str, Schema]:
        """The keys a model allows, by the name the user writes; empty for what is no model."""
        schema = self.bare(schema)
        if schema["type"] not in ("model-fields", "typed-dict"):
            return {}
        named = {}
        for name, field in schema["fields"].items():
            alias = field.get("validation_alias")
            named[alias if isinstance(alias, str) else name] = field
        return named

    def required(self, schema: Schema) -> list[str]:
        """The keys that a model cannot do without."""
        return [name for name, field in self.fields(schema).items() if not self._has_default(field)]

    def _has_default(self, field: Schema) -> bool:
        schema = field["schema"]
        while schema["type"] in _WRAPPERS and schema["type"] != "default":
            schema = schema[_WRAPPERS[schema["type"]]]
        return bool(schema["type"] == "default") or field.get("required") is False

    def _walk(self, schema: Schema, loc: Location, depth: int) -> Iterator[Reading]:
        """Every way to read `loc` from `schema` on: the user's keys, the unions passed, the schema at the
        end."""
        schema = self.bare(schema)
        if not loc:
            yield (), (), schema
            return
        kind, part = schema["type"], loc[0]
        if kind == "union":
            exact, loose = self._labelled(schema, str(part))
            for choice in exact:
                yield from self._below(choice, loc, depth, Branch(depth, str(part)))
            # A validator that picks the branch by hand leaves no label.
            for choice in self.choices(schema):
                yield from self._walk(choice, loc, depth)
            for choice in loose:
                yield from self._below(choice, loc, depth, Branch(depth, str(part)))
            return
        if kind == "tagged-union":
            if part in schema["choices"]:
                yield from self._walk(schema["choices"][part], loc[1:], depth + 1)
            for choice in self.choices(schema):
                yield from self._walk(choice, loc, depth)
            return
        below: Schema | None = None
        if kind in ("model-fields", "typed-dict") and isinstance(part, str):
            below = self.fields(schema).get(part)
        elif kind == "dict" and isinstance(part, str):
            below = schema.get("values_schema", {"type": "any"})
        elif kind in ("list", "set", "frozenset") and isinstance(part, int):
            below = schema.get("items_schema", {"type": "any"})
        elif kind == "tuple" and isinstance(part, int):
            items = schema["items_schema"]
            below = items[min(part, len(items) - 1)] if items else {"type": "any"}
        if below is not None:
            for location, branches, end in self._walk(below, loc[1:], depth + 1):
                yield (part, *location), branches, end

    def _below(self, choice: Schema, loc: Location, depth: int, branch: Branch) -> Iterator[Reading]:
        for location, branches, end in self._walk(choice, loc[1:], depth + 1):
            yield location, (branch, *branches), end

    def _labelled(self, schema: Schema, label: str) -> tuple[list[Schema], list[Schema]]:
        """The branches that `label` names, and those that it may name where nothing else explains it."""
        named: list[Schema] = []
        perhaps: list[Schema] = []
        rest: list[Schema] = []
        for choice in schema["choices"]:
            part, own = choice if isinstance(choice, tuple) else (choice, None)
            outer = self._definitions[part["schema_ref"]] if part["type"] == "definition-ref" else part
            name = own or (outer["cls"].__name__ if "cls" in outer else outer["type"])
            exact = label in (name, f"constrained-{name}") or label.startswith(f"{name}[")
            (named if exact else perhaps if "[" in label else rest).append(part)
        return named + perhaps, rest
