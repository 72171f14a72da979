"""The page on elastic pipelines: the paper's figures, trained classifiers' results, pipelines drawn (STI-12, 21 to 27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

from simnmt.papers.kit.page import Figure, Line, Row, Rows, grouped, labelled_groups, line, render_paper, section, table
from simnmt.papers.sti.page_tables import (
    devices,
    greedy,
    grid,
    method_label,
    runs,
    sizes,
    studied_models,
    submodels,
    uniform,
    upgrades,
)
from simnmt.report.page_template import Record
from simnmt.report.pipelines import PipelineTimes, pipeline_svg
from simnmt.report.typography import number, signed, significant

MANY = 2
"""Buffers beyond which a deadline's figure is worth being shown first."""
IN_MEMORY = ("PreloadModel-32", "PreloadModel-6")


def drawings(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """Return a section for each drawing whose data were measured."""
    grid, sizes, uniform = tables["grid"], tables["sizes"], tables["uniform"]
    sections = [_memory(grid, sizes), _deadlines(grid)] if grid else []
    sections += [_sizes(sizes)] if sizes else []
    return sections + ([_uniform(uniform)] if uniform else [])


def _memory(grid: Rows, sizes: Rows) -> dict[str, Any]:
    """Figure 7: accuracy against parameters held between executions, one deadline at a time."""

    def content(rows: Rows) -> dict[str, Any]:
        first = rows[0]
        swept = [
            row for row in sizes if all(row[key] == first[key] for key in ("study", "deadline_ms")) and row["held_mb"] > 0.0
        ]
        known = [row for row in rows if row["accuracy"] is not None]
        plans = {row["held_mb"]: row for row in (*known, *swept) if row["method"] == "STI" and row["held_mb"] > 0.0}
        lines = [_line("STI", list(plans.values()), "held_mb")] if plans else []
        for method in IN_MEMORY:
            points = [row for row in known if row["method"] == method]
            lines += [_line(method, points, "held_mb") | {"mode": "markers"}] if points else []
        held = [value for curve in lines for value in curve["x"]]
        for row in known if held else ():
            if row["method"] not in IN_MEMORY and not row["held_mb"]:
                name = _method_name(row["method"], row["preload_share"])
                name += ", late" if row["misses"] else ""
                level = 100 * row["accuracy"]
                lines.append({"name": name, "x": [min(held), max(held)], "y": [level] * 2, "mode": "lines"})
        reading = f"Under {first['deadline_ms']:,.0f} ms. Ways that hold nothing between executions are level lines. "
        reading += "Working buffers come on top: see the table."
        return _content("parameters held, MB", lines, reading, linear="y")

    choices = [
        (f"{name}, {100 * share:g} %", content(group))
        for name, device_rows in labelled_groups(grid, "study", "device")
        for (share,), group in grouped(device_rows, "deadline_share").items()
    ]
    return section(
        "figure-7-drawn",
        "Figure 7, redrawn: accuracy against memory",
        "By deadline, as a share of the whole model’s computation. The paper’s own figure is not in the source text.",
        choices,
        "Accuracy by parameters held in memory between executions",
        before="gains",
        shown=next((place for place, (_, drawing) in enumerate(choices) if _points_of_sti(drawing) > MANY), 0),
    )


def _points_of_sti(content: Row) -> int:
    return next((len(curve["x"]) for curve in content["lines"] if curve["name"] == "STI"), 0)


def _deadlines(grid: Rows) -> dict[str, Any]:
    def content(rows: Rows) -> dict[str, Any]:
        known = [row for row in rows if row["accuracy"] is not None]
        lines = [
            _line(_method_name(method, share), group, "deadline_ms")
            for (method, share), group in grouped(known, "method", "preload_share").items()
        ]
        late = [row for row in known if row["misses"]]
        if late:
            lines.append(_line("late", late, "deadline_ms") | {"mode": "markers"})
        reading = f"{len(late)} of {len(known)} runs end after their deadline." if late else "Every run keeps its deadline."
        return _content("deadline, ms", lines, reading, linear="y")

    return section(
        "deadlines-drawn",
        "Accuracy by deadline",
        "Each way’s best submodel under each deadline; what is late is marked.",
        [(name, content(device_rows)) for name, device_rows in labelled_groups(grid, "study", "device")],
        "Accuracy by deadline",
        before="submodels",
    )


def _sizes(sizes: Rows) -> dict[str, Any]:
    def content(rows: Rows) -> dict[str, Any]:
        known = [row for row in rows if row["accuracy"] is not None]
        lines = [
            _line(f"{100 * share:g} % of the whole computation", group, "preload_mb")
            for (share,), group in grouped(known, "deadline_share").items()
        ]
        return _content("preload buffer, MB", lines, "The first point has none.", linear=True)

    return section(
        "sizes-drawn",
        "Accuracy by the preload buffer’s size",
        "A line a deadline; the paper has 1 and 5 MB.",
        [(name, content(device_rows)) for name, device_rows in labelled_groups(sizes, "study", "device")],
        "Accuracy by preload buffer",
    )


def _uniform(rows: Rows) -> dict[str, Any]:
    choices = []
    for (study,), study_rows in grouped(rows, "study").items():
        whole = max(study_rows, key=lambda row: (row["layers"], row["slices"], row["bits"]))
        for name in ("bits", "layers", "slices"):
            others = [other for other in ("bits", "layers", "slices") if other != name]
            swept = [row for row in study_rows if all(row[other] == whole[other] for other in others)]
            fixed = " and ".join(f"{whole[other]} {other}" for other in others)
            lines = [_line(f"with {fixed}", swept, name)]
            choices.append((f"{study}: {name}", _content(name, lines, "Every shard at the same bits.", linear="y")))
    return section(
        "uniform-drawn",
        "Bits, layers and slices",
        "One of them at a time, the others as in the whole model.",
        choices,
        "Accuracy of uniform submodels",
    )


def _content(x: str, lines: Sequence[Row], reading: str, *, linear: bool | str) -> dict[str, Any]:
    values = [value for curve in lines for value in curve["y"]]
    low, high = min(values, default=0.0), max(values, default=100.0)
    span = [5.0 * floor(low / 5.0) - 1.0, min(100.5, high + 2.0)]
    return {"x": x, "y": "accuracy, %", "reading": reading, "lines": list(lines), "linear": linear, "span": span}


def _line(name: str, rows: Rows, x: str) -> dict[str, Any]:
    return line(name, rows, x, lambda row: round(100 * row["accuracy"], 4))


def _method_name(method: str, share: float | None) -> str:
    return method_label(method, share, f"{100 * (share or 0.0):.2f} %")


def pictures(timelines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One section, a picture for each group of pipelines."""
    if not timelines:
        return []
    return [
        {
            "id": "pipelines",
            "title": "Pipelines, drawn",
            "note": "Above what the disk reads, below what the processor computes and how long it waits; a box for each layer, "
            "a line for the deadline; MB: preloaded. Figure 8 itself is not in the source text.",
            "drawn": [
                {"heading": group["name"], "svg": pipeline_svg(group["name"], _all(group), group["deadline_s"])}
                for group in timelines
            ],
        }
    ]


def _all(group: Mapping[str, Any]) -> list[PipelineTimes]:
    moments = ("load_begin", "load_end", "compute_begin", "compute_end", "stall")
    return [PipelineTimes(pipeline["name"], *(pipeline[name] for name in moments)) for pipeline in group["pipelines"]]


Records = Sequence[Record]


def render_sti(document: Record) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network. `document`: what `--json` prints."""
    rows = {record["id"]: record["rows"] for record in document["tables"]}
    return render_paper(
        document,
        heading="Elastic pipelining, reproduced",
        matrix_note="By model and device; what the paper’s own figures decide is below.",
        tables=[
            studied_models(document["models"]),
            _gains(rows["gains"]),
            submodels(rows["submodels"]),
            upgrades(rows["upgrades"]),
            uniform(rows["uniform"]),
            sizes(rows["sizes"]),
            _pipeline(rows["pipeline"]),
            _simulated(rows["simulated"]),
            greedy(rows["greedy"]),
            _single_figures(rows["said"]),
            _derived(rows["derived"]),
            _lost(rows["lost"]),
            devices(rows["devices"]),
            grid(rows["grid"]),
            runs(rows["runs"]),
        ],
        drawings=drawings(rows),
        pictures=pictures(document["timelines"]),
    )


def _gains(rows: Records) -> dict[str, Any]:
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


def _pipeline(rows: Records) -> dict[str, Any]:
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


def _simulated(rows: Records) -> dict[str, Any]:
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


def _single_figures(rows: Records) -> dict[str, Any]:
    return table(
        "said",
        "Single figures of the text",
        "All that its sentences give of what its tables and figures showed.",
        ("of", "the text says"),
        [Line(row["what"], (Figure(row["said"], words=True),), published=True) for row in rows],
    )


def _derived(rows: Records) -> dict[str, Any]:
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


def _lost(rows: Records) -> dict[str, Any]:
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
