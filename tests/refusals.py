"""The one assertion on what a refused command prints; the fixtures that run commands make it of every status 2."""

from __future__ import annotations

MOST_CHARACTERS = 300
"""Of one complaint."""


def assert_short_lines(err: str) -> None:
    """Assert that standard error holds printable lines of at most 300 characters and no traceback; it may hold none."""
    assert err.endswith("\n") or not err, err
    for line in err.removesuffix("\n").split("\n"):
        assert line.isprintable(), repr(line)
        assert len(line) <= MOST_CHARACTERS, (len(line), line)
    assert "Traceback" not in err and "Warning" not in err, err


def assert_complaint(err: str) -> None:
    """Assert that standard error holds complaints and nothing else: printable lines of at most 300 characters."""
    assert err.startswith(("simnmt: ", "Usage: ")), err
    assert_short_lines(err)


def assert_one_line(err: str) -> None:
    """Assert that standard error holds one complaint and nothing else."""
    assert_complaint(err)
    assert err.count("\n") == 1, err
