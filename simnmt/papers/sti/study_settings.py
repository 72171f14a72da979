"""How much of a study of a streamed classifier is measured, and the devices that it plans for (STI-20, STI-21)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.sti.study import Kind, PartRun, StudiedDevice
from simnmt.profile.streaming_block import StiBlock
from simnmt.profile.streaming_cost import BERT_BASE, Shard, ShardGeometry, StiCost
from simnmt.streaming.plan.presets import Board, board_cost

_BASE_BYTES = BERT_BASE.layers * BERT_BASE.float32_bytes_per_layer


def scaled(base_mb: float) -> float:
    """A preload buffer beside BERT's base size, as a share of all shards in float32: so a small model's is as small."""
    return base_mb * 1e6 / _BASE_BYTES


@dataclass(frozen=True, slots=True)
class StudySettings:
    """Raises `CalibrationError` for what nothing can be measured with."""

    deadline_shares: tuple[float, ...] = (0.1, 0.13, 0.175, 0.25, 0.35, 0.5, 0.7, 1.0)
    """Of the whole model's computation: 0.13, 0.175 and 0.35 are the paper's 150, 200 and 400 ms where a layer takes 95 ms."""
    size_shares: tuple[float, ...] = tuple(scaled(mb) for mb in (0.0, 0.2, 0.4, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0))
    """Of the sweep of buffers."""
    size_deadlines: tuple[float, ...] = (0.13, 0.25, 0.5)
    """Of the sweep of buffers: shares of the whole model's computation."""
    depths: tuple[float, ...] = (1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6)
    """Shares of the layers, and of the slices, that uniform submodels have beside the whole."""
    upgrades: tuple[tuple[float, float, float], ...] = (
        (5 / 12, 1 / 4, 1 / 5),
        (5 / 12, 1 / 4, 1 / 3),
        (5 / 12, 1 / 4, 8 / 15),
        (8 / 12, 1 / 2, 1 / 4),
        (1.0, 1.0, 1 / 4),
    )
    """Layers, slices, and shards raised, each as a share; the paper's case is 5 x 3 (Table 7's text)."""
    raised_to: int = 6
    """Bits."""
    random_orders: int = 20
    small_deadlines: tuple[float, ...] = (0.4, 0.6, 0.8, 1.0)
    """Of the model's beginning that is planned exactly: shares of its computation."""
    small_buffers: tuple[float, ...] = (0.5, 1.0, 2.0)
    """|S| of its plans, of its first layer at 2 bits."""
    examples: int | None = None
    """The first so many of the task; None: all."""
    seed: int = 1
    quick: bool = False
    """Recorded with each part: too little is measured for a verdict."""

    def told(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        settings: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return settings

    def measured_by(self, run: PartRun | None) -> bool:
        """Return True if a part was measured with these settings."""
        return run is not None and run.settings == self.told()

    def __post_init__(self) -> None:
        shares = (
            *self.deadline_shares,
            *self.size_deadlines,
            *self.depths,
            *(share for case in self.upgrades for share in case),
        )
        if not self.deadline_shares or min(shares) <= 0.0 or min(self.size_shares, default=0.0) < 0.0:
            raise CalibrationError("a study of no deadline, or of a share below 0", remedy="give shares above 0")
        if self.random_orders < 1 or (self.examples is not None and self.examples < 1):
            raise CalibrationError("a study of less than one of something", remedy="give 1 or more of each")


def quick_settings() -> StudySettings:
    """A minute: few deadlines, sizes, orders and examples."""
    return StudySettings(
        deadline_shares=(0.13, 0.35, 0.7),
        size_shares=tuple(scaled(mb) for mb in (0.0, 0.4, 4.0)),
        size_deadlines=(0.25,),
        depths=(1 / 3, 2 / 3),
        upgrades=((5 / 12, 1 / 4, 1 / 3),),
        random_orders=5,
        examples=200,
        quick=True,
    )


HEAD_WIDTH = 64
"""Of a head of BERT, whose shards have as many rows of each matrix."""
LENGTH = 32
"""Padded tokens that these costs are said to be of; they depend on none."""


def paper_boards(
    layers: int, slices: int, order: tuple[Shard, ...], length: int = LENGTH
) -> list[tuple[StudiedDevice, StiCost]]:
    """The paper's two, with shards of BERT's size, a layer of which takes the paper's own times.

    So the classifier that answers may be smaller; it stands for one whose shards are as large. Named by the preload buffer,
    which is that of 12 layers of 12 shards: a smaller model has the same share of it.
    """
    geometry = ShardGeometry(layers, slices, HEAD_WIDTH * slices, 4 * HEAD_WIDTH * slices)
    rate = "Shards of BERT’s size; a whole layer in 32 bits is read in 339 ms."
    arm = "A whole layer computes for 95 ms, in proportion to its slices but for 1/31, as on Odroid."
    jetson = "A whole layer computes for 57 ms, so that 7 fit into 400 ms, a quarter of it for 0.7 % less, as on Jetson."
    devices = []
    named: tuple[tuple[str, Board, float, str], ...] = (
        ("processor, 1 MB", "odroid", 1.0, arm),
        ("processor, 5 MB", "odroid", 5.0, arm + " With Jetson’s buffer, as 1 MB does not hold a first layer of 2 bits."),
        ("GPU, 5 MB", "jetson", 5.0, jetson),
    )
    for name, board, preload_mb, source in named:
        cost = board_cost(board, geometry, length, order)
        devices.append((_device(name, "inferred", f"{rate} {source}", cost, length, scaled(preload_mb)), cost))
    return devices


def profile_device(
    block: StiBlock, device: str, length: int, geometry: ShardGeometry, order: tuple[Shard, ...]
) -> tuple[StudiedDevice, StiCost]:
    """Return a measured device with its cost. Raises `CalibrationError` if its profile is of a model of other sizes."""
    profiled_cost = block.cost()
    if profiled_cost.geometry != geometry:
        what = f"the profile of {device} is of {block.model}, whose layers have other sizes than the store's"
        raise CalibrationError(what, remedy="profile this store: `simnmt sti profile STORE`")
    cost = replace(profiled_cost, importance=order)
    pace = block.io.paced_bytes_per_s
    source = "Read as measured" if pace is None else f"Read at an imitated {pace / 1e6:g} MB/s"
    source += f", a whole layer of {length} tokens computed as measured."
    if cost.slowed:
        source += f" While the disk reads, computing takes {min(cost.slowed):.2f} to {max(cost.slowed):.2f} times as long."
    return _device(device, block.kind, source, cost, length, scaled(5.0)), cost


def _device(name: str, kind: Kind, source: str, cost: StiCost, length: int, preload_share: float) -> StudiedDevice:
    return StudiedDevice(
        name=name,
        kind=kind,
        said=source,
        io_s=dict(cost.io_s),
        comp_s=tuple(cost.t_comp(length, count) for count in range(1, cost.geometry.heads + 1)),
        embed_s=cost.t_embed(length),
        head_s=cost.head_s,
        slowed=cost.slowed,
        preload_share=preload_share,
    )
