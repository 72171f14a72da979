"""Keys of a scenario with several values: what a sweep runs and what a plan chooses among, in one notation.

A varied key is an override of the scenario (`--set KEY=VALUE`) with several values: `KEY=V1,V2,...`, `KEY=FROM:TO:N` (N evenly
spaced numbers, both ends included) or `KEY=FROM:TO` (all whole numbers between whole ends).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import isfinite
from typing import Any

from simnmt.base.errors import printable, shorten
from simnmt.base.suggestions import did_you_mean
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Override, parse_key, quote_shipped_names
from simnmt.scenario.errors import ScenarioError, format_location, format_value
from simnmt.scenario.yaml_text import parse_yaml

MOST_VALUES = 100_000
"""Most values of a key."""
_FORMS = "write KEY=V1,V2, KEY=FROM:TO:N or KEY=FROM:TO"


@dataclass(frozen=True, slots=True)
class VariedKey:
    """A key of the scenario with the values that it is given."""

    location: tuple[str, ...]
    label: str
    """The option, or the place in the sweep file, that errors name."""
    values: tuple[Any, ...]
    """Plain data."""

    @property
    def name(self) -> str:
        """The key as a user writes it, joined by dots."""
        return format_location(self.location)

    @property
    def overrides(self) -> tuple[Override, ...]:
        """One for each value."""
        return tuple(map(self.override, self.values))

    def override(self, value: Any) -> Override:
        """Return the override that gives the key this value."""
        return Override(self.location, value, self.label)

    def check(self, fixed: Mapping[str, str]) -> None:
        """Raise `ScenarioError` for a key that is unknown or fixed, and for values that are missing or given twice.

        Args:
            fixed: keys that cannot be varied, with the reason. `*` in a key stands for any one part of it.
        """
        for key, reason in fixed.items():
            parts = key.split(".")
            pairs = list(zip(parts, self.location, strict=False))
            if len(pairs) == len(parts) and all(pattern in ("*", part) for pattern, part in pairs):
                raise ScenarioError(f"{self.name} cannot be varied: {reason}", override=self.label)
        if self.location[0] not in ScenarioConfiguration.model_fields:
            known = [name for name in ScenarioConfiguration.model_fields if name not in fixed]
            remedy = did_you_mean(self.location[0], known)
            raise ScenarioError(f"{self.name}: unknown key", remedy=remedy, override=self.label)
        if not self.values:
            raise ScenarioError(f"{self.name}: no values", remedy=_FORMS, override=self.label)
        seen = set()
        for value in self.values:
            text = json.dumps(_comparable(value), sort_keys=True)
            if text in seen:
                raise ScenarioError(f"{self.name}: {format_value(value)} is given twice", override=self.label)
            seen.add(text)


def _comparable(value: Any) -> Any:
    """Return a value with whole numbers as int, so that 2 and 2.0 have the same text."""
    if isinstance(value, dict):
        return {key: _comparable(below) for key, below in value.items()}
    if isinstance(value, list):
        return list(map(_comparable, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_disjoint(keys: Sequence[VariedKey]) -> None:
    """Raise `ScenarioError` if two keys set the same part of the scenario."""
    for first, second in combinations(keys, 2):
        shared = min(len(first.location), len(second.location))
        if first.location[:shared] == second.location[:shared]:
            raise ScenarioError(f"{second.name} and {first.name} set the same key", override=second.label)


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
    if ends := _RANGE.fullmatch(rest):
        low, high = (int(end) if re.fullmatch("[-+]?[0-9]{1,18}", end) else float(end) for end in ends.groups()[:2])
        count = None if ends[3] is None else float(ends[3])
        return VariedKey(location, label, tuple(spaced_numbers(low, high, count, label)))
    listed, _ = parse_yaml(f"[{quote_shipped_names(rest)}]", override=label)
    if not listed:
        raise ScenarioError("no values", remedy=_FORMS, override=label)
    return VariedKey(location, label, tuple(listed))


def spaced_numbers(low: float, high: float, count: float | None, label: str) -> Sequence[float]:
    """Return evenly spaced numbers, both ends included; without `count`, all whole numbers between whole ends.

    Whole numbers between whole ends are of type int. Raises `ScenarioError`, which names `label`.
    """
    are_whole = isinstance(low, int) and isinstance(high, int)
    if not isfinite(high - low) or low >= high:
        raise ScenarioError(f"{low:g} to {high:g} is no range", remedy="write FROM:TO:N, FROM below TO", override=label)
    if count is None and not are_whole:
        raise ScenarioError(f"how many numbers from {low:g} to {high:g}?", remedy="write FROM:TO:N", override=label)
    steps = int(high - low) if count is None else count - 1
    if not 1 <= steps < MOST_VALUES:
        raise ScenarioError(f"{steps + 1:,.0f} values", remedy=f"give 2 to {MOST_VALUES:,}", override=label)
    # Binary fractions would put 0.1 + 2 * 0.1 beside 0.3, and floats have no whole numbers above 2**53 but even ones.
    begin, end = Fraction(str(low)), Fraction(str(high))
    exact = [begin + (end - begin) * at / int(steps) for at in range(int(steps) + 1)]
    return [int(number) if are_whole and number.denominator == 1 else float(f"{float(number):.15g}") for number in exact]
