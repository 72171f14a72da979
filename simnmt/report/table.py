"""One table for the terminal, the pages and the papers: its columns are declared once.

Example:
    >>> table = Table("", [Column("policy", "policy"), latency("mean ms", "mean_s")], [{"policy": "edge", "mean_s": 0.21}])
    >>> print(table.to_markdown())
    | policy | mean ms |
    |---|---|
    | edge | 210 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from markupsafe import Markup

from simnmt.base.text_tables import format_table
from simnmt.report.page_template import DASH, is_number, render_fragment, significant, typeset
from simnmt.results.number_text import digits, format_interval

Value = float | str | None
"""Content of a cell; None and an empty text are an empty cell."""
Reader = str | Callable[[Any], Any] | None
"""An attribute of a row (a key if the row is a mapping), a path of them such as `gain.mean`, or a function of the row."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell of a table on a page."""

    text: str
    small: str = ""
    """Small print below the text, a line each."""
    kind: str = ""
    """Instead of a text, a kind such as `measured`."""
    words: bool = False
    value: float | None = None
    """The number, unrounded, for sorting and for programs that read the page."""
    key: str = ""
    outcome: str = ""
    """Such as `faster` or `overloaded`, which gives the cell its colour."""
    colour: str = ""
    """Colour of a dot before the text, such as `policy-4`."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Example:
        >>> Column("share, %", "share", digits=1, scale=100).text({"share": 0.256})
        '25.6'
    """

    head: str
    value: Reader
    digits: int | None = None
    """Decimals of a number; None: `significant` digits."""
    significant: int = 4
    scale: float = 1.0
    """Multiplies a number before it is shown; a text stands as it is."""
    signed: bool = False
    interval: tuple[str, str] | None = None
    """Attributes of the least and the greatest value: small print on a page."""
    rounded: bool = False
    """As many digits as the interval allows, or three without an interval, in place of `digits` and `significant`."""
    interval_on_terminal: bool = False
    """The terminal shows the interval too, behind the value."""
    small: Reader = None
    """Small print below the value, on the page alone."""
    mark: Reader = None
    """What follows the number, such as `*`."""
    outcome: Reader = None
    colour: Reader = None
    words: bool = False
    kind: bool = False
    """The value is a kind such as `measured`, which the page shows as a badge."""
    on_terminal: bool = True
    key: str = ""
    """Name for programs that read the page; empty: `value`, or the head if that is a function."""

    def page_cell(self, row: Any) -> TableCell:
        """Return the cell of the page."""
        value = self._value(row)
        if self.kind and value:
            return TableCell("", kind=str(value))
        text, interval = self._texts(row, value, on_page=True)
        small = [str(read_value(row, self.small) or ""), interval]
        return TableCell(
            typeset(text) or DASH,
            typeset("\n".join(filter(None, small))),
            words=self.words,
            value=read_value(row, self.value) if isinstance(value, float | int) and is_number(value) else None,
            key=self.key or (self.value if isinstance(self.value, str) else self.head),
            outcome=read_value(row, self.outcome) or "",
            colour=read_value(row, self.colour) or "",
        )

    def text(self, row: Any) -> str:
        """Return the cell of the terminal, in ASCII digits."""
        text, interval = self._texts(row, self._value(row), on_page=False)
        return f"{text} {interval}".rstrip() if self.interval_on_terminal else text

    def _value(self, row: Any) -> Value:
        value: Value = read_value(row, self.value)
        return value if value is None or isinstance(value, str) else value * self.scale

    def _texts(self, row: Any, value: Value, *, on_page: bool) -> tuple[str, str]:
        """Return the value and its interval; without two finite ends there is no interval."""
        if value is None or isinstance(value, str) or not is_number(value):
            return value if isinstance(value, str) else "", ""
        ends = [read_value(row, end) for end in self.interval or ()]
        low, high = (self.scale * end for end in ends) if ends and all(map(is_number, ends)) else (None, None)
        mark = read_value(row, self.mark) or ""
        if self.rounded:
            text, interval = format_interval(value, low, high, signs="both" if self.signed else "minus")
            return (text if interval or self.signed else digits(value)) + mark, interval
        shown = [self._plain(number, on_page) for number in (value, low, high) if number is not None]
        return shown[0] + mark, f"[{shown[1]}, {shown[2]}]" if len(shown) == 3 else ""

    def _plain(self, value: float, on_page: bool) -> str:
        if self.digits is None:
            return significant(value, self.significant) if on_page else f"{value:,.{self.significant}g}"
        text = f"{value:{'+' if self.signed else ''},.{self.digits}f}"
        return text if text.strip("+-0.,") else text.lstrip("+-")


def estimate(head: str, key: str, scale: float = 1.0, **style: Any) -> Column:
    """Return a column of estimates, whose intervals are in the columns `..._low` and `..._high`."""
    return Column(head, key, scale=scale, interval=(f"{key}_low", f"{key}_high"), rounded=True, **style)


def latency(head: str, key: str, **style: Any) -> Column:
    """Return a column of estimates in seconds, shown in milliseconds."""
    return estimate(head, key, 1e3, **style)


def share(head: str, key: str, places: int = 1, **style: Any) -> Column:
    """Return a column of shares, in percent."""
    return Column(head, key, places, scale=100.0, interval=(f"{key}_low", f"{key}_high"), **style)


def change(head: str, read_change: Callable[[Any], Mapping[str, Any] | None], **style: Any) -> Column:
    """Return a column of changes in percent; `read_change`: the record with `change_percent`, its interval and its `effect`."""

    def read(key: str) -> Callable[[Any], Any]:
        return lambda row: (read_change(row) or {}).get(key)

    def mark(row: Any) -> str:
        record = read_change(row) or {}
        return "~" * (record.get("effect") == "not distinguishable") + "*" * bool(record.get("unstable"))

    ends: Any = read("low_percent"), read("high_percent")
    style = {"mark": mark, "outcome": read("effect"), **style}
    return Column(head, read("change_percent"), signed=True, interval=ends, rounded=True, **style)


class Line(NamedTuple):
    """One row of a table on a page: the best one, and those of a paper, are set apart."""

    name: TableCell
    cells: Sequence[TableCell]
    chosen: bool
    published: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table; its first column names the row."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Any]
    note: str = ""
    id: str = ""
    """Name of the table on a page, for links and for programs that read the page."""
    groups: Sequence[str] = ()
    """Keys of the rows that group them: first columns on a terminal, headings on a page. Before the last one, keys of a single
    value are left out."""
    remarks: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Text beside the heading of a group."""
    chosen: Callable[[Any], bool] = lambda row: False
    """Whether a row is the best one: bold and with `<` on a terminal, green on a page."""
    small: Reader = None
    """Small print below the row's name, on a page."""
    published: Callable[[Any], bool] = lambda row: False

    @staticmethod
    def of_texts(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1, **parts: Any) -> Table:
        """Return a table of texts, of which the first `words` columns are set to the left."""
        columns = [Column(head, itemgetter(place), words=place < words) for place, head in enumerate(heads)]
        return Table(title, columns, rows, **parts)

    @property
    def lines(self) -> dict[tuple[str, ...], list[Line]]:
        """The rows as the page shows them, by the values of `groups`."""
        name, *columns = self.columns
        lines: dict[tuple[str, ...], list[Line]] = {}
        for row in self.rows:
            first = name.page_cell(row)
            small = filter(None, (read_value(row, self.small), first.small))
            head = TableCell(first.text, "\n".join(small), first.kind, colour=first.colour)
            cells = [column.page_cell(row) for column in columns]
            group = tuple(str(read_value(row, key)) for key in self.groups)
            lines.setdefault(group, []).append(Line(head, cells, self.chosen(row), self.published(row)))
        return lines

    def heading(self, group: tuple[str, ...]) -> str:
        """Return the heading of a group on a page, such as `berlin, de-en on cp1`."""
        shown = [column.key for column in group_columns(self.groups, self.rows)]
        *first, last = (value for key, value in zip(self.groups, group, strict=True) if key in shown)
        return " on ".join(filter(None, (", ".join(first), last)))

    def to_html(self) -> Markup:
        """Return the table for a page, with its title and its note; every text is escaped."""
        return render_fragment("table.html.j2", table=self)

    def to_text(self, *, most: int | None = None) -> str:
        """Return the title and the rows for a terminal, `most` at most; the small print of a row follows its name."""
        heads, rows, words = self._cells(most)
        bold = [place for place, row in enumerate(self.rows) if self.chosen(row)]
        return "\n".join(filter(None, (self.title, format_table(heads, rows, words, bold=bold))))

    def to_markdown(self) -> str:
        """Return the rows as a Markdown table, with the columns of the terminal."""
        heads, rows, _ = self._cells()
        lines = [heads, *rows]
        lines = [[cell.replace("|", "\\|") for cell in line] for line in lines]
        texts = [f"| {' | '.join(line)} |" for line in lines]
        return "\n".join([texts[0], f"|{'---|' * len(heads)}", *texts[1:]])

    def _cells(self, most: int | None = None) -> tuple[list[str], list[list[str]], int]:
        groups = group_columns(self.groups, self.rows)
        columns = [*groups, *self.columns]
        columns = [column for column in columns if column.on_terminal]
        words = next((place for place, column in enumerate(columns) if not column.words), len(columns))
        name = len(groups)
        rows = [[column.text(row) or "-" for column in columns] for row in self.rows[:most]]
        for cells, row in zip(rows, self.rows, strict=False):
            cells[name] += f", {small}" if (small := read_value(row, self.small)) else ""
            cells[name] += " <" * self.chosen(row)
        return [column.head for column in columns], rows, max(words, name + 1)


def group_columns(keys: Sequence[str], rows: Sequence[Any]) -> list[Column]:
    """Return a column of the last key, and of those before it that have more than one value."""
    several = [key for key in keys[:-1] if len({read_value(row, key) for row in rows}) > 1]
    return [Column(key, key, words=True, key=key) for key in (*several, *keys[-1:])]


def read_value(row: Any, value: Reader) -> Any:
    """Return an attribute or key of a row, a path of them (None if it leads through None), or a function of the row."""
    if value is None or callable(value):
        return None if value is None else value(row)
    for name in value.split("."):
        row = None if row is None else row.get(name) if isinstance(row, Mapping) else getattr(row, name)
    return row
