"""The bar of a long verb, on a terminal's standard error alone."""

from __future__ import annotations

import io
import sys

import pytest

from simnmt.cli.run import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_says_what_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar() as move:
        move(2, 4, "the ladder")
        move(3, 4, "stacks and ensembles")
    assert "stacks and ensembles" in stderr.getvalue() and "3/4" in stderr.getvalue()


def test_elsewhere_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress_bar() as move:
        assert move is None
    assert stderr.getvalue() == ""
