"""A whole reproduction: claims, tables, charts and notes, rendered as JSON, for a terminal and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simnmt.papers.kit.claim import ClaimRecord, by_claim, describe_verdicts, format_claims
from simnmt.papers.kit.page import (
    ChartSection,
    Drawing,
    claims_table,
    drawing_section,
    main_claims_table,
    matrix_table,
    place_of,
)
from simnmt.papers.kit.table import Table as PaperTable
from simnmt.report.page import doubt_sections
from simnmt.report.page_template import Section, render_page
from simnmt.report.table import Table


@dataclass(frozen=True, slots=True)
class PaperReport:
    """The content of a reproduction; the page opens with the summary, the main claims and the main charts."""

    heading: str
    paper: str
    """Its reference."""
    claims: Sequence[ClaimRecord]
    tables: Sequence[PaperTable]
    charts: Sequence[Drawing | ChartSection]
    """Sections of the page."""
    setting: Sequence[tuple[str, str]]
    """Setting of the paper's measurements: nouns such as `model` with their descriptions."""
    slips: Sequence[str]
    """Contradictions within the paper, one sentence each."""
    notes: Sequence[str]
    """Origins and limits of our numbers, one sentence each."""
    summary: str
    """The paper's claims and our results, in two to four plain sentences."""
    main_claims: Sequence[str]
    """Identifiers of the three to six claims that carry the paper."""
    main_charts: Sequence[str]
    """Ids of the two or three charts that a reader should see first."""
    setting_title: str = "The paper's setting"
    matrix_note: str = ""
    """Text above the verdicts by device."""
    pictures: Sequence[Mapping[str, Any]] = ()
    """Sections of drawn pipelines: `id`, `title`, `note` and `drawn` (each a `heading` and an `svg`)."""
    remarks: Sequence[str] = ()
    """Sentences for the terminal, after its tables."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the JSON document, or others in place of these; `doubts` is shown on the page."""
    warnings: Sequence[str] = ()
    explain: bool = False
    """The terminal, too, has the reason of each verdict beside our figures."""

    def document(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        setting = [{"what": noun, "said": description} for noun, description in self.setting]
        return {
            "paper": self.paper,
            "claims": [claim.record() for claim in self.claims],
            "tables": [
                {"id": "setting", "title": self.setting_title, "rows": setting},
                *(table.record() for table in self.tables if table.in_document),
            ],
            "slips": list(self.slips),
            "notes": list(self.notes),
            **self.more,
        }

    def text(self) -> str:
        """Return the tables that are for a terminal, the remarks, and a line for each claim."""
        tables = [table.text() for table in self.tables if table.on_terminal and table.shown_rows]
        return "\n\n".join([*tables, *self.remarks, format_claims(self.claims, explain=self.explain)])

    def page(self) -> str:
        """Return the page, to be written as UTF-8: an open summary, and below it everything else, folded."""
        document = self.document()
        doubts = document.get("doubts", ())
        claims = [claim for claim in by_claim(self.claims) if claim[0].identifier in self.main_claims]
        summary = (self.summary or document.get("summary", "")).splitlines()
        verdicts = describe_verdicts(self.claims)
        summary += [] if any(verdicts in line for line in summary) else [f"{verdicts}."]
        shown = [table for table in self.tables if table.columns and table.shown_rows]
        places = {table.id for table in shown}
        further = [chart for chart in self.charts if chart.id not in self.main_charts]
        matrix = matrix_table(self.claims)
        sections = [
            Section("Summary", "summary", summary, tables=[main_claims_table(claims)] if claims else []),
            *doubt_sections(doubts),
            *(drawing_section(chart) for chart in self.charts if chart.id in self.main_charts),
            *([_folded(matrix.title, "verdicts-by-device", self.matrix_note, matrix)] if len(matrix.columns) > 2 else []),
            _folded("Every claim, and why", "claims", "", claims_table(self.claims, doubts)),
            *(
                replace(
                    _folded(table.title, table.id, table.note, table.shown_table),
                    parts=[drawing_section(chart) for chart in further if place_of(chart) == table.id],
                )
                for table in shown
            ),
            *(drawing_section(chart, folded=True) for chart in further if place_of(chart) not in places),
            *map(_picture_section, self.pictures),
            Section("The paper's setting", "setting", facts=self.setting, folded=True),
            Section("Slips of the paper", "slips", notes=self.slips, folded=True),
            Section("What the numbers rest on", "notes", notes=self.notes, folded=True),
        ]
        return render_page("simnmt reproduce", self.heading, sections, [self.paper])


def _folded(title: str, name: str, note: str, table: Table) -> Section:
    return Section(title, name, [note] if note else [], tables=[table], folded=True)


def _picture_section(picture: Mapping[str, Any]) -> Section:
    parts = [Section(drawn["heading"], picture=drawn["svg"]) for drawn in picture["drawn"]]
    return Section(picture["title"], picture["id"], [picture["note"]], parts=parts, folded=True)
