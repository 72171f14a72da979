"""Judge how precise the mean of the replications is, how many replications make it precise, and when not to trust it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, inf, isfinite, log, sqrt

import numpy as np

from simnmt.results.metrics import objective_metric
from simnmt.results.stability import busiest_load
from simnmt.results.statistics import student_quantile
from simnmt.results.summary import Objective, Row, by_cell, objective_column, objective_name, spread_key

MOST_REPLICATIONS = 100
"""Number at which a run stops adding replications, even if its intervals are wide."""
FEWEST_REPLICATIONS = 5
"""Fewer replications estimate their spread too badly to conclude that they suffice."""
WIDE_SPREAD = 2.0
"""Ratio of greatest to least replication from which a note says that replications differ by factors."""
WANTED = 0.1
"""Relative half-width for which such a note gives the replications needed."""
NEAR_SATURATION = 0.7
"""Load of the busiest box from which waits that differ by factors are attributed to saturation."""
LEAST_TAIL = 20
"""Requests beyond a quantile from which 95 % intervals of its change hold the truth 92 times of 100 or more.

Two policies often share their few slowest requests, so that most differences are 0 and the replications do not show their
spread. Least coverage in the worlds of `tests/results/test_coverage.py`, by requests beyond the quantile: p99 60 % with 1,
84 % with 5, 90 % with 10, 93 % with 20; p95 89 % with 5, 90 % with 10, 92 % with 20.
"""
_CAUSES = {
    "queue": " in their waits, though no box is near saturation",
    "execution": " in their execution times",
    "transfer": " in their transfer times",
}
"""Causes of differences between replications, by the part of the latency that differs most."""


def half_width(row: Row, key: str) -> float:
    """Return how far the interval of a row's number reaches from it, relative to it; infinite if it is unknown."""
    value, low, high = row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high")
    if value is None or low is None or high is None or value <= 0.0:
        return inf
    return max(float(high / value - 1.0), float(1.0 - low / value))


def replications_for(row: Row, key: str, wanted: float) -> int:
    """Return about how many replications have intervals of `key` that reach no further than `wanted`, relative to the mean.

    Judged by the side of the interval without the skew: the other side draws in as replications grow. The row has an interval.
    """
    count, value = row["replications"], row[key]
    reach = min(log(row[f"{key}_high"] / value), log(value / row[f"{key}_low"]))
    spreads = np.geomspace(1e-9, 10.0, 10_000)
    spread = float(np.interp(reach, student_quantile(count, spreads) * spreads / sqrt(count), spreads))
    few = np.arange(2, 1_000)
    enough = np.flatnonzero(student_quantile(few, spread) * spread <= wanted * np.sqrt(few))
    return int(few[enough[0]]) if enough.size else ceil((1.96 * spread / wanted) ** 2)


def wide_rows(rows: Sequence[Row], key: str, wanted: float) -> list[Row]:
    """Return the stable rows whose interval of `key` is wider than `wanted`, widest first."""
    wide = [row for row in rows if not row.get("unstable") and half_width(row, key) > wanted]
    return sorted(wide, key=lambda row: -half_width(row, key))


def next_replications(rows: Sequence[Row], objective: Objective, wanted: float) -> int:
    """Return how many replications to run next so that all intervals of the objective become as narrow as `wanted`.

    The present number is returned if they are so already, or if it is the most. It is at most doubled, since few replications
    estimate their spread badly.
    """
    count: int = rows[0]["replications"]
    key = objective_column(objective)
    if count < FEWEST_REPLICATIONS:
        return FEWEST_REPLICATIONS
    wide = wide_rows(rows, key, wanted)
    if not wide or count >= MOST_REPLICATIONS:
        return count
    needed = max(replications_for(row, key, wanted) for row in wide)
    return min(max(needed, count + 1), 2 * count, MOST_REPLICATIONS)


def describe_precision(rows: Sequence[Row], objective: Objective, wanted: float) -> str:
    """Describe whether the intervals of the objective are as narrow as `wanted`, and after how many replications."""
    key, what = objective_column(objective), objective_name(objective)
    count, wide = rows[0]["replications"], wide_rows(rows, key, wanted)
    aim = f"within {100.0 * wanted:g} % of the {what}"
    unstable = sum(bool(row.get("unstable")) for row in rows)
    if unstable == len(rows):
        return f"{count} replications: no policy is stable, so that none has a {what}"
    if not wide:
        left_out = f", {unstable} of {len(rows)} rows being unstable and left out" if unstable else ""
        return f"{count} replications: every interval is {aim}{left_out}"
    half, row = half_width(wide[0], key), wide[0]
    reached = f"reaches {100.0 * half:.2g} % from it" if isfinite(half) else "is not known"
    return (
        f"{count} replications did not suffice for intervals {aim}: that of {row['policy']} for {row['workload']} on "
        f"{row['network']} {reached}"
    )


def spread_notes(rows: Sequence[Row], objective: Objective = "mean") -> Iterator[str]:
    """Yield a sentence for each workload and network where replications of a policy differ by factors, with the cause.

    Both the mean latency and the objective are judged.
    """
    latencies: list[Objective] = list(dict.fromkeys(("mean", objective)))
    for ((workload, network), of_cell), latency in product(by_cell(rows).items(), latencies):
        by_cause: dict[str, list[Row]] = {}
        for row in of_cell:
            if not row.get("unstable") and (row.get(spread_key(latency)) or 1.0) >= WIDE_SPREAD:
                by_cause.setdefault(_cause(row, latency), []).append(row)
        for cause, wide in by_cause.items():
            yield (
                f"{workload} on {network}: replications differ by factors{cause}. Greatest over least "
                f"{objective_name(latency)}: {', '.join(_spread(row, latency) for row in wide)}. "
                "More requests in each replication narrow the intervals as well."
            )


def _cause(row: Row, latency: Objective) -> str:
    """Return the cause of differences between a policy's replications, as the end of a clause; empty if it is unknown."""
    load, part = busiest_load(row), row.get(f"{spread_key(latency)}_part")
    if load is not None and load >= NEAR_SATURATION and part in ("queue", None):
        return " in their waits, as they do near saturation"
    return _CAUSES.get(part or "", "")


def _spread(row: Row, latency: Objective) -> str:
    key = objective_column(latency)
    needed = replications_for(row, key, WANTED) if isfinite(half_width(row, key)) else 0
    enough = f"some {needed:,} replications would make its interval ±{100.0 * WANTED:g} %"
    return f"{row['policy']} {row[spread_key(latency)]:.1f}" + (f" ({enough})" if needed > row["replications"] else "")


def reliable_requests(objective: Objective) -> int:
    """Return the least requests in a replication for which the intervals of an objective's changes are reliable.

    >>> reliable_requests("mean"), reliable_requests("p95"), reliable_requests("p99")
    (1, 400, 2000)
    """
    quantile = objective_metric(objective).quantile
    return 1 if quantile is None else round(LEAST_TAIL / (1.0 - quantile))


def describe_short_tail(objective: Objective, requests: int, replications: int) -> str:
    """Describe changes of an objective, or their intervals, as unreliable; empty if there are enough requests."""
    least = reliable_requests(objective)
    if requests >= least:
        return ""
    what = "The interval of a change" if replications > 1 else "A change"
    return f"{what} of {objective} from {requests:,} requests is not reliable: it takes {least} requests or more."
