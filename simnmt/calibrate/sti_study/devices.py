"""The devices that a study plans for: the paper's boards, as its text lets infer them, and those of profiles (STI-20, 21)."""

from __future__ import annotations

from dataclasses import replace

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.sti_study.document import Kind, StudiedDevice
from simnmt.calibrate.sti_study.settings import scaled
from simnmt.costs.shard_geometry import ShardGeometry
from simnmt.costs.sti_block import StiBlock
from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.sti.presets import Board, board_cost

HEAD_WIDTH = 64
"""Of a head of BERT, whose shards have as many rows of each matrix."""
LENGTH = 32
"""Padded tokens that these costs are said to be of; they depend on none."""


def boards(layers: int, slices: int, order: tuple[Shard, ...], length: int = LENGTH) -> list[tuple[StudiedDevice, StiCost]]:
    """The paper's two, with shards of BERT's size, a layer of which takes the paper's own times.

    So the classifier that answers may be smaller; it stands for one whose shards are as large. Named by the preload buffer,
    which is that of 12 layers of 12 shards: a smaller model has the same share of it.
    """
    geometry = ShardGeometry(layers, slices, HEAD_WIDTH * slices, 4 * HEAD_WIDTH * slices)
    rate = "Shards of BERT’s size; a whole layer in 32 bits is read in 339 ms."
    arm = "A whole layer computes for 95 ms, in proportion to its slices but for 1/31, as on Odroid."
    jetson = "A whole layer computes for 57 ms, so that 7 fit into 400 ms, a quarter of it for 0.7 % less, as on Jetson."
    found = []
    named: tuple[tuple[str, Board, float, str], ...] = (
        ("processor, 1 MB", "odroid", 1.0, arm),
        ("processor, 5 MB", "odroid", 5.0, arm + " With Jetson’s buffer, as 1 MB does not hold a first layer of 2 bits."),
        ("GPU, 5 MB", "jetson", 5.0, jetson),
    )
    for name, board, preload_mb, said in named:
        cost = board_cost(board, geometry, length, order)
        found.append((_device(name, "inferred", f"{rate} {said}", cost, length, scaled(preload_mb)), cost))
    return found


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
