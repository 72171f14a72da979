"""The devices that a study plans for: the paper's boards, as its text lets infer them, and those of profiles (STI-20, 21)."""

from __future__ import annotations

from dataclasses import replace

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.sti_study.document import Kind, StudiedDevice
from simnmt.calibrate.sti_study.settings import scaled
from simnmt.costs.shard_geometry import BITS, ShardGeometry
from simnmt.costs.sti_block import StiBlock
from simnmt.costs.sti_cost import Shard, StiCost

LAYER_LOAD_S, LAYER_COMP_S = 0.339, 0.095
"""Of a whole layer in 32 bits on the paper's Arm board (STI-21)."""
GPU_LAYER_S, GPU_FLAT = 0.400 / 7, 0.007
"""Of a whole layer on its GPU, where fewer than 7 layers fit into 400 ms; by how much 12 slices take longer than 3 (STI-24)."""
FIXED_PART = 1 / 31
"""Of a whole layer's computation on a processor: what does not grow with slices, as 1 + 2.5 m has it (STI-10)."""
HEAD_WIDTH = 64
"""Of a head of BERT, whose shards have as many rows of each matrix."""
OUTLIERS = 0.0015
"""Of the weights, as published."""
LENGTH = 32
"""Padded tokens that these costs are said to be of; they depend on none."""


def boards(layers: int, slices: int, order: tuple[Shard, ...], length: int = LENGTH) -> list[tuple[StudiedDevice, StiCost]]:
    """The paper's two, with shards of BERT's size, a layer of which takes the paper's own times.

    So the classifier that answers may be smaller; it stands for one whose shards are as large. Named by the preload buffer,
    which is that of 12 layers of 12 shards: a smaller model has the same share of it.
    """
    geometry = ShardGeometry(layers, slices, HEAD_WIDTH * slices, 4 * HEAD_WIDTH * slices)
    shard_bytes = {bits: _record_bytes(geometry, bits) for bits in BITS}
    per_byte = LAYER_LOAD_S / (slices * shard_bytes[32])
    io_s = {bits: size * per_byte for bits, size in shard_bytes.items()}
    fixed = FIXED_PART * LAYER_COMP_S
    processor = tuple(fixed + (LAYER_COMP_S - fixed) * count / slices for count in range(1, slices + 1))
    gpu = tuple(GPU_LAYER_S * (1.0 - GPU_FLAT * (slices - count) / (slices * 3 / 4)) for count in range(1, slices + 1))
    rate = "Shards of BERT’s size; a whole layer in 32 bits is read in 339 ms."
    arm = "A whole layer computes for 95 ms, in proportion to its slices but for 1/31, as on Odroid."
    jetson = "A whole layer computes for 57 ms, so that 7 fit into 400 ms, a quarter of it for 0.7 % less, as on Jetson."
    found = []
    for name, comp_s, preload_mb, said in (
        ("processor, 1 MB", processor, 1.0, arm),
        ("processor, 5 MB", processor, 5.0, arm + " With Jetson’s buffer, as 1 MB does not hold a first layer of 2 bits."),
        ("GPU, 5 MB", gpu, 5.0, jetson),
    ):
        cost = StiCost(geometry, io_s, {length: comp_s}, shard_bytes, None, order)
        found.append((_device(name, "inferred", f"{rate} {said}", cost, length, scaled(preload_mb)), cost))
    return found


def _record_bytes(geometry: ShardGeometry, bits: int) -> int:
    """Indices, dictionary, and outliers with their places."""
    outliers = 0 if bits == 32 else 8 * round(OUTLIERS * geometry.weights_per_shard)
    return geometry.index_bytes(bits) + geometry.dictionary_bytes(bits) + outliers


def of_profile(
    block: StiBlock, device: str, length: int, geometry: ShardGeometry, order: tuple[Shard, ...]
) -> tuple[StudiedDevice, StiCost]:
    """A device that was measured. Raises `CalibrationError` where its profile is of a model of other sizes."""
    own = block.cost()
    if own.geometry != geometry:
        what = f"the profile of {device} is of {block.model}, whose layers have other sizes than the store's"
        raise CalibrationError(what, remedy="profile this store: `simnmt sti profile STORE`")
    cost = replace(own, importance=order)
    pace = block.io.paced_bytes_per_s
    said = "Read as measured" if pace is None else f"Read at an imitated {pace / 1e6:g} MB/s"
    said += f", a whole layer of {length} tokens computed as measured."
    if cost.slowed:
        said += f" While the disk reads, computing takes {min(cost.slowed):.2f} to {max(cost.slowed):.2f} times as long."
    return _device(device, block.kind, said, cost, length, scaled(5.0)), cost


def _device(name: str, kind: Kind, said: str, cost: StiCost, length: int, preload_share: float) -> StudiedDevice:
    return StudiedDevice(
        name=name,
        kind=kind,
        said=said,
        io_s=dict(cost.io_s),
        comp_s=tuple(cost.t_comp(length, count) for count in range(1, cost.geometry.heads + 1)),
        embed_s=cost.t_embed(length),
        head_s=cost.head_s,
        slowed=cost.slowed,
        preload_share=preload_share,
    )
