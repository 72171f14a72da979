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
"""Methods with a preload buffer."""
POINTS = 100.0
"""Of accuracy, in 1."""
ByDeadline = Mapping[float, "Point"]
"""By the deadline's share of the whole model's computation, rising."""


def of(study: Study, device: StudiedDevice, method: str, preload_share: float | None = None) -> ByDeadline:
    """Return one method's points on one device, for deadlines under which something was run; empty if it was not measured.

    `preload_share`: for `PLANNED` only; the default is the preload share of the device.
    """
    share = device.preload_share if method in PLANNED and preload_share is None else preload_share
    points = [
        point
        for point in study.grid
        if (point.device, point.method, point.preload_share) == (device.name, method, share) and point.outcome is not None
    ]
    return {point.deadline_share: point for point in sorted(points, key=lambda point: point.deadline_share)}


def common(*compared: ByDeadline) -> list[float]:
    """Return the deadlines under which all of these methods ran."""
    return [share for share in compared[0] if all(share in by_deadline for by_deadline in compared)] if compared else []


def mean_right(study: Study, outcomes: list[Outcome]) -> NDArray[np.float64]:
    """Return the share of these outcomes that answer an example correctly, for every example."""
    share_right: NDArray[np.float64] = np.mean(
        [outcome.right(study.task.examples) for outcome in outcomes], axis=0, dtype=np.float64
    )
    return share_right


def gain(study: Study, first: ByDeadline, second: ByDeadline, shares: list[float] | None = None) -> PairedDifference | None:
    """Return how much more often the first is right than the second, mean over deadlines; None without a common deadline."""
    asked = common(first, second) if shares is None else [share for share in common(first, second) if share in shares]
    if not asked:
        return None
    sides = (
        [outcome for share in asked if (outcome := by_deadline[share].outcome) is not None] for by_deadline in (first, second)
    )
    one, other = (mean_right(study, side) for side in sides)
    return paired_difference(one, other)


def in_time(first: ByDeadline, second: ByDeadline) -> list[float]:
    """Return the deadlines under which both ran and neither was late (errata to STI-22)."""
    return [share for share in common(first, second) if not (first[share].misses or second[share].misses)]


def difference(first: ByDeadline, second: ByDeadline, share: float) -> float:
    """Return the accuracy of the first less that of the second under one deadline."""
    one, other = first[share].outcome, second[share].outcome
    assert one is not None and other is not None
    return one.accuracy - other.accuracy


def accuracy(by_deadline: ByDeadline, shares: Collection[float] | None = None) -> float:
    """Return the mean over deadlines, by default over all under which it ran."""
    points = (point for share, point in by_deadline.items() if shares is None or share in shares)
    return fmean(point.outcome.accuracy for point in points if point.outcome is not None)


def missed(by_deadline: ByDeadline) -> list[float]:
    """Return the deadlines that the method misses."""
    return [share for share, point in by_deadline.items() if point.misses]


def at_least(paired: PairedDifference, slack: float = 0.0) -> str:
    """Return the verdict on "the first is at most `slack` worse than the second"; UNCLEAR if the interval allows both."""
    if paired.low >= -slack - 1e-12:
        return HOLDS
    return FAILS if paired.high < -slack else UNCLEAR


def told(paired: PairedDifference) -> str:
    """Format a difference in points, with its interval."""
    return f"{POINTS * paired.difference:+.2f} points ({POINTS * paired.low:+.2f} to {POINTS * paired.high:+.2f})"


def ratio(first: ByDeadline, second: ByDeadline, value: Callable[[Point], float]) -> float | None:
    """Return the mean over deadlines of the first value over the second; None without a common deadline."""
    pairs = [(value(first[share]), value(second[share])) for share in common(first, second)]
    known = [one / other for one, other in pairs if other > 0.0]
    return fmean(known) if known else None


def percent(shares: list[float]) -> str:
    """Format deadlines as percentages of the whole computation."""
    return ", ".join(f"{100 * share:g} %" for share in shares)
