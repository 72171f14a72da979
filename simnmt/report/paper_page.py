"""The page of a paper that is told by claims, plain tables and figures: the fused kernel, and the sharp decoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.report.pipeline_chart import STYLE
from simnmt.report.reproduced import Record, claim_groups, filled, verdict_matrix
from simnmt.report.typography import DASH

_SCRIPTS = ("page_tools.js", "paper_page.js", "page.js")


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of a table."""

    text: str
    small: str = ""
    """Under it."""
    kind: str = ""
    """Instead of a text, a kind such as `measured`."""
    words: bool = False
    """Text, set to the left."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row."""

    name: str
    cells: Sequence[Figure | str]
    small: str = ""
    published: bool = False
    """Set apart from what is ours."""


def table(
    identifier: str, title: str, note: str, heads: Sequence[str], lines: Iterable[Line], *, folded: bool = False
) -> dict[str, Any]:
    """A section with one table; a cell may be a plain text. `folded`: shut until it is asked for."""
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


def render_paper(
    document: Mapping[str, Any],
    *,
    heading: str,
    tables: Iterable[Record],
    drawings: Iterable[Record],
    matrix_note: str = "",
    listed: bool = False,
    pictures: Iterable[Record] = (),
) -> str:
    """The page as text. `document`: what `--json` prints, `summary` on top; of `tables` those without a line are left out.

    A drawing stands before the table that it names as `before`, one that names none of them after all. `listed`: what a claim
    says of ours and why has a line for each part between semicolons. `pictures`: sections of pipelines, after all tables.
    """
    doubts = document.get("doubts", ())
    setting = next(each["rows"] for each in document["tables"] if each["id"] == "setting")
    shown = [each for each in tables if each["lines"]]
    places = {each["id"] for each in shown}
    return filled(
        "paper_page.html.j2",
        _SCRIPTS,
        [{**each, "before": each.get("before") if each.get("before") in places else None} for each in drawings],
        listed=listed,
        document={"summary": "", **document},
        eyebrow="simnmt reproduce",
        heading=heading,
        matrix=verdict_matrix(document["claims"]),
        matrix_note=matrix_note,
        groups=claim_groups(document["claims"], doubts),
        doubtful_profiles=doubts,
        tables=shown,
        setting=setting,
        pictures=list(pictures),
        picture_style=STYLE,
    )
