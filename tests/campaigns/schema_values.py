"""Random values that a JSON Schema allows, near the limits that it states, for every keyword of the scenario's schema."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from tests.campaigns.harness import ODD_VALUES

_TEXTS = ["x", "a b", "gateway", "cloud", "@cp1", "@de-en-news", "word", "20 Mbit/s", "a.csv"]
_DEPTH = 6
"""Of nested models; what a schema allows below is replaced by an odd value."""


class SchemaValues:
    """Draws values of a schema, and knows all keys that it names."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._of_key: dict[str, list[Any]] = defaultdict(list)
        self._collect(schema)
        self.keys = sorted(self._of_key)

    def _collect(self, part: Any) -> None:
        if isinstance(part, dict):
            for key, below in part.get("properties", {}).items():
                self._of_key[key].append(below)
            for below in part.values():
                self._collect(below)
        elif isinstance(part, list):
            for below in part:
                self._collect(below)

    def of_key(self, key: str | int, generator: random.Random) -> Any:
        """Draw a value that the schema allows for a key of this name somewhere; an odd one if it names no such key."""
        schemas = self._of_key.get(str(key))
        return self.draw(generator.choice(schemas), generator) if schemas else generator.choice(ODD_VALUES)

    def draw(self, schema: Any, generator: random.Random, depth: int = 0) -> Any:
        """Draw a value of `schema`; conditions that hold between keys are not looked at."""
        if depth > _DEPTH or not isinstance(schema, dict):
            return generator.choice(ODD_VALUES)
        if "$ref" in schema:
            return self.draw(self.schema["$defs"][schema["$ref"].rpartition("/")[2]], generator, depth)
        for choices in (schema.get("anyOf"), schema.get("oneOf")):
            if choices:
                return self.draw(generator.choice(choices), generator, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return generator.choice(schema["enum"])
        draw = {"object": self._object, "array": self._array}.get(schema.get("type", ""))
        return draw(schema, generator, depth + 1) if draw else _scalar(schema, generator)

    def _object(self, schema: dict[str, Any], generator: random.Random, depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        drawn = {
            key: self.draw(below, generator, depth)
            for key, below in properties.items()
            if key in required or generator.random() < 0.3
        }
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            for key in generator.sample(["a", "b", "gateway", "cloud"], generator.choice([1, 1, 2])):
                drawn[key] = self.draw(others, generator, depth)
        return drawn

    def _array(self, schema: dict[str, Any], generator: random.Random, depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        return [self.draw(schema.get("items"), generator, depth) for _ in range(least + generator.choice([0, 0, 1, 2]))]


def _scalar(schema: dict[str, Any], generator: random.Random) -> Any:
    kind = schema.get("type")
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -10))
        high = schema.get("maximum", schema.get("exclusiveMaximum", 1e6))
        between = generator.uniform(low, min(high, low + 1000.0))
        drawn = generator.choice([low, high, between, between, low - 1, high + 1])
        return int(drawn) if kind == "integer" else drawn
    if kind == "boolean":
        return generator.random() < 0.5
    return None if kind == "null" else generator.choice(_TEXTS)
