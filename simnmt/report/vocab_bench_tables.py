"""The page's tables of the output layer by itself: whole steps, and where all columns win (FVP-09, FVP-15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.report.paper_page import Figure, Line, table
from simnmt.report.typography import number, signed
from simnmt.report.vocab_study_tables import MOST_SHOWN

Rows = Sequence[Mapping[str, Any]]


def bench(rows: Rows) -> dict[str, Any]:
    """Whole steps beside what was predicted of them."""
    return table(
        "bench",
        "The output layer by itself",
        "Whole steps with random weights, so that nothing is translated: exact for the columns that are active. Dense: the "
        "fastest of torch’s products, then the same search. Off: the prediction of a cost fitted to other steps’ stages, where "
        "a step was not fitted.",
        ("box", "kind", "V", "width", "rows", "active, %", "dense, us", "active alone, us", "times as fast", "kept copy",
         "scattered", "overheads, % of dense", "off, %"),
        [
            Line(
                row["box"],
                (
                    Figure("", kind=row["kind"]),
                    number(row["vocab"], 0),
                    number(row["width"], 0),
                    number(row["rows"], 0),
                    number(100 * row["share"], 1),
                    number(row["dense_us"], 0),
                    Figure(number(row["columns_us"], 0), row["way"]),
                    *("" if row[name] is None else number(row[name], 2) for name in ("ratio", "ratio_kept", "ratio_scattered")),
                    number(100 * row["overhead_share"], 1),
                    _off(row),
                ),
            )
            for row in rows
        ],
        folded=len(rows) > MOST_SHOWN,
    )  # fmt: skip


def break_even(rows: Rows) -> dict[str, Any]:
    """Above which share all columns win."""
    return table(
        "break-even",
        "Above which share all columns win",
        "By the fitted costs, in percent of V: active columns straight into the search, scattered as published, and against "
        "all columns by the faster of torch’s products and ours.",
        ("box", "kind", "V", "width", "rows", "clusters", "straight", "scattered", "by any product"),
        [
            Line(
                row["box"],
                (
                    Figure("", kind=row["kind"]),
                    *(number(row[name], 0) for name in ("vocab", "width", "rows", "clusters")),
                    *("never" if row[name] is None else number(100 * row[name], 0) for name in ("columns", "scattered", "own")),
                ),
                small=row["date"],
            )
            for row in rows
        ],
        folded=len(rows) > MOST_SHOWN,
    )


def _off(row: Mapping[str, Any]) -> str:
    if row["fitted"] or row["predicted_us"] is None:
        return ""
    return signed(100 * (row["predicted_us"] / row["columns_us"] - 1.0), 1)
