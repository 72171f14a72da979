"""Control characters of no input reach the terminal, and complaints stay short."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path

import pytest

from simnmt.base.errors import InputError
from simnmt.cli.terminal import MOST_CHARACTERS, Bar, cleaned_streams, complaint_line, progress_bar, warn
from tests.command_line import Command, assert_complaint

HOSTILE = "\x1b]0;title\x07\x1b[31m\r\n\x9b2J\u202e\x00" + "x" * 5_000


@pytest.mark.parametrize(
    ("file", "content", "arguments"),
    [
        ("small.yaml", json.dumps({"version": 1, HOSTILE: 1}), ["run", "small.yaml"]),
        ("cloud.json", json.dumps({"schema_version": 2, HOSTILE: 1}), ["profile", "inspect", "cloud.json"]),
        ("office.csv", f"{HOSTILE!s},rtt_ms\n0,50\n", ["run", "small.yaml"]),
        ("news.de", "\x1b[31m\n", ["corpus", "fit", "news.de"]),
        ("news.de", "", ["run", HOSTILE.replace("\x00", "")]),
    ],
)
def test_hostile_contents_and_names_are_refused_in_printable_lines(
    folder: Path, simnmt: Command, file: str, content: str, arguments: list[str]
) -> None:
    (folder / file).write_text(content)
    done = simnmt(*arguments)
    assert (done.status, done.out) == (2, "")
    assert_complaint(done.err)


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return stderr


def draw(bar: Bar, text: str) -> None:
    bar.runs(1, 4, text)
    bar.stage(text, 0.5)
    bar.measured(text, 1.0, 9.0)
    bar.say(text)
    print(text, file=sys.stderr)


def test_a_bar_is_drawn_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress_bar() as bar:
        bar.runs(2, 4, "the ladder")
        bar.runs(3, 4, "stacks and ensembles")
    assert "stacks and ensembles" in terminal.getvalue() and "3/4" in terminal.getvalue()
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress_bar() as bar:
        draw(bar, "reading")
        assert not bar.is_drawn
    assert stderr.getvalue() == "reading\n" * 2, "what is said, and what is printed"


def test_control_characters_of_names_and_paths_are_drawn_as_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal would take them for commands, such as a new title; markup of rich is a name like any other."""
    terminal = on_terminal(monkeypatch)
    with progress_bar() as bar:
        draw(bar, "of \x1b]0;title\x07 \x1b[31m\u202e[bold]x")
    drawn = terminal.getvalue()
    assert drawn.count("of \\x1b]0;title\\x07 \\x1b[31m\\u202e[bold]x") >= 3
    assert not {"\x07", "\u202e"} & set(drawn) and "\x1b]" not in drawn


NOTED = ("sweep", "small.yaml", "--grid", "devices.cloud.workers=1,2", "--requests", "20")


def test_a_quiet_command_prints_no_notes_before_or_behind_the_verb(folder: Path, simnmt: Command) -> None:
    assert simnmt(*NOTED).err.startswith("sweep folder: ")
    for arguments in (("-q", *NOTED), (*NOTED, "-q")):
        done = simnmt(*arguments)
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith("2 points of "), "the result is no note"


def test_a_quiet_command_warns_and_complains(folder: Path, simnmt: Command) -> None:
    profile = json.loads(Path("gateway.json").read_text())
    fit = profile["execution"].get("fit", {}) | {"heldout_error": 0.3}
    profile |= {"execution": profile["execution"] | {"kind": "measured", "fit": fit}}
    Path("gateway.json").write_text(json.dumps(profile))
    assert simnmt("run", "small.yaml", "-q").err.startswith("simnmt: warning: ")
    done = simnmt("-q", "run", "none.yaml")
    assert (done.status, done.err.startswith("simnmt: none.yaml: no such file")) == (2, True)


def test_a_verbose_command_prints_the_librarys_log_on_standard_error(folder: Path, simnmt: Command) -> None:
    done = simnmt("run", "small.yaml", "--json", "-v")
    lines = done.err.splitlines()
    assert {line.split(": ")[1] for line in lines} == {"info"}
    assert "simnmt: info: experiment: policy cnmt: the world ran in engine " in done.err
    assert json.loads(done.out)["name"] == "small"
    assert simnmt("run", "small.yaml").err == "", "the next command is not verbose"


def test_the_library_leaves_its_log_to_the_program(caplog: pytest.LogCaptureFixture, folder: Path) -> None:
    import simnmt

    log = logging.getLogger("simnmt")
    assert [type(handler) for handler in log.handlers] == [logging.NullHandler] and log.level == logging.NOTSET
    with caplog.at_level(logging.INFO, logger="simnmt"):
        simnmt.run("small.yaml")
    rooms = {record.name for record in caplog.records}
    assert {"simnmt.profile", "simnmt.experiment"} <= rooms
