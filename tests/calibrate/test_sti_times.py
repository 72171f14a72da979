"""What streaming takes, measured: reads by bits (STI-07), layers by width (STI-08), a translator's two halves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from simnmt.calibrate.harness import Silent
from simnmt.calibrate.settings import StiSettings
from simnmt.calibrate.streamed_model import (
    THREAD,
    inferred_execution,
    measure_layers,
    measure_reads,
    reads_block,
    translator_blocks,
)
from simnmt.kernels.unpack import PackedWeights
from simnmt.nmt.architecture import TransformerArchitecture
from simnmt.profile.streaming_block import BERT_BASE, BITS, Shard, ShardGeometry, ShardReads, StiBlock, StiCompute
from simnmt.streaming.errors import StoreError
from simnmt.streaming.pipeline import ShardReader
from simnmt.streaming.store import SHARDS, ShardStore
from tests.streaming.made_encoder import made_weights, stored

PACE = 100_000.0
GEOMETRY = ShardGeometry(layers=3, heads=4, width=16, ffn=32)


def test_reads_held_to_a_pace_are_never_sooner_than_it_allows(tmp_path: Path) -> None:
    """A busy box may make them later, so that only this bound holds anywhere."""
    with stored(made_weights(), tmp_path / "store") as store:
        reads = measure_reads(ShardReader(store, PACE), StiSettings(pace_bytes_per_s=PACE, repeats=1))
        for read in reads.reads:
            sizes = [record.size for record in store.records if record.bits == read.bits]
            assert read.bytes == round(store.mean_size(read.bits))
            assert read.min_s >= min(sizes) / PACE
            assert read.repeats == 3
    assert reads.paced_bytes_per_s == PACE


def test_a_disk_is_a_fixed_part_and_a_rate() -> None:
    """STI-07: of a disk that takes 0.3 ms and 80 MB/s the line says so, and explains all of it."""
    sizes = {bits: BERT_BASE.index_bytes(bits) for bits in BITS}
    reads = tuple(ShardReads.of([3e-4 + size / 80e6] * 3, bits=bits, bytes=size) for bits, size in sizes.items())
    block = reads_block(reads, cold=True, pace=None)
    assert (block.s_fixed, block.bytes_per_s) == pytest.approx((3e-4, 80e6))
    assert block.r2 == pytest.approx(1.0)


Shards = dict[Shard, PackedWeights]


def of_six_bits(store: ShardStore) -> Shards:
    return {(record.layer, record.slice): store.read(record) for record in store.records if record.bits == 6}


def measured_layers(encoder: Any, store: ShardStore, shards: Shards, *lengths: int) -> StiCompute:
    """Measure the layers of an encoder of the store's geometry beside reads from the store."""
    settings = StiSettings(lengths=lengths, repeats=3)
    return measure_layers(encoder, shards, ShardReader(store), settings, clock=encoder.clock)


class _Timed:
    """By its own clock, which a look moves by 1 us, a layer takes 1 ms a slice and 1 ms for every 4 tokens."""

    geometry = GEOMETRY
    now_s = 0.0

    def clock(self) -> float:
        self.now_s += 1e-6
        return self.now_s

    class configuration:
        vocabulary = 9

    def embed(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        return torch.zeros(*token_ids.shape, GEOMETRY.width)

    def layer(self, hidden: Tensor, mask: Tensor, layer: int, slices: Sequence[int], buffer: Any) -> Tensor:
        self.now_s += 0.001 * len(slices) + 0.00025 * hidden.shape[1]
        return hidden

    def logits(self, hidden: Tensor, mask: Tensor) -> Tensor:
        self.now_s += 0.003
        return torch.zeros(1, 2)


def test_layers_are_measured_by_width_and_length_and_judged_by_whole_submodels(tmp_path: Path) -> None:
    with stored(made_weights(), tmp_path / "store") as store:
        compute = measured_layers(_Timed(), store, of_six_bits(store), 4, 12)
    for times in compute.lengths:
        taken_s = [0.001 * width + 0.00025 * times.length for width in (1, 2, 3, 4)]
        assert times.seconds == pytest.approx(taken_s, abs=3e-6)
        assert times.unpack_s == pytest.approx([1e-6] * 4)
        assert (times.embed_s, times.head_s) == pytest.approx((1e-6, 0.003001))
    assert compute.heldout_error is not None and compute.heldout_error < 0.002
    # The plane of the whole classifier is inferred from its layers.
    io = reads_block(tuple(ShardReads.of([1e-3], bits=bits, bytes=100 * bits) for bits in BITS), cold=True, pace=None)
    execution = inferred_execution(StiBlock(kind="measured", model="made", geometry=GEOMETRY, io=io, compute=compute))
    assert execution.plane.s_per_tgt_token == 0.0
    for length in (4, 12):
        expected_s = 3 * (0.004 + 0.00025 * length) + 0.003
        assert execution.plane.s_fixed + length * execution.plane.s_per_src_token == pytest.approx(expected_s, rel=0.01)


class _Disturbed(_Timed):
    """By its own clock a layer takes 2 ms, and 3 while another thread reads."""

    def layer(self, hidden: Tensor, mask: Tensor, layer: int, slices: Sequence[int], buffer: Any) -> Tensor:
        self.now_s += 0.003 if any(thread.name.startswith(THREAD) for thread in threading.enumerate()) else 0.002
        return hidden


def test_the_slowdown_of_layers_by_reads_is_measured(tmp_path: Path) -> None:
    with stored(made_weights(), tmp_path / "store") as store:
        shards = of_six_bits(store)
        assert measured_layers(_Disturbed(), store, shards, 4).slowed_by_reads == pytest.approx((1.5,) * 4, rel=0.01)
        with (store.path / SHARDS).open("r+b") as file:
            file.write(bytes(store.records[-1].offset))
        with pytest.raises(StoreError):
            measured_layers(_Disturbed(), store, shards, 4)


def _translator(**sizes_changed: Any) -> TransformerArchitecture:
    sizes: dict[str, Any] = {"kind": "transformer", "encoder_layers": 2, "decoder_layers": 3, "d_model": 16, "heads": 4}
    tokens = {"ffn": 32, "vocab": 60, "eos_token": 0, "unk_token": 1, "pad_token": 59, "start_token": 59, "max_positions": 80}
    return TransformerArchitecture.model_validate(sizes | tokens | sizes_changed)


def test_a_translator_gets_the_costs_of_both_halves_and_a_plane(tmp_path: Path) -> None:
    settings = StiSettings(lengths=(4, 8), pace_bytes_per_s=1e6, repeats=2)
    sti, execution = translator_blocks(_translator(), tmp_path, settings, Silent)
    cost = sti.cost()
    assert cost.layers == 5
    assert (len(cost.comp_s[4]), len(cost.decoder.step_s)) == (4, 4)
    assert cost.decoder.shard_bytes[32] > cost.shard_bytes[32]
    for layer in (0, 4):
        assert cost.t_io(32, layer) >= 0.5 * cost.bytes_of(32, layer) / 1e6  # the pace; a disk reads hundreds of times as fast
    assert sti.compute.slowed_by_reads is not None
    assert cost.head_s > 0.0
    # Words and positions, 4 + 8 attention projections, 32 neurons and their sums, 2 and 3 norms, and a small classifier.
    assert sti.resident_bytes == pytest.approx(4 * (140 * 16 + 2 * (64 + 48 + 64) + 3 * (128 + 48 + 96)), rel=0.05)
    assert execution.kind == "inferred"
    assert execution.plane.s_per_tgt_token == pytest.approx(3 * cost.decoder.step_s[-1] + cost.head_s)
    assert list(tmp_path.iterdir()) == []
