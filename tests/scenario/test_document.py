from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from simnmt.scenario.document import MAX_BYTES, document_of, parse_document, read_document
from simnmt.scenario.errors import ScenarioError, format_location
from simnmt.scenario.yaml_text import MAX_DEPTH, MAX_KEY, UNPRINTABLE, write_document

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: not UNPRINTABLE.search(text))
KEYS = TEXTS | st.sampled_from(["no", "1", "null", "", "1e5", "a.b", "- x", "?", "k" * MAX_KEY, "\u2028" * MAX_KEY])
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


@given(MAPPINGS)
def test_another_reader_of_yaml_1_2_reads_the_same(data: dict[str, Any]) -> None:
    assert YAML(typ="safe", pure=True).load(write_document(data)) == data


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_whatever_bytes_a_file_holds_it_is_read_or_refused_on_one_line(tmp_path_factory: Any, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(raw)
    try:
        read_document(path)
    except ScenarioError as error:
        assert str(error).isprintable()


def test_a_pointer_of_git_lfs_in_place_of_a_scenario_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ScenarioError, match="git lfs pull"):
        read_document(tmp_path / "s.yaml")


@given(st.text(st.sampled_from("ab1-:?,[]{}#&*!|>'\"%@ \n\t\\.~<=e0xU\ud800\r\ufeff"), max_size=60))
def test_whatever_yaml_like_text_is_read_or_refused_on_one_line(text: str) -> None:
    try:
        parse_document(text)
    except ScenarioError as error:
        assert str(error).isprintable()


def test_it_is_yaml_1_2() -> None:
    document = parse_document("a: no\nb: 10:30\nc: 1e5\nd: 0o17\ne: 2001-01-01\nf: 1_000\ng: ~\nh: 007\n")
    assert typed(document.data) == typed(
        {"a": "no", "b": "10:30", "c": 1e5, "d": 15, "e": "2001-01-01", "f": "1_000", "g": None, "h": 7}
    )


def test_positions_of_keys_and_values() -> None:
    document = parse_document("# first\nseed: 1\nnetworks:\n  cp1: {rtt: '@cp1'}\n  cp2:\n  - 7\n  -   8\n")
    assert document.position(("seed",)) == (2, 7)
    assert document.position(("seed",), key=True) == (2, 1)
    assert document.position(("networks", "cp1", "rtt")) == (4, 14)
    assert document.position(("networks", "cp1", "rtt"), key=True) == (4, 9)
    assert document.position(("networks", "cp2", 1)) == (7, 7)
    assert document.position(()) == (2, 1)


def test_what_is_not_there_is_placed_at_the_key_around_it() -> None:
    document = parse_document("a:\n  b:\n    c: 1\n")
    assert document.position(("a", "b", "x")) == (2, 3)
    assert document.position(("a", "b", "c", "d", 3)) == (3, 5)
    assert document.position(("x",)) == (1, 1)
    assert document_of({"a": 1}).position(("a",)) is None


def test_an_empty_value_stands_at_its_key() -> None:
    assert parse_document("a:\n  b:\n\n\nc: 1").position(("a", "b")) == (2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.yaml:1:1: says nothing (`simnmt init` writes a scenario to begin with)"),
        ("# only\n", "s.yaml:1:1: says nothing (`simnmt init` writes a scenario to begin with)"),
        ("- 1", "s.yaml:1:1: expected keys and values, got a list (write lines such as `seed: 1`)"),
        ("a: @cp1", "s.yaml:1:4: a value cannot begin with '@' (put it in quotes)"),
        ("a:\n\tb: 1", "s.yaml:2:1: a tab indents this line (use spaces)"),
        ("a: 1\n\tb: 1", "s.yaml:2:1: a tab indents this line (use spaces)"),
        ("a: 1\nb\nc: 2", "s.yaml:2:1: a line without ': ' (write `key: value`)"),
        ("a: [1", "s.yaml:1:4: a '[' is not closed (close it, part its items by ',')"),
        ("a: 'x", "s.yaml:1:4: a quote is not closed (close it)"),
        ("x:\n  b: 1\n  c: 2\n  b: 3", "s.yaml:4:3: x.b: given twice, first in line 2 (keep one)"),
        ("x: [{a: 1}, {b: 1, b: 2}]", "s.yaml:1:20: x.1.b: given twice, first in line 1 (keep one)"),
        ("a: &x 1", "s.yaml:1:4: anchors and aliases (&x) are not read (write the value out)"),
        ("a: *x", "s.yaml:1:4: anchors and aliases (*x) are not read (write the value out)"),
        ("a: !foo 1", "s.yaml:1:4: tags (!foo) are not read (remove the tag)"),
        ("a: 1\n---\nb: 1", "s.yaml:2:1: a second document begins (keep one document in a file)"),
        ("%YAML 1.1\n---\na: 1", "s.yaml:1:1: scenarios are YAML 1.2 (remove the %YAML line)"),
        ("1: 2", 's.yaml:1:1: key 1 is no text (write "1")'),
        ("a: {: 2}", "s.yaml:1:6: an empty key (name it)"),
        ("? [a]\n: 1", "s.yaml:1:3: a mapping or list cannot be a key (quote a text that begins with a bracket)"),
        ("a: .nan", "s.yaml:1:4: .nan is no finite number (leave the key out where nothing limits it)"),
        ("b: {longest_wait_ms: .inf}", "s.yaml:1:22: .inf is no finite number (write null where nothing limits it)"),
        ("a: 1e999", "s.yaml:1:4: 1e999 is too large a number (stay below 1e308)"),
        ("a: " + "9" * 5000, "s.yaml:1:4: a whole number of 5000 digits (use 64 at most)"),
        ("b: 1\na: \x00", "s.yaml:2:4: character U+0000 is no part of a text (is this a YAML file?)"),
        ('a: "\\0"', "s.yaml:1:4: character U+0000 is no part of a text (leave it out)"),
        ('a: "\\ud800"', "s.yaml:1:4: character U+D800 is no part of a text (leave it out)"),
        ("k" * 200 + ": 1", "s.yaml:1:1: a key of 200 characters (keep keys within 128)"),
    ],
)
def test_a_fault_of_form_has_its_place_and_remedy(text: str, message: str) -> None:
    assert complaint(text) == message


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "- " * 100_000, "a: " + "{a: " * 50_000, "? " * 50_000])
def test_depth_is_refused_before_anything_overflows(text: str) -> None:
    assert f"nested deeper than {MAX_DEPTH}" in complaint(text) or "cannot be a key" in complaint(text)


def test_files_that_are_none(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(ScenarioError) as caught:
            read_document(path)
        return str(caught.value).removeprefix(str(path))

    assert refused(tmp_path / "no.yaml") == ": no such file (`simnmt init` writes a scenario to begin with)"
    assert refused(tmp_path) == ": is a folder, not a scenario file (name the YAML file in it)"
    file = tmp_path / "s.yaml"
    file.write_bytes(b"a: 1\nb: \xc3\xa9\xff")
    assert refused(file) == ":2:5: byte 0xff is no UTF-8 text (save the file as UTF-8)"
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    assert refused(file) == ": larger than 262,144 bytes, so no scenario (name a scenario file)"
    with pytest.raises(ScenarioError, match=r"cannot be read"):
        read_document("a\0b")
    file.chmod(0)
    if not os.access(file, os.R_OK):
        assert refused(file) == ": may not be read (check the file's permissions)"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_document(file).data == {"a": 1, "b": 2}


def test_data_of_a_notebook_becomes_plain() -> None:
    import numpy as np

    document = document_of({"a": np.int64(3), "b": np.float32(0.5), "c": (1, Path("x/y")), "d": {"e": None}})
    assert typed(document.data) == typed({"a": 3, "b": 0.5, "c": [1, "x/y"], "d": {"e": None}})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": [1, {2: 3}]}, "a.1: key 2 is no text"),
        ({"a": float("nan")}, "a: nan is no finite number"),
        ({"a": "x\0"}, "a: 'x\\x00' holds a control character"),
        ({"a": {1, 2}}, "a: a set is no text, number, mapping or list"),
    ],
)
def test_data_that_no_file_could_say_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        document_of(data)
    assert str(caught.value) == message


def test_data_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    with pytest.raises(ScenarioError, match=f"nested deeper than {MAX_DEPTH}"):
        document_of(loop)


def test_a_resolved_scenario_is_written_in_block_style() -> None:
    data = {"version": 1, "rtt": "@cp1", "no": "no", "empty": {}, "list": [{"a": 0.1, "b": [1, []]}, "x y"], "none": None}
    assert write_document(data) == (
        'version: 1\nrtt: "@cp1"\n"no": "no"\n'
        "empty: {}\nlist:\n  - a: 0.1\n    b:\n      - 1\n      - []\n  - x y\nnone: null\n"
    )


def test_a_location_is_shown_as_set_would_take_it() -> None:
    assert format_location(("networks", "cp-1", "a.b", 3, "x y", "")) == 'networks.cp-1."a.b".3."x y".""'
