"""Control characters of no input reach the terminal, and complaints stay short."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import InputError, describe_error
from simnmt.cli.terminal import MOST_CHARACTERS, cleaned_streams, complaint_line, warn
from tests.refusals import assert_complaint, assert_one_line

HOSTILE = "\x1b]0;title\x07\x1b[31m\r\n\x9b2J\u202e\x00" + "x" * 5_000


@pytest.mark.parametrize(
    ("file", "content", "arguments"),
    [
        ("small.yaml", json.dumps({"version": 1, HOSTILE: 1}), "run small.yaml"),
        ("cloud.json", json.dumps({"schema_version": 1, HOSTILE: 1}), "profile inspect cloud.json"),
        ("office.csv", f"{HOSTILE!s},rtt_ms\n0,50\n", "run small.yaml"),
        ("news.de", "\x1b[31m\n", "corpus fit news.de"),
    ],
)
def test_hostile_content_is_refused_in_printable_lines(
    folder: Path, simnmt: Callable[..., Any], file: str, content: str, arguments: str
) -> None:
    (folder / file).write_text(content)
    done = simnmt(*arguments.split())
    assert (done.status, done.out) == (2, "")
    assert_complaint(done.err)


@pytest.mark.parametrize(
    "arguments",
    [
        "run {}",
        "profile inspect {}",
    ],
)
def test_hostile_arguments_are_refused_in_printable_lines(folder: Path, simnmt: Callable[..., Any], arguments: str) -> None:
    done = simnmt(*(part.format(HOSTILE.replace("\x00", "")) for part in arguments.split(" ")))
    assert (done.status, done.out) == (2, "")
    assert_one_line(done.err)


def test_a_complaint_keeps_its_file_and_its_remedy() -> None:
    line = complaint_line(f"simnmt: {'d/' * 200}news.de:3:4: {'what ' * 80}(save the file as UTF-8)")
    assert len(line) == MOST_CHARACTERS
    assert line.startswith("simnmt: d/d/") and "…" in line and "news.de:3:4: what" in line
    assert line.endswith("what (save the file as UTF-8)")
    override = (
        f"simnmt: {'d/' * 60}news.yaml:3:4: --set {'key.' * 40}x={'9' * 90}: greater than most, which is 7 (give 7 or less)"
    )
    assert len(complaint_line(override)) < MOST_CHARACTERS
    assert complaint_line(override).endswith(": greater than most, which is 7 (give 7 or less)")
    assert str(InputError("wrong\n", path="a\nb", remedy="correct\x1b")) == "a\\nb: wrong\\n (correct\\x1b)"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_escapes_and_a_file_the_text_itself(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    out, err = Stream(), Stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with cleaned_streams():
        print("a\x1b[31m\tb\u202e")
        warn("a\x1b[31m\tb\r")
    assert out.getvalue() == ("a\\x1b[31m\tb\\u202e\n" if terminal else "a\x1b[31m\tb\u202e\n")
    assert err.getvalue() == "simnmt: warning: a\\x1b[31m\tb\\r\n"
    assert sys.stdout is out and sys.stderr is err


def test_the_advice_to_load_pickled_code_is_not_passed_on(tmp_path: Path) -> None:
    """torch recommends `weights_only=False` for what it refuses, which would run the file's code."""
    import torch

    torch.save({"weight": Path("x")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(Exception, match="weights_only") as refusal:
        torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
    assert describe_error(refusal.value) == "a pickled file that is damaged or holds more than tensors"
    assert describe_error(ValueError("short\n of bytes")) == "short of bytes"
