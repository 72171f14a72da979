"""Charts of the reproduction: Table 2 drawn, figures 2 to 4 redrawn with the paper's points, sweep and training text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simnmt.papers.fvp import published
from simnmt.papers.kit.page import Row, Rows, grouped, labelled_groups, section
from simnmt.papers.kit.table import Table

MOST_POINTS = 300
"""Points of a line of figure 4, which is smooth."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line, or points."""

    name: str
    x: list[float]
    y: list[float]
    mode: str = "lines+markers"


@dataclass(frozen=True, slots=True)
class Content:
    """Curves with their axes, and the sentence below them."""

    x: str
    y: str
    reading: str
    lines: list[Curve]
    linear: bool = True


@dataclass(frozen=True, slots=True)
class LineChart:
    """A chart with a choice among its contents; it stands before the table `before`."""

    id: str
    title: str
    note: str
    heading: str
    contents: list[tuple[str, Content]]
    before: str = ""

    def section(self) -> dict[str, Any]:
        """Return the section of the page."""
        choices = [(name, asdict(content)) for name, content in self.contents]
        return section(self.id, self.title, self.note, choices, self.heading, before=self.before)


def all_charts(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return the charts of the tables that have rows, as the page takes them."""
    drawings = {
        "table-2": _projection,
        "figure-2": _languages,
        "figure-3": _speeds,
        "sweep": _sweep,
        "volume": _volume,
        "figure-4": _sets,
    }
    rows = {table.id: table.rows for table in tables}
    return [draw(rows[identifier]).section() for identifier, draw in drawings.items() if rows[identifier]]


def _by_direction(rows: Rows, content: Callable[[Rows], Content]) -> list[tuple[str, Content]]:
    return [(name, content(group)) for name, group in labelled_groups(rows, "model", "label")]


def _curve(name: str, rows: Rows, x: str, value: Callable[[Row], float]) -> Curve:
    in_order = sorted(rows, key=lambda row: float(row[x]))
    return Curve(name, [row[x] for row in in_order], [value(row) for row in in_order])


def _by_top(rows: Rows, value: Callable[[Row], float]) -> list[Curve]:
    return [_curve(f"K = {top}", group, "clusters", value) for (top,), group in grouped(rows, "top").items()]


def _projection(rows: Rows) -> LineChart:
    """Draw Table 2 as points, with the line through each model's six points."""
    lines = []
    for name in dict.fromkeys(row["model"] for row in rows if row["kind"] == "published"):
        model_rows = sorted((row for row in rows if row["model"] == name), key=lambda row: row["active_percent"])
        percent = [row["active_percent"] for row in model_rows]
        lines.append(Curve(f"{name}, Table 2", percent, [row["us"] for row in model_rows], "markers"))
        lines.append(Curve(f"{name}, line", percent, [row["line_us"] for row in model_rows], "lines"))
    reading = "Published alone: a V100 in float16, by default 720 and 600 microseconds."
    content = Content("columns active, %", "microseconds", reading, lines)
    return LineChart(
        "projection-drawn",
        "Table 2, drawn",
        "Time of the projection by what is active, and the line through each model's six points.",
        "Time of a projection by active columns",
        [("", content)],
        before="table-2",
    )


def _languages(rows: Rows) -> LineChart:
    """Draw figure 2: the largest active set by clusters and by known languages."""
    known = {"both": "source and target known", "target": "target known", "mixed, same size": "target known, as much text"}

    def content(direction_rows: Rows) -> Content:
        lines = [
            _curve(f"{known[what]}, K = {top}", group, "clusters", lambda row: 100 * row["set_most"])
            for (what, top), group in grouped(direction_rows, "knowledge", "top").items()
        ]
        lines += [
            Curve(f"published: {known[what]}", [published.FIGURE_2_CLUSTERS], [percent], "markers")
            for what, percent in published.FIGURE_2.items()
        ]
        reading = "Published: Italian to English, K = 1, one point each of a vocabulary of 250,000."
        return Content("clusters", "largest active set, % of V", reading, lines)

    return LineChart(
        "figure-2-drawn",
        "Figure 2, redrawn: what knowing the source language spares",
        "The largest active set of any cluster.",
        "Largest active set by clusters",
        _by_direction(rows, content),
    )


def _speeds(rows: Rows) -> LineChart:
    """Draw figure 3: the gain in tokens/s by clusters and K; of the paper's best only the number of clusters is known."""

    def content(direction_rows: Rows) -> Content:
        lines = _by_top(direction_rows, lambda row: row["gain_percent"])
        values = [value for curve in lines for value in curve.y]
        best = max(direction_rows, key=lambda row: row["gain_percent"])
        lines.append(
            Curve("published: fastest here", [published.FIGURE_3_BEST] * 2, [min(0.0, *values), max(0.0, *values)], "lines")
        )
        reading = (
            f"Fastest: {best['clusters']:,} clusters, K = {best['top']}, {best['gain_percent']:+.1f} %; "
            f"{best['sentences']:,} sentences, medians over rounds. Published: "
            f"{published.FIGURE_3_BEST:,} clusters and K = 1; how much is not in the text."
        )
        return Content("clusters", "more tokens a second, %", reading, lines)

    return LineChart(
        "figure-3-drawn",
        "Figure 3, redrawn: speed by clusters and K",
        "Real decoding, end to end, over dense decoding.",
        "Gain end to end by clusters and K",
        [
            (f"{name}, beam {beam}, batch {batch}", content(group))
            for name, direction_rows in labelled_groups(rows, "model", "label")
            for (beam, batch), group in grouped(direction_rows, "beam", "batch").items()
        ],
    )


_SWEPT: dict[str, tuple[str, Callable[[Row], float]]] = {
    "active columns, % of V": ("batch 1", lambda row: 100 * row["share_mean"]),
    "active columns of all rows, % of V": ("many rows", lambda row: 100 * row["union_mean"]),
    "missed tokens, %": ("missed", lambda row: 100 * row["miss_rate"]),
    "sentences the same, %": ("the same", lambda row: 100 * row["identical"]),
}


def _sweep(rows: Rows) -> LineChart:
    """Draw the active columns, misses and identical sentences of the sweep of clusters and K."""
    choices = []
    for name, direction_rows in labelled_groups(rows, "model", "label"):
        for label, (short, value) in _SWEPT.items():
            lines = _by_top(direction_rows, value)
            step_size = f"{direction_rows[0]['union_rows']} rows a step" if short == "many rows" else "one row a step"
            reading = f"Over held-out steps, {step_size}; V is {direction_rows[0]['vocab']:,}."
            content = Content("clusters", label, reading, lines)
            choices.append((f"{name}: {short}", content))
    return LineChart(
        "sweep-drawn",
        "Clusters and K: what is active, missed and kept",
        "Means over held-out text; a sentence is the same where no token of it is missed.",
        "By clusters and K",
        choices,
    )


def _volume(rows: Rows) -> LineChart:
    def content(direction_rows: Rows) -> Content:
        lines = [
            _curve(f"{clusters:,} clusters, K = {top}", group, "training_sentences", lambda row: 100 * row["miss_rate"])
            for (clusters, top), group in grouped(direction_rows, "clusters", "top").items()
        ]
        reading = "Tokens that dense decoding writes and that are not active. Published: 20 million sentences were used."
        # No miss at all has no place on a logarithmic axis.
        linear = any(row["miss_rate"] == 0.0 for row in direction_rows)
        return Content("training sentences", "missed tokens, %", reading, lines, linear)

    return LineChart(
        "volume-drawn",
        "Missed tokens by training text",
        "Each text is the beginning of the next.",
        "Miss rate by training sentences",
        _by_direction(rows, content),
    )


def _sets(rows: Rows) -> LineChart:
    """Draw figure 4: each cluster's share of V, the largest first, with the paper's three values as level lines."""

    def content(direction_rows: Rows) -> Content:
        lines, last = [], max(len(row["columns"]) for row in direction_rows)
        for row in direction_rows:
            places = _thinned(len(row["columns"]))
            shares = [round(100 * row["columns"][place] / row["vocab"], 4) for place in places]
            lines.append(Curve(f"K = {row['top']}", [place + 1 for place in places], shares, "lines"))
        lines += [
            Curve(f"published: cluster 0, K = {top}", [1, last], [percent] * 2, "lines")
            for top, percent in published.FIGURE_4.items()
        ]
        first = ", ".join(f"{100 * row['first'] / row['vocab']:.2f} % at K = {row['top']}" for row in direction_rows)
        reading = f"{direction_rows[0]['clusters']:,} clusters; the one that k-means numbers 0, as the paper quotes: {first}."
        return Content("cluster, by size", "active set, % of V", reading, lines, linear=False)

    return LineChart(
        "figure-4-drawn",
        "Figure 4, redrawn: each cluster's columns",
        "In descending order, as the numbers of clusters mean nothing; published: about 2, 5 and 6 % of cluster 0.",
        "Active set of each cluster",
        _by_direction(rows, content),
        before="table-1",
    )


def _thinned(count: int) -> list[int]:
    """Return the places of at most about `MOST_POINTS`, closer together at the beginning, where the curve is steep."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round((count - 1) ** (at / (MOST_POINTS - 1))) - 1 for at in range(MOST_POINTS)} | {count - 1})
