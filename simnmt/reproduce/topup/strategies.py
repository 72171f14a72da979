"""The ways to form batches that are set side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.reproduce.topup.published import COLLECTED


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to form batches."""

    key: str
    name: str
    collects: bool
    """Sentences are collected and sorted first (maxi-batching)."""
    tops_up: bool
    of_size: Callable[[int], Batching]
    """The batching for batches of so many sentences, all of them at hand."""


OFFLINE = (
    Strategy("mini", "mini", False, False, mini),
    Strategy("half-empty", "top-up, half-empty", False, True, lambda size: top_up(size, half_empty(size))),
    Strategy("immediate", "top-up, immediate", False, True, lambda size: top_up(size, immediate(size))),
    Strategy("maxi", "maxi", True, False, lambda size: maxi(size, max(COLLECTED, size))),
    Strategy(
        "maxi half-empty",
        "maxi and top-up, half-empty",
        True,
        True,
        lambda size: top_up(size, half_empty(size), max(COLLECTED, size), inf),
    ),
    Strategy(
        "maxi immediate",
        "maxi and top-up, immediate",
        True,
        True,
        lambda size: top_up(size, immediate(size), max(COLLECTED, size), inf),
    ),
)
"""Of the paper's figures: all sentences at hand, nothing is waited for."""
BY_KEY = {each.key: each for each in OFFLINE}

MAXI_WAIT_SHARE = 0.25
"""Of the p95 that is asked for, how long maxi-batching online lets a sentence wait for the collection to fill."""


@dataclass(frozen=True, slots=True)
class Online:
    """One way to form batches of what arrives."""

    key: str
    name: str
    of_size: Callable[[int, float], Batching]
    """The batching for batches of so many and a p95 in seconds."""


ONLINE = (
    Online("single", "one at a time", lambda size, p95_s: mini(1, 0.0)),
    Online("mini", "mini, no waiting for company", lambda size, p95_s: mini(size, 0.0)),
    Online(
        "maxi",
        f"maxi, waiting {100 * MAXI_WAIT_SHARE:.0f} % of the p95",
        lambda size, p95_s: maxi(size, max(COLLECTED, size), MAXI_WAIT_SHARE * p95_s),
    ),
    Online("half-empty", "top-up, half-empty", lambda size, p95_s: top_up(size, half_empty(size))),
    Online("immediate", "top-up, immediate", lambda size, p95_s: top_up(size, immediate(size))),
)
