"""The table of the gap analysis as text."""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.report.typography import DASH, is_number, number, typeset, typeset_interval
from simnmt.results.gap_words import is_gap
from simnmt.results.summary import Row
from simnmt.results.wording import format_number


def gap_lines(gaps: Sequence[Row]) -> list[dict[str, str]]:
    """One line per source of loss: total, change with its interval, share of the gap where there is one beyond chance."""
    shared = is_gap(gaps)
    lines = []
    for row in gaps:
        change, interval = typeset_interval(row["change_percent"], row["low_percent"], row["high_percent"])
        share = row["share_of_gap_percent"]
        lines.append(
            {
                "policy": row["policy"],
                "removed": row["removed"],
                "total": typeset(format_number(row, "total_latency_s")),
                "change": change,
                "interval": "" if row["removed"] == "nothing" else interval,
                "outcome": _outcome(row),
                "share": number(share, 0) if shared and is_number(share) else DASH,
            }
        )
    return lines


def _outcome(row: Row) -> str:
    low, high = row["low_percent"], row["high_percent"]
    if not is_number(low) or not is_number(high):
        return "one replication"
    if low == high == 0.0:
        return "same"
    return "faster" if high < 0.0 else "slower" if low > 0.0 else "not distinguishable"
