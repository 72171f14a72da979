"""A shard store: what was written is what is read, at every fidelity, and what has changed since is told."""

from __future__ import annotations

import json
import mmap
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simnmt.profile.streaming_block import BERT_BASE, BITS
from simnmt.streaming import page_cache
from simnmt.streaming.encoder import EncoderWeights
from simnmt.streaming.errors import StoreError
from simnmt.streaming.shards import GaussianFit, LayerWeights, ascending, grouped, layer_shards, record_size
from simnmt.streaming.store import ShardStore, write_store
from tests.streaming.made_encoder import dequantised, made_weights, random_weights, stored, stored_weights, unpacked_bits

WEIGHTS = random_weights()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    write_store(replace(WEIGHTS, files={"tokens.json": b"{}"}, label_names=("no", "yes")), path)
    return path


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def test_every_shard_comes_back_as_it_was_quantised(written: Path) -> None:
    """Exact codes, outliers to the bit, and at 32 bits the weights themselves (STI-05)."""
    with ShardStore(written) as store:
        for layer in range(3):
            shards = layer_shards(store.geometry, WEIGHTS.layer(layer))
            fit = GaussianFit.of(shards.ravel())
            outliers = fit.outliers(shards.ravel())
            assert store.index.layers[layer].fit == fit
            assert 0 < outliers.sum() < 20
            for bits in BITS[:-1]:
                codes, centroids = grouped(shards.ravel(), ascending(shards.ravel(), outliers), bits)
                expected = np.where(outliers, shards.ravel(), centroids[codes]).reshape(shards.shape)
                for index in range(4):
                    record = store.record(layer, index, bits)
                    packed = store.read(record)
                    assert packed.bits == bits
                    assert unpacked_bits(packed.codes, bits, packed.weights).tolist() == codes.reshape(4, -1)[index].tolist()
                    assert packed.outlier_at.tolist() == np.flatnonzero(outliers.reshape(4, -1)[index]).tolist()
                    assert packed.outlier_values.tobytes() == shards[index, packed.outlier_at].tobytes()
                    assert dequantised(packed).tobytes() == expected[index].tobytes()
                    error = float(((expected[index].astype(float) - shards[index]) ** 2).sum())
                    assert record.squared_error == pytest.approx(error, rel=1e-5)
            for index, shard in enumerate(shards):
                assert dequantised(store.read(store.record(layer, index, 32))).tobytes() == shard.tobytes()


def test_a_store_gives_its_model_again(written: Path) -> None:
    with ShardStore(written) as store:
        again = stored_weights(store)
        assert again.fingerprint == WEIGHTS.fingerprint == store.fingerprint
        assert (again.configuration.kind, again.origin, again.random) == ("elastic", "made", True)
        assert store.label_names == ("no", "yes")
        assert store.beside() == {"tokens.json": b"{}"}
        store.check_model(WEIGHTS.fingerprint)
        with pytest.raises(StoreError, match=r"shards of another model, made \(give this model's store\)"):
            store.check_model(random_weights(seed=1).fingerprint)


def test_an_index_with_bits_that_no_shard_has_is_refused_before_sizes_are_computed(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "store")
    index = json.loads((tmp_path / "store" / "store.json").read_text())
    index["bits"][0] = 2**63
    (tmp_path / "store" / "store.json").write_text(json.dumps(index))
    with pytest.raises(StoreError, match=r"store\.json"):
        ShardStore(tmp_path / "store")


def test_records_fill_the_file_by_layer_then_bits_and_their_fields_are_aligned(written: Path) -> None:
    """A layer is one piece of the file, and a layer at one fidelity too (STI-05)."""
    with ShardStore(written) as store:
        records = store.records
        assert [(record.layer, record.bits, record.slice) for record in records] == [
            (layer, bits, index) for layer in range(3) for bits in BITS for index in range(4)
        ]
        assert [record.offset for record in records] == np.cumsum([0, *(record.size for record in records)])[:-1].tolist()
        assert (written / "shards.bin").stat().st_size == records[-1].offset + records[-1].size
        for record in records:
            packed = store.read(record)
            fields = (packed.codes, packed.centroids, packed.outlier_at, packed.outlier_values)
            assert {record.ctypes.data % 64 for record in fields if len(record)} == {0}
            assert record.size == record_size(packed.weights, record.bits, record.outliers)


def test_sizes_of_sti_05() -> None:
    """864 records; 212.3 MB of codes in five low versions, and with 0.15 % of outliers as value and offset 217.4."""
    weights, shards = BERT_BASE.weights_per_shard, 144
    sizes = {bits: record_size(weights, bits, 0) for bits in BITS}
    # Each record has its centroids up to the next 64 bytes.
    codes = {bits: size - (0 if bits == 32 else max(64, 4 << bits)) for bits, size in sizes.items()}
    assert codes == {2: 147_456, 3: 221_184, 4: 294_912, 5: 368_640, 6: 442_368, 32: 2_359_296}
    assert round(shards * sum(codes[bits] for bits in BITS[:-1]) / 1e6, 1) == 212.3
    # To which the alignment adds 0.2 MB.
    with_outliers = shards * sum(record_size(weights, bits, round(0.0015 * weights)) for bits in BITS[:-1])
    assert round(with_outliers / 1e6, 1) == pytest.approx(217.4 + 0.2, abs=0.1)
    assert shards * len(BITS) == 864


def test_any_flipped_bit_is_told(copied: Path) -> None:
    """By the checksum of the shard that it lies in, which is named."""
    path = copied / "shards.bin"
    content = bytearray(path.read_bytes())
    generator = np.random.default_rng(6)
    for at in [0, len(content) - 1, *generator.integers(0, len(content), 20).tolist()]:
        bit = 1 << int(generator.integers(8))
        content[at] ^= bit
        path.write_bytes(content)
        with ShardStore(copied) as store:
            hit = next(record for record in store.records if record.offset <= at < record.offset + record.size)
            named = rf"shard {hit.slice} of layer {hit.layer} at {hit.bits} bits is not what was written"
            with pytest.raises(StoreError, match=named):
                store.read(hit)
            with pytest.raises(StoreError, match=named):
                store.check()
        content[at] ^= bit
    path.write_bytes(content)
    with ShardStore(copied) as store:
        store.check()


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


def test_a_failed_or_refused_write_leaves_nothing_behind(tmp_path: Path) -> None:
    def layer(index: int) -> LayerWeights:
        if index == 1:
            raise OSError(28, "No space left on device")
        return WEIGHTS.layer(index)

    broken = EncoderWeights(WEIGHTS.configuration, WEIGHTS.resident, layer)
    vars(broken)["fingerprint"] = WEIGHTS.fingerprint  # broken before it is needed
    with pytest.raises(StoreError):
        write_store(broken, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "store").mkdir()  # an empty folder may become the store
    tied = torch.ones(2, 16)
    write_store(EncoderWeights(WEIGHTS.configuration, {"one": tied, "two": tied}, WEIGHTS.layer), tmp_path / "store")
    with ShardStore(tmp_path / "store") as store:
        assert all(torch.equal(store.resident()[name], tied) for name in ("one", "two"))
    before = (tmp_path / "store" / "store.json").read_bytes()
    with pytest.raises(StoreError, match="is there already"):
        write_store(WEIGHTS, tmp_path / "store")
    assert (tmp_path / "store" / "store.json").read_bytes() == before
