"""A store is written whole or not at all, and an interrupted one is gone on with."""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from simnmt.streaming.encoder.encoder_configuration import EncoderWeights, LayerWeights
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store import writer
from simnmt.streaming.store.shard_store import ShardStore
from simnmt.streaming.store.writer import write_store
from tests.streaming.made_encoder import random_weights

WEIGHTS = random_weights()
Tree = dict[str, bytes]


class Power(Exception):
    """What went off."""


def with_layers(layer: Callable[[int], LayerWeights]) -> EncoderWeights:
    """The same model, whose layers are asked for in another way."""
    other = EncoderWeights(WEIGHTS.configuration, WEIGHTS.resident, layer, origin="made", random=True)
    other._fingerprint = WEIGHTS.fingerprint
    return other


def asking(asked: list[int], last: int = 99) -> EncoderWeights:
    """The power goes off once so many layers were asked for: each once to be fitted, and again to be written."""

    def layer(index: int) -> LayerWeights:
        asked.append(index)
        if len(asked) == last:
            raise Power
        return WEIGHTS.layer(index)

    return with_layers(layer)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> Tree:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    path = tmp_path_factory.mktemp("stores") / "store"
    write_store(WEIGHTS, path)
    assert names(path.parent) == ["store"]
    return content(path)


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """Where a store is to be, of which two layers of three are done."""
    out = tmp_path / "store"
    with pytest.raises(Power):
        write_store(asking([], last=6), out)
    return out


def test_an_interrupted_store_is_gone_on_with_and_the_same_in_the_end(interrupted: Path, whole: Tree) -> None:
    assert names(interrupted.parent) == ["store.partial"]  # never half a store
    asked: list[int] = []
    told: list[tuple[int, int]] = []
    write_store(asking(asked), interrupted, progress=lambda done, total: told.append((done, total)))
    assert asked == [2, 2]
    assert told == [(2, 3), (3, 3)]
    assert content(interrupted) == whole
    assert names(interrupted.parent) == ["store"]


def test_a_layer_cut_off_amid_its_shards_is_done_again(interrupted: Path, whole: Tree) -> None:
    partial = interrupted.with_name("store.partial")
    with (partial / "shards.bin").open("ab") as file:
        file.write(b"half of layer 2")
    with (partial / "journal.jsonl").open("ab") as file:
        file.write(b'{"fit": {"mean"')
    write_store(WEIGHTS, interrupted)
    assert content(interrupted) == whole


def test_what_a_crash_of_the_box_took_from_the_shards_is_done_again(interrupted: Path, whole: Tree) -> None:
    """The journal says two layers, the file has lost a part of the second."""
    partial = interrupted.with_name("store.partial")
    size = (partial / "shards.bin").stat().st_size
    with (partial / "shards.bin").open("r+b") as file:
        file.truncate(size * 3 // 4)
        file.seek(0, os.SEEK_END)
        file.write(bytes(size // 4))
    asked: list[int] = []
    write_store(asking(asked), interrupted)
    assert asked == [1, 2, 1, 2]
    assert content(interrupted) == whole


def test_one_cut_off_in_its_last_step_is_finished(tmp_path: Path, whole: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(Power):
        patched.setattr(Path, "replace", _off)
        write_store(WEIGHTS, tmp_path / "store")
    write_store(WEIGHTS, tmp_path / "store")
    assert content(tmp_path / "store") == whole


def _off(path: Path, target: Path) -> Path:
    if path.suffix == ".partial":
        raise Power
    os.rename(path, target)  # noqa: PTH104 - what is patched is Path's own
    return target


def test_an_unfinished_store_of_another_model_is_refused_and_kept(interrupted: Path) -> None:
    before = content(interrupted.parent)
    remedy = r"\(give what it was begun with, remove it, or choose another --out\)"
    with pytest.raises(StoreError, match=rf"store\.partial: an unfinished store of another model {remedy}"):
        write_store(random_weights(seed=1), interrupted)
    with pytest.raises(StoreError, match=r"an unfinished store of other bits: \[2, 3, 4, 5, 6, 32\], not \[2, 32\]"):
        write_store(WEIGHTS, interrupted, bits=(2, 32))
    assert content(interrupted.parent) == before


def test_another_model_may_start_over(interrupted: Path) -> None:
    other = random_weights(seed=1)
    write_store(other, interrupted, resume=False)
    with ShardStore.open(interrupted) as store:
        store.check_model(other.fingerprint)
        store.check()


def test_two_runs_cannot_write_one_store(tmp_path: Path) -> None:
    complaints = []

    def layer(index: int) -> LayerWeights:
        with pytest.raises(StoreError) as complaint:
            write_store(WEIGHTS, tmp_path / "store")
        complaints.append(complaint.value.path)
        return WEIGHTS.layer(index)

    write_store(with_layers(layer), tmp_path / "store")
    assert complaints == [str(tmp_path / "store.partial")] * 6


def test_an_empty_folder_may_become_the_store_and_resident_tensors_may_share_memory(tmp_path: Path) -> None:
    tied = torch.ones(2, 16)
    (tmp_path / "store").mkdir()
    write_store(EncoderWeights(WEIGHTS.configuration, {"one": tied, "two": tied}, WEIGHTS.layer), tmp_path / "store")
    with ShardStore.open(tmp_path / "store") as store:
        assert all(torch.equal(store.resident()[name], tied) for name in ("one", "two"))


@pytest.mark.parametrize("name", ["shards.bin", "journal.jsonl", ""])
def test_an_unfinished_store_with_links_is_refused_and_nothing_is_written_through_them(interrupted: Path, name: str) -> None:
    partial = interrupted.with_name(f"{interrupted.name}.partial")
    linked, elsewhere = partial / name, interrupted.with_name("elsewhere")
    shutil.move(linked, elsewhere)
    linked.symlink_to(elsewhere)
    before = elsewhere.read_bytes() if name else content(elsewhere)
    for resume in (True, False):
        with pytest.raises(StoreError) as refusal:
            write_store(WEIGHTS, interrupted, resume=resume)
        assert refusal.value.path == str(partial)
    assert (elsewhere.read_bytes() if name else content(elsewhere)) == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Tree:
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
def test_a_run_killed_amid_a_write_is_gone_on_with_and_the_same_in_the_end(tmp_path: Path, finished: Tree, at: int) -> None:
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
    assert told[0] == max(0, at - 2) // LAYER, "no finished layer is done twice"
    assert content(tmp_path / "store") == finished
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_run_killed_in_its_last_step_leaves_nothing_behind_in_the_store(tmp_path: Path, finished: Tree) -> None:
    def work() -> None:
        replace = Path.replace
        Path.replace = lambda path, target: killed() if target.name == "store.json" else replace(path, target)  # type: ignore
        write_store(WEIGHTS, tmp_path / "store")

    assert in_a_process(work) == signal.SIGKILL
    assert any("simnmt-partial" in path.name for path in (tmp_path / "store.partial").iterdir())
    write_store(WEIGHTS, tmp_path / "store", beside={"tokens.json": b"{}"})
    assert content(tmp_path / "store") == finished


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
