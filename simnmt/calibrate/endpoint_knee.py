"""The queueing knee of a running service: from repeated levels of load to its greatest throughput, with an interval.

Below the knee a service answers what is offered, and above it what it can: executed = min(offered, knee). A single level may
be disturbed either way. A stall of the service makes it answer less; after a stall of the load generator, many answers seem to
come at once. So the levels near the knee are measured several times, the median of the rounds counts, and levels that
contradict each other after all rounds give no knee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.blocks import Quantiles
from simnmt.profile.endpoint_block import LoadLevel

Floats = NDArray[np.float64]
SATURATED = 0.85
"""Share of the offered load below which a level is saturated."""
GROWTH = 1.1
"""Growth of the throughput from a level to the next from which the ladder goes on, although requests wait."""
NEAR_KNEE = 0.85
"""Share of the greatest throughput from which a saturated level counts for the knee."""
FALL = 0.7
"""Share of the knee below which a higher level contradicts it."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 9
"""Rounds of the levels near the knee: at least so many, and more until the interval is narrow. That of nine values leaves
out the least and the greatest, that of eight none."""
NARROW, WIDE = 1.1, 1.5
"""Ratio of the ends of an interval up to which it needs no further rounds, and from which there is no knee."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class LevelRound:
    """One round of one level of the ladder."""

    concurrency: int
    requests: int
    executed: float
    """Seconds of executions alone that were answered in a second."""
    latency_s: tuple[float, ...]
    """From the due moment, of the answered requests."""
    lateness_p99_s: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class UnloadedTime:
    """Mean time of a sentence alone, less the round trip, and its interval."""

    mean_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class Knee:
    """Greatest throughput of a service, in sentences at once; without a figure, the reason."""

    concurrency: float | None = None
    interval: tuple[float, float] | None = None
    reason: str = ""
    """Why there is none although levels are saturated; empty: there is one, or no level is saturated."""


def pool_rounds(rounds: Sequence[LevelRound], mean_s: float) -> LoadLevel:
    """Return one level from its rounds; `mean_s`: mean time of a sentence alone."""
    latency_s = [seconds for one in rounds for seconds in one.latency_s]
    executed = float(np.median([one.executed for one in rounds]))
    return LoadLevel(
        concurrency=rounds[0].concurrency,
        rate_rps=rounds[0].concurrency / mean_s,
        requests=sum(one.requests for one in rounds),
        answered=len(latency_s),
        throughput_rps=executed / mean_s,
        executed=executed,
        executed_rounds=tuple(one.executed for one in rounds),
        latency=Quantiles.of(latency_s) if latency_s else None,
        lateness_p99_s=float(np.median([one.lateness_p99_s for one in rounds])),
    )


def is_saturated(level: LoadLevel) -> bool:
    """Return whether the service executed clearly less than was offered."""
    return level.executed < SATURATED * level.concurrency


def is_refused(level: LoadLevel) -> bool:
    """Return whether requests were refused or not answered in time."""
    return level.answered < level.requests


def is_ladder_done(levels: Sequence[LoadLevel]) -> bool:
    """Return whether the last level was refused, or two levels are saturated and the last one answers no faster."""
    if not levels:
        return False
    if is_refused(levels[-1]):
        return True
    saturated = len(levels) > 1 and is_saturated(levels[-1]) and is_saturated(levels[-2])
    return saturated and levels[-1].executed <= GROWTH * levels[-2].executed


def levels_to_repeat(levels: Sequence[LoadLevel]) -> list[int]:
    """Return the levels whose next round says most about the knee; none if it is steady, unknown, or all rounds are done.

    The first level at the knee and its neighbours, and a level above that contradicts them.
    """
    first = next((place for place, level in enumerate(levels) if _is_near_knee(level, levels)), None)
    if first is None:
        return []
    chosen = list(levels[max(first - 1, 0) : first + 2])
    if _contradiction(levels) and levels[-1] not in chosen:
        chosen.append(levels[-1])
    chosen = [level for level in chosen if not is_refused(level)]
    rounds = min((len(level.executed_rounds) for level in chosen), default=MOST_ROUNDS)
    if rounds >= MOST_ROUNDS or (rounds >= LEAST_ROUNDS and _is_steady(levels)):
        return []
    return [int(level.concurrency) for level in chosen if len(level.executed_rounds) == rounds]


def _is_steady(levels: Sequence[LoadLevel]) -> bool:
    plateau = _plateau(levels)
    if not plateau.size or _contradiction(levels):
        return False
    low, high = median_interval(plateau)
    return high <= NARROW * low


def fit_knee(levels: Sequence[LoadLevel], unloaded: UnloadedTime) -> Knee:
    """Return the knee: the median over all rounds of the saturated levels near the greatest throughput.

    The interval holds the median's own and that of the time alone, which is the unit.
    """
    plateau = _plateau(levels)
    if not plateau.size:
        return Knee()
    if contradiction := _contradiction(levels):
        return Knee(reason=contradiction)
    low, high = median_interval(plateau)
    low, high = low * unloaded.low_s / unloaded.mean_s, high * unloaded.high_s / unloaded.mean_s
    if high > WIDE * low:
        cause = "the levels differ from round to round"
        if unloaded.high_s > WIDE**0.5 * unloaded.low_s:
            cause = (
                f"the time of a sentence alone is only known as {1e3 * unloaded.low_s:.3g} to {1e3 * unloaded.high_s:.3g} ms"
            )
        return Knee(reason=f"it lies anywhere from {low:.3g} to {high:.3g} sentences at once, because {cause}")
    return Knee(float(np.median(plateau)), (low, high))


def _is_near_knee(level: LoadLevel, levels: Sequence[LoadLevel]) -> bool:
    """Return whether a level is saturated and executed nearly as much as any saturated level."""
    most = max((other.executed for other in levels if is_saturated(other)), default=0.0)
    return is_saturated(level) and level.executed > 0.0 and level.executed >= NEAR_KNEE * most


def _plateau(levels: Sequence[LoadLevel]) -> Floats:
    """Return what was executed in each round of the levels near the knee; empty if none is saturated."""
    near = [level.executed_rounds for level in levels if _is_near_knee(level, levels)]
    return np.array([executed for rounds in near for executed in rounds])


def _contradiction(levels: Sequence[LoadLevel]) -> str:
    """Return how two levels contradict each other; empty if none do."""
    plateau = _plateau(levels)
    if not plateau.size:
        return ""
    knee = float(np.median(plateau))
    saturated = [level for level in levels if is_saturated(level)]
    for level in levels:
        if not is_saturated(level) and level.executed * NEAR_KNEE > knee:
            other = saturated[-1]
            return (
                f"the levels contradict each other: the service executed {level.executed:.3g} at once at a concurrency of "
                f"{level.concurrency:g}, but {other.executed:.3g} at {other.concurrency:g}"
            )
    last = levels[-1]
    if last.executed < FALL * knee and not is_refused(last):
        return (
            f"the levels contradict each other: the service executed {knee:.3g} at once, but {last.executed:.3g} at a "
            f"concurrency of {last.concurrency:g}"
        )
    return ""


def median_interval(values: Floats) -> tuple[float, float]:
    """Return the interval of the median from the order of `values`, whatever they are distributed like.

    With fewer than six values, least and greatest, which hold the median with less than 95 %.
    """
    from scipy.special import bdtr  # as in results.statistics: scipy.stats would add half a second

    ordered = np.sort(values)
    outside = 0
    while 2.0 * float(bdtr(outside, ordered.size, 0.5)) <= 1.0 - CONFIDENCE:
        outside += 1
    outside = max(outside - 1, 0)
    return float(ordered[outside]), float(ordered[-1 - outside])
