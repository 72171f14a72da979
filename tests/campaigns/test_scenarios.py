"""Scenarios mutated at random: each is read or refused in short lines, and the JSON Schema judges as the reader does."""

from __future__ import annotations

import functools
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
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
    "backlog_not_used",
    "bad_intervals",
    "busy_below_idle",
    "contradiction",
    "line_not_used",
    "misfit",
    "mix_and_moments",
    "needs_budget",
    "needs_distribution",
    "no_batch",
    "no_failures",
    "no_moments",
    "no_translation",
    "one_limit",
    "quantiles_decrease",
    # Control characters, refused in texts wherever they stand.
    "control_character",
}
"""Kinds of pydantic's and our own errors for what the schema accepts and cannot refuse."""


TEXTS = ["x", "a b", "gateway", "cloud", "@cp1", "@de-en-news", "word", "20 Mbit/s", "a.csv"]
DEPTH = 6
"""Of nested models; what a schema allows below is replaced by an odd value."""


def keys_of(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key that a schema names, with the schema of its values."""
    if isinstance(part, dict):
        yield from part.get("properties", {}).items()
    for below in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from keys_of(below)


@functools.cache
def schema_parts() -> tuple[dict[str, Any], dict[str, list[Any]], Callable[[Any], bool]]:
    """Return the schema, the schemas of values by key, and what tells whether the schema accepts a document."""
    schema, by_key = json.loads(schema_text()), defaultdict(list)
    for name, values in keys_of(schema):
        by_key[name].append(values)
    return schema, dict(sorted(by_key.items())), jsonschema.Draft202012Validator(schema).is_valid


def draw(schema: Any, generator: random.Random, depth: int = 0) -> Any:
    """Draw a value that a schema allows; conditions that hold between keys are not looked at."""
    if depth > DEPTH or not isinstance(schema, dict):
        return generator.choice(ODD_VALUES)
    if "$ref" in schema:
        return draw(schema_parts()[0]["$defs"][schema["$ref"].rpartition("/")[2]], generator, depth)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return draw(generator.choice(choices), generator, depth)
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return generator.choice(values)
    kind, below = schema.get("type"), functools.partial(draw, generator=generator, depth=depth + 1)
    if kind == "object":
        required, others = schema.get("required", []), schema.get("additionalProperties")
        drawn = {k: below(v) for k, v in schema.get("properties", {}).items() if k in required or generator.random() < 0.3}
        if isinstance(others, dict):
            drawn |= {
                key: below(others) for key in generator.sample(["a", "b", "gateway", "cloud"], generator.choice([1, 1, 2]))
            }
        return drawn
    if kind == "array":
        return [below(schema.get("items")) for _ in range(schema.get("minItems", 0) + generator.choice([0, 0, 1, 2]))]
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -10))
        high = schema.get("maximum", schema.get("exclusiveMaximum", 1e6))
        between = generator.uniform(low, min(high, low + 1000.0))
        number = generator.choice([low, high, between, between, low - 1, high + 1])
        return int(number) if kind == "integer" else number
    if kind == "boolean":
        return generator.random() < 0.5
    return None if kind == "null" else generator.choice(TEXTS)


@functools.cache
def shipped_scenarios() -> list[dict[str, Any]]:
    return [read_document(shipped_files.find("scenarios", name)).data for name in shipped_files.names("scenarios")]


def mutated_scenario(generator: random.Random) -> dict[str, Any]:
    """Return a shipped scenario after one to three mutations, or one drawn from the schema alone."""
    schema, by_key, _ = schema_parts()

    def value_of(key: str | int, old: Any) -> Any:
        allowed = draw(generator.choice(by_key.get(str(key), [None])), generator)
        return generator.choice([old, generator.choice(ODD_VALUES), allowed, allowed])

    if generator.random() < 0.1:
        drawn: dict[str, Any] = draw(schema, generator)
        return drawn
    data = generator.choice(shipped_scenarios())
    for _ in range(generator.choice([1, 1, 2, 3])):
        data = mutate(data, generator, keys=[*ODD_KEYS, *by_key], value_of=value_of)
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
        scenario = validate(document)
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
    kinds, accepted = faults(data), schema_parts()[2](data)
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
