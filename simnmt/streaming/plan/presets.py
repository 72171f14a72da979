"""Costs of the paper's two boards, inferred from its text: disk, processor and GPU (STI-10, STI-20, STI-21, STI-24).

The only model of these boards: `simnmt sti plan` and the studies of trained classifiers both use it.
"""

from __future__ import annotations

from typing import Literal

from simnmt.profile.streaming_cost import BITS, Shard, ShardGeometry, StiCost

Board = Literal["odroid", "jetson"]
LAYER_LOAD_S, LAYER_COMP_S = 0.339, 0.095
"""Seconds to load and to compute a whole layer in 32 bits on the Arm board of the paper (STI-21)."""
GPU_LAYER_S, GPU_FLAT = 0.400 / 7, 0.007
"""Seconds of a whole layer on the GPU, where fewer than 7 layers fit into 400 ms; excess of 12 slices over 3 (STI-24)."""
FIXED_PART = 1 / 31
"""Share of the computing time of a whole layer that does not grow with slices, from 1 + 2.5 m (STI-10)."""
PRELOAD_BYTES: dict[Board, int] = {"odroid": 1_000_000, "jetson": 5_000_000}
"""The paper's preload buffers (section 7.2)."""
OUTLIERS = 0.0015
"""Published share of weights that are outliers."""
LENGTH = 128
"""Nominal padded tokens of the presets, whose costs depend on no length."""


def board_cost(board: Board, geometry: ShardGeometry, length: int = LENGTH, order: tuple[Shard, ...] | None = None) -> StiCost:
    """Return the costs of a board for shards of any geometry; `order`: of importance, best first.

    A whole layer takes the times of the paper. On the Arm processor the computing time grows in proportion to the slices but
    for a fixed part; on the GPU it hardly depends on them.
    """
    slices = geometry.heads
    outlier_bytes = 8 * round(OUTLIERS * geometry.weights_per_shard)
    shard_bytes = {bits: geometry.index_bytes(bits) + geometry.dictionary_bytes(bits) for bits in BITS}
    shard_bytes |= {bits: size + outlier_bytes for bits, size in shard_bytes.items() if bits < 32}
    per_byte = LAYER_LOAD_S / (slices * shard_bytes[32])
    io_s = {bits: size * per_byte for bits, size in shard_bytes.items()}
    if board == "odroid":
        fixed = FIXED_PART * LAYER_COMP_S
        comp_s = tuple(fixed + (LAYER_COMP_S - fixed) * count / slices for count in range(1, slices + 1))
    else:
        comp_s = tuple(GPU_LAYER_S * (1.0 - GPU_FLAT * (slices - count) / (slices * 3 / 4)) for count in range(1, slices + 1))
    return StiCost(geometry, io_s, {length: comp_s}, shard_bytes, None, order)


_SIZE = "12 x 12 of BERT-base's size; a layer of 28.3 MB read in 339 ms"
PRESETS: dict[str, tuple[Board, str]] = {
    "@odroid-sti": ("odroid", f"{_SIZE}; a whole layer computed in 95 ms, in proportion to its shards but for 1/31"),
    "@jetson-sti": (
        "jetson",
        f"{_SIZE}, as on the other board; a whole layer computed in 57 ms, with a quarter of its shards 0.7 % faster",
    ),
}
"""By name: the board, and a description of the model and its costs, which are inferred."""
