"""Scenarios mutated at random: each is read or refused in short lines, and the JSON Schema judges as the reader does."""

from __future__ import annotations

import functools
import json
import random
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
from tests.campaigns.schema_values import SchemaValues

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
    "no_burst",
    "no_failures",
    "no_load",
    "no_moments",
    "no_rate",
    "no_whole",
    "one_rate",
    "quantiles_decrease",
    "rank_of_engagements",
    "rate_or_scale",
    "speed_or_rate",
    # Names of distributions and of their parameters, which scipy knows.
    "unfit_distribution",
    "unknown_distribution",
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
