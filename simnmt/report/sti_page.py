"""The page on elastic pipelines: what the paper's text gives, what trained classifiers say of it, pipelines drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simnmt.report.paper_page import Figure, Line, render_paper, table
from simnmt.report.sti_figures import drawings
from simnmt.report.sti_pictures import pictures
from simnmt.report.sti_tables import devices, greedy, grid, runs, sizes, studied, submodels, uniform, upgrades
from simnmt.report.typography import number, signed, significant

Record = Mapping[str, Any]
Rows = Sequence[Record]


def render_sti(document: Record) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network. `document`: what `--json` prints."""
    rows = {each["id"]: each["rows"] for each in document["tables"]}
    return render_paper(
        document,
        heading="Elastic pipelining, reproduced",
        matrix_note="By model and device; what the paper’s own figures decide is below.",
        listed=True,
        tables=[
            studied(document["models"]),
            _gains(rows["gains"]),
            submodels(rows["submodels"]),
            upgrades(rows["upgrades"]),
            uniform(rows["uniform"]),
            sizes(rows["sizes"]),
            _pipeline(rows["pipeline"]),
            _simulated(rows["simulated"]),
            greedy(rows["greedy"]),
            _said(rows["said"]),
            _derived(rows["derived"]),
            _lost(rows["lost"]),
            devices(rows["devices"]),
            grid(rows["grid"]),
            runs(rows["runs"]),
        ],
        drawings=drawings(rows),
        pictures=pictures(document["timelines"]),
    )


def _gains(rows: Rows) -> dict[str, Any]:
    return table(
        "gains",
        "Points of accuracy gained over each other way",
        "Means over the deadlines that both keep, by which STI-22 is judged, as are the accuracies. All deadlines: also over "
        "those that either misses, where an answer counts however late it is. Published: over GLUE; Table 5 itself is not in "
        "the source text. Missed: deadlines, by STI and by the other. Shards: n x m of STI over the other’s, which stands for "
        "operations.",
        ("over", "kind", "device", "points in time", "deadlines", "STI, %", "other, %", "all deadlines", "missed",
         "missed by the other", "shards"),
        [
            Line(
                row["method"],
                (
                    Figure("", kind=row["kind"]),
                    row["device"],
                    _points_in_time(row),
                    number(row["deadlines"], 0)
                    if row["deadlines_in_time"] is None
                    else f"{row['deadlines_in_time']} of {row['deadlines']}",
                    _shown(row["accuracy_in_time"], 100, 1),
                    _shown(row["accuracy_other_in_time"], 100, 1),
                    "" if row["kind"] == "published" else _points(row["gain"], row["low"], row["high"]),
                    _shown(row["missed"], 1, 0),
                    _shown(row["missed_other"], 1, 0),
                    _shown(row["shards_ratio"], 1, 2),
                ),
                small=row["study"],
                published=row["kind"] == "published",
            )
            for row in rows
        ],
    )  # fmt: skip


def _points_in_time(row: Record) -> str | Figure:
    """Points gained where neither is late; of the paper those that are printed."""
    if row["kind"] == "published":
        return _points(row["gain"], row["low"], row["high"])
    return "" if row["gain_in_time"] is None else _points(row["gain_in_time"], row["low_in_time"], row["high_in_time"])


def _points(gain: float, low: float | None, high: float | None) -> Figure:
    return Figure(signed(gain), "" if low is None or high is None else f"{signed(low)} to {signed(high)}")


def _pipeline(rows: Rows) -> dict[str, Any]:
    return table(
        "pipeline",
        "Real pipelines of BERT’s base size",
        "Threads for reading and computing, the page cache dropped, reads paced. Published: by the times of a layer in section "
        "2.2. Ratio: load, then run over it.",
        ("pipeline", "kind", "pace, MB/s", "ms", "stall, ms", "ratio"),
        [
            Line(
                row["what"],
                (
                    Figure("", kind=row["kind"]),
                    _shown(row["pace_mb_s"], 1, 0),
                    significant(row["latency_ms"], 4),
                    "" if row["stall_ms"] is None else significant(row["stall_ms"], 3),
                    _shown(row["ratio"], 1, 2),
                ),
                published=row["kind"] == "published",
            )
            for row in rows
        ],
    )


def _simulated(rows: Rows) -> dict[str, Any]:
    return table(
        "simulated",
        "Simulated beside measured latency",
        "By costs of reads and layers alone, measured in the same rounds as the plans; off before: by those that were measured "
        "ahead of all rounds. Nothing is fitted to these plans.",
        ("plan", "pace, MB/s", "deadline, ms", "simulated, ms", "measured, ms", "off, %", "off before, %", "stall, %"),
        [
            Line(
                row["what"],
                (
                    _shown(row["pace_mb_s"], 1, 0),
                    _shown(row["deadline_ms"], 1, 1),
                    number(row["simulated_ms"], 1),
                    number(row["measured_ms"], 1),
                    signed(100 * row["off"], 1),
                    signed(100 * row["off_before"], 1),
                    _shown(row["stall_share"], 100, 1),
                ),
            )
            for row in rows
        ],
        folded=len(rows) > 24,
    )


def _said(rows: Rows) -> dict[str, Any]:
    return table(
        "said",
        "Single figures of the text",
        "All that its sentences give of what its tables and figures showed.",
        ("of", "the text says"),
        [Line(row["what"], (Figure(row["said"], words=True),), published=True) for row in rows],
    )


def _derived(rows: Rows) -> dict[str, Any]:
    return table(
        "derived",
        "What follows from the printed figures",
        "Sizes by the shapes of BERT’s base model, the pipeline of section 2.2 by our timeline, means of what is printed.",
        ("what", "value", "unit", "the text says", "beside it"),
        [
            Line(
                row["what"],
                (
                    number(row["value"], 0) if row["value"] >= 1e4 else significant(row["value"], 4),
                    row["unit"],
                    Figure(row["said"], words=True),
                    Figure(row["meaning"], words=True),
                ),
                published=True,
            )
            for row in rows
        ],
    )


def _lost(rows: Rows) -> dict[str, Any]:
    return table(
        "lost",
        "Not in source text",
        "Tables and figures that the text refers to and does not hold.",
        ("lost", "what it showed", "in its place"),
        [
            Line(row["what"], (Figure(row["held"], words=True), Figure(row["stands"], words=True)), published=True)
            for row in rows
        ],
    )


def _shown(value: float | None, times: float, decimals: int) -> str:
    return "" if value is None else number(times * value, decimals)
