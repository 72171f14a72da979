from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from simnmt.scenario.document import MAX_BYTES, Override, document_of, parse_document, read_document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.yaml_text import UNPRINTABLE, write_document

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: not UNPRINTABLE.search(text))
KEYS = TEXTS | st.sampled_from(["no", "1", "null", "", "1e5", "a.b", "- x", "?", "k" * 128, "\u2028" * 128])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(["no", "10:30", "1e5", "0x1F", "~", "true", "@cp1", "# no comment", "a: b", "- a", "a\n\n b\n", " a "])
)
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(KEYS, below, max_size=4), max_leaves=20
)
MAPPINGS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=5)


def typed(value: Any) -> Any:
    """The value with its types, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return [(key, typed(below)) for key, below in value.items()]
    if isinstance(value, list):
        return [typed(below) for below in value]
    return type(value), repr(value)


def complaint(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_document(text, "s.yaml")
    return str(caught.value)


@given(MAPPINGS)
def test_what_is_written_is_read_back_with_its_types_and_order(data: dict[str, Any]) -> None:
    text = write_document(data)
    assert typed(parse_document(text).data) == typed(data)
    assert write_document(parse_document(text).data) == text
    assert YAML(typ="safe", pure=True).load(text) == data, "as another reader of YAML 1.2 does"


@given(st.text(st.sampled_from("ab1-:?,[]{}#&*!|>'\"%@ \n\t\\.~<=e0xU\ud800\r\ufeff"), max_size=60))
def test_whatever_yaml_like_text_is_read_or_refused_on_one_line(text: str) -> None:
    try:
        parse_document(text)
    except ScenarioError as error:
        assert str(error).isprintable()


def test_it_is_yaml_1_2() -> None:
    document = parse_document("\ufeffa: no\r\nb: 10:30\nc: 1e5\nd: 0o17\ne: 2001-01-01\nf: 1_000\ng: ~\nh: 007\n")
    assert typed(document.data) == typed(
        {"a": "no", "b": "10:30", "c": 1e5, "d": 15, "e": "2001-01-01", "f": "1_000", "g": None, "h": 7}
    )


def test_keys_and_values_have_places_and_what_is_missing_has_that_of_the_key_around_it() -> None:
    document = parse_document("# first\nseed: 1\nnetworks:\n  cp1: {rtt: '@cp1'}\n  cp2:\n  - 7\n  -   8\n  cp3:\n\nc: 1\n")
    places = {("seed",): (2, 7), ("networks", "cp1", "rtt"): (4, 14), ("networks", "cp2", 1): (7, 7), (): (2, 1)}
    places |= {("networks", "cp1", "x"): (4, 3), ("networks", "cp2", 9, "d"): (5, 3), ("networks", "cp3"): (8, 3)}
    assert {location: document.position(location) for location in places} == places
    assert document.position(("networks", "cp1", "rtt"), key=True) == (4, 9)
    assert document_of({"a": 1}).position(("a",)) is None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "1:1"),
        ("# only\n", "1:1"),
        ("- 1", "1:1"),
        ("a: @cp1", "1:4"),
        ("a:\n\tb: 1", "2:1"),
        ("a: 1\nb\nc: 2", "3:1"),
        ("a: [1", "1:6"),
        ("a: 'x", "1:6"),
        ("x:\n  b: 1\n  c: 2\n  b: 3", "4:3"),
        ("x: [{a: 1}, {b: 1, b: 2}]", "1:20"),
        ("a: &x 1", "1:4"),
        ("a: *x", "1:4"),
        ("a: !foo 1", "1:4"),
        ("a: !!python/object:os.system 1", "1:4"),
        ("a: 1\n---\nb: 1", "2:1"),
        ("? [a]\n: 1", "1:3"),
        ("b: 1\na: \x00", "2:4"),
        ('a: "\\0"', "1:4"),
        ('a: "\\ud800"', "1:4"),
    ],
)
def test_a_fault_of_form_is_one_line_with_its_place(text: str, place: str) -> None:
    message = complaint(text)
    assert message.startswith(f"s.yaml:{place}: ") and message.isprintable()


@pytest.mark.parametrize("text", ["a: " + "[" * 10_000, "- " * 10_000, "a: " + "{a: " * 5_000, "? " * 5_000])
def test_depth_is_refused_before_anything_overflows(text: str) -> None:
    assert complaint(text).startswith("s.yaml:1:")


def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    for content in (b"#" * (MAX_BYTES + 1), b"version https://git-lfs.github.com/spec/v1\n", b"a: 1\nb: \xc3\xa9\xff", None):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ScenarioError) as caught:
            read_document(file)
        assert caught.value.path == str(file)
        assert ((caught.value.line, caught.value.column) == (2, 5)) is (content is not None and content.startswith(b"a"))
    file.write_bytes(gzip.compress(b"a: 1"))
    with pytest.raises(ScenarioError, match=r"\(unpack it with gunzip\)$"):
        read_document(file)
    assert complaint("a:\n\tb: 1").endswith("(indent with spaces)")
    for name in (tmp_path, "a\0b"):
        with pytest.raises(ScenarioError):
            read_document(name)


def test_data_of_a_notebook_becomes_plain() -> None:
    import numpy as np

    document = document_of({"a": np.int64(3), "b": np.float32(0.5), "c": (1, Path("x/y")), "d": {2: None}})
    assert typed(document.data) == typed({"a": 3, "b": 0.5, "c": [1, "x/y"], "d": {"2": None}})


def test_data_that_no_file_can_hold_is_refused_by_its_key() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    with pytest.raises(ScenarioError):
        document_of(loop)
    with pytest.raises(ScenarioError) as caught:
        Override.of(("a", "b"), [{1, 2}])
    assert ": 0: " in str(caught.value)
    with pytest.raises(ScenarioError) as caught:
        document_of({"name": "a", "description": "\x1b[31m"})
    assert str(caught.value).startswith("description: ")


def test_a_resolved_scenario_is_written_in_block_style() -> None:
    data = {"version": 1, "rtt": "@cp1", "no": "no", "empty": {}, "list": [{"a": 0.1, "b": [1, []]}, "x y"], "none": None}
    assert write_document(data) == (
        'version: 1\nrtt: "@cp1"\n"no": "no"\n'
        "empty: {}\nlist:\n  - a: 0.1\n    b:\n      - 1\n      - []\n  - x y\nnone: null\n"
    )
