"""Figures 2 to 4, redrawn with the paper's points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simnmt.papers.fvp import published
from simnmt.papers.kit.page import ChartSection, Curve, Row, Rows, curve, grouped, labelled_groups, line_chart
from simnmt.papers.kit.table import Table
from simnmt.report.charts import Chart

MOST_POINTS = 300
"""Points of a line of figure 4, which is smooth."""


def all_charts(tables: Sequence[Table]) -> list[ChartSection]:
    """Return the charts of the tables that have rows."""
    drawings = {
        "figure-2": _languages,
        "figure-3": _speeds,
        "figure-4": _sets,
    }
    rows = {table.id: table.rows for table in tables}
    return [draw(rows[identifier]) for identifier, draw in drawings.items() if rows[identifier]]


def _by_direction(rows: Rows, chart: Callable[[Rows], Chart]) -> dict[str, Chart]:
    return {name: chart(group) for name, group in labelled_groups(rows, "model", "label")}


def _by_top(rows: Rows, value: Callable[[Row], float]) -> list[Curve]:
    return [curve(f"K = {top}", group, "clusters", value) for (top,), group in grouped(rows, "top").items()]


def _languages(rows: Rows) -> ChartSection:
    """Draw figure 2: the largest active set by clusters and by known languages."""
    known = {"both": "source and target known", "target": "target known", "mixed, same size": "target known, as much text"}

    def chart_of(direction_rows: Rows) -> Chart:
        lines = [
            curve(f"{known[what]}, K = {top}", group, "clusters", lambda row: 100 * row["set_most"])
            for (what, top), group in grouped(direction_rows, "knowledge", "top").items()
        ]
        lines += [
            Curve(f"published: {known[what]}", [published.FIGURE_2_CLUSTERS], [percent], "markers")
            for what, percent in published.FIGURE_2.items()
        ]
        reading = "Published: Italian to English, K = 1, one point each of a vocabulary of 250,000."
        return line_chart("clusters", "largest active set, % of V", reading, lines, linear=True)

    return ChartSection(
        "figure-2-drawn",
        "Figure 2, redrawn: what knowing the source language spares",
        "Largest active set by clusters",
        _by_direction(rows, chart_of),
        note="The largest active set of any cluster.",
    )


def _speeds(rows: Rows) -> ChartSection:
    """Draw figure 3: the gain in tokens/s by clusters and K; of the paper's best only the number of clusters is known."""

    def chart_of(direction_rows: Rows) -> Chart:
        lines = _by_top(direction_rows, lambda row: row["gain_percent"])
        values = [value for line in lines for value in line.y]
        best = max(direction_rows, key=lambda row: row["gain_percent"])
        lines.append(
            Curve("published: fastest here", [published.FIGURE_3_BEST] * 2, [min(0.0, *values), max(0.0, *values)], "lines")
        )
        reading = (
            f"Fastest: {best['clusters']:,} clusters, K = {best['top']}, {best['gain_percent']:+.1f} %; "
            f"{best['sentences']:,} sentences, medians over rounds. Published: "
            f"{published.FIGURE_3_BEST:,} clusters and K = 1; how much is not in the text."
        )
        return line_chart("clusters", "more tokens a second, %", reading, lines, linear=True)

    return ChartSection(
        "figure-3-drawn",
        "Figure 3, redrawn: speed by clusters and K",
        "Gain end to end by clusters and K",
        {
            f"{name}, beam {beam}, batch {batch}": chart_of(group)
            for name, direction_rows in labelled_groups(rows, "model", "label")
            for (beam, batch), group in grouped(direction_rows, "beam", "batch").items()
        },
        note="Real decoding, end to end, over dense decoding.",
    )


def _sets(rows: Rows) -> ChartSection:
    """Draw figure 4: each cluster's share of V, the largest first, with the paper's three values as level lines."""

    def chart_of(direction_rows: Rows) -> Chart:
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
        return line_chart("cluster, by size", "active set, % of V", reading, lines)

    return ChartSection(
        "figure-4-drawn",
        "Figure 4, redrawn: each cluster's columns",
        "Active set of each cluster",
        _by_direction(rows, chart_of),
        note="In descending order, as the numbers of clusters mean nothing; published: about 2, 5 and 6 % of cluster 0.",
        before="table-1",
    )


def _thinned(count: int) -> list[int]:
    """Return the places of at most about `MOST_POINTS`, closer together at the beginning, where the curve is steep."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round((count - 1) ** (at / (MOST_POINTS - 1))) - 1 for at in range(MOST_POINTS)} | {count - 1})
