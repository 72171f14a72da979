"""Which order of importance a study plans by, and on which examples it was found (STI-09)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.sti_study.document import ImportanceOrder, Study
from simnmt.costs.sti_block import StiBlock, StiImportance
from simnmt.elastic.evaluation import Evaluator
from simnmt.elastic.importance import measure_importance
from simnmt.elastic.task import Task, shared_texts

Say = Callable[[str], None]
REMEDY = "give --importance-task FILE of other examples, or say --importance-on-task"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Where the order comes from.

    Shards that are ranked on the examples that judge them look better than they are, and random orders worse: that has to be
    said (`on_judged`), never happens by itself.
    """

    judged: Task
    apart: Task | None = None
    """Examples to rank by, other than the judged ones."""
    on_judged: bool = False
    """Rank on the judged examples themselves."""

    def __post_init__(self) -> None:
        if self.apart is not None and self.on_judged:
            raise CalibrationError("--importance-on-task beside --importance-task", remedy="give one of them")
        if self.apart is not None and self.apart.sha256 == self.judged.sha256:
            what = "--importance-task: the same examples as those of --task"
            raise CalibrationError(what, path=self.apart.path, remedy=f"{REMEDY} in its place")

    @property
    def task(self) -> Task | None:
        """To measure the order on; None: nothing says so."""
        return self.judged if self.on_judged else self.apart

    def known(self, blocks: Sequence[StiBlock], held: Study | None) -> ImportanceOrder | None:
        """The order of the first profile that has one which fits, or of a study that was begun; None: it has to be measured.

        One fits that was found on the examples asked for or, where none are named, on any but the judged ones. Raises
        `CalibrationError` where none fits and none can be measured.
        """
        found = [order_of(block.importance, None) for block in blocks if block.importance is not None]
        found += [] if held is None else [held.importance]
        fitting = next(filter(self._fits, found), None)
        if fitting is not None:
            return self._counted(fitting)
        if self.task is not None:
            return None
        if found:
            what = "shards were ranked on the very examples that are to judge them"
            raise CalibrationError(what, path=self.judged.path, remedy=REMEDY)
        raise CalibrationError("nothing says on which examples shards are to be ranked", remedy=REMEDY)

    def _fits(self, order: ImportanceOrder) -> bool:
        if self.task is None:
            return order.task_sha256 != self.judged.sha256
        return order.task_sha256 == self.task.sha256

    def _counted(self, order: ImportanceOrder) -> ImportanceOrder:
        """With the number of shared texts where the texts are known."""
        if self.task is None or order.shared is not None:
            return order
        return order.model_copy(update={"shared": self._shared(order.examples)})

    def _shared(self, examples: int | None) -> int:
        """Of so many first examples of `task`, or of all."""
        assert self.task is not None
        first = replace(self.task, texts=self.task.texts[:examples], labels=self.task.labels[:examples])
        return shared_texts(first, self.judged)

    def measured(self, evaluator: Evaluator, fingerprint: str, journal: Path | None, say: Say) -> ImportanceOrder:
        """An evaluation for each shard and one more, on the examples of `evaluator`, which are those of `task`."""
        assert self.task is not None
        slices = evaluator.geometry.heads
        found = measure_importance(
            evaluator,
            task=Path(self.task.path).name,
            task_sha256=self.task.sha256,
            fingerprint=fingerprint,
            journal=journal,
            progress=lambda done, total: say(f"importance: {done} of {total}") if done % slices == 0 else None,
        )
        return order_of(found, self._shared(found.examples))


def order_of(found: StiImportance, shared: int | None) -> ImportanceOrder:
    """As a study keeps it."""
    return ImportanceOrder(
        order=found.order,
        evaluations=found.evaluations,
        task=found.task,
        task_sha256=found.task_sha256,
        examples=found.examples,
        shared=shared,
    )
