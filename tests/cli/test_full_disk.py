"""No space left, wherever it runs out: one line, and nothing half-written."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.scenario.template import write_template


@pytest.fixture
def with_room_for(simnmt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
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


@pytest.mark.parametrize("size", [200, 10_000, 1_000_000])
def test_a_run_that_finds_no_room(folder: Path, with_room_for: Callable[..., Any], tree: Callable[..., Any], size: int) -> None:
    """The first file, the requests, the page."""
    before = tree(folder)
    done = with_room_for(size, "run", "small.yaml", "--jobs", "1", "--out", "deep/run")
    assert (done.status, done.out) == (1, "")
    remedy = "free some space, give another output folder; nothing was left behind"
    assert done.err == f"simnmt: deep/run: cannot write the run: {os.strerror(errno.EFBIG)} ({remedy})\n"
    assert tree(folder) == before


def test_a_template_that_finds_no_room(folder: Path, with_room_for: Callable[..., Any], tree: Callable[..., Any]) -> None:
    """There is room for the scenario, none for the schema."""
    before = tree(folder)
    done = with_room_for(4_000, "init", "new.yaml")
    assert (done.status, done.out) == (1, "")
    assert done.err == f"simnmt: new.yaml: cannot be written: {os.strerror(errno.EFBIG)}\n"
    assert tree(folder) == before


@pytest.mark.usefixtures("folder")
def test_an_init_that_is_killed_amid_a_file_leaves_no_half(simnmt: Callable[..., Any]) -> None:
    """The system kills a process that writes beyond its limit, unless the process ignores that signal, as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: the child takes no lock of theirs
        child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
            write_template("quickstart", Path("new.yaml"))
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGXFSZ
    assert not Path("new.yaml").exists() and not Path("scenario.schema.json").exists()
    assert simnmt("init", "new.yaml").status == 0


def test_a_length_table_that_finds_no_room(folder: Path, with_room_for: Callable[..., Any], tree: Callable[..., Any]) -> None:
    (folder / "lengths.csv").write_text("precious")
    before = tree(folder)
    done = with_room_for(100, "corpus", "table", "news.de", "news.en", "--force")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("simnmt: lengths.csv: cannot be written: ")
    assert tree(folder) == before


PLANNED = ("--set", "workloads.news.arrivals={kind: poisson, rate_rps: 1}", "--vary", "devices.cloud.count=1,2")
OTHERS = {
    "compare": (1_000, "compare", "first", "second", "--page", "new.html"),
    "compare in JSON": (1_000, "compare", "first", "second", "--page", "new.html", "--json"),
    "plan": (100, "plan", "small.yaml", *PLANNED, "--slo", "mean_ms<=5000", "--rate", "1", "--requests", "200", "--out", "new"),
    "sweep": (1_000, *["sweep", "small.yaml", "--grid", "requests=100,200", "--jobs", "1", "--out", "new"]),
    "sweep at its begin": (10, *["sweep", "small.yaml", "--grid", "requests=100,200", "--jobs", "1", "--out", "new"]),
    "trace import": (100, "trace", "import", "ping.txt", "--out", "new.csv"),
    "trace resample": (100, *["trace", "resample", "office.csv", "--hours", "1", "--out", "new.csv"]),
}
"""Bytes of a file for which there is room, and the command."""


@pytest.mark.parametrize("verb", OTHERS)
def test_a_verb_that_finds_no_room(folder: Path, with_room_for: Callable[..., Any], simnmt: Any, tree: Any, verb: str) -> None:
    """A sweep keeps what is finished, and goes on from there."""
    if "compare" in verb:
        for name in ("first", "second"):
            assert simnmt("run", "small.yaml", "--requests", "100", "--out", name).status == 0
    answers = (f"64 bytes from 192.0.2.1: icmp_seq={number} ttl=57 time={9 + number % 7} ms\n" for number in range(1, 60))
    (folder / "ping.txt").write_text("PING 192.0.2.1 56(84) bytes of data.\n" + "".join(answers))
    before = tree(folder)
    size, *command = OTHERS[verb]
    done = with_room_for(size, *command)
    lines = [line for line in done.err.splitlines() if line.startswith("simnmt: ")]
    assert done.status == 1 and len(lines) == 1, done.err
    assert lines[0].startswith("simnmt: new") and os.strerror(errno.EFBIG) in lines[0]
    left = {path for path in tree(folder) if path not in before}
    assert verb == "sweep" or not left, left
    assert not any("partial" in str(path) or str(path).endswith(".html") for path in left)


def test_a_disk_that_fills_up_while_the_page_is_written(
    folder: Path, simnmt: Callable[..., Any], tree: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text = Path.write_text

    def full(path: Path, text: str, **options: Any) -> int:
        if path.name == "report.html":
            write_text(path, text[:1000], **options)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write_text(path, text, **options)

    before = tree(folder)
    monkeypatch.setattr(Path, "write_text", full)
    done = simnmt("run", "small.yaml")
    assert (done.status, done.out) == (1, "")
    assert done.err.endswith("nothing was left behind)\n")
    assert os.strerror(errno.ENOSPC) in done.err
    assert tree(folder) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.deep
def test_a_standard_output_that_is_full(folder: Path, process: Callable[..., Any]) -> None:
    """The run itself is safe by then."""
    with Path("/dev/full").open("w") as full:
        done = process("run", "small.yaml", "--jobs", "1", capture_output=False, stdout=full, stderr=-1)
    assert (done.status, done.err) == (1, f"simnmt: {os.strerror(errno.ENOSPC)}\n")
    assert len(list(folder.glob("reports/small-*/manifest.json"))) == 1
