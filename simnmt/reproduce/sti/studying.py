"""Studies a trained classifier for the reproduction: which store, on which task, kept in which file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.errors import InputError
from simnmt.names import did_you_mean

if TYPE_CHECKING:
    from simnmt.calibrate.sti_study.document import Study

Say = Callable[[str], None]
"""Is told of what comes next."""


@dataclass(frozen=True, slots=True)
class Studied:
    """What is studied, as the command names it."""

    store: Path | None = None
    task: Path | None = None
    importance_task: Path | None = None
    """Other examples, by which shards are ranked."""
    importance_on_task: bool = False
    """They are ranked on `task` itself, which flatters the order."""
    profiles: Sequence[Path] = ()
    """With the store's block `sti`: devices beside the paper's boards; an importance that fits is taken."""
    parts: Sequence[str] = ()
    """Measured again where they have been; none named: all that are missing."""
    quick: bool = False

    @property
    def asked(self) -> bool:
        """Whether anything is to be studied; raises `InputError` where only half of it is said."""
        needed = {"--store": self.store, "--task": self.task}
        given = [option for option, path in needed.items() if path is not None]
        if given and len(given) < len(needed):
            lacking = next(option for option, path in needed.items() if path is None)
            raise InputError(f"{given[0]} without {lacking}", remedy="give --store DIR --task FILE.tsv together")
        beside = {
            "--importance-task": self.importance_task,
            "--importance-on-task": self.importance_on_task,
            "--profile": self.profiles,
            "--part": self.parts,
            "--quick": self.quick,
        }
        if not given and (useless := [option for option, own in beside.items() if own]):
            raise InputError(f"{useless[0]} without a store to study", remedy="give --store and --task as well")
        return bool(given)

    def check(self) -> None:
        """Raises `InputError` for a part that there is not."""
        from simnmt.calibrate.sti_study.document import PARTS

        for name in self.parts:
            if name not in PARTS:
                raise InputError(f"--part {name}: no part of a study", remedy=did_you_mean(name, PARTS))


def study_model(studied: Studied, kept: Path | None, say: Say) -> Study:
    """Measure the parts that are asked for, or what the file `kept` lacks. Raises `InputError` and what studying raises."""
    studied.check()
    # Here, since all that is read needs no torch.
    from simnmt.calibrate.sti_study.beginning import study_of

    assert studied.store is not None and studied.task is not None
    return study_of(
        studied.store,
        studied.task,
        importance_task=studied.importance_task,
        importance_on_task=studied.importance_on_task,
        profiles=studied.profiles,
        parts=studied.parts,
        quick=studied.quick,
        out=kept,
        say=say,
    )
