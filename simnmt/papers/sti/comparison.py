"""Compare methods of running one model under the same deadlines, over the same examples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR
from simnmt.streaming.paired_difference import PairedDifference, paired_difference

if TYPE_CHECKING:
    from simnmt.papers.sti.study import Outcome, Point, StudiedDevice, Study

PLANNED = ("STI", "STI, waiting")
"""Ways with a preload buffer."""
POINTS = 100.0
"""Of accuracy, in 1."""
ByDeadline = Mapping[float, "Point"]
"""By the deadline's share of the whole model's computation, rising."""


def of(study: Study, device: StudiedDevice, method: str, preload_share: float | None = None) -> ByDeadline:
    """One way on one device, of those deadlines under which something was run; empty where it was not measured.

    `preload_share`: of `PLANNED`; by default the device's own.
    """
    share = device.preload_share if method in PLANNED and preload_share is None else preload_share
    found = [
        each
        for each in study.grid
        if (each.device, each.method, each.preload_share) == (device.name, method, share) and each.outcome is not None
    ]
    return {each.deadline_share: each for each in sorted(found, key=lambda each: each.deadline_share)}


def common(*ways: ByDeadline) -> list[float]:
    """Deadlines under which all of them ran."""
    return [share for share in ways[0] if all(share in way for way in ways)] if ways else []


def mean_right(study: Study, outcomes: list[Outcome]) -> NDArray[np.float64]:
    """Of each example, the share of these outcomes that have it right."""
    found: NDArray[np.float64] = np.mean([each.right(study.task.examples) for each in outcomes], axis=0, dtype=np.float64)
    return found


def gain(study: Study, first: ByDeadline, second: ByDeadline, shares: list[float] | None = None) -> PairedDifference | None:
    """What the first one has right more than the second, mean over deadlines; None where they share none."""
    asked = common(first, second) if shares is None else [share for share in common(first, second) if share in shares]
    if not asked:
        return None
    sides = ([outcome for share in asked if (outcome := way[share].outcome) is not None] for way in (first, second))
    one, other = (mean_right(study, side) for side in sides)
    return paired_difference(one, other)


def in_time(first: ByDeadline, second: ByDeadline) -> list[float]:
    """Return the deadlines under which both ran and neither was late (errata to STI-22)."""
    return [share for share in common(first, second) if not (first[share].misses or second[share].misses)]


def difference(first: ByDeadline, second: ByDeadline, share: float) -> float:
    """Accuracy of the first less that of the second under one deadline."""
    one, other = first[share].outcome, second[share].outcome
    assert one is not None and other is not None
    return one.accuracy - other.accuracy


def accuracy(way: ByDeadline, shares: Collection[float] | None = None) -> float:
    """Return the mean over deadlines, by default over all under which it ran."""
    points = (point for share, point in way.items() if shares is None or share in shares)
    return fmean(point.outcome.accuracy for point in points if point.outcome is not None)


def missed(way: ByDeadline) -> list[float]:
    """Deadlines that it does not keep."""
    return [share for share, each in way.items() if each.misses]


def at_least(found: PairedDifference, slack: float = 0.0) -> str:
    """Whether the first is no worse than the second by more than `slack`; not distinguishable where the interval holds both."""
    if found.low >= -slack - 1e-12:
        return HOLDS
    return FAILS if found.high < -slack else UNCLEAR


def told(found: PairedDifference) -> str:
    """In points, with the interval."""
    return f"{POINTS * found.difference:+.2f} points ({POINTS * found.low:+.2f} to {POINTS * found.high:+.2f})"


def ratio(first: ByDeadline, second: ByDeadline, value: Callable[[Point], float]) -> float | None:
    """Mean over deadlines of the first one's value over the second one's; None where they share none."""
    pairs = [(value(first[share]), value(second[share])) for share in common(first, second)]
    known = [one / other for one, other in pairs if other > 0.0]
    return fmean(known) if known else None


def percent(shares: list[float]) -> str:
    """Deadlines, for people."""
    return ", ".join(f"{100 * share:g} %" for share in shares)
