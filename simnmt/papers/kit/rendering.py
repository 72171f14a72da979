"""The one renderer of reproductions: claims, tables and figures as JSON document, on a terminal and as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeVar

from simnmt.papers.kit.claims import HOLDS, UNKNOWN, ClaimRecord, by_claim, describe_verdicts, format_claims, outcome
from simnmt.papers.kit.paper import Paper
from simnmt.report.page import doubt_sections
from simnmt.report.page_template import Record, Section, render_page
from simnmt.report.table import Column, Table, read_value

Row = Mapping[str, Any]
Rows = Sequence[Row]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Report:
    """A reproduction; the page opens with the summary, the main claims and the main figures that the paper's data name."""

    paper: Paper
    claims: Sequence[ClaimRecord]
    tables: Sequence[Table]
    """Each with an id. A table without columns is in the JSON document alone."""
    figures: Sequence[Section] = ()
    """Each with an id."""
    notes: Sequence[str] = ()
    """Origins and limits of our numbers, one sentence each; `Paper.notes` come first."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of the run that `Paper.notes` name."""
    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Rows of the JSON document by table, where they are not the shown ones."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the JSON document, or others in place of these; `doubts` are shown on the page."""
    warnings: Sequence[str] = ()
    """What the command line warns of."""

    @property
    def all_notes(self) -> list[str]:
        """The notes of the paper's data, filled with the run's values, and those of the run."""
        return [*(note.format_map(self.values) for note in self.paper.notes), *self.notes]

    def document(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        setting = [{"what": noun, "description": description} for noun, description in self.paper.setting.items()]
        tables = [
            {"id": table.id, "title": table.title, "rows": list(map(row_record, self.rows.get(table.id, table.rows)))}
            for table in self.tables
        ]
        return {
            "paper": self.paper.reference,
            "claims": [claim.record() for claim in self.claims],
            "tables": [{"id": "setting", "title": self.paper.setting_title, "rows": setting}, *tables],
            "slips": list(self.paper.slips),
            "notes": self.all_notes,
            **self.more,
        }

    def text(self) -> str:
        """Return how many claims hold, the tables that are for a terminal, and a line for each claim."""
        tables = [table.to_text() for table in self.tables if table.id in self.paper.terminal and table.rows]
        return "\n\n".join([f"{describe_verdicts(self.claims)}.", *tables, format_claims(self.claims)])

    def page(self) -> str:
        """Return the page, to be written as UTF-8: an open summary, and below it everything else, folded."""
        doubts, matrix = self.more.get("doubts", ()), matrix_table(self.claims)
        claims = [claim for claim in by_claim(self.claims) if claim[0].identifier in self.paper.main_claims]
        summary = [*self.paper.summary]
        verdicts = describe_verdicts(self.claims)
        summary += [] if any(verdicts in line for line in summary) else [f"{verdicts}."]
        shown = [table for table in self.tables if table.columns and table.rows]
        main = [figure for figure in self.figures if figure.id in self.paper.main_figures]
        others = [figure for figure in self.figures if figure not in main]
        sections = [
            Section("Summary", "summary", summary, tables=[main_claims_table(claims)] if claims else []),
            *doubt_sections(doubts),
            *main,
            *([_folded(replace(matrix, note=self.paper.matrix_note))] if len(matrix.columns) > 2 else []),
            _folded(claims_table(self.claims, doubts)),
            *map(_folded, shown),
            *(replace(figure, folded=True) for figure in others),
            Section("The paper's setting", "setting", facts=[*self.paper.setting.items()], folded=True),
            Section("Slips of the paper", "slips", notes=self.paper.slips, folded=True),
            Section("What the numbers rest on", "notes", notes=self.all_notes, folded=True),
        ]
        return render_page("simnmt reproduce", self.paper.heading, sections, [self.paper.reference])


def row_record(row: Any) -> dict[str, Any]:
    """Return the row's JSON: a mapping's items, or a dataclass's fields."""
    return dict(row) if isinstance(row, Mapping) else asdict(row)


def record(row: Any, keys: str) -> dict[str, Any]:
    """Return values of a row, an object or a mapping, by key; `key=path` names a deeper value, `key=path*1e3` scales it.

    Example:
        >>> record(complex(3, 4), "real mm=imag*1e3")
        {'real': 3.0, 'mm': 4000.0}
    """
    values = {}
    for entry in keys.split():
        key, _, path = entry.partition("=")
        path, _, scale = (path or key).partition("*")
        value = read_value(row, path)
        if scale and value is not None:
            value = float(scale) * value
        values[key] = list(value) if isinstance(value, tuple) else value
    return values


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


def _folded(table: Table) -> Section:
    note = [table.note] if table.note else []
    return Section(table.title, table.id, note, tables=[replace(table, note="")], folded=True)


@dataclass(frozen=True, slots=True)
class Derived:
    """A figure that follows from printed ones."""

    what: str
    value: float
    unit: str
    meaning: str
    """The quantity that the figure is compared with, or its basis."""


def derived_table(rows: Sequence[Derived]) -> Table:
    columns = [Column(head, key) for head, key in (("figure", "what"), ("value", "value"), ("unit", "unit"))]
    columns.append(Column("beside it", "meaning", words=True))
    return Table("What follows from the printed figures", columns, rows, id="derived", published=lambda row: True)


def claims_table(records: Sequence[ClaimRecord], doubts: Sequence[Record] = ()) -> Table:
    """Return every claim with its records; `basis` marks those that rest on measurements of a doubtful profile."""
    doubtful = {name for doubt in doubts for name in doubt.get("parts", doubt["devices"])}

    def basis(record: ClaimRecord) -> str:
        return "measured, doubtful" if record.basis == "measured" and record.device in doubtful else record.basis

    columns = [
        Column("claim", "id", words=True),
        Column("judged on", lambda record: record.device or "-", words=True),
        Column("how", basis, kind=True),
        Column("verdict", "verdict", outcome="verdict", words=True),
        Column("ours", "ours", words=True),
        Column("why", "why", words=True),
    ]
    claims = by_claim(records)
    about: dict[tuple[str, ...], str] = {
        (claim.claim,): f"{claim.identifier}; published: {claim.published or 'nothing'}" for claim, *_ in claims
    }
    rows = [record for claim in claims for record in claim]
    return Table("Every claim, and why", columns, rows, id="claims", groups=("claim",), remarks=about)


def main_claims_table(claims: Sequence[Sequence[ClaimRecord]]) -> Table:
    """Return the claims that carry a paper, each with its verdict over all configurations."""

    def evidence(records: Sequence[ClaimRecord]) -> str:
        if len(records) == 1:
            return (records[0].ours or records[0].why).partition("; ")[0]
        judged = [record.verdict for record in records if record.verdict != UNKNOWN]
        return f"holds in {judged.count(HOLDS)} of {len(judged)} configurations that can be judged"

    columns = [
        Column("claim", lambda records: records[0].claim, small=lambda records: records[0].identifier, words=True, key="claim"),
        Column("verdict", outcome, outcome=outcome, words=True, key="outcome"),
        Column("published", lambda records: records[0].published, words=True, key="published"),
        Column("ours", evidence, words=True, key="evidence"),
    ]
    return Table("The main claims", columns, claims, id="main-claims")


def matrix_table(records: Sequence[ClaimRecord]) -> Table:
    """Return the verdicts by claim and device, of the claims that are made of devices."""
    claims = [claim for claim in by_claim(records) if any(record.device for record in claim)]
    devices = dict.fromkeys(record.device for claim in claims for record in claim if record.device)
    rows = [
        {"claim": claim[0].claim, "identifier": claim[0].identifier, **devices}
        | {record.device: record.verdict for record in claim}
        for claim in claims
    ]
    columns = [Column(device, itemgetter(device), outcome=itemgetter(device), words=True) for device in devices]
    first = Column("claim", "claim", small="identifier", words=True)
    return Table("Verdicts by device", [first, *columns], rows, id="verdicts-by-device")
