"""Sections of figures in their former form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simnmt.papers.kit.figures import (
    Curve,
    Row,
    Rows,
    bars,
    curve,
    estimate_bars,
    figure_of,
    grouped,
    labelled_groups,
    line_chart,
    line_series,
)
from simnmt.papers.kit.rendering import claims_table, main_claims_table, matrix_table
from simnmt.report.charts import Chart, Panel
from simnmt.report.page_template import Section

__all__ = [
    "ChartSection",
    "Curve",
    "Drawing",
    "Row",
    "Rows",
    "bars",
    "claims_table",
    "curve",
    "drawing_section",
    "estimate_bars",
    "grouped",
    "labelled_groups",
    "line_chart",
    "line_series",
    "main_claims_table",
    "matrix_table",
    "place_of",
]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A section of the page with charts."""

    id: str
    title: str
    note: str
    panels: Sequence[Panel]
    before: str = ""


@dataclass(frozen=True, slots=True)
class ChartSection:
    """A section of the page with one figure; a reader chooses one of its charts if there are several."""

    id: str
    title: str
    heading: str
    charts: Mapping[str, Chart]
    note: str = ""
    before: str = ""
    chosen: str = ""

    @property
    def panels(self) -> Sequence[Panel]:
        """The one figure, with a control if there are several charts."""
        return figure_of(self.id, self.title, self.heading, self.charts, chosen=self.chosen).panels


def drawing_section(drawing: Drawing | ChartSection, *, folded: bool | None = None) -> Section:
    """Return the section of the page."""
    return Section(drawing.title, drawing.id, [drawing.note] if drawing.note else [], panels=drawing.panels, folded=folded)


def place_of(drawing: Drawing | ChartSection) -> str:
    """Return the id of the table that a section belongs to."""
    return drawing.before or drawing.id.removesuffix("-drawn")
