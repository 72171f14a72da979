"""Which order of importance a study plans by, and on which examples it was found (STI-09)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
        """The order of a profile, or of a study that was begun; None where it has to be measured.

        Raises `CalibrationError` where one was found on the judged examples, or none can be had, and nothing allows that.
        """
        wanted = None if self.task is None else self.task.sha256
        found = [block.importance for block in blocks if block.importance is not None]
        fitting = [own for own in found if wanted is None or own.task_sha256 == wanted]
        if fitting:
            return self._checked(order_of(fitting[0], None))
        if held is not None and (wanted is None or held.importance.task_sha256 == wanted):
            return self._checked(held.importance)
        if wanted is None:
            raise CalibrationError("nothing says on which examples shards are to be ranked", remedy=REMEDY)
        return None

    def _checked(self, order: ImportanceOrder) -> ImportanceOrder:
        if order.task_sha256 == self.judged.sha256 and not self.on_judged:
            what = "shards were ranked on the very examples that are to judge them"
            raise CalibrationError(what, path=self.judged.path, remedy=REMEDY)
        return order

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
        return order_of(found, shared_texts(self.task, self.judged))


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
