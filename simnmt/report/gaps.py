"""The table of the gap analysis as text."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.report.typography import DASH, is_number, number, signed
from simnmt.results.gap_words import is_gap
from simnmt.results.summary import Row
from simnmt.results.wording import interval_decimals


def gap_lines(gaps: Sequence[Row]) -> list[dict[str, str]]:
    """One line per source of loss: total, change with its interval, share of the gap where there is one beyond chance."""
    shared = is_gap(gaps)
    return [
        {
            "policy": row["policy"],
            "removed": row["removed"],
            "total": number(row["total_latency_s"], 1),
            "change": signed(row["change_percent"], _decimals(row)),
            "interval": _interval(row),
            "outcome": _outcome(row),
            "share": number(row["share_of_gap_percent"], 0) if shared and is_number(row["share_of_gap_percent"]) else DASH,
        }
        for row in gaps
    ]


def _interval(row: Row) -> str:
    low, high = row["low_percent"], row["high_percent"]
    if not is_number(low) or not is_number(high) or row["removed"] == "nothing":
        return ""
    return f"[{signed(low, _decimals(row))}, {signed(high, _decimals(row))}]"


def _decimals(row: Row) -> int:
    low, high = row["low_percent"], row["high_percent"]
    return interval_decimals(low, high) if is_number(low) and is_number(high) else 2


def _outcome(row: Row) -> str:
    low, high = row["low_percent"], row["high_percent"]
    if not is_number(low) or not is_number(high):
        return "one replication"
    if low == high == 0.0:
        return "same"
    return "faster" if high < 0.0 else "slower" if low > 0.0 else "not distinguishable"
