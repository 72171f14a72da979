"""The parts of a calibration: what the harness times (cases), and the blocks of a profile that follow (fit).

To calibrate another quantity, add a module with its `PARTS`; nothing else changes. `execution.py` is the one to read first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pandas as pd

from simnmt.calibrate.harness import Case, Listener, Silent
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Engine, Work

LARGE_ROWS, LARGE_ROUNDS = 32, 3
"""Batches of more rows are measured only in the first rounds: they take long, and are not needed for single sentences."""
QUICK_FITTED = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
FITTED = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024)
"""Batch sizes that costs are fitted to, up to the largest of the settings. They are dense at the low end: a library may change
its kernel from one row to two, and a step may then take twice as long."""
QUICK_JUDGING = (7, 10, 40, 224, 896)
JUDGING = (7, 10, 20, 40, 112, 224, 448, 896)
"""Batch sizes that only judge the fits; those below the largest fitted size are measured."""
QUICK_MOST_BATCH, MOST_BATCH = 16, 64
"""Default largest batch."""
SHORTENED = ((128, 64), (384, 36), (1_024, 18))
"""(most rows, hypotheses counted; steps of a run); above these `LEAST_STEPS`. Long runs of large batches take minutes, and the
growth of a step with the position is known from smaller batches. Each run ends where a window of positions ends."""
LEAST_STEPS = 10
QUICK_STEPS = 20
"""Steps of a quick run whose steps the engine reports."""
STEP_SRC_LEN = 20
"""Source tokens of the decode steps: near the mean sentence of news."""


def corner_cells(settings: Settings) -> list[Work]:
    """Return the six cells of quick mode: shortest and longest source by shortest, middle and longest target.

    The shortest length is 2, so that one-time costs are not mistaken for the cost of a token.
    """
    tgt_lens = (2, between(2, settings.max_tgt_len, 3)[1], settings.max_tgt_len)
    return [Work(src, tgt, 1, settings.beam) for src in (2, settings.max_src_len) for tgt in tgt_lens]


def execution_cells(settings: Settings) -> list[Work]:
    """Return the cells of single executions.

    In quick mode the corners, and four cells between them that judge the plane; else six lengths a side, evenly spaced in their
    logarithm, with the corners.
    """
    quick = settings.mode == "quick"
    src_lens, tgt_lens = (between(2, longest, 4 if quick else 6) for longest in (settings.max_src_len, settings.max_tgt_len))
    if quick:
        judging = [Work(src, tgt, 1, settings.beam) for src in src_lens[1:-1] for tgt in tgt_lens[1:-1]]
        return corner_cells(settings) + judging
    tgt_lens = sorted({*tgt_lens, between(2, settings.max_tgt_len, 3)[1]})
    return [Work(src, tgt, 1, settings.beam) for src in src_lens for tgt in tgt_lens]


def step_cells(settings: Settings, *, tells_steps: bool) -> list[Work]:
    """Return the cells of decode steps by batch size; several target lengths for an engine that does not report steps.

    Three of them at least, up to long ones: a Transformer's steps grow with the position, by 18 % from position 15 to 44 in a
    batch of 8 (measured, CTranslate2 int8), and two whole translations cannot tell that from the cost of the first step.
    """
    quick, src_len = settings.mode == "quick", min(STEP_SRC_LEN, settings.max_src_len)
    cells = []
    for batch in batches(settings):
        steps = next((steps for most, steps in SHORTENED if batch * settings.beam <= most), LEAST_STEPS)
        if tells_steps and quick:
            steps = QUICK_STEPS
        longest = min(steps, settings.max_tgt_len)
        tgt_lens = [longest] if tells_steps else between(2, longest, 3 if quick else 4)
        cells += [Work(src_len, tgt, batch, settings.beam) for tgt in tgt_lens]
    return cells


def encoder_cells(settings: Settings, *, tells_steps: bool) -> list[Work]:
    """Return the cells of encoders by batch size and source length, each with a single decode step.

    For an engine that does not report steps, short sources are left out, whose encoders are below the noise of that step.
    """
    shortest = 4 if tells_steps else min(10, settings.max_src_len // 2)
    src_lens = between(shortest, settings.max_src_len, 2 if settings.mode == "quick" else 4)
    return [Work(src, 1, batch, settings.beam) for batch in batches(settings) for src in src_lens]


def batches(settings: Settings) -> tuple[int, ...]:
    """Return the batch sizes of steps and encoders, rising; the largest is fitted."""
    quick = settings.mode == "quick"
    fitted = fitted_batches(settings, QUICK_MOST_BATCH if quick else MOST_BATCH)
    return tuple(sorted(fitted + [size for size in (QUICK_JUDGING if quick else JUDGING) if size < fitted[-1]]))


def fitted_batches(settings: Settings, usual_most: int) -> list[int]:
    """Return the batch sizes that costs are fitted to, up to the largest of the settings, or the usual one."""
    most = settings.max_batch or usual_most
    return [size for size in (QUICK_FITTED if settings.mode == "quick" else FITTED) if size <= most]


def between(low: int, high: int, count: int) -> list[int]:
    """Return `count` lengths evenly spaced in their logarithm, fewer if whole tokens coincide."""
    return sorted({round(length) for length in np.geomspace(low, high, count).tolist()})


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
    def decoder_only(self) -> bool:
        """Whether the model has no encoder."""
        return self.engine.account.architecture.get("kind") == "llama"

    @property
    def quick(self) -> bool:
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
    decoder_only: bool | None = None
    """Whether it is of decoder-only models alone (True), or of models with an encoder alone (False)."""


def groups(settings: Settings, decoder_only: bool = False) -> list[list[Part]]:
    """Return the parts of these settings for a kind of model, in groups that are measured together."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    parts = [part for module in modules for part in module.PARTS if set(part.measured_with) & set(settings.parts)]
    parts = [part for part in parts if part.decoder_only in (None, decoder_only)]
    by_group: dict[tuple[int, bool], list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.order):
        by_group.setdefault((part.order, part.apart(settings)), []).append(part)
    return list(by_group.values())
