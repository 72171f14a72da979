"""A shard store: what was written is what is read, at every fidelity, and what has changed since is told."""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.streaming_cost import BERT_BASE, BITS
from simnmt.streaming import page_cache
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store.quantisation import Ascending, GaussianFit
from simnmt.streaming.store.shard_format import (
    Record,
    decode,
    dequantised,
    packed_bits,
    record_size,
    shard_of,
    unpacked_bits,
)
from simnmt.streaming.store.shard_store import ShardStore
from simnmt.streaming.store.writer import write_store
from tests.streaming.made_encoder import made_weights, stored
from tests.streaming.random_weights import random_weights
from tests.streaming.whole_logits import stored_layer, stored_weights

WEIGHTS = random_weights()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    write_store(WEIGHTS, path, beside={"tokens.json": b"{}"}, label_names=("no", "yes"))
    return path


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


@given(codes=st.lists(st.integers(0, 63), max_size=40), bits=st.sampled_from([2, 3, 4, 5, 6]))
def test_code_i_stands_in_bits_i_b_to_i_plus_1_b(codes: list[int], bits: int) -> None:
    codes = [code % (1 << bits) for code in codes]
    stream = packed_bits(np.array(codes, np.uint8), bits)
    number = int.from_bytes(stream.tobytes(), "little")
    assert [(number >> (place * bits)) % (1 << bits) for place in range(len(codes))] == codes
    assert number >> (len(codes) * bits) == 0
    assert len(stream) == -(-len(codes) * bits // 8)
    assert unpacked_bits(stream, bits, len(codes)).tolist() == codes


def test_every_shard_comes_back_as_it_was_quantised(written: Path) -> None:
    """Exact codes, outliers to the bit, and at 32 bits the weights themselves (STI-05)."""
    with ShardStore.open(written) as store:
        for layer in range(3):
            shards = np.stack([shard_of(store.geometry, WEIGHTS.layer(layer), index) for index in range(4)])
            fit = GaussianFit.of(shards.ravel())
            outliers = fit.outliers(shards.ravel())
            assert store.index.layers[layer] == fit
            assert 0 < outliers.sum() < 20
            for bits in BITS[:-1]:
                codes, centroids = Ascending.of(shards.ravel(), outliers).grouped(bits)
                expected = np.where(outliers, shards.ravel(), centroids[codes]).reshape(shards.shape)
                for index in range(4):
                    record = store.record(layer, index, bits)
                    packed = decode(store.read(record))
                    assert (packed.layer, packed.slice, packed.bits) == (layer, index, bits)
                    assert unpacked_bits(packed.codes, bits, packed.weights).tolist() == codes.reshape(4, -1)[index].tolist()
                    assert packed.outlier_at.tolist() == np.flatnonzero(outliers.reshape(4, -1)[index]).tolist()
                    assert packed.outlier_values.tobytes() == shards[index, packed.outlier_at].tobytes()
                    assert dequantised(packed).tobytes() == expected[index].tobytes()
                    error = float(((expected[index].astype(float) - shards[index]) ** 2).sum())
                    assert record.squared_error == pytest.approx(error, rel=1e-5)
            for index, shard in enumerate(shards):
                assert dequantised(decode(store.read(store.record(layer, index, 32)))).tobytes() == shard.tobytes()


def test_a_store_gives_its_model_again(written: Path) -> None:
    with ShardStore.open(written) as store:
        again = stored_weights(store)
        assert again.fingerprint == WEIGHTS.fingerprint == store.fingerprint
        assert (again.configuration.kind, again.origin, again.random) == ("elastic", "made", True)
        assert store.label_names == ("no", "yes")
        assert store.beside() == {"tokens.json": b"{}"}
        store.check_model(WEIGHTS.fingerprint)
        with pytest.raises(StoreError, match=r"shards of another model, made \(give this model's store\)"):
            store.check_model(random_weights(seed=1).fingerprint)


def test_records_fill_the_file_by_layer_then_bits_and_their_fields_are_aligned(written: Path) -> None:
    """A layer is one piece of the file, and a layer at one fidelity too (STI-05)."""
    with ShardStore.open(written) as store:
        records = store.index.records
        assert [(record.layer, record.bits, record.slice) for record in records] == [
            (layer, bits, index) for layer in range(3) for bits in BITS for index in range(4)
        ]
        assert [record.offset for record in records] == np.cumsum([0, *(record.size for record in records)])[:-1].tolist()
        assert (written / "shards.bin").stat().st_size == records[-1].offset + records[-1].size
        for record in records:
            packed = decode(store.read(record))
            fields = (packed.codes, packed.centroids, packed.outlier_at, packed.outlier_values)
            assert {record.ctypes.data % 64 for record in fields if len(record)} == {0}
            assert record.size == record_size(packed.weights, record.bits, record.outliers)


def test_sizes_of_sti_05() -> None:
    """864 records; 212.3 MB of codes in five low versions, and with 0.15 % of outliers as value and offset 217.4."""
    weights, shards = BERT_BASE.weights_per_shard, 144
    sizes = {bits: record_size(weights, bits, 0) for bits in BITS}
    # Each record has a header of 64 bytes, and a dictionary up to the next 64.
    codes = {bits: size - 64 - (0 if bits == 32 else max(64, 4 << bits)) for bits, size in sizes.items()}
    assert codes == {2: 147_456, 3: 221_184, 4: 294_912, 5: 368_640, 6: 442_368, 32: 2_359_296}
    assert round(shards * sum(codes[bits] for bits in BITS[:-1]) / 1e6, 1) == 212.3
    # To which the alignment adds 0.2 MB.
    with_outliers = shards * sum(record_size(weights, bits, round(0.0015 * weights)) for bits in BITS[:-1])
    assert round(with_outliers / 1e6, 1) == pytest.approx(217.4 + 0.2, abs=0.1)
    assert shards * len(BITS) == 864


def test_a_layer_of_mixed_fidelities_lies_as_it_is_computed_with(written: Path) -> None:
    with ShardStore.open(written) as store:
        buffer = stored_layer(store, 1, {3: 2, 0: 32})
        rows = WEIGHTS.layer(1).q.numpy()
        assert buffer.segment("q")[4:].tobytes() == rows[:4].tobytes()
        low = dequantised(decode(store.read(store.record(1, 3, 2))))
        assert buffer.segment("q")[:4].ravel().tolist() == low[:64].tolist()


def test_any_flipped_bit_is_told(copied: Path) -> None:
    """By the checksum of the shard that it lies in, which is named."""
    path = copied / "shards.bin"
    content = bytearray(path.read_bytes())
    generator = np.random.default_rng(6)
    for at in [0, len(content) - 1, *generator.integers(0, len(content), 20).tolist()]:
        bit = 1 << int(generator.integers(8))
        content[at] ^= bit
        path.write_bytes(content)
        with ShardStore.open(copied) as store:
            hit = next(record for record in store.index.records if record.offset <= at < record.offset + record.size)
            named = rf"shard {hit.slice} of layer {hit.layer} at {hit.bits} bits is not what was written"
            with pytest.raises(StoreError, match=named):
                store.read(hit)
            with pytest.raises(StoreError, match=named):
                store.check()
        content[at] ^= bit
    path.write_bytes(content)
    with ShardStore.open(copied) as store:
        store.check()


def test_a_record_in_anothers_place_is_told_though_its_checksum_fits(copied: Path) -> None:
    path = copied / "store.json"
    index = json.loads(path.read_text())
    one, other = (next(i for i, r in enumerate(index["records"]) if (r["slice"], r["bits"]) == (s, 32)) for s in (0, 1))
    for key in ("crc32", "outliers", "squared_error"):
        index["records"][one][key], index["records"][other][key] = index["records"][other][key], index["records"][one][key]
    content = bytearray((copied / "shards.bin").read_bytes())
    low, high, size = index["records"][one]["offset"], index["records"][other]["offset"], index["records"][one]["size"]
    content[low : low + size], content[high : high + size] = content[high : high + size], content[low : low + size]
    path.write_text(_signed(index))
    (copied / "shards.bin").write_bytes(content)
    with ShardStore.open(copied) as store:
        message = r"shards\.bin: shard 0 of layer 0 at 32 bits: another one lies in its place \(shard the model again"
        with pytest.raises(StoreError, match=message):
            store.read(store.record(0, 0, 32))
        with pytest.raises(StoreError, match=message):
            store.check()


@pytest.mark.parametrize("bits", [0, 1, 7, 8, 31])
def test_a_record_of_bits_that_no_store_has_is_told(written: Path, bits: int) -> None:
    with ShardStore.open(written) as store:
        content = store.read(store.record(0, 0, 6))
    content[14:16] = (bits, 0)  # behind magic, version, layer and slice
    with pytest.raises(StoreError, match="no record of a shard"):
        decode(content)


@pytest.mark.parametrize("lacking", [(), ("preadv",)])
def test_reads_need_no_more_than_the_system_has(
    written: Path, monkeypatch: pytest.MonkeyPatch, lacking: tuple[str, ...]
) -> None:
    with ShardStore.open(written) as store:
        for name in lacking:
            monkeypatch.delattr(os, name)
        store.check()
        assert len(store.read(store.record(1, 1, 2))) == store.record(1, 1, 2).size


def test_a_read_brings_in_no_more_than_its_record(tmp_path: Path) -> None:
    """A plan names all that it reads; what a system reads ahead would be other fidelities, in its way."""
    with stored(made_weights(layers=2, heads=2, width=64, ffn=256), tmp_path / "large") as store:
        if page_cache.drop(store.file) != 0:
            pytest.skip("this file system cannot drop a file from the page cache")
        record = store.record(0, 0, 2)
        store.read(record)
        size = os.fstat(store.file).st_size
        assert size > 50 * record.size
        brought = page_cache.resident_pages(store.file, size)
        assert brought is not None and 0 < brought <= 2 + record.size // mmap.PAGESIZE


def test_where_memory_cannot_be_dropped_nobody_knows_whether_reads_are_cold(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with ShardStore.open(written) as store:
        assert page_cache.drop(store.file) is None


@pytest.mark.parametrize("name", ["resident.safetensors", "beside/tokens.json"])
def test_a_changed_file_beside_the_shards_is_told(copied: Path, name: str) -> None:
    path = copied / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with ShardStore.open(copied) as store:
        with pytest.raises(StoreError, match=f"{path.name}: damaged"):
            store.check()
        with pytest.raises(StoreError, match=f"{path.name}: damaged"):
            store.resident() if "resident" in name else store.beside()


def test_a_store_cut_short_is_told_when_it_is_opened(copied: Path) -> None:
    for name in ("beside/tokens.json", "resident.safetensors", "shards.bin"):
        path = copied / name
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(StoreError, match=rf"{path.name}: cut short: [\d,]+ bytes where [\d,]+ were written \(shard"):
            ShardStore.open(copied)
        path.unlink()
        with pytest.raises(StoreError, match=rf"{path.name}: cannot be read: No such file"):
            ShardStore.open(copied)
        path.write_bytes(content)


def test_a_file_that_shrinks_while_it_is_read_is_told(copied: Path) -> None:
    with ShardStore.open(copied) as store:
        last = store.index.records[-1]
        with (copied / "shards.bin").open("r+b") as file:
            file.truncate(last.offset + 1)
        with pytest.raises(StoreError, match="ends within shard 3 of layer 2 at 32 bits"):
            store.read(last)


def _denied(path: Path, *_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_what_is_no_store_or_whose_index_has_changed_is_told(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match=r"no shard store.*give what simnmt sti shard wrote"):
        ShardStore.open(tmp_path)
    with pytest.raises(StoreError, match=r"cannot be read: File name too long \(give what"):
        ShardStore.open(tmp_path / ("x" * 300))
    path = copied / "store.json"
    with (
        monkeypatch.context() as patched,
        pytest.raises(StoreError, match=r"cannot be read: Permission denied \(correct its permissions"),
    ):
        patched.setattr(Path, "stat", _denied)
        patched.setattr(Path, "read_text", _denied)
        ShardStore.open(copied)
    index = json.loads(path.read_text())
    path.write_text("[" * 100_000)
    with pytest.raises(StoreError, match="no index of shards"):
        ShardStore.open(copied)
    for changed, complaint in (
        (index | {"fingerprint": "0" * 64}, "damaged"),
        (index | {"records": index["records"][1:]}, "damaged"),
        (index | {"version": 9}, "a store of version 9, where 1 is known"),
        (index | {"format": "else"}, "no index of shards"),
        ([], "no index of shards"),
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(StoreError, match=complaint):
            ShardStore.open(copied)
    path.write_text(json.dumps(index)[:-40])
    with pytest.raises(StoreError, match="no index of shards"):
        ShardStore.open(copied)


def _signed(index: dict[str, Any]) -> str:
    """An index with a digest that fits, as anybody can write one."""
    content = {name: value for name, value in index.items() if name != "sha256"}
    return json.dumps(content | {"sha256": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()})


@pytest.mark.parametrize("header", [b"{", b"[]", b'{"x": 1}', b'{"x": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}'])
def test_resident_tensors_with_a_broken_header_are_refused_whatever_their_digest(copied: Path, header: bytes) -> None:
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    (copied / "resident.safetensors").write_bytes(content)
    index = json.loads((copied / "store.json").read_text())
    index["files"]["resident.safetensors"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (copied / "store.json").write_text(_signed(index))
    with ShardStore.open(copied) as store, pytest.raises(StoreError, match=r"resident\.safetensors: not a safetensors file"):
        store.resident()


def test_an_index_that_was_made_up_is_refused_whatever_its_digest(copied: Path) -> None:
    path = copied / "store.json"
    index = json.loads(path.read_text())
    first, *rest = index["records"]
    secret = {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    path.write_text(_signed(index))
    ShardStore.open(copied).close()
    for changed in (
        index | {"unknown": 1},
        {name: value for name, value in index.items() if name != "layers"},
        index | {"records": []},
        index | {"records": rest},
        index | {"records": [first | {"offset": 64}, *rest]},
        index | {"records": [first | {"size": -64}, *rest]},
        index | {"records": [first | {"layer": 1}, *rest]},
        index | {"records": 3},
        index | {"bits": [2, 7]},
        index | {"configuration": index["configuration"] | {"heads": "2"}},
        index | {"configuration": index["configuration"] | {"heads": 10**12}},
        index | {"records": [first | {"size": float(first["size"])}, *rest]},
        index | {"records": [first | {"crc32": str(first["crc32"])}, *rest]},
        index | {"records": [first | {"squared_error": None}, *rest]},
        index | {"layers": [index["layers"][0] | {"deviation": 0}, *index["layers"][1:]]},
        index | {"layers": [index["layers"][0] | {"mean": "0"}, *index["layers"][1:]]},
        index | {"layers": [index["layers"][0] | {"mean": 10**400}, *index["layers"][1:]]},
        index | {"label_names": [1, 2]},
        index | {"origin": None},
        index | {"files": {}},
        index | {"files": {name: file | {"size": str(file["size"])} for name, file in index["files"].items()}},
        index | {"files": index["files"] | {"beside/../../secret": secret}},
        index | {"files": index["files"] | {"beside/..": secret}},
        index | {"files": index["files"] | {"/secret": secret}},
    ):
        path.write_text(_signed(changed))
        with pytest.raises(StoreError, match="no index of shards"):
            ShardStore.open(copied)


def test_bytes_that_are_no_record_are_told(written: Path) -> None:
    with ShardStore.open(written) as store:
        whole = store.read(store.record(0, 0, 3))
        for content in (b"", bytes(64), whole[:100]):
            with pytest.raises(StoreError, match="record"):
                decode(content)
        with pytest.raises(IndexError):
            store.record(3, 0, 2)


def test_a_store_of_some_fidelities_says_which(tmp_path: Path) -> None:
    write_store(WEIGHTS, tmp_path / "two", bits=(6, 2))
    with ShardStore.open(tmp_path / "two") as store:
        assert store.bits == (2, 6)
        assert isinstance(store.record(0, 0, 6), Record)
        with pytest.raises(StoreError, match=r"no shards of 32 bits, but of 2, 6"):
            stored_weights(store).layer(0)
        with pytest.raises(StoreError, match=r"no shards of 4 bits.*\(shard it with --bits\)"):
            store.mean_size(4)
        assert store.mean_size(2) == np.mean([record.size for record in store.index.records if record.bits == 2])
        assert torch.equal(store.resident()["classifier.weight"], WEIGHTS.resident["classifier.weight"])
