"""Scenarios mutated at random: each is read or refused in short lines, and the JSON Schema judges as the reader does."""

from __future__ import annotations

import functools
import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
from pydantic import ValidationError

from simnmt.base import shipped_files
from simnmt.base.configuration import with_absolute_paths
from simnmt.base.errors import InputError
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Document, document_of, parse_document, read_document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.template import schema_text
from simnmt.scenario.topology import check_topology
from simnmt.scenario.validation import validate
from simnmt.scenario.yaml_text import write_document
from tests.campaigns.harness import ODD_KEYS, ODD_VALUES, assert_short_lines, mutate, mutate_bytes, run_cases

BEYOND_JSON_SCHEMA = {
    # An integer to JSON Schema is any number without a fraction, however it is written: the reader refuses 1.0.
    "int_type",
    "threshold_unknown",
    # Keys that have to fit each other, such as a collection and the batch that it fills.
    "bad_intervals",
    "busy_below_idle",
    "contradiction",
    "line_not_used",
    "misfit",
    "mix_and_moments",
    "needs_distribution",
    "no_batch",
    "no_failures",
    "no_moments",
    "quantiles_decrease",
    # Control characters, refused in texts wherever they stand.
    "control_character",
}
"""Kinds of pydantic's and our own errors for what the schema accepts and cannot refuse."""


@functools.cache
def schema_values() -> SchemaValues:
    return SchemaValues(json.loads(schema_text()))


@functools.cache
def accepts() -> Callable[[Any], bool]:
    """Return what tells whether the schema accepts a document."""
    is_valid: Callable[[Any], bool] = jsonschema.Draft202012Validator(schema_values().schema).is_valid
    return is_valid


@functools.cache
def shipped_scenarios() -> list[dict[str, Any]]:
    return [read_document(shipped_files.find("scenarios", name)).data for name in shipped_files.names("scenarios")]


def mutated_scenario(generator: random.Random) -> dict[str, Any]:
    """Return a shipped scenario after one to three mutations, or one drawn from the schema alone."""
    schema = schema_values()

    def value_of(key: str | int, old: Any) -> Any:
        return generator.choice([old, generator.choice(ODD_VALUES), *[schema.of_key(key, generator)] * 2])

    if generator.random() < 0.1:
        drawn: dict[str, Any] = schema.draw(schema.schema, generator)
        return drawn
    data = generator.choice(shipped_scenarios())
    for _ in range(generator.choice([1, 1, 2, 3])):
        data = mutate(data, generator, keys=[*ODD_KEYS, *schema.keys], value_of=value_of)
    return data


def faults(data: dict[str, Any]) -> dict[str, str]:
    """Return the model's faults by their kind; empty where it takes the scenario. No files are read, no parts compared."""
    try:
        ScenarioConfiguration.model_validate_json(json.dumps(document_of(data).data))
    except ValidationError as error:
        messages = {fault["type"]: f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()}
        contradiction = any(words in messages.get("value_error", "") for words in ("contradict each other", "execution kind"))
        return {"contradiction" if contradiction and kind == "value_error" else kind: text for kind, text in messages.items()}
    except InputError as error:
        control = "control character" in str(error) or "cannot be a key" in str(error)
        return {"control_character" if control else "form": str(error)}
    return {}


def check_read_or_refused(parse: Callable[[], Document], *, written: bool = True) -> None:
    """Check that a document is refused in short printable lines, or read, resolved, written and read as the same.

    `written` False leaves out the writing, whose parser takes a hundred times as long as everything else.
    """
    try:
        document = parse()
        scenario = validate(ScenarioConfiguration, document)
        check_topology(scenario, document)
    except ScenarioError as error:
        assert_short_lines(error)
        return
    content = with_absolute_paths(scenario, Path("/")).document()
    if written:
        assert parse_document(write_document(content)).data == content


def check_data(generator: random.Random) -> None:
    data = mutated_scenario(generator)
    check_read_or_refused(lambda: document_of(data), written=generator.random() < 0.02)


def check_schema(generator: random.Random) -> None:
    data = mutated_scenario(generator)
    kinds, accepted = faults(data), accepts()(data)
    assert accepted or kinds, f"only the schema refuses {json.dumps(data)}"
    assert not accepted or kinds.keys() <= BEYOND_JSON_SCHEMA, f"only the reader refuses: {kinds}"


def check_text(generator: random.Random) -> None:
    name = generator.choice(shipped_files.names("scenarios"))
    content = mutate_bytes(shipped_files.find("scenarios", name).read_bytes(), generator)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return
    check_read_or_refused(lambda: parse_document(text, "a.yaml"))


def test_mutated_scenarios_are_read_or_refused_in_short_lines() -> None:
    run_cases("scenario data", 2_000, check_data)


def test_reader_and_schema_agree_but_for_what_no_schema_can_say() -> None:
    run_cases("scenario schema", 1_200, check_schema)


def test_mutated_yaml_is_read_or_refused_in_short_lines() -> None:
    run_cases("scenario text", 60, check_text)


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
