"""Read YAML 1.2 in its core schema into nodes with their line and column, and write it.

`no` and `10:30` are texts, `1e5` is a float. Constructs that a scenario never needs are refused with their place: duplicate
keys, anchors, tags, several documents, keys that are not texts, numbers that are not finite. ruamel.yaml supplies only the
parser's events, so neither its constructors nor the depth of the input decide anything here.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simnmt.base.errors import name_of_path, printable
from simnmt.base.extension import OBJECT, of_object
from simnmt.scenario.errors import Location, ScenarioError, format_location, format_value, quote_text

Scalar = str | int | float | bool | None

MAX_DEPTH = 40
MAX_KEY = 128
"""Most characters of a key: YAML allows 1,024 on one line, escapes included."""
MAX_DIGITS = 64
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML does not allow in a text."""


Place = tuple[int, int]
"""Line and column in a file, from 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """An object of Python that no file can express, in a place where an extension may stand."""

    value: Any

    def __repr__(self) -> str:
        """Return its class, for messages."""
        return f"a {type(self.value).__name__} object"


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place."""

    content: dict[str, Node] | list[Node] | Scalar | Held
    place: Place | None = None
    """Place of the value; None if it comes from no file."""
    key_place: Place | None = None
    """Place of the value's key; in a list, that of the value itself."""
    text: str | None = None
    """A number or word as it was written (`1e5`); None for quoted texts and for mappings and lists."""
    override: str | None = None
    """The option that set this value in place of the file's."""

    def plain(self) -> Any:
        """Return the value as dict, list, str, int, float, bool or None; a fresh copy. An object is the name of its class."""
        if isinstance(self.content, dict):
            return {key: node.plain() for key, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        if isinstance(self.content, Held):
            return {OBJECT: of_object(self.content.value).label}
        return self.content

    def child(self, part: str | int) -> Node | None:
        """Return the node under a key or an index; None if there is none."""
        if isinstance(self.content, dict):
            return self.content.get(part) if isinstance(part, str) else None
        if isinstance(self.content, list) and isinstance(part, int) and 0 <= part < len(self.content):
            return self.content[part]
        return None


Holds = Callable[[Location, object], bool]
"""Returns whether a value at a location is kept as an object."""


def no_object(location: Location, value: object) -> bool:
    """Return False: no object is kept."""
    return False


def node_of(value: object, *, override: str | None = None, location: Location = (), holds: Holds = no_object) -> Node:
    """Return the node of plain data (`document_of`)."""

    def fault(what: str) -> ScenarioError:
        text = f"{format_location(location)}: {what}" if location else what
        return ScenarioError(text, override=override)

    if len(location) > MAX_DEPTH:
        raise ScenarioError(f"nested deeper than {MAX_DEPTH} levels", override=override)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if holds(location, value):
        return Node(Held(value), override=override)
    if isinstance(value, Mapping):
        entries: dict[str, Node] = {}
        for key, below in value.items():
            if not isinstance(key, str):
                raise fault(f"key {format_value(key)} is no text")
            if len(key) > MAX_KEY or UNPRINTABLE.search(key):
                raise fault(f"{format_value(key)} cannot be a key")
            entries[str.__str__(key)] = node_of(below, override=override, location=(*location, key), holds=holds)
        return Node(entries, override=override)
    if isinstance(value, (list, tuple)):
        items = [
            node_of(below, override=override, location=(*location, index), holds=holds) for index, below in enumerate(value)
        ]
        return Node(items, override=override)
    if value is None or isinstance(value, bool):
        return Node(value, override=override)
    if isinstance(value, str):
        if UNPRINTABLE.search(value):
            raise fault(f"{format_value(value)} holds a control character")
        return Node(str.__str__(value), override=override)
    if isinstance(value, numbers.Integral):
        if abs(int(value)) >= 10**MAX_DIGITS:
            raise fault(f"a whole number of more than {MAX_DIGITS} digits")
        return Node(int(value), override=override)
    if isinstance(value, numbers.Real):
        if not math.isfinite(value):
            raise fault(f"{float(value)} is no finite number")
        return Node(float(value), override=override)
    raise fault(f"a {type(value).__name__} is no text, number, mapping or list")


_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
}
_YAML_1_1_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
"""Texts that older readers take for booleans; the writer quotes them."""
_NULL_IS_ENDLESS = frozenset({"longest_wait_ms"})
"""Keys whose null means no limit, while their absence means another value."""
_INDENTING_TAB = re.compile(r"^ *\t[ \t]*[^\s#]", re.MULTILINE)
_PLAIN_TEXT = re.compile(r"[A-Za-z_/][A-Za-z0-9_./%+-]*( [A-Za-z0-9_./%+(][A-Za-z0-9_./%+()-]*)*")


def parse_node(text: str, path: str | None = None, *, override: str | None = None, key: str | None = None) -> Node | None:
    """Return the one value of a YAML text, None if it has none; `key`: the key of the value. Raises `ScenarioError`."""
    text = text.removeprefix("\ufeff")
    try:
        if odd := UNPRINTABLE.search(text):
            what = f"character U+{ord(odd[0]):04X} is no part of a text"
            raise _fault(what, place_of(text, odd.start()), "is this a YAML file?")
        if tab := _INDENTING_TAB.search(text):
            raise _fault("a tab indents this line", place_of(text, tab.start() + tab[0].index("\t")), "use spaces")
        return _build(_events(text), override, key)
    except ScenarioError as error:
        error.path, error.override = None if path is None else name_of_path(path), override
        if override:
            error.line = error.column = None
        raise


def _fault(what: str, place: Place, remedy: str | None = None) -> ScenarioError:
    return ScenarioError(what, line=place[0], column=place[1], remedy=remedy)


def _place(mark: Any) -> Place:
    return mark.line + 1, mark.column + 1


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML

    place = (1, 1)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            place = _place(event.end_mark)
            yield event
    except Exception as error:  # ruamel lets AssertionError, OverflowError and others out beside its own
        raise _syntax_fault(error, text, place) from None


_SYNTAX: dict[str, tuple[str, str, str]] = {
    "cannot start any token": ("a value cannot begin with {character}", "put it in quotes", "problem_mark"),
    "mapping values are not allowed": (
        "this ':' does not fit here",
        "align the keys of a mapping, put a space after each ':', quote a text that holds ': '",
        "problem_mark",
    ),
    "could not find expected ':'": ("a line without ': '", "write `key: value`", "context_mark"),
    "expected <block end>": ("out of line with the keys above", "align the keys of a mapping", "problem_mark"),
    "<document start>": ("out of line with the keys above", "align the keys of a mapping", "problem_mark"),
    "unexpected end of stream": ("a quote is not closed", "close it", "context_mark"),
    "expected ',' or '}'": ("a '{' is not closed", "close it, part its entries by ','", "context_mark"),
    "expected ',' or ']'": ("a '[' is not closed", "close it, part its items by ','", "context_mark"),
}
"""By a part of the parser's message: our message, the remedy, and the mark of the parser's error that has the place."""


def _syntax_fault(error: Exception, text: str, place: Place) -> ScenarioError:
    """Return the error in our words; `place`: where the last event ended, if the parser gives no place."""
    problem = str(getattr(error, "problem", None) or error or type(error).__name__)
    unknown = f"no YAML: {printable(' '.join(problem.split()))}", "see https://yaml.org/spec/1.2.2/", "problem_mark"
    what, remedy, mark_name = next((fault for part, fault in _SYNTAX.items() if part in problem), unknown)
    mark = getattr(error, mark_name, None) or getattr(error, "problem_mark", None)
    if mark is not None:
        place = _place(mark)
        character = text[mark.index : mark.index + 1]
        if character == "\t":
            return _fault("a tab where only spaces may stand", place, "use spaces")
        what = what.replace("{character}", format_value(character))
    return _fault(what, place, remedy)


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been read yet."""

    content: dict[str, Node] | list[Node]
    place: Place
    key: tuple[str, Place] | None = None
    """The key without a value yet, with its place."""

    @property
    def awaits_key(self) -> bool:
        return isinstance(self.content, dict) and self.key is None

    def add(self, node: Node) -> None:
        """Add the next item, or the value of the last key."""
        if isinstance(self.content, list):
            self.content.append(node)
        elif self.key is not None:
            key, place = self.key
            self.content[key] = node if node.override else replace(node, key_place=place)
            self.key = None


def _build(events: Iterable[Any], override: str | None, of_key: str | None) -> Node | None:
    """Build the tree without recursion, so that deeply nested input is refused before anything can overflow."""
    stack: list[_Open] = []
    root: Node | None = None
    for event in events:
        kind = type(event).__name__.removesuffix("Event")
        place = _place(event.start_mark)
        _refuse_unsupported(event, kind, place, second=root is not None)
        if kind in ("MappingStart", "SequenceStart"):
            if stack and stack[-1].awaits_key:
                raise _fault("a mapping or list cannot be a key", place, "quote a text that begins with a bracket")
            if len(stack) >= MAX_DEPTH:
                raise _fault(f"nested deeper than {MAX_DEPTH} levels", place, "a scenario needs a few")
            if override and not event.flow_style:
                raise _fault("a value over several keys or items", place, "write {key: value} or [item, item]")
            stack.append(_Open({} if kind == "MappingStart" else [], place))
            continue
        if kind == "Scalar":
            waiting = stack[-1].key if stack else None
            value = _scalar(event, place, waiting[0] if waiting else None if stack else of_key)
            if stack and stack[-1].awaits_key:
                stack[-1].key = _checked_key(value, event.value, stack, place), place
                continue
            if event.value == "" and not event.style and waiting is not None:
                place = waiting[1]  # the parser places an empty value at the next token
            node = Node(value, place, place, None if event.style else event.value)
        elif kind in ("MappingEnd", "SequenceEnd"):
            done = stack.pop()
            node = Node(done.content, done.place, done.place)
        else:
            continue
        if override:
            node = Node(node.content, text=node.text, override=override)
        if stack:
            stack[-1].add(node)
        else:
            root = node
    return root


def _refuse_unsupported(event: Any, kind: str, place: Place, *, second: bool) -> None:
    """Refuse the constructs of YAML that a scenario does not need; `second`: a document precedes this event."""
    if kind == "DocumentStart":
        if second:
            raise _fault("a second document begins", place, "keep one document in a file")
        if event.version is not None and tuple(event.version) != (1, 2):
            raise _fault("scenarios are YAML 1.2", (1, 1), "remove the %YAML line")
    if kind == "Alias" or getattr(event, "anchor", None) is not None:
        mark = "*" if kind == "Alias" else "&"
        raise _fault(f"anchors and aliases ({mark}{event.anchor}) are not read", place, "write the value out")
    if getattr(event, "tag", None) is not None:
        raise _fault(f"tags ({printable(str(event.tag))}) are not read", place, "remove the tag")


def _checked_key(value: Scalar, written: str, stack: list[_Open], place: Place) -> str:
    if not isinstance(value, str):
        what = f"key {written} is no text" if written else "an empty key"
        raise _fault(what, place, f'write "{written}"' if written else "name it")
    if len(value) > MAX_KEY:
        raise _fault(f"a key of {len(value)} characters", place, f"keep keys within {MAX_KEY}")
    content = stack[-1].content
    if isinstance(content, dict) and value in content:
        around = [part.key[0] if part.key else len(part.content) for part in stack[:-1]]
        first = content[value].key_place
        in_line = "" if first is None else f", first in line {first[0]}"
        raise _fault(f"{format_location((*around, value))}: given twice{in_line}", place, "keep one")
    return value


def _scalar(event: Any, place: Place, key: str | None) -> Scalar:
    text: str = event.value
    if odd := UNPRINTABLE.search(text):
        raise _fault(f"character U+{ord(odd[0]):04X} is no part of a text", place, "leave it out")
    if event.style:  # quoted, or a block: always a text
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        remedy = "write null" if key in _NULL_IS_ENDLESS else "leave the key out"
        raise _fault(f"{text} is no finite number", place, f"{remedy} where nothing limits it")
    if _INTEGER.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise _fault(f"a whole number of {len(text)} digits", place, f"use {MAX_DIGITS} at most")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise _fault(f"{printable(text[:40])} is too large a number", place, "stay below 1e308")
        return number
    return text


def place_of(text: str, index: int) -> Place:
    """Return the line and column of a character."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def write_document(data: Mapping[str, object]) -> str:
    """Return the data as YAML in block style, in the order given; `read_document` reads it back.

    The same data gives the same bytes. Raises `ScenarioError` for values that no file can express.
    """
    return "\n".join(_lines(node_of(data).plain())) + "\n"


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
    if isinstance(value, (dict, list)):
        return ["{}" if isinstance(value, dict) else "[]"]
    if isinstance(value, str):
        return [_text(value)]
    return [json.dumps(value) if value is None or isinstance(value, bool) else repr(value)]


def _text(text: str) -> str:
    plain = _PLAIN_TEXT.fullmatch(text) and text not in _WORDS and text.lower() not in _YAML_1_1_WORDS
    return text if plain else quote_text(text)
