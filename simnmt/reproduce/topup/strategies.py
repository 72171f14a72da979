"""The ways to form batches that are set side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.reproduce.topup.published import BATCH, COLLECTED

COLLECT = COLLECTED // BATCH
"""Batches in a maxi-batch: ten, whatever the size of a batch."""


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
    Strategy("maxi", "maxi", True, False, lambda size: maxi(size, COLLECT * size)),
    Strategy(
        "maxi half-empty",
        "maxi and top-up, half-empty",
        True,
        True,
        lambda size: top_up(size, half_empty(size), COLLECT * size, inf),
    ),
    Strategy(
        "maxi immediate",
        "maxi and top-up, immediate",
        True,
        True,
        lambda size: top_up(size, immediate(size), COLLECT * size, inf),
    ),
)
"""Of the paper's figures: all sentences at hand, nothing is waited for."""
BY_KEY = {each.key: each for each in OFFLINE}


@dataclass(frozen=True, slots=True)
class Online:
    """One way to form batches of what arrives."""

    key: str
    name: str
    of_size: Callable[[int, float], Batching]
    """The batching for batches of so many, given how long the mean sentence takes alone, in seconds."""


ONLINE = (
    Online("single", "one at a time", lambda size, solo_s: mini(1, 0.0)),
    Online("mini", "mini, of whoever waits", lambda size, solo_s: mini(size, 0.0)),
    Online("maxi", "maxi, waiting for a mean sentence's time", lambda size, solo_s: maxi(size, COLLECT * size, solo_s)),
    Online("half-empty", "top-up, half-empty", lambda size, solo_s: top_up(size, half_empty(size))),
    Online("immediate", "top-up, immediate", lambda size, solo_s: top_up(size, immediate(size))),
)
