"""Read YAML 1.2 in its core schema into plain data and the place of every value in the text, and write it.

`no` and `10:30` are texts, `1e5` is a float, and every key is a text. Constructs that a scenario never needs are refused:
duplicate keys, anchors, tags, several documents. ruamel.yaml supplies the nodes with their places and constructs no object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from simnmt.base.errors import name_of_path
from simnmt.scenario.errors import Location, ScenarioError, format_location, quote_text

MAX_DEPTH = 40
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML does not allow in a text."""
_SHIPPED_TAG = re.compile(r"tag:yaml\.org,2002:\w+|!?")
_INTEGER = re.compile(r"[-+]?[0-9]{1,64}|0o[0-7]{1,64}|0x[0-9a-fA-F]{1,64}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
}
_YAML_1_1_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
"""Texts that older readers take for booleans; the writer quotes them."""
_PLAIN_TEXT = re.compile(r"[A-Za-z_/][A-Za-z0-9_./%+-]*( [A-Za-z0-9_./%+(][A-Za-z0-9_./%+()-]*)*")

Place = tuple[int, int]
"""Line and column in a file, from 1."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a value comes from."""

    place: Place | None = None
    """Place of the value; None if it comes from no file."""
    key_place: Place | None = None
    """Place of the value's key; in a list, that of the value itself."""
    text: str | None = None
    """A number or word as it was written (`1e5`); None for quoted texts and for mappings and lists."""
    override: str | None = None
    """The option that set this value in place of the file's."""


Marks = Mapping[Location, Mark]
"""The marks of values by their locations."""


def parse_yaml(text: str, path: str | None = None, *, option: str | None = None) -> tuple[Any, Marks]:
    """Return the one value of a YAML text and its marks, which are empty for a text without a value.

    Errors name `path` with line and column, or the `option`. Raises `ScenarioError`.
    """
    from ruamel.yaml import YAML

    text, marks = text.removeprefix("\ufeff"), dict[Location, Mark]()
    try:
        if odd := UNPRINTABLE.search(text):
            raise _fault(f"character U+{ord(odd[0]):04X} is no part of a text", place_of(text, odd.start()))
        node = YAML(typ="safe", pure=True).compose(text)
        return None if node is None else _value(node, (), marks), marks
    except ScenarioError as error:
        error.path = option or (None if path is None else name_of_path(path))
        if option:
            error.line = error.column = None
        raise
    except Exception as error:  # ruamel lets AssertionError, OverflowError and others out beside its own
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        what = " ".join(str(getattr(error, "problem", None) or error or type(error).__name__).split())
        line, column = (None, None) if option else (1, 1) if mark is None else _place(mark)
        remedy = "indent with spaces" if "'\\t'" in what else None
        raise ScenarioError(f"no YAML: {what}", path=option or path, line=line, column=column, remedy=remedy) from None


def _fault(what: str, place: Place, remedy: str | None = None) -> ScenarioError:
    return ScenarioError(what, line=place[0], column=place[1], remedy=remedy)


def _place(mark: Any) -> Place:
    return mark.line + 1, mark.column + 1


def _value(node: Any, location: Location, marks: dict[Location, Mark]) -> Any:
    from ruamel.yaml.nodes import ScalarNode, SequenceNode

    place = _place(node.start_mark)
    if node.anchor is not None:
        raise _fault("anchors and aliases are not read", place, "write the value out")
    if not _SHIPPED_TAG.fullmatch(node.tag):
        raise _fault("tags are not read", place, "remove the tag")
    if len(location) > MAX_DEPTH:
        raise _fault(f"nested deeper than {MAX_DEPTH} levels", place)
    marks[location] = Mark(place, place)
    if isinstance(node, SequenceNode):
        return [_value(item, (*location, at), marks) for at, item in enumerate(node.value)]
    if isinstance(node, ScalarNode):
        if UNPRINTABLE.search(node.value):
            raise _fault("an escape stands for a character that is no part of a text", place)
        if node.style:  # quoted, or a block: always a text
            return node.value
        marks[location] = Mark(place, place, node.value)
        return _scalar(node.value)
    content: dict[str, Any] = {}
    for key_node, below in node.value:
        key_place = _place(key_node.start_mark)
        if not isinstance(key_node, ScalarNode):
            raise _fault("only a text can be a key", key_place)
        key = (*location, str(key_node.value))
        _value(key_node, key, marks)  # checks it
        if key_node.value in content:
            raise _fault(f"{format_location(key)}: given twice", key_place, "keep one")
        content[key_node.value] = _value(below, key, marks)
        mark = marks[key]
        # The parser places an empty value at the next token.
        marks[key] = replace(mark, place=key_place if mark.text == "" else mark.place, key_place=key_place)
    return content


def _scalar(text: str) -> str | int | float | bool | None:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text) if _FLOAT.fullmatch(text) else text


def place_of(text: str, index: int) -> Place:
    """Return the line and column of a character."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def write_document(data: Mapping[str, object]) -> str:
    """Return plain data as YAML in block style, in the order given; the same data gives the same bytes."""
    return "\n".join(_lines(data)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        lines = []
        for key, below in value.items():
            inner = _lines(below)
            if isinstance(below, (dict, list)) and below:
                lines += [f"{_text(key)}:", *(f"  {line}" for line in inner)]
            else:
                lines.append(f"{_text(key)}: {inner[0]}")
        return lines
    if isinstance(value, list) and value:
        return [("  " if number else "- ") + line for below in value for number, line in enumerate(_lines(below))]
    return [_text(value) if isinstance(value, str) else json.dumps(value)]


def _text(text: str) -> str:
    plain = _PLAIN_TEXT.fullmatch(text) and text not in _WORDS and text.lower() not in _YAML_1_1_WORDS
    return text if plain else quote_text(text)
