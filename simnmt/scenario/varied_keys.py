"""Keys of a scenario with several values: what a sweep runs and what a plan chooses among, in one notation.

A varied key is an override of the scenario (`--set KEY=VALUE`) with several values: `KEY=V1,V2,...`, `KEY=FROM:TO:N` (N evenly
spaced numbers, both ends included) or `KEY=FROM:TO` (all whole numbers between whole ends). `sites.*.KEY` is one key with one
value for all sites. All values are checked before anything runs; an error names the option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import isfinite, prod
from typing import Any

from simnmt.base.errors import printable, shorten
from simnmt.scenario.document import Override, parse_key, quote_shipped_names
from simnmt.scenario.errors import ScenarioError, format_location
from simnmt.scenario.yaml_text import parse_yaml

MOST_VALUES = 100_000
"""Most values of a key, and most points of a sweep."""
_FORMS = "write KEY=V1,V2, KEY=FROM:TO:N or KEY=FROM:TO"


@dataclass(frozen=True, slots=True)
class VariedKey:
    """A key of the scenario with the values that it is given."""

    location: tuple[str, ...]
    label: str
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The key as a user writes it, joined by dots."""
        return format_location(self.location)

    @property
    def device(self) -> str | None:
        """The device to which the key belongs, in the scenario or at a site; None if it belongs to none."""
        part, *name = self._part or ("sites",)
        return name[0] if name and part == "devices" else None

    def override(self, value: Any) -> Override:
        """Return the override that gives the key this value."""
        return Override(self.location, value, self.label)

    @property
    def _part(self) -> tuple[str, ...]:
        """The key as it stands in the scenario, or at a site."""
        return self.location[2:] if self.location[0] == "sites" else self.location

    def check(self, is_varied: Callable[[str], bool], reason: str) -> None:
        """Raise `ScenarioError` for missing values, and with the reason for a fixed part of the scenario or of a site."""
        if not is_varied(next(iter(self._part), "sites")):
            raise ScenarioError(f"{self.name} cannot be varied: {reason}", path=self.label)
        if not self.values:
            raise ScenarioError(f"{self.name}: no values", remedy=_FORMS, path=self.label)


def check_disjoint(keys: Sequence[VariedKey]) -> None:
    """Raise `ScenarioError` if two keys set the same part of the scenario."""
    for first, second in combinations(keys, 2):
        if _meet(first.location, second.location) or _meet(second.location, first.location):
            raise ScenarioError(f"{second.name} and {first.name} set the same key", path=second.label)


def _meet(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    if first[:2] == ("sites", "*") and second[0] != "sites":
        first = first[2:]  # a key that sites inherit
    return all(one == other or "*" in (one, other) for one, other in zip(first, second, strict=False))


_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(rf"\s*({_NUMBER}):({_NUMBER})(?::([-+]?[0-9]+))?\s*")


def parse_varied_key(text: str, option: str = "") -> VariedKey:
    """Read `KEY=V1,V2,...`, `KEY=FROM:TO:N` or `KEY=FROM:TO`. Raises `ScenarioError`.

    Args:
        text: the key and its values.
        option: option of the command line that gives it, which errors name, such as `--grid`.

    >>> parse_varied_key("devices.cloud.count=2:8:4").values
    (2, 4, 6, 8)
    >>> parse_varied_key("devices.cloud.count=1:4").values
    (1, 2, 3, 4)
    """
    label = f"{option} {shorten(printable(text), 100)}".strip()
    location, rest = parse_key(text, label)
    return VariedKey(location, label, tuple(_parse_values(rest, label)))


def parse_varied_keys(given: Iterable[str | VariedKey]) -> list[VariedKey]:
    """Return the varied keys of an argument of Python, which may be a single text. Raises `ScenarioError`."""
    keys = [given] if isinstance(given, str) else given
    return [parse_varied_key(key) if isinstance(key, str) else key for key in keys]


def _parse_values(text: str, label: str) -> list[Any]:
    if ends := _RANGE.fullmatch(text):
        return _spaced_numbers(ends[1], ends[2], ends[3], label)
    values, _ = parse_yaml(f"[{quote_shipped_names(text)}]", option=label)
    if not values:
        raise ScenarioError("no values", remedy=_FORMS, path=label)
    return list(values)


def _spaced_numbers(begin: str, end: str, number: str | None, label: str) -> list[float]:
    """Return evenly spaced numbers, both ends included, which are of type int if they and the ends are whole."""
    low, high = (int(end) if re.fullmatch("[-+]?[0-9]{1,18}", end) else float(end) for end in (begin, end))
    are_whole = isinstance(low, int) and isinstance(high, int)
    if not isfinite(high - low) or low >= high:
        raise ScenarioError(f"{low:g} to {high:g} is no range", remedy="write FROM:TO:N, FROM below TO", path=label)
    if number is None and not are_whole:
        raise ScenarioError(f"how many numbers from {low:g} to {high:g}?", remedy="write FROM:TO:N", path=label)
    steps = high - low if number is None else float(number) - 1
    if not 1 <= steps < MOST_VALUES:
        raise ScenarioError(f"{steps + 1:,.0f} values", remedy=f"give 2 to {MOST_VALUES:,}", path=label)
    # Binary fractions would put 0.1 + 2 * 0.1 beside 0.3, and floats have no whole numbers above 2**53 but even ones.
    first, last = Fraction(str(low)), Fraction(str(high))
    exact = [first + (last - first) * at / int(steps) for at in range(int(steps) + 1)]
    return [int(value) if are_whole and value.denominator == 1 else float(f"{float(value):.15g}") for value in exact]


UNSWEPT = ("version", "name", "description", "objective", "slo", "metrics", "gap_analysis", "profile_uncertainty")
"""Keys that no sweep varies: they change no number of a run, or are left out of a sweep."""


def check_grid(keys: Sequence[VariedKey], overrides: Sequence[Override]) -> None:
    """Raise `ScenarioError` for keys that cannot be swept, or that contradict each other or an override of all points."""
    if not keys:
        raise ScenarioError("nothing is swept", remedy="give a grid, KEY=V1,V2,... or KEY=FROM:TO:N")
    for key in keys:
        key.check(lambda part: part not in UNSWEPT, "it changes no number of a run, or is left out of a sweep")
        for override in overrides:
            if override.location[: len(key.location)] == key.location:
                raise ScenarioError(f"{key.name} is varied, and set to one value by {override.label}", path=key.label)
    check_disjoint(keys)
    points = prod(len(key.values) for key in keys)
    if points > MOST_VALUES:
        raise ScenarioError(f"{points:,} points, more than {MOST_VALUES:,}")
