"""Keys of a scenario with several values: what a sweep runs and what a plan chooses among, in one notation.

A varied key is an override of the scenario (`--set KEY=VALUE`) with several values: `KEY=V1,V2,...`, `KEY=FROM:TO:N` (N evenly
spaced numbers, both ends included) or `KEY=FROM:TO` (a span: all whole numbers between whole ends).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite
from typing import Any

from simnmt.base.errors import printable, shorten
from simnmt.base.suggestions import format_list
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Override, parse_key
from simnmt.scenario.errors import ScenarioError, format_location, format_value
from simnmt.scenario.yaml_text import Node

MOST_VALUES = 100_000
"""Most values of a key."""
_MOST_LABEL = 100
_DIGITS = 15
"""Significant digits of the values between two ends: 0.3, not 0.30000000000000004."""
_FORMS = "write KEY=V1,V2, KEY=FROM:TO:N or KEY=FROM:TO"


@dataclass(frozen=True, slots=True)
class Span:
    """All numbers between two ends; ends that are whole numbers are of type int."""

    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        """Whether both ends are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def numbers(self, count: int) -> list[float]:
        """Return evenly spaced numbers, both ends included; whole ones between whole ends are of type int."""
        # Binary fractions would put 0.1 + 2 * 0.1 beside 0.3, and floats have no whole numbers above 2**53 but even ones.
        low, high = (Fraction(str(end)) for end in (self.low, self.high))
        exact = [low + (high - low) * at / (count - 1) for at in range(count)]
        whole = self.is_whole
        return [int(number) if whole and number.denominator == 1 else self._rounded(float(number)) for number in exact]

    def _rounded(self, number: float) -> float:
        return float(min(max(float(f"{number:.{_DIGITS}g}"), self.low), self.high))

    def __str__(self) -> str:
        return f"{_format_end(self.low)} to {_format_end(self.high)}"


def _format_end(number: float) -> str:
    return shorten(str(number)) if isinstance(number, int) else f"{number:.{_DIGITS}g}"


@dataclass(frozen=True, slots=True)
class VariedKey:
    """A key of the scenario with the values that it is given."""

    location: tuple[str, ...]
    label: str
    """The option, or the place in the sweep file, that errors name."""
    values: tuple[Node, ...]
    """Listed values; empty for a span."""
    span: Span | None = None

    @property
    def name(self) -> str:
        """The key as a user writes it, joined by dots."""
        return format_location(self.location)

    @property
    def overrides(self) -> tuple[Override, ...]:
        """One for each listed value."""
        return tuple(map(self.override, self.values))

    def override(self, value: Node) -> Override:
        """Return the override that gives the key this value."""
        return Override(self.location, value, self.label)

    def listed(self, most: int = MOST_VALUES) -> VariedKey:
        """Return the key with all whole numbers of a span as values.

        Raises `ScenarioError` if there are more than `most`, or if the ends are not whole.
        """
        if self.span is None:
            return self
        if not self.span.is_whole:
            what = f"{self.name}: a span of numbers without their number"
            raise ScenarioError(what, remedy="write FROM:TO:N", override=self.label)
        low, high = int(self.span.low), int(self.span.high)
        if high - low >= most:
            what = f"{self.name}: {self.span} holds more than {most:,} values"
            raise ScenarioError(what, remedy="write FROM:TO:N, or fewer", override=self.label)
        return replace(self, values=tuple(Node(number, override=self.label) for number in range(low, high + 1)), span=None)

    def check(self, fixed: Mapping[str, str]) -> None:
        """Raise `ScenarioError` for a key that is unknown or fixed, and for values that are missing or given twice.

        Args:
            fixed: keys that cannot be varied, with the reason. `*` in a key stands for any one part of it.
        """
        for key, reason in fixed.items():
            parts = key.split(".")
            if len(parts) <= len(self.location) and all(map(_fits, parts, self.location)):
                what = f"{self.name} cannot be varied: {reason}"
                raise ScenarioError(what, remedy="vary another key", override=self.label)
        if self.location[0] not in Scenario.model_fields:
            known = [name for name in Scenario.model_fields if name not in fixed]
            what = f"{self.name}: unknown key"
            raise ScenarioError(what, remedy=f"known here: {format_list(known, ',')}", override=self.label)
        if self.span is None and not self.values:
            raise ScenarioError(f"{self.name}: no values", remedy=_FORMS, override=self.label)
        seen = set()
        for value in self.values:
            plain = value.plain()
            text = json.dumps(_comparable(plain), sort_keys=True)
            if text in seen:
                what = f"{self.name}: {format_value(plain)} twice"
                raise ScenarioError(what, remedy="give each value once", override=self.label)
            seen.add(text)


def _fits(pattern: str, part: str) -> bool:
    return pattern in ("*", part)


def _comparable(value: Any) -> Any:
    """Return a value with whole numbers as int, so that 2 and 2.0 have the same text."""
    if isinstance(value, dict):
        return {key: _comparable(below) for key, below in value.items()}
    if isinstance(value, list):
        return list(map(_comparable, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_disjoint(keys: Sequence[VariedKey]) -> None:
    """Raise `ScenarioError` if two keys set the same part of the scenario."""
    for number, key in enumerate(keys):
        for other in keys[:number]:
            inner, outer = sorted((key, other), key=lambda varied: -len(varied.location))
            if inner.location == outer.location:
                raise ScenarioError(f"{key.name} is varied twice", remedy="give all its values at once", override=key.label)
            if inner.location[: len(outer.location)] == outer.location:
                what = f"{inner.name} is a part of {outer.name}, which is varied too"
                raise ScenarioError(what, remedy="vary one of them", override=key.label)


_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::([-+]?[0-9]+))?")
# Python converts no text of more than 4,300 digits, and a float holds no number of more than 309.
_WHOLE = re.compile(r"[-+]?[0-9]{1,300}")
_COUNT = re.compile(r"\+?[0-9]{1,6}")


def parse_varied_key(text: str, option: str = "") -> VariedKey:
    """Read `KEY=V1,V2,...`, `KEY=FROM:TO:N` or `KEY=FROM:TO`. Raises `ScenarioError`.

    Args:
        text: the key and its values.
        option: option of the command line that gives it, which errors name, such as `--grid`.

    >>> [node.plain() for node in parse_varied_key("devices.cloud.count=2:8:4").values]
    [2, 4, 6, 8]
    >>> [node.plain() for node in parse_varied_key("devices.cloud.count=1:4").listed().values]
    [1, 2, 3, 4]
    """
    label = f"{option} {shorten(printable(text), _MOST_LABEL)}".strip()
    location, rest = parse_key(text, label)
    if ends := _RANGE.fullmatch(rest.strip()):
        low, high = (int(end) if _WHOLE.fullmatch(end) else float(end) for end in ends.groups()[:2])
        count = ends[3]
        if count is not None and not _COUNT.fullmatch(count):
            what = f"{format_location(location)}: {shorten(count)} values"
            raise ScenarioError(what, remedy=f"give 2 to {MOST_VALUES:,}", override=label)
        return spaced(location, label, Span(low, high), None if count is None else int(count))
    key = text[: len(text) - len(rest)]
    pieces = list(_pieces(rest))
    if not all(piece.strip() for piece in pieces):
        raise ScenarioError("an empty value", remedy=_FORMS, override=label)
    return VariedKey(location, label, tuple(labelled(Override.parse(key + piece, option).node, label) for piece in pieces))


def labelled(node: Node, label: str) -> Node:
    """Return a value whose errors name `label`."""
    return replace(node, override=label)


def _pieces(text: str) -> Iterator[str]:
    """Yield the parts of a text between its commas, but for commas in brackets and quotes."""
    begin, depth, quote = 0, 0, ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def spaced(location: tuple[str, ...], label: str, span: Span, count: int | None) -> VariedKey:
    """Return a key with evenly spaced values between two ends or, without `count`, with the span. Raises `ScenarioError`."""
    name, low, high = format_location(location), span.low, span.high
    if not isfinite(float(high) - float(low)):
        raise ScenarioError(f"{name}: {span} are numbers without end", remedy="give finite numbers", override=label)
    if low >= high:
        what = "is one value" if low == high else "runs backwards"
        raise ScenarioError(f"{name}: {span} {what}", remedy="write FROM:TO:N, FROM below TO", override=label)
    if count is None:
        return VariedKey(location, label, (), span)
    if not 2 <= count <= MOST_VALUES:
        what = f"{name}: {span} in {count} values"
        raise ScenarioError(what, remedy=f"give 2 to {MOST_VALUES:,}", override=label)
    return VariedKey(location, label, tuple(Node(number, override=label) for number in span.numbers(count)))
