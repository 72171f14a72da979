"""Tables of the terminal: as wide as needed in a file, fitted to a terminal, numbers never cut."""

from __future__ import annotations

import io
import sys

import pytest

from simnmt.base.text_tables import format_table, shorten_on_terminal
from simnmt.cli.terminal import without_controls

HEADER = ["workload", "policy", "total s", "offloaded %", "95 % interval", "not distinguishable"]
ROWS = [
    ["de-en", "cnmt <", "12,346.25", "31.8", "[-10.0, -6.0]", "naive, edge"],
    ["größe日本", "edge", "1", "4", "-", ""],
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 200) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_table_in_a_file_is_as_wide_as_its_cells_whatever_the_columns_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = format_table(HEADER, ROWS, 2, bold=[0]).splitlines()
    assert lines == [
        "workload   policy    total s  offloaded %  95 % interval  not distinguishable",
        "---------  ------  ---------  -----------  -------------  -------------------",
        "de-en      cnmt <  12,346.25         31.8  [-10.0, -6.0]          naive, edge",
        "größe日本  edge            1            4              -",
    ]


@pytest.mark.parametrize("columns", [80, 200])
def test_a_table_fits_a_terminal_where_words_allow_it_and_cuts_none(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    from rich.cells import cell_len

    on_a_terminal(monkeypatch, columns)
    text = format_table(HEADER, ROWS, 2)
    assert max(map(cell_len, text.splitlines())) <= columns
    words = text.split()
    for row in ROWS:
        for cell in row:
            assert set(cell.split()) <= set(words)


def test_the_row_to_note_is_bold_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    lines = format_table(HEADER, ROWS, 2, bold=[0]).splitlines()
    assert ["\x1b[1m" in line for line in lines] == [False, False, True, False]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in format_table(HEADER, ROWS, 2, bold=[0])


def test_cells_are_no_markup_and_bold_passes_to_the_terminal_alone() -> None:
    assert format_table(["a", "b"], [["[bold]x[/]", ":smile:"]], 2).splitlines()[2] == "[bold]x[/]  :smile:"
    assert without_controls("\x1b[1mbest\x1b[0m \x1b[1mopen") == "\x1b[1mbest\x1b[0m \\x1b[1mopen"
    assert without_controls("\x1b[1ma\x07\x1b[0m\x1b[31m") == "\x1b[1ma\\x07\x1b[0m\\x1b[31m"


def test_a_cell_is_cut_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shorten_on_terminal("a" * 50, 40) == "a" * 50
    on_a_terminal(monkeypatch)
    assert shorten_on_terminal("a" * 50, 40) == "a" * 39 + "…"
