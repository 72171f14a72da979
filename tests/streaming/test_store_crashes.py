"""A store is sharded by processes that are killed, that race, and on disks that refuse."""

from __future__ import annotations

import errno
import os
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.files import sole_writer
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store import writer
from simnmt.streaming.store.writer import write_store
from tests.streaming.random_weights import random_weights

WEIGHTS = random_weights()
FINGERPRINT = WEIGHTS.fingerprint
Tree = dict[str, bytes]


def content(folder: Path) -> Tree:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    path = tmp_path_factory.mktemp("stores") / "store"
    write_store(WEIGHTS, path, beside={"tokens.json": b"{}"})
    return content(path)


def in_a_process(work: Callable[[], None], limit_s: float = 120.0) -> int:
    """How it ended: the number of the signal that killed it, 0 for none; SIGABRT for one that never ends.

    Forked, for a new one would load torch each time. What it does is done by numpy: no thread of torch is missed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: the child takes no lock of theirs
        child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    until = time.monotonic() + limit_s
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGABRT)
        time.sleep(1e-3)
    return os.WTERMSIG(ended[1])


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


LAYER = 6 * 4 + 1
"""Writes of one: its records and its line of the journal."""


@pytest.mark.parametrize("at", [1, 2, LAYER + 1, LAYER + 9, 2 * LAYER + 1, 3 * LAYER + 1])
def test_a_run_killed_amid_a_write_is_gone_on_with_and_the_same_in_the_end(tmp_path: Path, whole: Tree, at: int) -> None:
    def work() -> None:
        count, write = 0, writer._write

        def cut(file: Any, content: bytes) -> None:
            nonlocal count
            count += 1
            if count == at:
                write(file, content[: len(content) // 2])
                killed()
            write(file, content)

        writer._write = cut
        write_store(WEIGHTS, tmp_path / "store", beside={"tokens.json": b"{}"})

    assert in_a_process(work) == signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["store.partial"]
    told: list[int] = []
    write_store(WEIGHTS, tmp_path / "store", beside={"tokens.json": b"{}"}, progress=lambda done, total: told.append(done))
    assert told[0] == max(0, at - 2) // LAYER, "no whole layer is done twice"
    assert content(tmp_path / "store") == whole
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_run_killed_in_its_last_step_leaves_nothing_behind_in_the_store(tmp_path: Path, whole: Tree) -> None:
    def work() -> None:
        replace = Path.replace
        Path.replace = lambda path, target: killed() if target.name == "store.json" else replace(path, target)  # type: ignore
        write_store(WEIGHTS, tmp_path / "store")

    assert in_a_process(work) == signal.SIGKILL
    assert any("simnmt-partial" in path.name for path in (tmp_path / "store.partial").iterdir())
    write_store(WEIGHTS, tmp_path / "store", beside={"tokens.json": b"{}"})
    assert content(tmp_path / "store") == whole


def test_everything_is_on_the_disk_before_the_store_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    named: list[int] = []
    fsync, replace = os.fsync, Path.replace

    def noted(file: int) -> None:
        synced.append(os.fstat(file).st_ino)
        fsync(file)

    def renamed(path: Path, target: Path) -> Path:
        if path.suffix == ".partial":
            named.append(len(synced))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", renamed)
    store = tmp_path / "store"
    write_store(WEIGHTS, store, beside={"tokens.json": b"{}"})
    before = {path.stat().st_ino: path.name for path in (store, *store.rglob("*"))}
    assert set(before) <= set(synced[: named[0]]), "all files and folders of it"
    assert len(before) == 6
    assert tmp_path.stat().st_ino in synced[named[0] :], "and its name afterwards"


def test_starting_over_takes_nothing_from_a_run_that_is_writing(tmp_path: Path) -> None:
    partial = tmp_path / "store.partial"
    with sole_writer(partial, StoreError, "run"), closing(writer.Unfinished(partial, {"version": 1})) as running:
        running.begin()
        with pytest.raises(StoreError, match="another run is writing"):
            write_store(WEIGHTS, tmp_path / "store", resume=False)
        assert (partial / "journal.jsonl").read_bytes() == b'{"version": 1}\n'
    assert not partial.exists()


def test_a_folder_that_is_no_unfinished_store_is_kept(tmp_path: Path) -> None:
    letter = tmp_path / "store.partial" / "letter"
    letter.parent.mkdir()
    letter.write_text("dear")
    for resume in (True, False):
        with pytest.raises(StoreError, match=r"store\.partial: no unfinished store \(remove it, or choose another --out\)"):
            write_store(WEIGHTS, tmp_path / "store", resume=resume)
    assert letter.read_text() == "dear"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("where", ["mkdir", "_write", "synced"])
def test_what_a_disk_refuses_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, code: int
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr({"mkdir": Path, "_write": writer, "synced": writer}[where], where, refused)
    with pytest.raises(StoreError) as told:
        write_store(WEIGHTS, tmp_path / "store")
    assert told.value.path == str(tmp_path / "store.partial") and os.strerror(code) in told.value.what
    assert not (tmp_path / "store").exists()


def test_a_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        write_store(WEIGHTS, tmp_path / ("x" * 300))
