"""A store is written whole or not at all, and an interrupted one is gone on with."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from simnmt.streaming.encoder.encoder_configuration import EncoderWeights, LayerWeights
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store import writer
from simnmt.streaming.store.shard_store import ShardStore
from simnmt.streaming.store.writer import write_store
from tests.streaming.random_weights import random_layer, random_weights

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


def test_starting_over_that_is_refused_leaves_what_was_done(interrupted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers are done: neither a model that cannot be quantised nor too little room takes them away."""
    before = content(interrupted.parent)
    cannot = with_layers(lambda index: LayerWeights(*(0.0 * each for each in WEIGHTS.layer(index).named().values())))
    with pytest.raises(StoreError, match=r"layer 0: all weights are -?0"):
        write_store(cannot, interrupted, resume=False)
    assert content(interrupted.parent) == before
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="needs 0 MB"):
        patched.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
        write_store(WEIGHTS, interrupted, resume=False)
    assert content(interrupted.parent) == before
    asked: list[int] = []
    write_store(asking(asked), interrupted)
    assert asked == [2, 2], "still gone on with"


def test_two_runs_cannot_write_one_store(tmp_path: Path) -> None:
    complaints = []

    def layer(index: int) -> LayerWeights:
        with pytest.raises(StoreError) as complaint:
            write_store(WEIGHTS, tmp_path / "store")
        complaints.append(complaint.value.path)
        return WEIGHTS.layer(index)

    write_store(with_layers(layer), tmp_path / "store")
    assert complaints == [str(tmp_path / "store.partial")] * 6


def test_what_cannot_be_written_is_refused_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(out: Path, **options: object) -> None:
        write_store(with_layers(lambda index: pytest.fail("began")), out, **options)  # type: ignore[arg-type]

    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "letter").touch()
    with pytest.raises(StoreError, match=r"there: is there already \(remove it, or choose another --out\)"):
        write(tmp_path / "there")
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(StoreError, match=r"there: is there already"):
        write(Path())
    with pytest.raises(StoreError, match="its folder does not exist"):
        write(tmp_path / "no" / "store")
    with pytest.raises(StoreError, match=r"no shards of 7 bits \(choose from 2, 3, 4, 5, 6, 32\)"):
        write(tmp_path / "store", bits=(2, 7))
    with pytest.raises(StoreError, match="no bits"):
        write(tmp_path / "store", bits=())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(StoreError) as refused:
        write(tmp_path / "store")
    assert refused.value.__cause__.errno == errno.ENOSPC
    assert names(tmp_path) == ["there"]  # what would stand in another model's way


@pytest.mark.parametrize(
    ("factor", "complaint"),
    [(0.0, "layer 2: all weights are -?0,"), (2000.0, r"layer 2: with a deviation of [\d.]+ every weight")],
)
def test_a_layer_that_cannot_be_quantised_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, complaint: str
) -> None:
    """Even the last: hours into a large model would be too late."""

    def layer(index: int) -> LayerWeights:
        made = random_layer(16, 32)
        return made if index < 2 else LayerWeights(*(factor * each for each in made.named().values()))

    monkeypatch.setattr(writer, "_write", lambda file, content: pytest.fail("written"))
    with pytest.raises(StoreError, match=complaint):
        write_store(EncoderWeights(WEIGHTS.configuration, WEIGHTS.resident, layer), tmp_path / "store")
    assert names(tmp_path) == []


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
