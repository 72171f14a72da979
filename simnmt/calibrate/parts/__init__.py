"""The parts of a calibration: what the harness times (cases), and the blocks of a profile that follow (fit).

To calibrate another quantity, add a module with its `PARTS`; nothing else changes. `execution.py` is the one to read first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pandas as pd

from simnmt.calibrate.cells import batches
from simnmt.calibrate.harness import Case, Listener, Silent
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Engine, Work

Cases = Mapping[Hashable, Case]
Blocks = dict[str, Any]
"""Blocks of a profile by name; None for a block that could not be measured, a mapping of the entries that are added to
`overheads`."""


@dataclass
class Bench:
    """What the parts measure, and their results so far."""

    settings: Settings
    engine: Engine
    listener: Listener = Silent
    folder: Path = Path()
    """Folder on the disk that is read."""
    drawn: Sequence[tuple[int, int]] = ()
    """The (src_len, tgt_len) of paper mode in their order."""
    resources: ExitStack = field(default_factory=ExitStack)
    """Files and counters of the parts, which are closed after all measurements."""
    blocks: Blocks = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    """Sentences on what could not be measured."""
    _warm: set[tuple[int, int]] = field(default_factory=set)

    def add(self, blocks: Blocks) -> None:
        """Add measured blocks; `overheads` get further entries."""
        overheads = self.blocks.get("overheads", {}) | blocks.get("overheads", {})
        self.blocks |= blocks | ({"overheads": overheads} if overheads else {})

    @property
    def quick(self) -> bool:
        """True in quick mode."""
        return self.settings.mode == "quick"

    @property
    def most_batch(self) -> int:
        """The largest batch whose steps fitted into memory; if they are not measured, that of the settings."""
        if "step" not in self.blocks:
            return batches(self.settings)[-1]
        step = self.blocks["step"]
        return 1 if step is None else int(step.batch[-1])

    def case(self, work: Work, what: str, **options: Any) -> Case:
        """Return the case that runs a work on the engine."""

        def run() -> dict[str, Any]:
            timing = self.engine.run(work)
            return {"seconds": timing.total_s, "encode_s": timing.encode_s, "steps_s": timing.steps_s}

        size = (work.batch, work.beam, work.src_len, work.tgt_len)
        about = {"cell": what, **dict(zip(("batch", "beam", "src_len", "tgt_len"), size, strict=True))}
        return Case(run, prepare=lambda: self._warm_up(work), size=size, about=about, **options)

    @property
    def reference(self) -> Case:
        """The work that is timed beside all others."""
        src_len, tgt_len = min(16, self.settings.max_src_len), min(8, self.settings.max_tgt_len)
        return self.case(Work(src_len, tgt_len, 1, self.settings.beam), "reference")

    def _warm_up(self, work: Work) -> None:
        """Run a small work twice, untimed, before the first work of a batch size."""
        if (work.batch, work.beam) not in self._warm:
            small = Work(work.src_len if work.batch > 1 else 8, min(3, work.tgt_len), work.batch, work.beam)
            self.engine.run(small)
            self.engine.run(small)
            self._warm.add((work.batch, work.beam))


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a calibration."""

    name: str
    measured_with: tuple[str, ...]
    """Names of `simnmt calibrate --part` with which it is measured."""
    cases: Callable[[Bench], Cases]
    """Returns the cases by name; none if the part cannot be measured, with a remark to the bench."""
    fit: Callable[[pd.DataFrame, Bench], Blocks]
    """Returns the blocks of the profile that follow from the rows of the cases."""
    order: int
    """Place among the parts: those with the same number are measured in the same rounds."""
    rounds: Callable[[Bench], int] = lambda bench: 1
    within_s: float = math.inf
    """Bound of the rounds, see `simnmt.calibrate.harness.rounds`."""
    apart: Callable[[Settings], bool] = lambda settings: False
    """True: measured in rounds without other parts, in which every call counts, disturbed or not."""
    beside_reference: bool = False
    """True: measured beside the reference work, whose drift the profile's conditions state."""


def groups(settings: Settings) -> list[list[Part]]:
    """Return the parts of these settings, in groups that are measured together."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    parts = [part for module in modules for part in module.PARTS if set(part.measured_with) & set(settings.parts)]
    by_group: dict[tuple[int, bool], list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.order):
        by_group.setdefault((part.order, part.apart(settings)), []).append(part)
    return list(by_group.values())
