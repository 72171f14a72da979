"""What a sweep varies: keys of a scenario with their values, from a sweep file or from `--grid` and `--sample`.

A swept key is an override of the scenario (`--set KEY=VALUE`) with several values, so any key can be swept that changes the
numbers of a run. All values are checked before anything runs; an error names the option, or the place in the sweep file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from simnmt.base.configuration import Configuration
from simnmt.base.errors import printable, shorten
from simnmt.base.suggestions import format_list
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Document, Override, parse_key, read_document
from simnmt.scenario.errors import ScenarioError, format_location, format_value
from simnmt.scenario.validation import validate
from simnmt.scenario.yaml_text import Node

MOST_POINTS = 100_000
"""Most points of a sweep."""
UNSWEPT = {
    "version": "is the form of the file",
    "name": "changes no number of a run",
    "description": "changes no number of a run",
    "published": "changes no number of a run",
    "objective": "chooses among the numbers of a run and changes none",
    "slo": "judges the numbers of a run and changes none",
    "metrics": "adds numbers to a run and changes none",
    "gap_analysis": "is not made in a sweep",
    "profile_uncertainty": "is not made in a sweep",
}
"""Keys that cannot be swept, and the reason."""
_MOST_LABEL = 100
_DIGITS = 12
"""Significant digits of the values between two ends: 0.3, not 0.30000000000000004."""


@dataclass(frozen=True, slots=True)
class Span:
    """All numbers between two ends, from which a sample draws."""

    low: float
    high: float

    def at(self, share: float) -> float:
        """Return the number at this share of the way from the lower to the upper end."""
        return rounded(self.low + share * (self.high - self.low))


@dataclass(frozen=True, slots=True)
class SweptKey:
    """A key of the scenario with the values that a sweep gives it."""

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

    def override(self, value: Node) -> Override:
        """Return the override that gives the key this value."""
        return Override(self.location, value, self.label)

    def at(self, share: float) -> Node:
        """Return the value at a share in [0, 1) of the key's values."""
        if self.span is not None:
            return Node(self.span.at(share), override=self.label)
        return self.values[int(share * len(self.values))]


def rounded(number: float) -> float:
    """Return a number with as many digits as a person would write."""
    return float(f"{number:.{_DIGITS}g}")


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep runs: a scenario with overrides for all points, the swept keys, and the size of a sample."""

    scenario: str
    """A file's path, a shipped `@name` or a run directory."""
    overrides: tuple[Override, ...]
    keys: tuple[SweptKey, ...]
    sample: int | None = None
    """Points of a Sobol sample; None: the whole grid."""


class Steps(Configuration):
    """Evenly spaced numbers between two ends, both included."""

    from_: Annotated[float, Field(alias="from")]
    """First number."""
    to: float
    """Last number."""
    steps: Annotated[int, Field(ge=2, le=MOST_POINTS)] | None = None
    """How many numbers; left out: all between, for a sample."""


def _form(values: Any) -> str:
    return "steps" if isinstance(values, (dict, Steps)) else "list"


GridValues = Annotated[Annotated[list[Any], Tag("list")] | Annotated[Steps, Tag("steps")], Discriminator(_form)]
"""Values of a swept key: a list, or the ends of evenly spaced numbers."""


class SobolSample(Configuration):
    """A sample that fills the space of the swept keys evenly."""

    sobol: Annotated[int, Field(ge=1, le=MOST_POINTS)]
    """Number of points; a power of two is balanced best."""


class SweepConfiguration(Configuration):
    """A sweep file."""

    scenario: Annotated[str, Field(min_length=1)]
    """The scenario: a path relative to the sweep file, a shipped `@name`, or a run directory."""
    overrides: Annotated[dict[str, Any], Field(alias="set", default_factory=dict)]
    """Values in place of the scenario's, by dotted key, the same at all points."""
    grid: Annotated[dict[str, GridValues], Field(min_length=1)]
    """Values of each swept key, by dotted key: a list, or `{from: 5, to: 20, steps: 4}`."""
    sample: SobolSample | None = None
    """Points drawn from the grid instead of all its combinations, such as `{sobol: 64}`."""


def is_sweep_file(document: Document) -> bool:
    """Return whether a document is a sweep file rather than a scenario."""
    content = document.root.content
    return isinstance(content, dict) and "workloads" not in content and ("scenario" in content or "grid" in content)


def read_sweep(given: str, grid: Sequence[str] = (), sample: str | None = None, overrides: Sequence[Override] = ()) -> Sweep:
    """Return the sweep of a sweep file or of a scenario, with further options. Raises `ScenarioError`.

    Args:
        given: a sweep file, or a scenario as `open_source` takes it.
        grid: texts such as `devices.cloud.count=1,2,4` or `KEY=from:to:n`.
        sample: such as `sobol:64`.
        overrides: values in place of the scenario's, the same at all points.
    """
    size = None if sample is None else parse_sample(sample)
    keys = [parse_swept_key(text) for text in grid]
    if not given.startswith("@") and Path(given).is_file():
        document = read_document(given)
        if is_sweep_file(document):
            sweep = _of_file(document, Path(given))
            keys, overrides = [*sweep.keys, *keys], [*sweep.overrides, *overrides]
            return checked(Sweep(sweep.scenario, tuple(overrides), tuple(keys), sweep.sample if size is None else size))
    return checked(Sweep(given, tuple(overrides), tuple(keys), size))


def _of_file(document: Document, path: Path) -> Sweep:
    configuration = validate(SweepConfiguration, document)
    grid, given = document.root.child("grid"), document.root.child("set")
    assert grid is not None
    scenario = configuration.scenario
    if not scenario.startswith("@"):
        scenario = str(path.parent / scenario)
    overrides = [Override.of(key, node.plain(), label) for key, node, label in _entries(document, given)]
    keys = []
    for (text, node, label), values in zip(_entries(document, grid), configuration.grid.values(), strict=True):
        if isinstance(values, Steps):
            keys.append(_stepped(text, label, values.from_, values.to, values.steps, _whole(node, ("from", "to"))))
        else:
            assert isinstance(node.content, list)
            keys.append(SweptKey(text, label, tuple(_labelled(item, label) for item in node.content)))
    return Sweep(scenario, tuple(overrides), tuple(keys), None if configuration.sample is None else configuration.sample.sobol)


def _entries(document: Document, node: Node | None) -> Iterator[tuple[tuple[str, ...], Node, str]]:
    """Yield the location of each dotted key of a mapping, its value, and the name of its place in errors."""
    for key, below in () if node is None or not isinstance(node.content, dict) else node.content.items():
        line, column = below.key_place or (1, 1)
        place = f"{document.path}:{line}:{column}"
        location, rest = parse_key(f"{key}=", place)
        if rest:
            raise ScenarioError(f"{key}: not a key", remedy="join keys by dots", override=place)
        yield location, below, place


def _labelled(node: Node, label: str) -> Node:
    """Return a value whose errors name `label`."""
    return Node(node.content, node.place, node.key_place, node.text, label)


def _whole(node: Node, names: Iterable[str]) -> bool:
    """Return whether numbers of a mapping are written as whole numbers."""
    parts = [node.child(name) for name in names]
    return all(part is not None and isinstance(part.content, int) for part in parts)


_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::([-+]?[0-9]+))?")


def parse_swept_key(text: str, option: str = "--grid") -> SweptKey:
    """Read `KEY=V1,V2,...`, `KEY=from:to:n` or, for a sample, `KEY=from:to`. Raises `ScenarioError`."""
    label = f"{option} {shorten(printable(text), _MOST_LABEL)}"
    location, rest = parse_key(text, label)
    if span := _RANGE.fullmatch(rest.strip()):
        low, high, steps = span.groups()
        whole = all(re.fullmatch(r"[-+]?[0-9]+", end) for end in (low, high))
        return _stepped(location, label, float(low), float(high), None if steps is None else int(steps), whole)
    key = text[: len(text) - len(rest)]
    pieces = list(_pieces(rest))
    if not all(piece.strip() for piece in pieces):
        raise ScenarioError("an empty value", remedy="write KEY=V1,V2 or KEY=from:to:n", override=label)
    return SweptKey(location, label, tuple(_labelled(Override.parse(key + piece, option).node, label) for piece in pieces))


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


def _stepped(location: tuple[str, ...], label: str, low: float, high: float, steps: int | None, whole: bool) -> SweptKey:
    """Return a key with evenly spaced values between two ends, or with all numbers between them."""
    ends = f"{low:.12g} to {high:.12g}"
    if low >= high:
        what = "is one value" if low == high else "runs backwards"
        raise ScenarioError(
            f"{format_location(location)}: {ends} {what}", remedy="write from:to:n, from below to", override=label
        )
    if steps is None:
        return SweptKey(location, label, (), Span(low, high))
    if not 2 <= steps <= MOST_POINTS:
        what = f"{format_location(location)}: {ends} in {steps} values"
        raise ScenarioError(what, remedy=f"give 2 to {MOST_POINTS:,}", override=label)
    numbers = [rounded(low + (high - low) * at / (steps - 1)) for at in range(steps)]
    return SweptKey(
        location,
        label,
        tuple(Node(int(number) if whole and number.is_integer() else number, override=label) for number in numbers),
    )


def parse_sample(text: str) -> int:
    """Return the points of `sobol:N`. Raises `ScenarioError`."""
    match = re.fullmatch(r"sobol:([0-9]{1,9})", text.strip())
    if match is None or not 1 <= int(match[1]) <= MOST_POINTS:
        remedy = f"write sobol:N, with 1 to {MOST_POINTS:,} points"
        raise ScenarioError(f"{shorten(text)!r} is no sample", remedy=remedy, override="--sample")
    return int(match[1])


def checked(sweep: Sweep) -> Sweep:
    """Return the sweep if its keys can be swept and do not contradict each other. Raises `ScenarioError`."""
    if not sweep.keys:
        what = "nothing is swept"
        raise ScenarioError(what, remedy="give --grid KEY=V1,V2,... or --grid KEY=from:to:n, or a sweep file")
    for key in sweep.keys:
        _check_key(key, sweep.sample)
    for number, key in enumerate(sweep.keys):
        for other in sweep.keys[:number]:
            if key.location == other.location:
                raise ScenarioError(f"{key.name} is swept twice", remedy="give all its values at once", override=key.label)
            inner, outer = sorted((key, other), key=lambda swept: -len(swept.location))
            if inner.location[: len(outer.location)] == outer.location:
                what = f"{inner.name} is a part of {outer.name}, which is swept too"
                raise ScenarioError(what, remedy="sweep one of them", override=key.label)
        for override in sweep.overrides:
            if override.location[: len(key.location)] == key.location:
                what = f"{key.name} is swept, and set to one value by {override.label}"
                raise ScenarioError(what, remedy="remove one of them", override=key.label)
    points = 1
    for key in sweep.keys:
        points *= max(len(key.values), 1)
    if sweep.sample is None and points > MOST_POINTS:
        what = f"{points:,} points, more than {MOST_POINTS:,}"
        raise ScenarioError(what, remedy="give fewer values, or --sample sobol:N")
    if sweep.sample is not None and all(key.span is None for key in sweep.keys) and sweep.sample >= points:
        what = f"--sample sobol:{sweep.sample} of {points:,} combinations"
        raise ScenarioError(what, remedy="leave the sample out, which runs them all")
    return sweep


def _check_key(key: SweptKey, sample: int | None) -> None:
    if key.location[0] in UNSWEPT:
        what = f"{key.name} cannot be swept: it {UNSWEPT[key.location[0]]}"
        raise ScenarioError(what, remedy="sweep another key", override=key.label)
    if key.location[0] not in Scenario.model_fields:
        known = [name for name in Scenario.model_fields if name not in UNSWEPT]
        what = f"{key.name}: unknown key"
        raise ScenarioError(what, remedy=f"known here: {format_list(known, ',')}", override=key.label)
    if key.span is not None and sample is None:
        what = f"{key.name}: a span of numbers without their number"
        raise ScenarioError(what, remedy="write from:to:n, or draw from it with --sample sobol:N", override=key.label)
    if key.span is None and not key.values:
        raise ScenarioError(f"{key.name}: no values", remedy="write KEY=V1,V2,...", override=key.label)
    seen: list[Any] = []
    for value in key.values:
        plain = value.plain()
        if any(plain == other and isinstance(plain, bool) == isinstance(other, bool) for other in seen):
            raise ScenarioError(f"{key.name}: {format_value(plain)} twice", remedy="give each value once", override=key.label)
        seen.append(plain)
