from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.base.errors import printable
from simnmt.scenario.document import Override, apply_overrides, document_of, parse_document
from simnmt.scenario.errors import ScenarioError, format_location
from simnmt.scenario.yaml_text import UNPRINTABLE

KEYS = st.text(min_size=1, max_size=12).filter(lambda text: text.strip() and not UNPRINTABLE.search(text)) | st.sampled_from(
    ["a", "b", "cp-1", "a.b", "0", "=", '"', "\\", "x=y"]
)


def overridden(data: dict[str, Any], *overrides: str) -> Any:
    return apply_overrides(document_of(data), overrides).data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.8", 0.8),
        ("true", True),
        ("no", "no"),
        ("null", None),
        ("@cp1", "@cp1"),
        ('"@cp1"', "@cp1"),
        ('"7"', "7"),
        ("two words", "two words"),
        ("a=b", "a=b"),
        ("{kind: poisson, rate_rps: 4}", {"kind": "poisson", "rate_rps": 4}),
        ("[1, 2.5, x]", [1, 2.5, "x"]),
        ("../x/y.csv", "../x/y.csv"),
        ("{rtt: @cp1, csv: 'a, @b', mail: a@b}", {"rtt": "@cp1", "csv": "a, @b", "mail": "a@b"}),
    ],
)
def test_a_value_is_read_as_the_file_would_read_it(text: str, value: object) -> None:
    assert overridden({}, f"a={text}") == {"a": value}


@pytest.mark.parametrize(
    ("data", "overrides", "expected"),
    [
        ({"p": {"c": None}}, ["p.c.x=0.8", "a.b-c.d=1"], {"p": {"c": {"x": 0.8}}, "a": {"b-c": {"d": 1}}}),
        ({"a": [{"b": 1}, 2], "c": {"0": 1}}, ["a.0.b=3", "a.1=4", "c.0=5"], {"a": [{"b": 3}, 4], "c": {"0": 5}}),
        ({"p": {}}, ['p."a.b".x=1'], {"p": {"a.b": {"x": 1}}}),
        ({}, ["a.b=1", "a={c: 2}", "a.d=3"], {"a": {"c": 2, "d": 3}}),
    ],
)
def test_mappings_on_the_way_are_made_and_the_later_override_wins(data: Any, overrides: list[str], expected: Any) -> None:
    assert overridden(data, *overrides) == expected


def test_the_document_given_stays_as_it_is() -> None:
    document = parse_document("a: {b: [1]}\n", "s.yaml")
    before = copy.deepcopy(document)
    apply_overrides(document, ["a.b.0=2", "c=1"])
    assert document == before


@pytest.mark.parametrize(
    "text",
    ["policies.cnmt", "=1", "a..b=1", "a.=1", '"a=1', "a=", "a=b #c", "a=[1", "a={b: 1, b: 2}", "seed.x=1", "nodes.1=1"],
)
def test_a_malformed_override_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        apply_overrides(document_of({"seed": 1, "nodes": [1], "none": []}), [text])
    assert str(caught.value).startswith(f"--set {printable(text)}: ") and caught.value.line is None


def test_an_option_of_its_own_is_named_as_it_was_written() -> None:
    document = apply_overrides(document_of({"seed": 1}), [Override.of("seed", 7, "--seed 7"), Override.of(("a", "b"), "x")])
    assert document.data == {"seed": 7, "a": {"b": "x"}}
    assert str(document.error(("seed",), "is wrong")) == "--seed 7: seed: is wrong"
    assert str(document.error(("a", "b"), "is wrong")) == "a.b='x': a.b: is wrong"


@given(st.lists(KEYS, min_size=1, max_size=5), st.integers())
def test_a_location_as_shown_leads_back_to_itself(location: list[str], value: int) -> None:
    data = overridden({}, f"{format_location(tuple(location))}={value}")
    for key in location:
        assert list(data) == [key]
        data = data[key]
    assert data == value
