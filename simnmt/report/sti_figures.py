"""What the figures of the page on elastic pipelines show, as plain numbers (STI-22 to 24, 27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

from simnmt.report.line_sections import Row, Rows, grouped, line, named, section
from simnmt.report.sti_tables import named_way

MANY = 2
"""Buffers beyond which a deadline's figure is worth being shown first."""
IN_MEMORY = ("PreloadModel-32", "PreloadModel-6")


def drawings(tables: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """One section each; what was not measured has none."""
    grid, sizes, uniform = tables["grid"], tables["sizes"], tables["uniform"]
    sections = [_memory(grid, sizes), _deadlines(grid)] if grid else []
    sections += [_sizes(sizes)] if sizes else []
    return sections + ([_uniform(uniform)] if uniform else [])


def _memory(grid: Rows, sizes: Rows) -> dict[str, Any]:
    """Figure 7: accuracy against parameters held between executions, one deadline at a time."""

    def content(own: Rows) -> dict[str, Any]:
        first = own[0]
        swept = [
            row for row in sizes if all(row[key] == first[key] for key in ("study", "deadline_ms")) and row["held_mb"] > 0.0
        ]
        known = [row for row in own if row["accuracy"] is not None]
        plans = {row["held_mb"]: row for row in (*known, *swept) if row["method"] == "STI" and row["held_mb"] > 0.0}
        lines = [_line("STI", list(plans.values()), "held_mb")] if plans else []
        for method in IN_MEMORY:
            points = [row for row in known if row["method"] == method]
            lines += [_line(method, points, "held_mb") | {"mode": "markers"}] if points else []
        held = [value for each in lines for value in each["x"]]
        for row in known if held else ():
            if row["method"] not in IN_MEMORY and not row["held_mb"]:
                name = _way(row["method"], row["preload_share"])
                name += ", late" if row["misses"] else ""
                level = 100 * row["accuracy"]
                lines.append({"name": name, "x": [min(held), max(held)], "y": [level] * 2, "mode": "lines"})
        reading = f"Under {first['deadline_ms']:,.0f} ms. Ways that hold nothing between executions are level lines. "
        reading += "Working buffers come on top: see the table."
        return _content("parameters held, MB", lines, reading, linear="y")

    choices = [
        (f"{name}, {100 * share:g} %", content(group))
        for name, own in named(grid, "study", "device")
        for (share,), group in grouped(own, "deadline_share").items()
    ]
    return section(
        "figure-7-drawn",
        "Figure 7, redrawn: accuracy against memory",
        "By deadline, as a share of the whole model’s computation. The paper’s own figure is not in the source text.",
        choices,
        "Accuracy by parameters held in memory between executions",
        before="gains",
        shown=next((place for place, (_, own) in enumerate(choices) if _points_of_sti(own) > MANY), 0),
    )


def _points_of_sti(content: Row) -> int:
    return next((len(each["x"]) for each in content["lines"] if each["name"] == "STI"), 0)


def _deadlines(grid: Rows) -> dict[str, Any]:
    def content(own: Rows) -> dict[str, Any]:
        known = [row for row in own if row["accuracy"] is not None]
        lines = [
            _line(_way(method, share), group, "deadline_ms")
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
        [(name, content(own)) for name, own in named(grid, "study", "device")],
        "Accuracy by deadline",
        before="submodels",
    )


def _sizes(sizes: Rows) -> dict[str, Any]:
    def content(own: Rows) -> dict[str, Any]:
        known = [row for row in own if row["accuracy"] is not None]
        lines = [
            _line(f"{100 * share:g} % of the whole computation", group, "preload_mb")
            for (share,), group in grouped(known, "deadline_share").items()
        ]
        return _content("preload buffer, MB", lines, "The first point has none.", linear=True)

    return section(
        "sizes-drawn",
        "Accuracy by the preload buffer’s size",
        "A line a deadline; the paper has 1 and 5 MB.",
        [(name, content(own)) for name, own in named(sizes, "study", "device")],
        "Accuracy by preload buffer",
    )


def _uniform(rows: Rows) -> dict[str, Any]:
    choices = []
    for (study,), own in grouped(rows, "study").items():
        whole = max(own, key=lambda row: (row["layers"], row["slices"], row["bits"]))
        for name in ("bits", "layers", "slices"):
            others = [other for other in ("bits", "layers", "slices") if other != name]
            swept = [row for row in own if all(row[other] == whole[other] for other in others)]
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
    values = [value for each in lines for value in each["y"]]
    low, high = min(values, default=0.0), max(values, default=100.0)
    span = [5.0 * floor(low / 5.0) - 1.0, min(100.5, high + 2.0)]
    return {"x": x, "y": "accuracy, %", "reading": reading, "lines": list(lines), "linear": linear, "span": span}


def _line(name: str, rows: Rows, x: str) -> dict[str, Any]:
    return line(name, rows, x, lambda row: round(100 * row["accuracy"], 4))


def _way(method: str, share: float | None) -> str:
    return named_way(method, share, f"{100 * (share or 0.0):.2f} %")
