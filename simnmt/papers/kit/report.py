"""A whole reproduction: claims, tables, charts and notes, rendered as JSON, for a terminal and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simnmt.papers.kit.claim import ClaimRecord, describe_verdicts, format_claims, judged_claims
from simnmt.papers.kit.page import ChartSection, Drawing, claim_groups, packed_drawing, verdict_matrix
from simnmt.papers.kit.table import Table
from simnmt.report.page_template import render_template


@dataclass(frozen=True, slots=True)
class PaperReport:
    """The content of a reproduction; the page opens with the summary, the main claims and the main charts."""

    heading: str
    paper: str
    """Its reference."""
    claims: Sequence[ClaimRecord]
    tables: Sequence[Table]
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
        tables = [table for table in self.tables if table.columns and table.shown_rows]
        places = {table.id for table in tables}
        claims = judged_claims(self.claims)
        return render_template(
            "paper_page.html.j2",
            ("tables.js", "charts.js"),
            drawings=[packed_drawing(chart, places, self.main_charts) for chart in self.charts],
            document=document,
            eyebrow="simnmt reproduce",
            heading=self.heading,
            summary=self.summary or document.get("summary", ""),
            verdicts=describe_verdicts(self.claims),
            main_claims=[claim for claim in claims if claim.identifier in self.main_claims],
            matrix=verdict_matrix(self.claims),
            matrix_note=self.matrix_note,
            groups=claim_groups(self.claims, doubts),
            doubtful_profiles=doubts,
            tables=tables,
            setting=document["tables"][0]["rows"],
            pictures=list(self.pictures),
        )
