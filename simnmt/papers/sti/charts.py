"""Charts of the reproduction, and pipelines drawn layer by layer (STI-12, 21 to 24)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any, Literal

import numpy as np

from simnmt.papers.kit.page import ChartSection, Curve, Row, Rows, curve, grouped, labelled_groups, line_chart
from simnmt.papers.sti.paper_claims import LOADED_FIRST, PIPELINE
from simnmt.papers.sti.study import Point, Study
from simnmt.papers.sti.tables import share_label
from simnmt.report.charts import Chart
from simnmt.report.pipelines import DrawnPipeline, pipeline_svg
from simnmt.streaming.plan.timeline import MOMENTS, Timeline

MANY = 2
"""Number of buffers beyond which a deadline's figure is worth being shown first."""
IN_MEMORY = ("PreloadModel-32", "PreloadModel-6")
DRAWN_SHARE = 0.175
"""The deadline that is drawn, or the nearest that a study has: the paper's 200 ms where a layer takes 95 ms."""


def all_charts(tables: Mapping[str, Rows]) -> list[ChartSection]:
    """Return figure 7 from the tables, by their ids, if they have rows."""
    return [_memory(tables["grid"], tables["sizes"])] if tables["grid"] else []


def _memory(grid: Rows, sizes: Rows) -> ChartSection:
    """Draw figure 7: accuracy against parameters held between executions, one deadline at a time."""

    def chart_of(rows: Rows) -> Chart:
        first = rows[0]
        swept = [row for row in sizes if all(row[key] == first[key] for key in ("study", "deadline_ms"))]
        plans = {row["held_mb"]: row for row in (*rows, *swept) if row["method"] == "STI" and row["held_mb"] > 0.0}
        lines = [_line("STI", list(plans.values()), "held_mb")] if plans else []
        for method in IN_MEMORY:
            points = [row for row in rows if row["method"] == method]
            lines += [_line(method, points, "held_mb", mode="markers")] if points else []
        held = [value for line in lines for value in line.x]
        for row in rows if held else ():
            if row["method"] not in IN_MEMORY and not row["held_mb"]:
                name = share_label(row) + (", late" if row["misses"] else "")
                level = 100 * row["accuracy"]
                lines.append(Curve(name, [min(held), max(held)], [level] * 2, "lines"))
        reading = f"Under {first['deadline_ms']:,.0f} ms. Methods that hold nothing between executions are level lines. "
        reading += "Working buffers come on top: see the table."
        return _accuracy_chart("parameters held, MB", lines, reading, linear="y")

    charts = {
        f"{name}, {100 * share:g} %": chart_of(group)
        for name, device_rows in labelled_groups(grid, "study", "device")
        for (share,), group in grouped(device_rows, "deadline_share").items()
    }
    buffers = {name: sum(len(mark.x) for mark in chart.marks if mark.name == "STI") for name, chart in charts.items()}
    return ChartSection(
        "figure-7-drawn",
        "Figure 7, redrawn: accuracy against memory",
        "Accuracy by parameters held in memory between executions",
        charts,
        note="By deadline, as a share of the whole model’s computation. The paper’s own figure is not in the source text.",
        before="gains",
        chosen=next((name for name, count in buffers.items() if count > MANY), ""),
    )


def _accuracy_chart(x: str, lines: Sequence[Curve], reading: str, *, linear: bool | Literal["y"]) -> Chart:
    values = [value for line in lines for value in line.y]
    low, high = min(values, default=0.0), max(values, default=100.0)
    span = (5.0 * floor(low / 5.0) - 1.0, min(100.5, high + 2.0))
    return line_chart(x, "accuracy, %", reading, lines, linear=linear, span=span)


def _line(name: str, rows: Rows, x: str, mode: str = "lines+markers") -> Curve:
    return curve(name, rows, x, lambda row: round(100 * row["accuracy"], 4), mode=mode)


def timelines(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """Return groups of pipelines under one deadline, with the times of every layer in seconds."""
    groups: list[dict[str, Any]] = [
        {
            "name": "Published: six layers of DistilBERT",
            "kind": "published",
            "deadline_s": None,
            "pipelines": [_pipeline("pipeline", PIPELINE), _pipeline("load, then run", LOADED_FIRST)],
        }
    ]
    for study in studies:
        for device in study.devices:
            points = [point for point in study.grid if point.device == device.name]
            if points:
                share = min((point.deadline_share for point in points), key=lambda share: abs(share - DRAWN_SHARE))
                drawn = [point for point in points if point.deadline_share == share]
                groups.append(
                    {
                        "name": f"{study.name}, {device.name}, {100 * share:g} % of the whole computation",
                        "kind": device.kind,
                        "deadline_s": drawn[0].deadline_s,
                        "pipelines": [
                            _pipeline(_pipeline_name(point), point.timeline(device))
                            | {"accuracy": point.outcome.accuracy, "misses": point.misses}
                            for point in drawn
                        ],
                    }
                )
    return groups


def _pipeline_name(point: Point) -> str:
    held = f", {point.held_bytes / 1e6:.3g} MB" if point.preload_share is not None and point.held_bytes else ""
    return f"{point.method}, {point.layers} x {point.slices}{held}"


def _pipeline(name: str, times: Timeline) -> dict[str, Any]:
    moments = {moment: getattr(times, moment).tolist() for moment in MOMENTS}
    return {"name": name, "latency_s": times.latency_s, "stall_s": times.stall_s, **moments}


def _drawn(row: Row) -> DrawnPipeline:
    begun, loaded, computing, computed, stall = (np.array(row[name]) for name in MOMENTS)
    return DrawnPipeline(row["name"], Timeline(begun, loaded, computing, computed, stall))


def pictures(groups: Rows) -> list[Row]:
    """Return the section with a picture for each group of `timelines`."""
    drawn = [
        {
            "heading": group["name"],
            "svg": pipeline_svg(
                group["name"],
                [_drawn(row) for row in group["pipelines"]],
                group["deadline_s"],
            ),
        }
        for group in groups
    ]
    note = (
        "Above what the disk reads, below what the processor computes and how long it waits; a box for each layer, a line for "
        "the deadline; MB: preloaded. Figure 8 itself is not in the source text."
    )
    return [{"id": "pipelines", "title": "Pipelines, drawn", "note": note, "drawn": drawn}]
