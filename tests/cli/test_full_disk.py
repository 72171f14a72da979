"""No space left, wherever it runs out: one line, and nothing half-written."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


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


@pytest.mark.parametrize(
    "size",
    [
        10_000,
        10_000,
    ],
)
def test_a_run_that_finds_no_room(folder: Path, with_room_for: Callable[..., Any], tree: Callable[..., Any], size: int) -> None:
    """The first file, the requests, the page."""
    before = tree(folder)
    done = with_room_for(size, "run", "small.yaml", "--jobs", "1", "--out", "deep/run")
    assert (done.status, done.out) == (1, "")
    remedy = "free some space, give another output folder; nothing was left behind"
    assert done.err == f"simnmt: deep/run: cannot write the run: {os.strerror(errno.EFBIG)} ({remedy})\n"
    assert tree(folder) == before


def test_a_length_table_that_finds_no_room(folder: Path, with_room_for: Callable[..., Any], tree: Callable[..., Any]) -> None:
    (folder / "lengths.csv").write_text("precious")
    before = tree(folder)
    done = with_room_for(100, "corpus", "table", "news.de", "news.en", "--force")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("simnmt: lengths.csv: cannot be written: ")
    assert tree(folder) == before


PLANNED = ("--set", "workloads.news.arrivals={kind: poisson, rate_rps: 1}", "--vary", "devices.cloud.count=1,2")
OTHERS = {
    "plan": (100, "plan", "small.yaml", *PLANNED, "--slo", "mean_ms<=5000", "--rate", "1", "--requests", "200", "--out", "new"),
    "sweep": (1_000, *["sweep", "small.yaml", "--grid", "requests=100,200", "--jobs", "1", "--out", "new"]),
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.deep
def test_a_standard_output_that_is_full(folder: Path, process: Callable[..., Any]) -> None:
    """The run itself is safe by then."""
    with Path("/dev/full").open("w") as full:
        done = process("run", "small.yaml", "--jobs", "1", capture_output=False, stdout=full, stderr=-1)
    assert (done.status, done.err) == (1, f"simnmt: {os.strerror(errno.ENOSPC)}\n")
    assert len(list(folder.glob("reports/small-*/manifest.json"))) == 1
