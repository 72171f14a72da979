"""YAML 1.2 in its core schema: a reader into nodes that know their line and column, and a writer.

`no` and `10:30` are texts, `1e5` is a float. What a scenario never needs is refused with its place: duplicate keys, anchors,
tags, several documents, keys that are not texts, numbers that are not finite. ruamel.yaml supplies only the parser's events,
so neither its constructors nor the depth of the input decide anything here.
"""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simnmt.base.errors import printable
from simnmt.scenario.errors import Location, ScenarioError, format_location, format_value, quote_text

Scalar = str | int | float | bool | None

MAX_DEPTH = 40
MAX_KEY = 128
"""Characters of a key: YAML allows 1,024 on one line, escapes included."""
MAX_DIGITS = 64
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What YAML does not allow in a text."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands."""

    content: dict[str, Node] | list[Node] | Scalar
    line: int | None = None
    """1 for the first line; None where the value comes from no file."""
    column: int | None = None
    key_line: int | None = None
    """Where the key stands under which the value lies; the value's own place in a list."""
    key_column: int | None = None
    text: str | None = None
    """A number or word as it was written (`1e5`); None for quoted texts and for mappings and lists."""
    override: str | None = None
    """The option that set this value in place of the file's."""

    def plain(self) -> Any:
        """The value as dict, list, str, int, float, bool or None; a fresh copy."""
        if isinstance(self.content, dict):
            return {key: node.plain() for key, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        return self.content

    def child(self, part: str | int) -> Node | None:
        """The node under a key or an index; None where there is none."""
        if isinstance(self.content, dict):
            return self.content.get(part) if isinstance(part, str) else None
        if isinstance(self.content, list) and isinstance(part, int) and 0 <= part < len(self.content):
            return self.content[part]
        return None


def node_of(value: object, *, override: str | None = None, location: Location = ()) -> Node:
    """A node of plain data; see `document_of`."""

    def fault(what: str) -> ScenarioError:
        text = f"{format_location(location)}: {what}" if location else what
        return ScenarioError(text, override=override)

    if len(location) > MAX_DEPTH:
        raise ScenarioError(f"nested deeper than {MAX_DEPTH} levels", override=override)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, Mapping):
        entries: dict[str, Node] = {}
        for key, below in value.items():
            if not isinstance(key, str):
                raise fault(f"key {format_value(key)} is no text")
            if len(key) > MAX_KEY or UNPRINTABLE.search(key):
                raise fault(f"{format_value(key)} cannot be a key")
            entries[str.__str__(key)] = node_of(below, override=override, location=(*location, key))
        return Node(entries, override=override)
    if isinstance(value, (list, tuple)):
        items = [node_of(below, override=override, location=(*location, index)) for index, below in enumerate(value)]
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
"""Keys whose null means no limit, while leaving them out means another value."""
_INDENTING_TAB = re.compile(r"^ *\t[ \t]*[^\s#]", re.MULTILINE)
_PLAIN_TEXT = re.compile(r"[A-Za-z_/][A-Za-z0-9_./%+-]*( [A-Za-z0-9_./%+(][A-Za-z0-9_./%+()-]*)*")


class _Fault(Exception):
    """A fault of the form, on its way to become a `ScenarioError`."""

    def __init__(self, what: str, line: int, column: int, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what, self.line, self.column, self.remedy = what, line, column, remedy


def parse_node(text: str, path: str | None = None, *, override: str | None = None, key: str | None = None) -> Node | None:
    """The one value of a YAML text, None where it holds nothing; `key`: whose value it is. Raises `ScenarioError`."""
    text = text.removeprefix("\ufeff")
    try:
        _refuse_odd_characters(text)
        return _build(_events(text), override, key)
    except _Fault as fault:
        line, column = (None, None) if override else (fault.line, fault.column)
        raise ScenarioError(fault.what, path=path, line=line, column=column, remedy=fault.remedy, override=override) from None


def _refuse_odd_characters(text: str) -> None:
    if odd := UNPRINTABLE.search(text):
        raise _Fault(
            f"character U+{ord(odd[0]):04X} is no part of a text",
            *place_of(text, odd.start()),
            "is this a YAML file?",
        )
    if tab := _INDENTING_TAB.search(text):
        raise _Fault("a tab indents this line", *place_of(text, tab.start() + tab[0].index("\t")), "use spaces")


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML

    line, column = 1, 1
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            line, column = event.end_mark.line + 1, event.end_mark.column + 1
            yield event
    except Exception as error:  # ruamel lets AssertionError, OverflowError and others out beside its own
        raise _syntax_fault(error, text, line, column) from None


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
"""By a part of the parser's message: what to say, the remedy, and which of its two places to name."""


def _syntax_fault(error: Exception, text: str, line: int, column: int) -> _Fault:
    problem = str(getattr(error, "problem", None) or error or type(error).__name__)
    unknown = f"no YAML: {printable(' '.join(problem.split()))}", "see https://yaml.org/spec/1.2.2/", "problem_mark"
    what, remedy, place = next((fault for part, fault in _SYNTAX.items() if part in problem), unknown)
    mark = getattr(error, place, None) or getattr(error, "problem_mark", None)
    if mark is not None:
        line, column = mark.line + 1, mark.column + 1
        character = text[mark.index : mark.index + 1]
        if character == "\t":
            return _Fault("a tab where only spaces may stand", line, column, "use spaces")
        what = what.replace("{character}", format_value(character))
    return _Fault(what, line, column, remedy)


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not come yet."""

    content: dict[str, Node] | list[Node]
    line: int
    column: int
    key: tuple[str, int, int] | None = None
    """The key that waits for its value, with its place."""

    @property
    def awaits_key(self) -> bool:
        """Whether what comes next is a key."""
        return isinstance(self.content, dict) and self.key is None

    def add(self, node: Node) -> None:
        """Take the next item, or the value of the key that waits."""
        if isinstance(self.content, list):
            self.content.append(node)
        elif self.key is not None:
            key, line, column = self.key
            self.content[key] = node if node.override else replace(node, key_line=line, key_column=column)
            self.key = None


def _build(events: Iterable[Any], override: str | None, of_key: str | None) -> Node | None:
    """Build the tree without recursion: what is nested too deep is refused before anything can overflow."""
    stack: list[_Open] = []
    root: Node | None = None
    for event in events:
        kind = type(event).__name__.removesuffix("Event")
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        _refuse_unsupported(event, kind, line, column, second=root is not None)
        if kind in ("MappingStart", "SequenceStart"):
            if stack and stack[-1].awaits_key:
                raise _Fault("a mapping or list cannot be a key", line, column, "quote a text that begins with a bracket")
            if len(stack) >= MAX_DEPTH:
                raise _Fault(f"nested deeper than {MAX_DEPTH} levels", line, column, "a scenario needs a few")
            if override and not event.flow_style:
                raise _Fault("a value over several keys or items", line, column, "write {key: value} or [item, item]")
            stack.append(_Open({} if kind == "MappingStart" else [], line, column))
            continue
        if kind == "Scalar":
            waiting = stack[-1].key if stack else None
            value = _scalar(event, line, column, waiting[0] if waiting else None if stack else of_key)
            if stack and stack[-1].awaits_key:
                stack[-1].key = _checked_key(value, event.value, stack, line, column), line, column
                continue
            if event.value == "" and _is_plain(event) and stack and stack[-1].key is not None:
                _, line, column = stack[-1].key  # the parser places an empty value at the next token
            node = Node(value, line, column, line, column, event.value if _is_plain(event) else None)
        elif kind in ("MappingEnd", "SequenceEnd"):
            done = stack.pop()
            node = Node(done.content, done.line, done.column, done.line, done.column)
        else:
            continue
        if override:
            node = Node(node.content, text=node.text, override=override)
        if stack:
            stack[-1].add(node)
        else:
            root = node
    return root


def _refuse_unsupported(event: Any, kind: str, line: int, column: int, *, second: bool) -> None:
    """Refuse what YAML has and a scenario does not; `second`: whether a document stands before this event."""
    if kind == "DocumentStart":
        if second:
            raise _Fault("a second document begins", line, column, "keep one document in a file")
        if event.version is not None and tuple(event.version) != (1, 2):
            raise _Fault("scenarios are YAML 1.2", 1, 1, "remove the %YAML line")
    if kind == "Alias" or getattr(event, "anchor", None) is not None:
        mark = "*" if kind == "Alias" else "&"
        raise _Fault(f"anchors and aliases ({mark}{event.anchor}) are not read", line, column, "write the value out")
    if getattr(event, "tag", None) is not None:
        raise _Fault(f"tags ({printable(str(event.tag))}) are not read", line, column, "remove the tag")


def _is_plain(event: Any) -> bool:
    """Whether a scalar stands there without quotes and not as a block: only then may it be a number or a
    word."""
    return not event.style


def _checked_key(value: Scalar, written: str, stack: list[_Open], line: int, column: int) -> str:
    if not isinstance(value, str):
        what = f"key {written} is no text" if written else "an empty key"
        raise _Fault(what, line, column, f'write "{written}"' if written else "name it")
    if len(value) > MAX_KEY:
        raise _Fault(f"a key of {len(value)} characters", line, column, f"keep keys within {MAX_KEY}")
    content = stack[-1].content
    if isinstance(content, dict) and value in content:
        around = [part.key[0] if part.key else len(part.content) for part in stack[:-1]]
        first = content[value].key_line
        place = "" if first is None else f", first in line {first}"
        raise _Fault(f"{format_location((*around, value))}: given twice{place}", line, column, "keep one")
    return value


def _scalar(event: Any, line: int, column: int, key: str | None) -> Scalar:
    text: str = event.value
    if odd := UNPRINTABLE.search(text):
        raise _Fault(f"character U+{ord(odd[0]):04X} is no part of a text", line, column, "leave it out")
    if not _is_plain(event):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        remedy = "write null" if key in _NULL_IS_ENDLESS else "leave the key out"
        raise _Fault(f"{text} is no finite number", line, column, f"{remedy} where nothing limits it")
    if _INTEGER.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise _Fault(f"a whole number of {len(text)} digits", line, column, f"use {MAX_DIGITS} at most")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise _Fault(f"{printable(text[:40])} is too large a number", line, column, "stay below 1e308")
        return number
    return text


def place_of(text: str, index: int) -> tuple[int, int]:
    """(line, column), from 1, of a character."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def write_document(data: Mapping[str, object]) -> str:
    """The data as YAML in block style, in the order given; `read_document` reads it back.

    The same data gives the same bytes. Raises `ScenarioError` for what no file could say.
    """
    content = node_of(data).plain()
    return "\n".join(_lines(content)) + "\n"


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
        return [("- " if first else "  ") + line for below in value for first, line in _with_first_flag(_lines(below))]
    if isinstance(value, (dict, list)):
        return ["{}" if isinstance(value, dict) else "[]"]
    if isinstance(value, str):
        return [_text(value)]
    if value is None or isinstance(value, bool):
        return [{None: "null", True: "true", False: "false"}[value]]
    return [repr(value)]


def _with_first_flag(lines: list[str]) -> Iterator[tuple[bool, str]]:
    return ((index == 0, line) for index, line in enumerate(lines))


def _text(text: str) -> str:
    plain = _PLAIN_TEXT.fullmatch(text) and text not in _WORDS and text.lower() not in _YAML_1_1_WORDS
    return text if plain else quote_text(text)
