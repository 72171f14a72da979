"""Which policies are as good as the best one, and which of several is the simplest to run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

TIE = 0.001
"""Relative difference of a number below which two policies or deployments are equally good."""


def simplest(names: Sequence[str], settings: Mapping[str, int], fixed: Collection[str] = ()) -> list[str]:
    """Return policies, the simplest one first: fixed ones, then those with fewer settings, then those that were first.

    Args:
        names: the policies in the order of their scenario.
        settings: number of settings that the scenario gives each policy (`PolicySettings.settings_given`); 0 if it is left out.
        fixed: policies that send every request to one device.

    >>> simplest(["cnmt", "aware", "cloud"], {"cnmt": 0, "aware": 2}, fixed=["cloud"])
    ['cloud', 'cnmt', 'aware']
    """
    return sorted(names, key=lambda name: (name not in fixed, settings.get(name, 0)))


def is_tie(value: float, best: float) -> bool:
    """Return whether a number is as good as the best one: they differ by less than `TIE` of the best.

    >>> is_tie(1.0009, 1.0), is_tie(1.002, 1.0)
    (True, False)
    """
    return value == best or abs(value - best) < TIE * abs(best)
