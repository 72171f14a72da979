"""Block `sti` of an encoder in a shard store: reads, layers, and what the one costs the other (STI-07, STI-08)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from simnmt.calibrate.sti.contention import slowed_by_reads
from simnmt.calibrate.sti.layer_times import UNPACKED_BITS, measure_layers
from simnmt.calibrate.sti.settings import StiSettings
from simnmt.calibrate.sti.shard_reads import measure_reads
from simnmt.costs.sti_block import StiBlock, StiGeometry
from simnmt.elastic.store import decode

if TYPE_CHECKING:
    from simnmt.costs.sti_cost import Shard
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.store import Packed, ShardStore

READS = 3
"""Rows of reads of each bitwidth for each repeat of a layer: they vary more, and take a hundredth of the time."""
Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what is at work."""


def packed_shards(store: ShardStore) -> dict[Shard, Packed]:
    """All of the store's shards at 6 bits, in memory. Raises `StoreError` for a damaged store."""
    geometry = store.geometry
    every = [(layer, slice_) for layer in range(geometry.layers) for slice_ in range(geometry.heads)]
    return {shard: decode(store.read(store.record(*shard, UNPACKED_BITS))) for shard in every}


def encoder_block(
    store: ShardStore, encoder: ElasticEncoder, shards: Mapping[Shard, Packed], settings: StiSettings, progress: Progress
) -> StiBlock:
    """Measured on this box, without importance; `shards`: of `packed_shards`. Raises `CalibrationError`, `StoreError`."""
    reads = measure_reads(
        store,
        pace_bytes_per_s=settings.pace_bytes_per_s,
        repeats=READS * settings.repeats,
        seed=settings.seed,
        progress=lambda done, total: progress(done, total, "reading shards"),
    )
    compute = measure_layers(
        encoder,
        shards,
        settings.lengths,
        repeats=settings.repeats,
        threads=settings.threads,
        seed=settings.seed,
        progress=lambda done, total: progress(done, total, "computing layers"),
    )
    progress(0, 1, "computing layers beside reads")
    slowed = slowed_by_reads(
        encoder,
        store,
        shards,
        settings.lengths,
        pace_bytes_per_s=settings.pace_bytes_per_s,
        repeats=settings.repeats,
        threads=settings.threads,
        seed=settings.seed,
    )
    progress(1, 1, "computing layers beside reads")
    geometry = store.geometry
    return StiBlock(
        kind="measured",
        model=store.index.origin or store.kind,
        fingerprint=store.fingerprint,
        geometry=StiGeometry(layers=geometry.layers, heads=geometry.heads, width=geometry.width, ffn=geometry.ffn),
        io=reads,
        compute=compute.model_copy(update={"slowed_by_reads": slowed}),
        threads=settings.threads,
        store_bytes=sum(record.size for record in store.index.records),
    )
