"""The HTML page of a paper: claims with verdicts, plain tables, and charts of lines, bars and stacks."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simnmt.papers.kit.claim import ClaimRecord, JudgedClaim, describe_verdicts, judged_claims
from simnmt.papers.kit.table import Figure as Figure
from simnmt.papers.kit.table import Line as Line
from simnmt.papers.kit.table import read_value
from simnmt.report.charts import Axis, Chart, Control, Panel, bar_chart, bar_series, line_series, pack
from simnmt.report.page_template import Record, render_template
from simnmt.report.typography import DASH

Row = Mapping[str, Any]
Rows = Sequence[Row]
_SCRIPTS = ("tables.js", "charts.js")


def table(
    identifier: str, title: str, note: str, heads: Sequence[str], lines: Iterable[Line], *, folded: bool = False
) -> dict[str, Any]:
    """A section with one table; a cell may be a plain text. For papers that do not yet declare a `Table`."""
    rows = [
        {
            "name": line.name,
            "small": line.small,
            "published": line.published,
            "cells": [cell if isinstance(cell, Figure) else Figure(cell or DASH) for cell in line.cells],
        }
        for line in lines
    ]
    return {"id": identifier, "title": title, "note": note, "heads": list(heads), "lines": rows, "folded": folded}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A section of the page with charts."""

    id: str
    title: str
    note: str
    panels: Sequence[Panel]
    before: str = ""
    """Id of the table that it stands with; empty: after all tables."""


def render_paper(
    document: Mapping[str, Any],
    *,
    heading: str,
    tables: Iterable[Any],
    drawings: Iterable[Drawing | ChartSection | Record],
    matrix_note: str = "",
    pictures: Iterable[Record] = (),
    summary: str = "",
    main_claims: Sequence[str] = (),
    main_charts: Sequence[str] = (),
) -> str:
    """Return the page as text: a summary that is open, and below it everything else, folded.

    Args:
        document: what `--json` prints.
        heading: the page's title.
        tables: a `Table`, or a section as `table` makes it; those without a line are left out.
        drawings: sections with charts. One that is not among the main ones stands with the table that it names as
            `before`, else after all tables.
        matrix_note: stands above the verdicts by device.
        pictures: sections of pipelines, after all tables.
        summary: what the paper claims, in plain words.
        main_claims: identifiers of the claims that the summary shows.
        main_charts: ids of the charts that the summary shows.
    """
    setting = next(table["rows"] for table in document["tables"] if table["id"] == "setting")
    doubts = document.get("doubts", ())
    claims = judged_claims(document["claims"])
    shown = [table for table in tables if (table["lines"] if isinstance(table, dict) else table.columns and table.rows)]
    places = {table["id"] if isinstance(table, dict) else table.id for table in shown}
    return render_template(
        "paper_page.html.j2",
        _SCRIPTS,
        drawings=[_packed(_drawing(item), places, main_charts) for item in drawings],
        document=document,
        eyebrow="simnmt reproduce",
        heading=heading,
        summary=summary or document.get("summary", ""),
        verdicts=describe_verdicts(document["claims"]),
        main_claims=[claim for claim in claims if claim.identifier in main_claims],
        matrix=verdict_matrix(document["claims"]),
        matrix_note=matrix_note,
        groups=claim_groups(document["claims"], doubts),
        doubtful_profiles=doubts,
        tables=shown,
        setting=setting,
        pictures=list(pictures),
    )


@dataclass(frozen=True, slots=True)
class ChartSection:
    """A section of the page with one figure; a reader chooses one of its charts if there are several."""

    id: str
    title: str
    heading: str
    charts: Mapping[str, Chart]
    """By what the reader chooses, such as a device."""
    note: str = ""
    before: str = ""
    """Id of the table that it stands with; empty: its own id without `-drawn`."""
    chosen: str = ""
    """The chart shown first; empty: the first one."""

    def drawing(self) -> Drawing:
        """Return the section in the form that the page takes."""
        names = list(self.charts)
        several = len(names) > 1
        options = [(str(place), name) for place, name in enumerate(names)]
        controls = [Control("of", "Of", options, str(names.index(self.chosen or names[0])))] if several else []
        charts: dict[tuple[str, ...], Chart] = {
            (str(place),) if several else (): chart for place, chart in enumerate(self.charts.values())
        }
        panel = Panel(self.id, self.heading, f"{self.title}: {self.heading}", charts, controls, across=True)
        return Drawing(self.id, self.title, self.note, [panel], self.before or self.id.removesuffix("-drawn"))


def _drawing(item: Drawing | ChartSection | Record) -> Drawing:
    if isinstance(item, Drawing):
        return item
    if isinstance(item, ChartSection):
        return item.drawing()
    panels = [_panel(figure, item["content"]["of"]) for figure in item["figures"]]
    return Drawing(item["id"], item["title"], item["note"], panels, item.get("before", ""))


def _packed(drawing: Drawing, places: Container[str], main_charts: Container[str]) -> dict[str, Any]:
    """Return what the template names of a drawing; it stands with one of `places`, or after all tables."""
    return {
        "id": drawing.id,
        "title": drawing.title,
        "note": drawing.note,
        "panels": drawing.panels,
        "packed": pack(drawing.panels),
        "before": drawing.before if drawing.before in places else None,
        "main": drawing.id in main_charts,
    }


def _panel(figure: Record, contents: Sequence[Record]) -> Panel:
    """Return the panel of a figure with a choice among its contents."""
    options = [(str(place), name) for place, name in figure["choices"]]
    controls = [Control("of", "Of", options, str(figure["shown"]))] if options else []
    kind = figure["name"]
    charts = [_line_chart(content) if kind == "lines" else _bar_chart(content, kind == "stack") for content in contents]
    by_option: dict[tuple[str, ...], Chart] = {(str(place),) if options else (): chart for place, chart in enumerate(charts)}
    return Panel(kind, figure["heading"], figure["says"], by_option, controls, across=True)


def _bar_chart(content: Record, stacked: bool) -> Chart:
    series = [bar_series(bar["name"], bar["values"], bar.get("low"), bar.get("high")) for bar in content["bars"]]
    return bar_chart(content["names"], content["unit"], series, stacked=stacked, reading=content["reading"])


def _line_chart(content: Record) -> Chart:
    """Axes are logarithmic unless `linear` is true, or "y", which means that axis alone; `span`: what the y axis shows."""
    linear, span = content.get("linear"), content.get("span")
    marks = [
        line_series(line["name"], line["x"], line["y"], place, mode=line.get("mode", "lines+markers"))
        for place, line in enumerate(content["lines"])
    ]
    upright = Axis(content["y"], log=not linear, span=span, from_zero=span is None)
    return Chart(marks, Axis(content["x"], log=linear is not True), upright, content["reading"])


def claim_groups(records: Sequence[ClaimRecord | Record], doubts: Sequence[Record] = ()) -> list[JudgedClaim]:
    """Return the records by claim; one that rests on measurements of a doubtful profile says so in its `basis`."""
    doubtful = {name for doubt in doubts for name in doubt.get("parts", doubt["devices"])}
    return [
        JudgedClaim(
            [
                replace(record, basis="measured, doubtful")
                if record.basis == "measured" and record.device in doubtful
                else record
                for record in claim.records
            ]
        )
        for claim in judged_claims(records)
    ]


@dataclass(frozen=True, slots=True)
class VerdictMatrix:
    """Verdicts by claim and device, of the claims that are made of devices."""

    devices: list[str]
    lines: list[tuple[JudgedClaim, list[str | None]]]
    """Each claim with a verdict for each device; None where the claim is made of others."""


def verdict_matrix(records: Sequence[ClaimRecord | Record]) -> VerdictMatrix:
    """Return the verdicts of the claims that are made of devices."""
    claims = [claim for claim in judged_claims(records) if any(record.device for record in claim.records)]
    devices = list(dict.fromkeys(record.device for claim in claims for record in claim.records if record.device))
    verdicts = {(record.identifier, record.device): record.verdict for claim in claims for record in claim.records}
    return VerdictMatrix(
        devices, [(claim, [verdicts.get((claim.identifier, device)) for device in devices]) for claim in claims]
    )


def line(name: str, rows: Rows, x: str, value: Callable[[Row], float]) -> dict[str, Any]:
    """Return a line through the rows, sorted by their key `x`, with the heights `value(row)`."""
    in_order = sorted(rows, key=lambda row: row[x])
    return {"name": name, "x": [round(row[x], 6) for row in in_order], "y": [value(row) for row in in_order]}


def bars(names: Sequence[str], unit: str, reading: str, series: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """Return groups of bars, one group a name and one bar a series; `reading` is the sentence below them."""
    values = [{"name": name, "values": list(heights)} for name, heights in series.items()]
    return {"names": list(names), "unit": unit, "reading": reading, "bars": values}


def grouped(rows: Iterable[Any], *keys: str) -> dict[tuple[Any, ...], list[Any]]:
    """Group the rows by the values of `keys`, attributes or keys of a row; groups and rows keep their order."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(read_value(row, key) for key in keys), []).append(row)
    return groups


def labelled_groups(rows: Rows, whole: str, part: str) -> list[tuple[str, Rows]]:
    """Group the rows by `whole` and `part`; the label names the whole if there are several."""
    several = len({row[whole] for row in rows}) > 1
    groups = grouped(rows, whole, part).items()
    return [(f"{first}, {second}" if several else second, group) for (first, second), group in groups]


def section(
    identifier: str,
    title: str,
    note: str,
    choices: Sequence[tuple[str, Row]],
    heading: str,
    *,
    kind: str = "lines",
    before: str = "",
    shown: int = 0,
) -> dict[str, Any]:
    """Return a section with one figure, with a choice where there are several contents, `shown` at first.

    `kind`: lines, bars or stack; `choices`: names and contents, of lines as `line` makes them, of bars as `bars` does. It
    stands before the table that is named like it without `-drawn`, or `before` another one.
    """
    figure = {
        "name": kind,
        "heading": heading,
        "choices": [(place, name) for place, (name, _) in enumerate(choices)] if len(choices) > 1 else [],
        "shown": shown,
        "says": f"{title}: {heading}" + (", one line each" if kind == "lines" else ""),
    }
    return {
        "id": identifier,
        "title": title,
        "note": note,
        "content": {"of": [content for _, content in choices]},
        "figures": [figure],
        "before": before or identifier.removesuffix("-drawn"),
    }
