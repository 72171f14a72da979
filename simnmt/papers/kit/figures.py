"""Figures of a reproduction: curves, bars and stacks, on the charts of `simnmt.report`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from simnmt.report.charts import DASHES, SYMBOLS, Axis, Chart, Control, Mark, Panel, Values, plain, series_colour, short
from simnmt.report.page_template import Section
from simnmt.report.table import read_value
from simnmt.report.typography import significant
from simnmt.results.statistics import Estimate

Row = Mapping[str, Any]
Rows = Sequence[Row]
T = TypeVar("T")
PATTERNS = ("", "/", "x", ".", "\\", "+", "-", "|")


@dataclass(frozen=True, slots=True)
class Figure:
    """A section of the page with charts."""

    id: str
    title: str
    panels: Sequence[Panel]
    note: str = ""
    before: str = ""
    """Id of the table that the section precedes; empty: its own id without `-drawn`, or after all tables."""

    @property
    def place(self) -> str:
        """Id of the table that the figure belongs to."""
        return self.before or self.id.removesuffix("-drawn")

    def section(self, *, folded: bool | None = None) -> Section:
        """Return the section of the page."""
        return Section(self.title, self.id, [self.note] if self.note else [], panels=self.panels, folded=folded)


def figure_of(
    name: str, title: str, heading: str, charts: Mapping[str, Chart], *, note: str = "", before: str = "", chosen: str = ""
) -> Figure:
    """Return a figure with one chart, which a reader chooses by its name, such as a device, if there are several.

    `chosen`: the chart shown first; empty: the first one.
    """
    names = list(charts)
    options = [(str(place), name) for place, name in enumerate(names)]
    controls = [Control("of", "Of", options, str(names.index(chosen or names[0])))] if len(names) > 1 else []

    def draw(place: str = "0") -> Chart:
        return charts[names[int(place)]]

    return Figure(name, title, [Panel(name, heading, f"{title}: {heading}", draw, controls, across=True)], note, before)


class Curve(NamedTuple):
    """A line, or points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    mode: str = "lines+markers"


def curve(name: str, rows: Iterable[Any], x: str, value: Callable[[Any], float]) -> Curve:
    """Return the curve through the rows, sorted by their attribute or key `x`, with the heights `value(row)`."""
    in_order = sorted(rows, key=lambda row: read_value(row, x))
    return Curve(name, [round(read_value(row, x), 6) for row in in_order], [value(row) for row in in_order])


def line_chart(
    x: str,
    y: str,
    reading: str,
    curves: Iterable[Curve],
    *,
    linear: bool | Literal["y"] = False,
    span: tuple[float, float] | None = None,
) -> Chart:
    """Return a chart of curves; axes are logarithmic unless `linear` (both, or y alone); `span`: what the y axis shows."""
    marks = [line_series(item.name, item.x, item.y, place, mode=item.mode) for place, item in enumerate(curves)]
    return Chart(marks, Axis(x, log=linear is not True), Axis(y, log=not linear, span=span, from_zero=span is None), reading)


def line_series(name: str, x: Values, y: Values, place: int, *, mode: str = "lines+markers") -> Mark:
    """Return the line at `place` with its own colour, dash and symbol; `mode`: as in plotly."""
    symbol = SYMBOLS[place % len(SYMBOLS)] if "markers" in mode else ""
    return Mark(
        "line" if "lines" in mode else "points", x, y, short(name, 40), series_colour(place), DASHES[place % len(DASHES)], 1.8,
        symbol, 6.0 if "lines" in mode else 9.0,
    )  # fmt: skip


def bars(
    names: Sequence[str],
    unit: str,
    reading: str,
    series: Mapping[str, Sequence[float | None]],
    *,
    stacked: bool = False,
    spans: Mapping[str, Sequence[tuple[float | None, float | None]]] | None = None,
) -> Chart:
    """Return groups of bars, one group a name and one bar a series; `reading` is the sentence below them.

    `spans`: ends of the whiskers of each series.
    """
    groups, hover = [plain(name).replace(", ", "<br>") for name in names], f"%{{y:.4~g}} {plain(unit)}"
    marks = []
    for place, (name, heights) in enumerate(series.items()):
        text = None if stacked else ["" if value is None else significant(value, 3) for value in heights]
        low, high = (list(ends) for ends in zip(*spans[name], strict=True)) if spans else (None, None)
        mark = Mark("bars", groups, heights, short(name, 40), series_colour(place), low=low, high=high, hover=hover, text=text)
        marks.append(replace(mark, pattern=PATTERNS[place % len(PATTERNS)]))
    tops = [value for mark in marks for value in (mark.high or mark.y) if value is not None]
    span = None if stacked else (min(0.0, 1.14 * min(tops, default=0.0)), 1.14 * max(0.0, *tops, 1e-9))
    return Chart(marks, Axis(), Axis(unit, span=span, from_zero=True), reading, stacked=stacked)


def estimate_bars(rows: Iterable[tuple[str, str, Estimate]], unit: str, reading: str) -> Chart:
    """Return groups of bars with whiskers; a bar is the name of its group, the name of its series, and its value."""
    names: dict[str, None] = {}
    series: dict[str, list[Estimate]] = {}
    for name, of_series, estimate in rows:
        names[name] = None
        series.setdefault(of_series, []).append(estimate)
    heights = {name: [item.mean for item in items] for name, items in series.items()}
    spans = {name: [(item.low, item.high) for item in items] for name, items in series.items()}
    return bars(list(names), unit, reading, heights, spans=spans)


def grouped(rows: Iterable[T], *keys: str, order: str | Callable[[T], Any] | None = None) -> dict[tuple[Any, ...], list[T]]:
    """Group the rows by the values of `keys`, attributes or keys of a row.

    The groups come in the order of their first rows. Each group keeps the order of its rows, or is sorted by `order`, an
    attribute, a key or a function of a row.
    """
    groups: dict[tuple[Any, ...], list[T]] = {}
    for row in rows:
        groups.setdefault(tuple(read_value(row, key) for key in keys), []).append(row)
    if order is None:
        return groups
    return {key: sorted(group, key=lambda row: read_value(row, order)) for key, group in groups.items()}
