"""Studies of a classifier that was never trained: as the paper's claims would have them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from simnmt.papers.sti.plans import Studied
from simnmt.papers.sti.study import ImportanceOrder, StudiedClassifier, StudiedTask, Study
from simnmt.papers.sti.study_run import measure
from simnmt.profile.streaming_block import Shard, ShardGeometry
from simnmt.streaming.evaluation import Evaluation

EXAMPLES = 400
GEOMETRY = ShardGeometry(6, 4, 48, 192)
ORDER = tuple(sorted(((layer, piece) for layer in range(6) for piece in range(4)), key=lambda at: (at[0] + 3 * at[1]) % 7))
"""Every shard, best first."""


class Imagined:
    """Answers example i right where the submodel's fidelity is above what i asks; what matters most counts most."""

    geometry = GEOMETRY

    def __init__(self, flat: bool = False) -> None:
        """`flat`: everything answers alike."""
        self.calls = 0
        self._flat = flat
        self._weight = {shard: 1.0 / (1.0 + 0.5 * at) for at, shard in enumerate(ORDER)}

    def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
        """Of the submodel that has these shards at these bits."""
        self.calls += 1
        fidelity = {2: 0.5, 3: 0.7, 4: 0.85, 5: 0.93, 6: 0.97, 32: 1.0}
        reached = sum(self._weight[shard] * fidelity[width] for shard, width in bits.items()) / sum(self._weight.values())
        asked = np.random.default_rng(3).permutation(EXAMPLES) / EXAMPLES
        right = asked < (0.7 if self._flat else 0.5 + 0.45 * reached)
        return Evaluation(right.astype(np.int64), right, np.where(right, -0.2, -1.5))


def begun(name: str = "small") -> Study:
    """Nothing is measured yet."""
    return Study(
        tool="simnmt",
        model=StudiedClassifier(name=name, sha256="a" * 64, layers=6, heads=4, width=48),
        task=StudiedTask(name="sst2.tsv", sha256="b" * 64, examples=EXAMPLES, largest_class=0.51),
        importance=ImportanceOrder(order=ORDER, task="ranking.tsv", task_sha256="c" * 64, examples=24, shared=3),
        answers={},
    )


@cache
def study(name: str = "small", *, flat: bool = False) -> Study:
    """All answers of it."""
    return measure(begun(name), Imagined(flat))  # type: ignore[arg-type]


@cache
def studied(flat: bool = False) -> Studied:
    """The study with its plans."""
    return Studied.of(study(flat=flat))


def pipeline(**changed: Any) -> dict[str, Any]:
    """A measurement of a pipeline: 12 plans at the skew, none off by more than 6 %."""
    plan = {
        "pace_mb": 300.0, "simulated_s": 0.38, "error": -0.05, "simulated_stall_s": 0.0, "stall_share": 0.02, "cold": True,
    }  # fmt: skip
    return {
        "version": 2, "kind": "measured", "date": "2026-01-01", "layers": 12, "heads": 12, "width": 768, "ffn": 3072,
        "faster": [{"pace_mb": 80.0, "ratio": 5.0, "cold": True}],
        "skew": {"pace_mb": 300.0}, "grid": [plan] * 12 + [plan | {"pace_mb": 80.0, "simulated_stall_s": 0.1}],
        "unpack": {"least_ratio": 2.5, "six_over_two": 0.9},
    } | changed  # fmt: skip
