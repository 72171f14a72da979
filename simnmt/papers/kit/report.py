"""A whole reproduction as its readers get it: claims, tables, charts and notes, as JSON, for a terminal and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simnmt.papers.kit.claim import Records, format_claims
from simnmt.papers.kit.page import render_paper
from simnmt.papers.kit.table import Table


@dataclass(frozen=True, slots=True)
class PaperReport:
    """What a reproduction shows. One of the tables has the id `setting`: rows of `what` and `said`."""

    heading: str
    paper: str
    """Its reference."""
    claims: Records
    tables: Sequence[Table]
    charts: Sequence[Mapping[str, Any]]
    """Sections of the page, see `kit.page.section`."""
    slips: Sequence[str]
    notes: Sequence[str]
    remarks: Sequence[str] = ()
    """Sentences for the terminal, after its tables."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the JSON document."""

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "paper": self.paper,
            "claims": self.claims,
            "tables": [table.record() for table in self.tables],
            **self.more,
            "slips": list(self.slips),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Return the tables that are for a terminal, the remarks, and a line for each claim."""
        tables = [table.text() for table in self.tables if table.on_terminal]
        return "\n\n".join([*tables, *self.remarks, format_claims(self.claims)])

    def page(self) -> str:
        """Return the page, to be written as UTF-8; it opens from disk without a network."""
        sections = [table.section() for table in self.tables if table.columns and table.rows]
        return render_paper(self.document(), heading=self.heading, tables=sections, drawings=self.charts)
