"""What a real pipeline says: unpacking, loading first, stalls, and how near the simulation is (STI-06, STI-16, STI-21)."""

from __future__ import annotations

from typing import Any

from simnmt.reproduce.sti.pipeline_bars import (
    EVEN,
    FASTER_BY,
    LARGEST_ERROR,
    LEAST_PLANS,
    MOST_STALL,
    UNPACKS_BY,
    why_unjudged,
)
from simnmt.reproduce.sti.pipelines import Measured, machine_of, pipeline_rows, simulated_rows, unpack_ratios
from simnmt.reproduce.sti.studies import Way
from simnmt.reproduce.verdicts import UNKNOWN, Records, record_of

NEEDS = "needs a file of `python -m benchmarks.sti_pipeline --out FILE`: give --pipeline"
FASTER: Way = (
    "STI-16 (a)",
    f"A pipeline of 6-bit shards is at least {FASTER_BY:g} times as fast as loading 32 bits first",
    "",
)
STALLS: Way = (
    "STI-16 (b)",
    f"Plans that are predicted not to stall wait for at most {100 * MOST_STALL:.0f} % of their time",
    "pipelines of one bitwidth stall for more than 72 %",
)
SIMULATED: Way = (
    "STI-16 (c)",
    f"Simulated latency is within {100 * LARGEST_ERROR:.0f} % of what is measured, for every plan",
    "",
)
UNPACKING: Way = (
    "STI-06",
    f"Native unpacking is at least {UNPACKS_BY:g} times as fast as torch or numba, and hardly depends on the bits",
    "within 25 % from 2 to 6 bits",
)
EVERY = (FASTER, STALLS, SIMULATED, UNPACKING)


def pipeline_claims(measured: Measured | None) -> Records:
    """Four claims by one measurement; without one, what they need."""
    if measured is None:
        return [record_of(*way, "", UNKNOWN, NEEDS, basis="needs --pipeline") for way in EVERY]
    unjudged = why_unjudged(measured)
    if unjudged is not None:
        return [_told(measured, way, "", UNKNOWN, unjudged) for way in EVERY]
    return [_faster(measured), _stalls(measured), _simulated(measured), _unpacking(measured)]


def _faster(measured: Measured) -> dict[str, Any]:
    rows = [row for row in pipeline_rows(measured) if row["kind"] == "measured" and row["what"].endswith("6 bits")]
    ours = "; ".join(f"{row['ratio']:.2f} times at {row['pace_mb_s']:g} MB/s" for row in rows)
    why = "16 tokens, cold reads, medians of repeats in turn"
    return _told(measured, FASTER, ours, bool(rows) and all(row["ratio"] >= FASTER_BY for row in rows), why)


def _stalls(measured: Measured) -> dict[str, Any]:
    free = [row for row in simulated_rows(measured) if row["at_skew"] and row["no_stall_predicted"]]
    if len(free) < LEAST_PLANS:
        return _told(measured, STALLS, "", UNKNOWN, f"{len(free)} such plans, of {LEAST_PLANS} that are asked for")
    shares = sorted(100 * row["stall_share"] for row in free)
    ours = f"{shares[0]:.1f} to {shares[-1]:.1f} % of {len(free)} plans"
    why = f"paced to {free[0]['pace_mb_s']:.0f} MB/s, where 32 bits of a layer load for 3.57 times as long as it computes"
    return _told(measured, STALLS, ours, shares[-1] <= 100 * MOST_STALL, why)


def _simulated(measured: Measured) -> dict[str, Any]:
    rows = simulated_rows(measured)
    if not rows:
        return _told(measured, SIMULATED, "", UNKNOWN, "no plan was measured")
    off = [abs(row["off"]) for row in rows]
    within = sum(each <= LARGEST_ERROR for each in off)
    ours = f"{within} of {len(off)} plans; off by {100 * max(off):.1f} % at most, {100 * sum(off) / len(off):.1f} % on average"
    before = max(abs(row["off_before"]) for row in rows)
    why = (
        "deadlines, preload buffers and paces; costs of reads and layers alone, from the same rounds as the plans and not "
        f"fitted to them; by costs measured ahead of all rounds it is {100 * before:.1f} % at most"
    )
    return _told(measured, SIMULATED, ours, within == len(off), why)


def _unpacking(measured: Measured) -> dict[str, Any]:
    least, even = unpack_ratios(measured)
    ours = f"{least:.2f} times as fast; 6 bits at {100 * even:.0f} % of the speed of 2"
    return _told(measured, UNPACKING, ours, least >= UNPACKS_BY and even >= EVEN, "one thread; the least over bits")


def _told(measured: Measured, way: Way, ours: str, verdict: bool | str, why: str) -> dict[str, Any]:
    return record_of(*way, ours, verdict, why, device=machine_of(measured), basis="measured")
