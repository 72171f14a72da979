"""How precisely replications tell a latency, and how many of them would tell it as precisely as wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, inf, isfinite, log, sqrt

import numpy as np

from simnmt.results.summary import Row

MOST_REPLICATIONS = 100
"""At which a run that adds replications until its intervals are narrow gives up."""
FEWEST_REPLICATIONS = 5
"""Fewer tell too little about their own spread to conclude from it that they are enough."""
WIDE_SPREAD = 2.0
"""Greatest over least replication from which replications are said to differ by factors."""
WANTED = 0.1
"""Relative half-width for which such a note says how many replications would do."""
_NAMES = {"mean_latency_s": "the mean latency", "p95_latency_s": "p95", "p99_latency_s": "p99"}


def half_width(row: Row, key: str) -> float:
    """Return how far the interval of a row's number reaches from it, relative to it; infinite if it is not known."""
    value, low, high = row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high")
    if value is None or low is None or high is None or value <= 0.0:
        return inf
    return max(float(high / value - 1.0), float(1.0 - low / value))


def replications_for(row: Row, key: str, wanted: float) -> int:
    """Return about how many replications have intervals of `key` that reach no further than `wanted`, relative to the mean.

    Judged by the side of the interval without the skew, which is Student's: the other side draws in as replications grow. The
    row has an interval.
    """
    from scipy.special import stdtrit

    count, value = row["replications"], row[key]
    reach = min(log(row[f"{key}_high"] / value), log(value / row[f"{key}_low"]))
    spread = reach * sqrt(count) / float(stdtrit(count - 1, 0.975))
    few = np.arange(2, 1_000)
    enough = np.flatnonzero(stdtrit(few - 1, 0.975) * spread <= wanted * np.sqrt(few))
    return int(few[enough[0]]) if enough.size else ceil((1.96 * spread / wanted) ** 2)


def wide_rows(rows: Sequence[Row], key: str, wanted: float) -> list[Row]:
    """Return the stable rows whose interval of `key` is wider than `wanted`, widest first."""
    wide = [row for row in rows if not row.get("unstable") and half_width(row, key) > wanted]
    return sorted(wide, key=lambda row: -half_width(row, key))


def next_replications(rows: Sequence[Row], key: str, wanted: float) -> int:
    """Return how many replications to have next so that all intervals of `key` get as narrow as `wanted`.

    The present number if they are so already, or if it is the most. It is at most doubled, since few replications tell
    their own spread badly.
    """
    count: int = rows[0]["replications"]
    if count < FEWEST_REPLICATIONS:
        return FEWEST_REPLICATIONS
    wide = wide_rows(rows, key, wanted)
    if not wide or count >= MOST_REPLICATIONS:
        return count
    needed = max(replications_for(row, key, wanted) for row in wide)
    return min(max(needed, count + 1), 2 * count, MOST_REPLICATIONS)


def describe_precision(rows: Sequence[Row], key: str, wanted: float) -> str:
    """Return a sentence on whether the intervals of `key` are as narrow as `wanted`, and after how many replications."""
    count, wide = rows[0]["replications"], wide_rows(rows, key, wanted)
    aim = f"within {100.0 * wanted:g} % of {_NAMES[key]}"
    unstable = sum(bool(row.get("unstable")) for row in rows)
    if unstable == len(rows):
        return f"{count} replications: no policy is stable, so that none has {_NAMES[key]}"
    if not wide:
        left_out = f", {unstable} of {len(rows)} rows being unstable and left out" if unstable else ""
        return f"{count} replications: every interval is {aim}{left_out}"
    half, row = half_width(wide[0], key), wide[0]
    reached = f"reaches {100.0 * half:.2g} % from it" if isfinite(half) else "is not known"
    return (
        f"{count} replications did not suffice for intervals {aim}: that of {row['policy']} for {row['workload']} on "
        f"{row['network']} {reached}"
    )


def spread_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield one sentence for each workload and network where replications of a policy differ by factors, as near saturation."""
    for workload, network in dict.fromkeys((row["workload"], row["network"]) for row in rows):
        wide = [
            row
            for row in rows
            if (row["workload"], row["network"]) == (workload, network)
            and not row.get("unstable")
            and (row.get("mean_latency_spread") or 1.0) >= WIDE_SPREAD
        ]
        if wide:
            yield (
                f"{workload} on {network}: near saturation replications differ by factors. Greatest over least mean latency: "
                f"{', '.join(_spread(row) for row in wide)}. More requests in each replication narrow the intervals as well."
            )


def _spread(row: Row) -> str:
    needed = replications_for(row, "mean_latency_s", WANTED) if isfinite(half_width(row, "mean_latency_s")) else 0
    enough = f"some {needed:,} replications would make its interval ±{100.0 * WANTED:g} %"
    return f"{row['policy']} {row['mean_latency_spread']:.1f}" + (f" ({enough})" if needed > row["replications"] else "")
