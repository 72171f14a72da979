"""Whatever stands in the place of an input file: each reader refuses it in one line, at once, and reads no gigabytes."""

from __future__ import annotations

import importlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import assert_one_line

KINDS = ("missing", "pipe", "zero", "random", "large", "folder", "loop", "dangling", "socket", "long", "unreadable")
"""`missing` comes first: what its readers import is not imported again as the user who may not read `unreadable`."""

READERS = {
    "scenario": "run {}",
    "corpus": "corpus fit {} news.en",
    "corpus of two columns": "corpus table {} --out new.csv",
    "source text": "run small.yaml --set workloads.news.lengths.source={}",
    "bandwidths": "run small.yaml --set networks.office.uplink_mbps={}",
    "trace to import": "trace import {} --out new.csv",
    "trace to synthesise": "trace synth --like {} --out new.csv",
    "recorded arrivals": 'run small.yaml --set workloads.news.arrivals={{"kind":"recorded","speed":1,"file":"{}"}}',
    "arrival rates": 'run small.yaml --set workloads.news.arrivals={{"kind":"varying","series":{{"csv":"{}"}}}}',
    "profile": "profile inspect {}",
    "compared profile": "profile compare gateway.json {}",
    "profile of a scenario": "run small.yaml --set devices.cloud.profile={}",
    "round trips": "run small.yaml --set networks.office.rtt={}",
    "length table": 'run small.yaml --set workloads.news.lengths={{"table":"{}"}}',
    "sentencepiece model": "corpus fit news.de news.en --unit sentencepiece:{}",
    "sentencepiece model of a scenario": 'run small.yaml --set workloads.news.lengths.src_unit={{"sentencepiece":"{}"}}',
    "trace": "trace inspect {}",
    "process": "trace synth --params {} --out new.csv",
    "streaming profile": "sti plan --profile {} --deadline-ms 100 --preload-mb 1",
    "key": "trace fetch --out new.csv --measurement 1 --probe 1 --start 2020-01-01 --stop 2020-01-02 --api-key-file {}",
    "architecture": "nmt train --src news.de --tgt news.en --out new --model {}",
    "task": "sti train --task {} --out new",
    "importance": "reproduce sti --study {} --out new",
    "pipeline": "reproduce sti --pipeline {} --out new",
    "vocabulary study": "reproduce vocab --study {} --out new",
    "bench": "reproduce vocab --bench {} --out new",
    "bundle": "vocab inspect {}",
    "store": "sti inspect {}",
    "trained model": "nmt translate --model {} news.de",
}
WITH_PIPES = {
    "scenario", "corpus", "corpus of two columns", "source text", "round trips", "length table", "bandwidths", "trace",
    "trace to import", "trace to synthesise", "process", "key", "task", "recorded arrivals", "arrival rates",
}  # fmt: skip
"""Readers that take a pipe, and so wait for what is written to it."""
NEEDS_MODELS = {"architecture", "task", "bundle", "store", "trained model"}


@pytest.fixture
def special(folder: Path) -> dict[str, str]:
    """Names of special files in the current folder, by kind."""
    os.mkfifo("pipe")
    Path("zero").symlink_to("/dev/zero")
    Path("random").symlink_to("/dev/urandom")
    Path("dangling").symlink_to("dangling-end")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    Path("unreadable").write_text("x")
    Path("unreadable").chmod(0)
    Path("large").touch()
    os.truncate("large", 200 << 30)  # sparse; 200 GB, more than any reader takes
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    return {kind: kind for kind in KINDS} | {"long": "x" * 300}


@contextmanager
def limited_time() -> Iterator[None]:
    """Fail where a reader waits for a pipe or reads without end."""

    def fail(*_: object) -> None:
        pytest.fail("the reader did not end within 60 s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Act as nobody where the tests are run by root, who may read every file."""
    if os.geteuid():
        yield
        return
    folder = Path.cwd()
    for path in (folder, folder.parent):
        path.chmod(0o777)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("reader", READERS)
def test_a_special_file_is_refused_in_one_line(
    folder: Path, special: dict[str, str], simnmt: Callable[..., Any], reader: str
) -> None:
    if reader in NEEDS_MODELS:
        pytest.importorskip("sacrebleu", reason="the extra packages of simnmt[models] are not installed")
        pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")
        importlib.import_module("simnmt.nmt.models")  # its libraries take long, and an import must not be broken off
    before = sorted(path.name for path in folder.iterdir())
    for kind, name in special.items():
        if kind == "pipe" and reader in WITH_PIPES:
            continue
        with limited_time(), without_privileges() if kind == "unreadable" else nullcontext():
            done = simnmt(*READERS[reader].format(name).split())
        assert (done.status, done.out) == (2, ""), (kind, done)
        assert_one_line(done.err)
        assert name[:20] in done.err and "unknown key" not in done.err, done.err
        assert sorted(path.name for path in folder.iterdir()) == before, kind
