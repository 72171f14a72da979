"""Steps of a decoder's layers by width, and what each request pays once before them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
import torch

from simnmt.calibrate.sti.decoder_layers import DecoderLayers
from simnmt.calibrate.sti.random_shards import random_shard
from simnmt.costs.shard_geometry import ShardGeometry
from simnmt.costs.sti_block import ShardReads, StiDecoder
from simnmt.elastic.pipeline.pipeline import torch_threads
from simnmt.elastic.shard_layout import aligned_bytes
from simnmt.kernels.unpack import unpack

SRC_LEN, TGT_LEN = 20, 20
"""Under which steps are timed: tokens of the source, and those that are out."""
BITS = 6


def measure_decoder(
    geometry: ShardGeometry,
    reads: Sequence[ShardReads],
    *,
    output_s: float | None,
    repeats: int = 9,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> StiDecoder:
    """A step goes through all layers, whose weights then come from memory, and is divided by their number.

    Rounds visit the widths in an order of their own. `progress(done, total)` in timings.
    """
    drawn = random.Random(seed)
    widths = list(range(1, geometry.heads + 1))
    step_s: dict[int, list[float]] = {width: [] for width in widths}
    once_s: dict[int, list[float]] = {width: [] for width in widths}
    shard = random_shard(geometry.weights_per_shard, BITS, seed)
    room = aligned_bytes(geometry.float32_bytes_per_layer).view(np.float32)
    parts = (shard.codes, shard.bits, shard.centroids, shard.outlier_at, shard.outlier_values)
    with torch_threads(threads), torch.inference_mode():
        layers = {width: DecoderLayers(geometry, width, TGT_LEN + 1, seed=seed) for width in widths}
        hidden, source = torch.randn((1, geometry.width)), torch.randn((1, SRC_LEN, geometry.width))
        for width in widths:
            layers[width].read_source(source)
            layers[width].step(hidden, TGT_LEN)
        for done in range(repeats):
            drawn.shuffle(widths)
            for width in widths:
                begin_s = perf_counter()
                layers[width].step(hidden, TGT_LEN)
                stepped_s = perf_counter()
                layers[width].read_source(source)
                read_s = perf_counter()
                for position in range(width):
                    place = (0, position * geometry.weights_per_shard, geometry.weights_per_shard)
                    unpack(*parts, room, [place])
                unpack_s = perf_counter() - read_s
                step_s[width].append((stepped_s - begin_s) / geometry.layers)
                once_s[width].append((read_s - stepped_s) / geometry.layers + unpack_s)
            if progress is not None:
                progress(done + 1, repeats)

    def quantile(share: float, found: dict[int, list[float]]) -> tuple[float, ...]:
        return tuple(float(np.quantile(found[width], share)) for width in sorted(found))

    return StiDecoder(
        layers=geometry.layers,
        reads=tuple(reads),
        step_s=quantile(0.5, step_s),
        p25_s=quantile(0.25, step_s),
        p75_s=quantile(0.75, step_s),
        once_s=quantile(0.5, once_s),
        output_s=output_s,
        src_len=SRC_LEN,
        tgt_len=TGT_LEN,
    )
