"""T_io: cold reads of shards by bits, from their store itself (STI-07)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from simnmt.calibrate.box.mounts import IN_MEMORY, OWN_CACHE, mount_of
from simnmt.calibrate.disk import DiskSample
from simnmt.calibrate.errors import CalibrationError
from simnmt.costs.disk import fit_disk
from simnmt.costs.shard_geometry import BITS
from simnmt.costs.sti_block import ShardReads, StiIo
from simnmt.elastic.pipeline.shard_reader import ShardReader

if TYPE_CHECKING:
    from simnmt.elastic.store import ShardStore


def measure_reads(
    store: ShardStore,
    *,
    pace_bytes_per_s: float | None = None,
    repeats: int = 9,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> StiIo:
    """Read layers drawn at random, all shards of one in a row from a cold file, in an interleaved order of bits.

    A sample is a shard's part of such a row, as the executor reads: checksums are in the time, and a thread that wakes late
    after one paced read begins the next no later. `progress(done, total)` in rows. Raises `CalibrationError` for a store
    without some of the bitwidths, `StoreError` for a damaged one, `ElasticError` for a pace that is none.
    """
    check_bits(store)
    drawn = random.Random(seed)
    reader = ShardReader(store, pace_bytes_per_s)
    order = [bits for bits in BITS for _ in range(repeats)]
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
        if progress is not None:
            progress(done + 1, len(order))
    mount = mount_of(store.path)
    if mount is not None and (mount.kind in IN_MEMORY or mount.kind.partition(".")[0] in OWN_CACHE):
        cold = False
    sizes = {bits: round(store.mean_size(bits)) for bits in BITS}
    return StiIo(
        reads=shard_reads(sizes, read_s),
        **line(sizes, read_s),
        cold=cold,
        paced_bytes_per_s=pace_bytes_per_s,
        file_system=None if mount is None else str(mount),
    )


def check_bits(store: ShardStore) -> None:
    """Raise `CalibrationError` where a planner could choose a bitwidth that the store has not."""
    lacking = [bits for bits in BITS if bits not in store.bits]
    if lacking:
        what = f"no shards of {', '.join(map(str, lacking))} bits"
        raise CalibrationError(what, path=store.path, remedy="shard the model again with all bitwidths")


def shard_reads(sizes: Mapping[int, int], read_s: Mapping[int, Sequence[float]]) -> tuple[ShardReads, ...]:
    """By bits, for a profile."""
    return tuple(
        ShardReads(bits=bits, **DiskSample(sizes[bits], tuple(read_s[bits])).as_json())  # type: ignore[arg-type]
        for bits in BITS
    )


def line(sizes: Mapping[int, int], read_s: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    """`s_fixed`, `bytes_per_s`, `r2` over the medians; where larger shards took no longer, R2 is null."""
    pairs = [(sizes[bits], seconds) for bits in BITS for seconds in read_s[bits]]
    try:
        found = fit_disk([size for size, _ in pairs], [seconds for _, seconds in pairs])
    except ValueError:
        seconds = sum(each for _, each in pairs)
        return {"s_fixed": seconds / len(pairs), "bytes_per_s": sum(size for size, _ in pairs) / seconds, "r2": None}
    return {"s_fixed": found.cost.s_fixed, "bytes_per_s": found.cost.bytes_per_s, "r2": found.r2}
