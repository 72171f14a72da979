"""Measure block `sti` of an encoder in a shard store: settings, cold reads by bits (T_io), layers (STI-07, STI-08)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from simnmt.calibrate.disk import mount_of
from simnmt.calibrate.fits import fit_disk
from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.calibrate.streaming.layer_times import UNPACKED_BITS, Progress, measure_layers, no_progress, slowed_by_reads
from simnmt.profile.streaming_block import ShardReads, StiBlock, StiGeometry, StiIo
from simnmt.profile.streaming_cost import BITS
from simnmt.streaming.pipeline import ShardReader

if TYPE_CHECKING:
    from simnmt.profile.streaming_cost import Shard
    from simnmt.streaming.encoder import ElasticEncoder
    from simnmt.streaming.shards import Packed
    from simnmt.streaming.store import ShardStore

READS = 3
"""Reads of a row of shards at each bitwidth per repeat of a layer: reads vary more, and take a hundredth of the time."""


def measure_reads(store: ShardStore, settings: StiSettings, progress: Progress = no_progress) -> StiIo:
    """Read all shards of random layers, one layer after the other, from a cold file, in an interleaved order of bits.

    A sample is the mean time of a layer's shards. As in the executor, it includes checksums, and a thread that wakes late after
    one paced read does not delay the next. `progress` counts layers. Raises `CalibrationError` for a store without some of
    the bitwidths, `StoreError` for a damaged one, `StreamingError` for an invalid pace.
    """
    check_bits(store)
    drawn = random.Random(settings.seed)
    reader = ShardReader(store, settings.pace_bytes_per_s)
    order = [bits for bits in BITS for _ in range(READS * settings.repeats)]
    drawn.shuffle(order)
    read_s: dict[int, list[float]] = {bits: [] for bits in BITS}
    cold = True
    geometry = store.geometry
    for done, bits in enumerate(order):
        layer = drawn.randrange(geometry.layers)
        cold &= reader.drop_cache()
        reader.begin()
        begin_s = perf_counter()
        for slice_ in range(geometry.heads):
            reader.read((layer, slice_), bits)
        read_s[bits].append((perf_counter() - begin_s) / geometry.heads)
        progress(done + 1, len(order), "reading shards")
    mount = mount_of(store.path)
    if mount is not None and (mount.is_memory or mount.has_own_cache):
        cold = False
    sizes = {bits: round(store.mean_size(bits)) for bits in BITS}
    file_system = None if mount is None else str(mount)
    return reads_block(sizes, read_s, cold=cold, pace=settings.pace_bytes_per_s, file_system=file_system)


def check_bits(store: ShardStore) -> None:
    """Raise `CalibrationError` if the store lacks a bitwidth that a planner could choose."""
    lacking = [bits for bits in BITS if bits not in store.bits]
    if lacking:
        what = f"no shards of {', '.join(map(str, lacking))} bits"
        raise CalibrationError(what, path=store.path, remedy="shard the model again with all bitwidths")


def shard_reads(sizes: Mapping[int, int], read_s: Mapping[int, Sequence[float]]) -> tuple[ShardReads, ...]:
    """Return the reads of a profile, by bits; `sizes`: bytes by bits."""
    return tuple(ShardReads.of(read_s[bits], bits=bits, bytes=sizes[bits]) for bits in BITS)


def reads_block(
    sizes: Mapping[int, int], read_s: Mapping[int, Sequence[float]], *, cold: bool, pace: float | None, file_system: str | None
) -> StiIo:
    """Return the block of shard reads, with a line over the medians; R2 is None where larger shards took no longer."""
    try:
        line = fit_disk({sizes[bits]: read_s[bits] for bits in BITS}, cold=cold)
        fixed_s, bytes_per_s, r2 = line.s_fixed, line.bytes_per_s, line.r2
    except ValueError:
        times_s = np.concatenate([read_s[bits] for bits in BITS])
        total_bytes = sum(sizes[bits] * len(read_s[bits]) for bits in BITS)
        fixed_s, bytes_per_s, r2 = float(times_s.mean()), total_bytes / float(times_s.sum()), None
    return StiIo(
        reads=shard_reads(sizes, read_s),
        s_fixed=fixed_s,
        bytes_per_s=bytes_per_s,
        r2=r2,
        cold=cold,
        paced_bytes_per_s=pace,
        file_system=file_system,
    )


def packed_shards(store: ShardStore) -> dict[Shard, Packed]:
    """Return all shards of the store at 6 bits, in memory. Raises `StoreError` for a damaged store."""
    geometry = store.geometry
    every = [(layer, slice_) for layer in range(geometry.layers) for slice_ in range(geometry.heads)]
    return {shard: store.read(store.record(*shard, UNPACKED_BITS)) for shard in every}


def encoder_block(
    store: ShardStore, encoder: ElasticEncoder, shards: Mapping[Shard, Packed], settings: StiSettings, progress: Progress
) -> StiBlock:
    """Measure the block `sti` on this box, without importance.

    `shards`: result of `packed_shards`. Raises `CalibrationError`, `StoreError`.
    """
    reads = measure_reads(store, settings, progress)
    compute = measure_layers(encoder, shards, settings, progress)
    progress(0, 1, "computing layers beside reads")
    slowed = slowed_by_reads(encoder, store, shards, settings)
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
