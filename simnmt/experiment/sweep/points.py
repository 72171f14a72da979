"""The points of a sweep: all combinations of the values of its keys, each a checked scenario."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.experiment.criteria import check_criteria
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Override
from simnmt.scenario.source import Source
from simnmt.scenario.sweep_configuration import Sweep
from simnmt.scenario.varied_keys import VariedKey

_NOT_MADE = (
    Override.of(("gap_analysis",), False, "sweep"),
    Override.of(("profile_uncertainty",), None, "sweep"),
)
"""Parts of a run that a sweep leaves out at all points."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep."""

    number: int
    values: tuple[Any, ...]
    """Value of each swept key, as plain data."""
    scenario: Scenario
    """The scenario at this point, with absolute paths."""


def make_points(sweep: Sweep, source: Source, *, allow_code: bool = False) -> list[Point]:
    """Return all points of a sweep, each checked against the schema.

    The files that the values of a key name are read too, with the other keys at their first value. Raises `ScenarioError`, or
    the error of an input, which name the option of the value.
    """
    _read_inputs_of_values(sweep.keys, source, allow_code)
    points = []
    for number, nodes in enumerate(itertools.product(*(key.values for key in sweep.keys))):
        overrides = [key.override(node) for key, node in zip(sweep.keys, nodes, strict=True)]
        scenario, _ = source.with_overrides([*_NOT_MADE, *overrides], allow_code=allow_code)
        points.append(Point(number, tuple(node.plain() for node in nodes), scenario))
    return points


def _read_inputs_of_values(keys: Sequence[VariedKey], source: Source, allow_code: bool) -> None:
    """Read the files of the scenario once for each value of each key, so that a missing one is known before the sweep."""
    cache = InputCache()
    firsts = [key.values[0] for key in keys]
    for place, key in enumerate(keys):
        for node in key.values:
            nodes = [node if place == other else first for other, first in enumerate(firsts)]
            overrides = [swept.override(value) for swept, value in zip(keys, nodes, strict=True)]
            scenario, document = source.with_overrides([*_NOT_MADE, *overrides], allow_code=allow_code)
            check_criteria(read_inputs(scenario, source.base, document, cache), document)
