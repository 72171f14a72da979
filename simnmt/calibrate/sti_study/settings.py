"""How much of a study of a streamed classifier is measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.sti_study.document import PartRun
from simnmt.costs.shard_geometry import BERT_BASE

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
    """Is told of each part: of so little that nothing is judged by it."""

    def told(self) -> dict[str, Any]:
        """As JSON has them."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    def measured_by(self, run: PartRun | None) -> bool:
        """Whether a part's measurement was made with these settings."""
        return run is not None and run.settings == self.told()

    def __post_init__(self) -> None:
        shares = (*self.deadline_shares, *self.size_deadlines, *self.depths, *(each for case in self.upgrades for each in case))
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
