"""Judge how precise the mean of the replications is, how many replications make it precise, and when not to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

from simnmt.results.metrics import objective_metric
from simnmt.results.summary import Objective, Row, objective_name

MOST_REPLICATIONS = 100
"""Number at which a run stops adding replications, even if its intervals are wide."""
FEWEST_REPLICATIONS = 5
"""Fewer replications estimate their spread too badly to conclude that they suffice."""
LEAST_TAIL = 20
"""Requests beyond a quantile from which 95 % intervals of its change hold the truth 92 times of 100 or more.

Two policies often share their few slowest requests, so that most differences are 0 and the replications do not show their
spread. Least coverage in the worlds of `tests/results/test_coverage.py`, by requests beyond the quantile: p99 60 % with 1,
84 % with 5, 90 % with 10, 93 % with 20; p95 89 % with 5, 90 % with 10, 92 % with 20.
"""


def half_width(row: Row, key: str) -> float:
    """Return how far the interval of a row's number reaches from it, relative to it; infinite if it is unknown."""
    value, low, high = row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high")
    if value is None or low is None or high is None or value <= 0.0:
        return inf
    return max(float(high / value - 1.0), float(1.0 - low / value))


def next_replications(rows: Sequence[Row], objective: Objective, wanted: float) -> int:
    """Return how many replications to run next so that all intervals of the objective become as narrow as `wanted`.

    The present number is returned if those of all stable rows are so already, or if it is the most. It is at most doubled,
    since few replications estimate their spread badly.
    """
    count: int = rows[0]["replications"]
    key = objective_metric(objective).column
    if count < FEWEST_REPLICATIONS:
        return FEWEST_REPLICATIONS
    widest = max((half_width(row, key) for row in rows if not row.get("unstable")), default=0.0)
    if widest <= wanted or count >= MOST_REPLICATIONS:
        return count
    return min(ceil(count * min((widest / wanted) ** 2, 2.0)), MOST_REPLICATIONS)


def describe_precision(rows: Sequence[Row], objective: Objective, wanted: float) -> str:
    """Describe how wide the intervals of the objective are after how many replications, beside what was wanted."""
    key, stable = objective_metric(objective).column, [row for row in rows if not row.get("unstable")]
    if not stable:
        return f"{rows[0]['replications']} replications: no policy is stable, so none has a {objective_name(objective)}"
    widest = max(stable, key=lambda row: half_width(row, key))
    half = half_width(widest, key)
    return (
        f"{rows[0]['replications']} replications {'suffice' if half <= wanted else 'do not suffice'} for intervals within "
        f"{100.0 * wanted:g} % of the {objective_name(objective)}: the widest reaches {100.0 * half:.2g} % from it "
        f"({widest['policy']} for {widest['workload']} on {widest['network']})"
    )


def reliable_requests(objective: Objective) -> int:
    """Return the least requests in a replication for which the intervals of an objective's changes are reliable.

    >>> reliable_requests("mean"), reliable_requests("p95"), reliable_requests("p99")
    (1, 400, 2000)
    """
    quantile = objective_metric(objective).quantile
    return 1 if quantile is None else round(LEAST_TAIL / (1.0 - quantile))


def describe_short_tail(objective: Objective, requests: int) -> str:
    """Describe changes of an objective and their intervals as unreliable; empty if there are enough requests."""
    least = reliable_requests(objective)
    if requests >= least:
        return ""
    return f"Changes of {objective} from {requests:,} requests are not reliable: that takes {least} requests or more."
