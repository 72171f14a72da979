"""A value that remembers where it stands."""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.wording import Location, dotted, shown

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
        text = f"{dotted(location)}: {what}" if location else what
        return ScenarioError(text, override=override)

    if len(location) > MAX_DEPTH:
        raise ScenarioError(f"nested deeper than {MAX_DEPTH} levels", override=override)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, Mapping):
        entries: dict[str, Node] = {}
        for key, below in value.items():
            if not isinstance(key, str):
                raise fault(f"key {shown(key)} is no text")
            if len(key) > MAX_KEY or UNPRINTABLE.search(key):
                raise fault(f"{shown(key)} cannot be a key")
            entries[str.__str__(key)] = node_of(below, override=override, location=(*location, key))
        return Node(entries, override=override)
    if isinstance(value, (list, tuple)):
        items = [node_of(below, override=override, location=(*location, index)) for index, below in enumerate(value)]
        return Node(items, override=override)
    if value is None or isinstance(value, bool):
        return Node(value, override=override)
    if isinstance(value, str):
        if UNPRINTABLE.search(value):
            raise fault(f"{shown(value)} holds a control character")
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
