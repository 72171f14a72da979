"""The bar of a long verb, on a terminal's standard error alone."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from simnmt.cli.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return stderr


def test_the_bar_says_what_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress_bar() as bar:
        bar.runs(2, 4, "the ladder")
        bar.runs(3, 4, "stacks and ensembles")
    assert "stacks and ensembles" in terminal.getvalue() and "3/4" in terminal.getvalue()


def test_elsewhere_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress_bar() as bar:
        bar.runs(1, 2)
        bar.stage("reading")
        bar.measured("step", 1.0, 2.0)
        assert not bar.is_drawn
    assert stderr.getvalue() == ""


def draw_runs(text: str) -> None:
    with progress_bar() as bar:
        bar.runs(1, 4, text)


def draw_stages(text: str) -> None:
    with progress_bar() as bar:
        bar.stage(text, 0.5)


def draw_calibration(text: str) -> None:
    with progress_bar() as bar:
        bar.measured(text, 1.0, 9.0)


def say_in_calibration(text: str) -> None:
    with progress_bar() as bar:
        bar.say(text)


def warn_beside_a_bar(text: str) -> None:
    with progress_bar():
        print(text, file=sys.stderr)


@pytest.mark.parametrize("draw", [draw_runs, draw_stages, draw_calibration, say_in_calibration, warn_beside_a_bar])
def test_control_characters_of_names_and_paths_are_drawn_as_escapes(
    monkeypatch: pytest.MonkeyPatch, draw: Callable[[str], None]
) -> None:
    """The terminal would take them for commands, such as a new title; markup of rich is a name like any other."""
    terminal = on_terminal(monkeypatch)
    draw("of \x1b]0;title\x07 \x1b[31m\u202e[bold]x")
    drawn = terminal.getvalue()
    assert "of \\x1b]0;title\\x07 \\x1b[31m\\u202e[bold]x" in drawn
    assert not {"\x07", "\u202e"} & set(drawn) and "\x1b]" not in drawn
