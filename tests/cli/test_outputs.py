"""Outputs that exist, and the standard streams in place of files."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Command, Tree

EXISTS = "exists already (choose another name, or replace it with --force)\n"


def standard_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))


@pytest.mark.parametrize(
    ("arguments", "work"),
    [
        ("run small.yaml --out made", "simnmt.api.run_plan"),
        ("live replay small.yaml --gateway http://127.0.0.1:1 --out made", "simnmt.live.replay.replay_plan"),
        ("calibrate --model gru --out gateway.json", "simnmt.calibrate.calibration.calibrate"),
        ("trace resample office.csv --hours 1 --out gateway.json", "simnmt.network.traces.trace.resample"),
        ("profile inspect cloud.json --page gateway.json", "simnmt.profile.device_profile.read_profile"),
    ],
)
def test_an_occupied_output_is_refused_before_the_work(
    folder: Path, simnmt: Command, tree: Tree, monkeypatch: pytest.MonkeyPatch, arguments: str, work: str
) -> None:
    Path("made").mkdir()
    Path("made/notes.txt").write_text("mine")
    Path("made.html").write_text("mine")
    before = tree(folder)
    assert simnmt(*arguments.split()).status == 2, "and all modules are imported, so that none binds the spy"

    def worked(*_: Any, **__: Any) -> None:
        raise AssertionError(work)

    monkeypatch.setattr(work, worked)
    done = simnmt(*arguments.split())
    assert done.status == 2
    assert EXISTS in done.err or "the output folder is not empty" in done.err or "not a device profile" in done.err
    assert tree(folder) == before


def test_a_run_directory_is_replaced_at_the_end_and_stays_if_the_run_fails(
    folder: Path, simnmt: Command, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("run", "small.yaml", "--out", "made")
    assert simnmt(*command).status == 0
    before = tree(folder)
    remedy = "give another output folder, or replace it: --force, in Python force=True"
    assert simnmt(*command).err == f"simnmt: made: a run is there ({remedy})\n"
    with monkeypatch.context() as patched:
        patched.setattr("simnmt.api.write_document", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            simnmt(*command, "--force", "--seed", "8")
    assert tree(folder) == before
    assert simnmt(*command, "--force", "--seed", "8").status == 0
    assert json.loads(Path("made/manifest.json").read_text())["seed"] == 8
    assert set(tree(folder)) == set(before), "nothing is left beside it"


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
def test_no_folder_of_others_is_replaced(folder: Path, simnmt: Command, tree: Tree, name: str) -> None:
    """Neither one that is no run directory, nor a run directory that holds more than its run."""
    made = Path("made")
    if name == "manifest.json":
        made.mkdir()
        (made / name).write_text('{"name": "a web page", "outputs": {}}')
    else:
        assert simnmt("run", "small.yaml", "--out", "made").status == 0
        (made / name).write_text("mine")
    before = tree(folder)
    done = simnmt("run", "small.yaml", "--out", "made", "--force")
    assert (done.status, done.err.partition(" the ")[0]) == (2, "simnmt: made:")
    assert tree(folder) == before


def test_a_file_is_replaced_with_force(folder: Path, simnmt: Command) -> None:
    command = ("trace", "import", "office.csv", "--out", "series.csv")
    assert simnmt(*command).out.startswith("wrote series.csv")
    assert simnmt(*command).err == f"simnmt: series.csv: {EXISTS}"
    assert simnmt(*command, "--force").out.startswith("replaced series.csv")
    assert "would replace what is read" in simnmt("trace", "import", "office.csv", "--out", "office.csv", "--force").err
    assert simnmt("init", "small.yaml", "--force").out.startswith("replaced small.yaml\nwrote scenario.schema.json\n")
    assert "quickstart" in Path("small.yaml").read_text()


def test_a_scenario_from_standard_input_runs_from_the_current_folder(
    folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("small.yaml").read_text()
    standard_input(monkeypatch, text)
    done = simnmt("run", "-", "--json", "--out", "piped")
    assert (done.status, done.err) == (0, "")
    named = json.loads(simnmt("run", "small.yaml", "--json").out)
    assert json.loads(done.out)["rows"] == named["rows"]
    assert simnmt("run", "piped").status == 0, "it can be repeated"
    standard_input(monkeypatch, text.replace("requests: 200", "request: 200"))
    wrong = simnmt("run", "-")
    assert (wrong.status, wrong.err) == (2, "simnmt: <stdin>:4:1: request: unknown key (did you mean requests?)\n")
    standard_input(monkeypatch, "a: [1\n")
    no_yaml = simnmt("run", "-")
    assert no_yaml.err.startswith("simnmt: <stdin>:2:1: ")


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        ("office.csv", "trace inspect {} --json"),
        ("gateway.json", "profile inspect {} --json"),
        ("gateway.json", "profile compare {} cloud.json --json"),
        ("news.both", "corpus fit {} --json"),
    ],
)
def test_a_verb_reads_its_file_from_standard_input(
    folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch, file: str, arguments: str
) -> None:
    columns = zip(Path("news.de").read_text().splitlines(), Path("news.en").read_text().splitlines(), strict=True)
    Path("news.both").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in columns))
    named = simnmt(*arguments.format(file).split())
    assert named.status == 0, named.err
    standard_input(monkeypatch, Path(file).read_text())
    piped = simnmt(*arguments.format("-").split())
    assert (piped.status, piped.err) == (0, "")
    assert json.loads(piped.out.replace('"-"', f'"{file}"').replace("file -", f"file {file}")) == json.loads(named.out)


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        ("init {}", "new.yaml"),
        ("trace import office.csv --out {}", "series.csv"),
        ("trace resample day.csv --hours 1 --out {}", "hour.csv"),
        ("corpus table news.de news.en --out {}", "lengths.csv"),
        ("profile inspect gateway.json --page {}", "page.html"),
        ("trace inspect office.csv --page {}", "page.html"),
    ],
)
def test_a_verb_writes_its_file_alone_to_standard_output(folder: Path, simnmt: Command, arguments: str, file: str) -> None:
    Path("day.csv").write_text("time_s,rtt_ms\n" + "".join(f"{60 * k},{70 + 4 * (k * k % 7)}\n" for k in range(99)))
    named = simnmt(*arguments.format(file).split())
    assert named.status == 0, named.err
    piped = simnmt(*arguments.format("-").split())
    assert piped.status == 0, piped.err
    assert piped.out == Path(file).read_text(encoding="utf-8")
    assert named.out.splitlines()[0].partition(" ")[0] in (piped.err or named.out), "the report goes to standard error"
    assert not re.search(r"\b(wrote|replaced) -", piped.err)
    assert not Path("-").exists()


def test_standard_streams_that_cannot_be_are_refused(folder: Path, simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, "w w w\n" * 9)
    twice = simnmt("corpus", "fit", "-", "-")
    assert twice.status == 2 and "standard input can be read only once" in twice.err
    for arguments in ("run small.yaml --out -", "calibrate --model gru --out -"):
        assert simnmt(*arguments.split()).status == 2
    assert not Path("-").exists()


@pytest.fixture
def with_room_for(simnmt: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command that may write files of so many bytes and no more."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would keep the half of a compiled module that fits

    def run(size: int, *arguments: str) -> Any:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            return simnmt(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return run


PLANNED = (
    "--set workloads.news.arrivals={kind:~poisson,rate_rps:~1} --vary devices.cloud.count=1,2 --slo mean_ms<=5000 --rate 1"
)
NO_ROOM = {
    "run": (10_000, "run small.yaml --jobs 1 --out new/run"),
    "table": (100, "corpus table news.de news.en --out new"),
    "plan": (100, f"plan small.yaml {PLANNED} --requests 200 --out new"),
    "sweep": (1_000, "sweep small.yaml --grid requests=100,200 --jobs 1 --out new"),
}
"""Bytes of a file for which there is room, and the command."""


@pytest.mark.parametrize("verb", NO_ROOM)
def test_a_verb_that_finds_no_room(folder: Path, with_room_for: Callable[..., Any], tree: Tree, verb: str) -> None:
    """A sweep keeps what is finished, and goes on from there."""
    before = tree(folder)
    size, command = NO_ROOM[verb]
    done = with_room_for(size, *(word.replace("~", " ") for word in command.split()))
    assert (done.status, done.out) == (1, "")
    (line,) = [line for line in done.err.splitlines() if line.startswith("simnmt: ")]
    assert line.startswith("simnmt: new") and os.strerror(errno.EFBIG) in line
    left = {path for path in tree(folder) if path not in before}
    assert verb == "sweep" or not left, left
    assert not any("partial" in str(path) or str(path).endswith(".html") for path in left)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.deep
def test_a_standard_output_that_is_full(folder: Path, process: Command) -> None:
    """The run itself is safe by then."""
    with Path("/dev/full").open("w") as full:
        done = process("run", "small.yaml", "--jobs", "1", capture_output=False, stdout=full, stderr=-1)
    assert (done.status, done.err) == (1, f"simnmt: {os.strerror(errno.ENOSPC)}\n")
    assert len(list(folder.glob("reports/small-*/manifest.json"))) == 1
