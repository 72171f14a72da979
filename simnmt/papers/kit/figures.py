"""Figures of a reproduction, on the charts of `simnmt.report`, and rows by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from simnmt.report.charts import Chart, Control, Panel
from simnmt.report.page_template import Section
from simnmt.report.table import read_value

Row = Mapping[str, Any]
Rows = Sequence[Row]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """A section of the page with charts."""

    id: str
    title: str
    panels: Sequence[Panel]
    note: str = ""

    def section(self, *, folded: bool | None = None) -> Section:
        return Section(self.title, self.id, [self.note] if self.note else [], panels=self.panels, folded=folded)


def figure_of(name: str, title: str, heading: str, charts: Mapping[str, Chart], *, note: str = "") -> Figure:
    """Return a figure with one chart, which a reader chooses by its name, such as a device, if there are several."""
    names = list(charts)
    options = [(str(place), name) for place, name in enumerate(names)]
    controls = [Control("of", "Of", options, "0")] if len(names) > 1 else []

    def draw(place: str = "0") -> Chart:
        return charts[names[int(place)]]

    return Figure(name, title, [Panel(name, heading, f"{title}: {heading}", draw, controls, across=True)], note)


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
