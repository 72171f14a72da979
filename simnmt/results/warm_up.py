"""Leave out the warm-up of a run that starts empty: the rule MSER-5, and the sentences on what was left out.

Source: K. P. White, An effective truncation heuristic for bias reduction in simulation output, Simulation 69 (1997), 323-334;
with batches of five: K. P. White, M. J. Cobb and S. C. Spratt, A comparison of five steady-state truncation heuristics for
simulation, Winter Simulation Conference 2000, 755-760.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.results.summary import Row, by_cell

BATCH = 5
"""Requests whose mean is one observation."""


def mser5_cut(latency_s: NDArray[np.float64]) -> int:
    """Return how many requests at the beginning of a run MSER-5 leaves out.

    The latencies are cut into means of five. Of all cuts up to the middle, the one is chosen that leaves the mean of the rest
    with the least standard error, as if the rest were independent; of equal ones the shortest. Requests without an answer (NaN)
    count in no mean.

    Args:
        latency_s: in the order of issue.

    Example:
        >>> mser5_cut(np.array([0.0] * 5 + [9.0, 11.0, 10.0, 10.0, 10.0] * 7))
        5
    """
    batches = latency_s[: len(latency_s) // BATCH * BATCH].reshape(-1, BATCH)
    counts = (~np.isnan(batches)).sum(axis=1)
    means = np.where(counts > 0, np.nansum(batches, axis=1) / np.maximum(counts, 1), np.nan)
    answered = np.flatnonzero(~np.isnan(means))
    if len(answered) < 2:
        return 0
    # Deviations from the mean of all, since sums of squares lose digits where the mean is large; from the end, so that the sums
    # of every rest are running ones.
    deviations = (means[answered] - means[answered].mean())[::-1]
    counts = np.arange(1, len(answered) + 1)
    squares = np.cumsum(deviations**2) - np.cumsum(deviations) ** 2 / counts
    errors = (np.maximum(squares, 0.0) / counts**2)[::-1]
    cut = int(np.argmin(errors[: len(answered) // 2 + 1]))
    return 0 if cut == 0 else BATCH * int(answered[cut])


def warm_up_notes(rows: Sequence[Row], *, by_rule: bool) -> Iterator[str]:
    """Yield a sentence for each workload and network on the requests that were left out as warm-up.

    `by_rule`: True if MSER-5 chose their number, False if the scenario states it.
    """
    for (workload, network), (row, *_) in by_cell(rows).items():
        if row.get("warm_up_requests"):
            chosen = ", chosen by MSER-5 (mean over the replications)" if by_rule else ""
            yield (
                f"{workload} on {network}: the first {row['warm_up_requests']:,.0f} of {row['requests']:,} requests are warm-up"
                f"{chosen}. Only batches, streams, energy, money, faults, figures and requests.parquet count them."
            )
