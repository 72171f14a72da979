"""What submodels say of a task's examples, each looked at once, however many plans come to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from simnmt.calibrate.sti_study.document import Outcome, packed_correct
from simnmt.costs.shard_geometry import ShardGeometry
from simnmt.costs.sti_cost import Shard
from simnmt.elastic.evaluation import Evaluation


class Evaluates(Protocol):
    """What of `simnmt.elastic.evaluation.Evaluator` is needed here."""

    geometry: ShardGeometry

    def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
        """Of the submodel that has these shards at these bits."""
        ...


class Judge:
    """Outcomes by the shards of a submodel and their bits."""

    def __init__(self, evaluator: Evaluates) -> None:
        self._evaluator = evaluator
        self._known: dict[frozenset[tuple[Shard, int]], Outcome] = {}
        self._whole: Evaluation | None = None

    @property
    def evaluations(self) -> int:
        """Submodels that were run over all examples."""
        return len(self._known)

    def __call__(self, bits: Mapping[Shard, int]) -> Outcome:
        """Of the submodel that has these shards at these bits."""
        key = frozenset(bits.items())
        if key not in self._known:
            whole = self._in_full()
            found = self._evaluator.evaluate(bits)
            self._known[key] = Outcome(
                accuracy=found.accuracy,
                log_likelihood=found.mean_log_likelihood,
                agreement=found.agreement(whole),
                correct=packed_correct(found.correct),
            )
        return self._known[key]

    def _in_full(self) -> Evaluation:
        """The whole model in 32 bits, which all others are compared with."""
        if self._whole is None:
            own = self._evaluator.geometry
            every = {(layer, piece): 32 for layer in range(own.layers) for piece in range(own.heads)}
            self._whole = self._evaluator.evaluate(every)
        return self._whole
