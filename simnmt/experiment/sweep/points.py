"""The points of a sweep: all combinations of the values of its keys, or a Sobol sample, each a checked scenario."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.base import random_streams
from simnmt.experiment.criteria import check_criteria
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Override
from simnmt.scenario.source import Source, refuse_pipes
from simnmt.scenario.sweep_configuration import Sweep
from simnmt.scenario.varied_keys import VariedKey
from simnmt.scenario.yaml_text import Node

SAMPLE_STREAM = "sweep sample"
"""Name of the random stream of a sample."""
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
    for number, nodes in enumerate(_combinations(sweep, source.scenario.seed)):
        overrides = [key.override(node) for key, node in zip(sweep.keys, nodes, strict=True)]
        scenario, _ = source.with_overrides([*_NOT_MADE, *overrides], allow_code=allow_code)
        points.append(Point(number, tuple(node.plain() for node in nodes), scenario))
    return points


def _combinations(sweep: Sweep, seed: int) -> Iterator[Sequence[Node]]:
    """Yield the value of each key at each point."""
    if sweep.sample is None:
        yield from itertools.product(*(key.values for key in sweep.keys))
        return
    from scipy.stats import qmc  # half a second of imports, which a grid does not need

    generator = random_streams.stream(seed, 0, SAMPLE_STREAM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of numbers of points that are no power of two
        shares = qmc.Sobol(len(sweep.keys), rng=generator).random(sweep.sample)
    seen = set()
    for row in shares.tolist():
        nodes = [key.at(share) for key, share in zip(sweep.keys, row, strict=True)]
        # Keys with few values are drawn alike several times.
        text = json.dumps([node.plain() for node in nodes], sort_keys=True)
        if text not in seen:
            seen.add(text)
            yield nodes


def _read_inputs_of_values(keys: Sequence[VariedKey], source: Source, allow_code: bool) -> None:
    """Read the files of the scenario once for each value of each key, so that a missing one is known before the sweep."""
    cache = InputCache()
    firsts = [key.at(0.0) for key in keys]
    for place, key in enumerate(keys):
        for node in key.values or [key.at(0.0)]:
            nodes = [node if place == other else first for other, first in enumerate(firsts)]
            overrides = [swept.override(value) for swept, value in zip(keys, nodes, strict=True)]
            scenario, document = source.with_overrides([*_NOT_MADE, *overrides], allow_code=allow_code)
            refuse_pipes(scenario, source.base)
            check_criteria(read_inputs(scenario, source.base, document, cache), document)
