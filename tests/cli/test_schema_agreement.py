"""The JSON Schema judges as the reader does: scenarios mutated at random, and the disagreements that no schema can avoid."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from simnmt import shipped
from simnmt.errors import InputError
from simnmt.scenario.document import document_of, read_document
from simnmt.scenario.model import Scenario
from simnmt.scenario.template import schema_text

Place = tuple[str | int, ...]

BEYOND_JSON_SCHEMA = {
    # An integer to JSON Schema is any number without a fraction, however it is written: the reader refuses 1.0.
    "int_type",
    # Keys that have to fit each other, such as a collection and the batch that it fills.
    "cache_too_small",
    "collect_below_size",
    "line_not_used",
    "mix_and_moments",
    "needs_distribution",
    "no_burst",
    "no_moments",
    "no_rate",
    "no_whole",
    "one_rate",
    "rank_of_engagements",
    "rate_or_scale",
    "reclaimed_too_soon",
    "speed_or_rate",
    "threshold_outside_batch",
}
"""Kinds of pydantic's and our own errors for what the schema accepts and cannot refuse."""
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 3, 1.0, 0.5, -0.5, 1e-9, 1e12, 10**30, "", " ", "x", "auto", "@cp1", "20 Mbit/s", "7", "a/b",
    "\t", [], [1], ["x"], {}, {"x": 1}, {"kind": "poisson", "rate_rps": 1.0}, {"constant_ms": 50}, {"csv": "a.csv"},
    {"rtt": "@cp1"},
]  # fmt: skip
KEYS = ["x", "", " ", "Upper", "a" * 31, "a" * 81, "with/slash", "back\\slash", "tab\t", "é", "0", "kind", "end_node", "edge"]


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every key and item below a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, below in children:
        yield (*place, part)
        yield from places(below, (*place, part))


def mutated(data: dict[str, Any], generator: random.Random) -> dict[str, Any]:
    """The scenario with one value replaced, one key removed, renamed or added."""
    changed = copy.deepcopy(data)
    *around, part = generator.choice(list(places(changed)))
    holder: Any = changed
    for step in around:
        holder = holder[step]
    change = generator.choice(["replace", "replace", "replace", "remove", "rename", "add"])
    if change == "remove":
        del holder[part]
    elif change == "rename" and isinstance(holder, dict):
        holder[generator.choice(KEYS)] = holder.pop(part)
    elif change == "add" and isinstance(holder, dict):
        holder[generator.choice(KEYS)] = copy.deepcopy(generator.choice([holder[part], *ODD]))
    else:
        holder[part] = copy.deepcopy(generator.choice(ODD))
    return changed


@pytest.fixture(scope="module")
def accepts() -> Callable[[Any], bool]:
    validator = jsonschema.Draft202012Validator(json.loads(schema_text()))
    return validator.is_valid


def faults(data: dict[str, Any]) -> dict[str, str]:
    """The reader's, by their kind; empty where it takes the scenario. Files are not read, nor are parts compared."""
    try:
        Scenario.model_validate_json(json.dumps(document_of(data).data))
    except ValidationError as error:
        return {fault["type"]: f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()}
    except InputError as error:
        return {"form": str(error)}
    return {}


def disagreements(accepts: Callable[[Any], bool], scenarios: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Of each shipped scenario so many mutations: those that the schema cannot refuse by kind, and all other disagreements."""
    generator = random.Random(seed)
    unavoidable, others = Counter[str](), list[str]()
    for name in shipped.names("scenarios"):
        data = read_document(shipped.find("scenarios", name)).data
        for _ in range(scenarios):
            changed = mutated(data, generator)
            found = faults(changed)
            if accepts(changed) is not bool(found):
                continue
            if not found:
                others.append(f"only the schema refuses {json.dumps(changed)}")
            elif found.keys() <= BEYOND_JSON_SCHEMA:
                unavoidable.update(found.keys())
            else:
                others.append(f"only the reader refuses: {found}")
    return unavoidable, others


def test_reader_and_schema_agree_but_for_what_no_schema_can_say(accepts: Callable[[Any], bool]) -> None:
    _, others = disagreements(accepts, scenarios=150, seed=4)
    assert others == []


@pytest.mark.parametrize("name", ["", "with/slash", "back\\slash", "tab\t", "a" * 81])
@pytest.mark.parametrize("mapping", ["workloads", "networks", "policies", "devices"])
def test_names_that_the_reader_refuses_the_schema_refuses(accepts: Callable[[Any], bool], mapping: str, name: str) -> None:
    data = read_document(shipped.find("scenarios", "quickstart")).data
    assert accepts(data)
    data[mapping][name] = next(iter(data[mapping].values())) or {"kind": "edge"}
    assert faults(data)
    assert not accepts(data)


def test_the_schema_states_how_names_look() -> None:
    properties = json.loads(schema_text())["properties"]
    for mapping in ("workloads", "networks", "policies", "devices"):
        assert "pattern" in properties[mapping]["propertyNames"]
        assert "patternProperties" not in properties[mapping]
