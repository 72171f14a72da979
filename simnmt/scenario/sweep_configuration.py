"""What a sweep varies: keys of a scenario with their values, from a sweep file or from `--grid`.

Any key can be swept that changes the numbers of a run, in the notation of `varied_keys`. All values are checked before anything
runs; an error names the option, or the place in the sweep file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from simnmt.base.configuration import Configuration
from simnmt.scenario.document import Document, Override, parse_key, read_document
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.validation import validate
from simnmt.scenario.varied_keys import MOST_VALUES, VariedKey, check_disjoint, parse_varied_key, spaced_numbers

MOST_POINTS = MOST_VALUES
"""Most points of a sweep."""
UNSWEPT = {
    "version": "it is the form of the file",
    "name": "it changes no number of a run",
    "description": "it changes no number of a run",
    "objective": "it chooses among the numbers of a run and changes none",
    "slo": "it judges the numbers of a run and changes none",
    "metrics": "it adds numbers to a run and changes none",
    "gap_analysis": "it is not made in a sweep",
    "profile_uncertainty": "it is not made in a sweep",
}
"""Keys that no sweep varies, and the reason."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep runs: a scenario with overrides for all points, and the swept keys."""

    scenario: str
    """A file's path, a shipped `@name` or a run directory."""
    overrides: tuple[Override, ...]
    keys: tuple[VariedKey, ...]


class Steps(Configuration):
    """Evenly spaced numbers between two ends, both included."""

    from_: Annotated[int | float, Field(alias="from")]
    """First number."""
    to: int | float
    """Last number."""
    steps: Annotated[int, Field(ge=2, le=MOST_POINTS)] | None = None
    """How many numbers; left out: all whole numbers between the ends."""


GridValues = Annotated[
    Annotated[list[Any], Tag("list")] | Annotated[Steps, Tag("steps")],
    Discriminator(lambda values: "steps" if isinstance(values, (dict, Steps)) else "list"),
]
"""Values of a swept key: a list, or the ends of evenly spaced numbers."""


class SweepConfiguration(Configuration):
    """A sweep file."""

    scenario: Annotated[str, Field(min_length=1)]
    """The scenario: a path relative to the sweep file, a shipped `@name`, or a run directory."""
    overrides: Annotated[dict[str, Any], Field(alias="set", default_factory=dict)]
    """Values in place of the scenario's, by dotted key, the same at all points."""
    grid: Annotated[dict[str, GridValues], Field(min_length=1)]
    """Values of each swept key, by dotted key: a list, or `{from: 5, to: 20, steps: 4}`."""


def is_sweep_file(document: Document) -> bool:
    """Return whether a document is a sweep file rather than a scenario."""
    content = document.content
    return isinstance(content, dict) and "workloads" not in content and ("scenario" in content or "grid" in content)


def read_sweep(given: str, grid: Sequence[str | VariedKey] = (), overrides: Sequence[Override] = ()) -> Sweep:
    """Return the sweep of a sweep file or of a scenario, with further options. Raises `ScenarioError`.

    Args:
        given: a sweep file, or a scenario as `open_source` takes it.
        grid: varied keys, or texts such as `devices.cloud.count=1,2,4` or `KEY=FROM:TO:N`.
        overrides: values in place of the scenario's, the same at all points.
    """
    if not given.startswith("@") and given != "-" and not Path(given).exists():
        raise ScenarioError(
            f"{given}: no such file or folder", remedy="give a sweep file, a scenario, or the folder of a sweep"
        )
    keys = [parse_varied_key(key) if isinstance(key, str) else key for key in grid]
    if not given.startswith("@") and Path(given).is_file():
        document = read_document(given)
        if is_sweep_file(document):
            sweep = _of_file(document, Path(given))
            keys, overrides = [*sweep.keys, *keys], [*sweep.overrides, *overrides]
            return checked(Sweep(sweep.scenario, tuple(overrides), tuple(keys)))
    return checked(Sweep(given, tuple(overrides), tuple(keys)))


def _of_file(document: Document, path: Path) -> Sweep:
    configuration = validate(SweepConfiguration, document)
    scenario = configuration.scenario
    if not scenario.startswith("@"):
        scenario = str(path.parent / scenario)
    overrides = [
        Override.of(location, configuration.overrides[key], label) for key, location, label in _entries(document, "set")
    ]
    keys = []
    for key, location, label in _entries(document, "grid"):
        values = configuration.grid[key]
        numbers = values if isinstance(values, list) else spaced_numbers(values.from_, values.to, values.steps, label)
        keys.append(VariedKey(location, label, tuple(numbers)))
    return Sweep(scenario, tuple(overrides), tuple(keys))


def _entries(document: Document, block: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield the dotted keys of a block, the location of each, and the name of its place in errors."""
    for key in document.content.get(block, {}):
        line, column = document.position((block, key), key=True) or (1, 1)
        label = f"{document.path}:{line}:{column}"
        yield key, parse_key(f"{key}=", label)[0], label


def checked(sweep: Sweep) -> Sweep:
    """Return the sweep if its keys can be swept and do not contradict each other. Raises `ScenarioError`."""
    if not sweep.keys:
        raise ScenarioError("nothing is swept", remedy="give a grid, KEY=V1,V2,... or KEY=FROM:TO:N, or a sweep file")
    for key in sweep.keys:
        key.check(UNSWEPT)
        for override in sweep.overrides:
            if override.location[: len(key.location)] == key.location:
                raise ScenarioError(f"{key.name} is varied, and set to one value by {override.label}", override=key.label)
    check_disjoint(sweep.keys)
    points = prod(len(key.values) for key in sweep.keys)
    if points > MOST_POINTS:
        raise ScenarioError(f"{points:,} points, more than {MOST_POINTS:,}")
    return sweep
