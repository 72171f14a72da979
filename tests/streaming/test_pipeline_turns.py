"""Turns of an engagement from a store on a disk: right answers, true contents of the buffer, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simnmt.nmt.devices import library_threads
from simnmt.profile.streaming_block import BITS, StiCost
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.pipeline import (
    EngagementSettings,
    Execution,
    Pipeline,
    PreloadBuffer,
    ShardReader,
    Turn,
    inputs_of,
    run_engagement,
)
from simnmt.streaming.plan.streaming_plan import StreamingPlan
from simnmt.streaming.store import ShardStore, write_store
from tests.streaming.made_encoder import logits_of, made_weights, stored_layer

WEIGHTS = made_weights(layers=3, heads=4, width=32, ffn=64)
LENGTH, ENLARGED = 6, 20_000


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """To the bit: on several, torch divides the products of a whole layer and of its slices in other places."""
    with library_threads(1):
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stores") / "store"
    write_store(WEIGHTS, made)
    return made


@pytest.fixture
def store(path: Path) -> Iterator[ShardStore]:
    with ShardStore(path) as opened:
        yield opened


def cost_of(store: ShardStore, comp_s: float = 0.004) -> StiCost:
    """Reads at 4 kB/ms, a layer of all slices in 4 ms."""
    sizes = {bits: round(store.mean_size(bits)) for bits in BITS}
    slices = store.geometry.heads
    return StiCost(
        store.geometry,
        {bits: size / 4e6 for bits, size in sizes.items()},
        {LENGTH: tuple(comp_s * (slice_ + 1) / slices for slice_ in range(slices))},
        sizes,
    )


def whole(bits: int, preloaded: bool = False) -> StreamingPlan:
    every = {(layer, piece): bits for layer in range(3) for piece in range(4)}
    return StreamingPlan(3, 4, every, frozenset(every if preloaded else ()), 1.0, 10**6, LENGTH, 1.0, 0.0)


def encoder_of(store: ShardStore) -> ElasticEncoder:
    return ElasticEncoder(store.configuration, store.resident())


def reference(store: ShardStore, plan: StreamingPlan, token_ids: Any, mask: Any) -> Any:
    """The same submodel without a pipeline: numpy unpacks, layer by layer."""
    encoder = encoder_of(store)
    with torch.inference_mode():
        hidden = encoder.embed(token_ids, mask)
        for layer in plan.layer_indices:
            slices = {piece: plan.bits[layer, piece] for _, piece in plan.shards_of(layer)}
            hidden = encoder.layer(hidden, mask, layer, list(slices), stored_layer(store, layer, slices))
        return encoder.logits(hidden, mask)


def run_filled(store: ShardStore, plan: StreamingPlan, capacity: int, token_ids: Any, mask: Any, threads: int = 1) -> Execution:
    buffer = PreloadBuffer(capacity)
    buffer.fill(ShardReader(store), plan)
    return Pipeline(store, encoder_of(store), plan.slices_per_layer, threads=threads).run(plan, buffer, token_ids, mask)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("preloaded", [False, True])
def test_all_layers_at_32_bits_are_the_model_itself(store: ShardStore, preloaded: bool, threads: int) -> None:
    """STI-02: whatever is streamed and whatever was there."""
    [(token_ids, mask)] = inputs_of(store, (), LENGTH, 1)
    plan = whole(32, preloaded)
    run = run_filled(store, plan, 10**6, token_ids, mask, threads=threads)
    torch.testing.assert_close(run.logits, logits_of(WEIGHTS, token_ids, mask), rtol=0, atol=1e-5)
    assert (run.total("bytes_read") == 0) is preloaded


def test_a_mixed_plan_gives_what_its_shards_give_without_a_pipeline(store: ShardStore) -> None:
    [(token_ids, mask)] = inputs_of(store, (), LENGTH, 1)
    bits = {(0, 1): 3, (0, 3): 32, (1, 0): 2, (1, 2): 5}
    plan = replace(whole(2), layers=2, slices_per_layer=2, bits=bits, preloaded=frozenset({(0, 1)}))
    run = run_filled(store, plan, 10**6, token_ids, mask)
    assert torch.equal(run.logits, reference(store, plan, token_ids, mask))
    again = Pipeline(store, encoder_of(store), 2).run(plan, PreloadBuffer(0), token_ids, mask)
    assert torch.equal(again.logits, run.logits)
    records = sum(store.record(*shard, width).size for shard, width in bits.items())
    assert (run.total("bytes_read"), again.total("bytes_read")) == (records - store.record(0, 1, 3).size, records)


def engaged(store: ShardStore, turns: int = 4, **options: Any) -> list[Turn]:
    settings = {"deadline_s": 0.009, "preload_bytes": 2500, "length": LENGTH, "pace_bytes_per_s": 4e6} | options
    inputs = inputs_of(store, (), LENGTH, turns)
    return list(run_engagement(store, encoder_of(store), cost_of(store), EngagementSettings(**settings), inputs))


def test_with_an_enlarged_buffer_the_next_turn_skips_what_is_there_and_raises_others(store: ShardStore) -> None:
    """STI-17: what stays is the executed shards' longest prefix, and freed reads go into other shards' bits."""
    first, second, *later = engaged(store, cache_bytes=ENLARGED)
    assert 0 < first.held_bytes <= 2500 < second.held_bytes <= ENLARGED
    assert second.held == {shard: first.plan.bits[shard] for shard in list(first.plan.bits)[: len(second.held)]}
    assert second.plan.preloaded == set(second.held)
    assert second.execution.total("bytes_read") == sum(
        store.record(*shard, bits).size for shard, bits in second.plan.bits.items() if shard not in second.held
    )
    assert sum(second.plan.bits.values()) > sum(first.plan.bits.values())
    assert all(turn.kept_bytes <= ENLARGED for turn in later)


def test_a_cold_start_reads_all_of_the_first_plan(store: ShardStore) -> None:
    warm, cold = engaged(store, 1)[0], engaged(store, 2, cold=True)[0]
    assert cold.plan == warm.plan
    assert cold.held == {}
    assert warm.held_bytes > 0
    assert cold.execution.total("bytes_read") == warm.execution.total("bytes_read") + warm.held_bytes
    assert cold.predicted.latency_s > warm.predicted.latency_s
    assert cold.predicted.stall_s == pytest.approx(
        cold.predicted.latency_s - 0.004 * cold.plan.layers * cold.plan.slices_per_layer / 4
    )


def test_a_buffer_is_never_filled_beyond_its_capacity(store: ShardStore) -> None:
    """A plan reckons with the mean record; what does not fit is read during the execution."""
    plan = whole(2, preloaded=True)
    sizes = [store.record(*shard, 2).size for shard in plan.bits]
    for room in (0, sizes[0], sum(sizes[:5]) + 1, sum(sizes) - 1, sum(sizes)):
        buffer = PreloadBuffer(room)
        read = buffer.fill(ShardReader(store), plan)
        assert read == buffer.size_bytes <= room
        assert list(buffer.contents) == [*plan.bits][: len(buffer.contents)]
        assert len(buffer.contents) == int(np.searchsorted(np.cumsum(sizes), room, side="right"))


def test_paced_reads_take_as_long_as_their_bytes(store: ShardStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on while somebody sleeps, and at no other time: a busy box adds nothing."""
    slept_s: list[float] = []
    monkeypatch.setattr(time, "sleep", slept_s.append)
    reader = ShardReader(store, 1e6, clock=lambda: sum(slept_s))
    for piece in range(4):
        reader.read((0, piece), 6)
    size = sum(store.record(0, piece, 6).size for piece in range(4))
    assert sum(slept_s) == pytest.approx(size / 1e6)
