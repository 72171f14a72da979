"""Works that a calibration times: cells of single executions, of decode steps and of encoders by batch size."""

from __future__ import annotations

import numpy as np

from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Work

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
STEP_SRC_LEN = 20
"""Source tokens of the decode steps: near the mean sentence of news."""


def corner_cells(settings: Settings) -> list[Work]:
    """Return the six cells of quick mode: shortest and longest source by shortest, middle and longest target.

    The shortest length is 2, so that one-time costs are not mistaken for the cost of a token.
    """
    tgt_lens = (2, _between(2, settings.max_tgt_len, 3)[1], settings.max_tgt_len)
    return [Work(src, tgt, 1, settings.beam) for src in (2, settings.max_src_len) for tgt in tgt_lens]


def execution_cells(settings: Settings) -> list[Work]:
    """Return the cells of single executions.

    In quick mode the corners, and four cells between them that judge the plane; else six lengths a side, evenly spaced in their
    logarithm, with the corners.
    """
    quick = settings.mode == "quick"
    src_lens, tgt_lens = (_between(2, longest, 4 if quick else 6) for longest in (settings.max_src_len, settings.max_tgt_len))
    if quick:
        judging = [Work(src, tgt, 1, settings.beam) for src in src_lens[1:-1] for tgt in tgt_lens[1:-1]]
        return corner_cells(settings) + judging
    tgt_lens = sorted({*tgt_lens, _between(2, settings.max_tgt_len, 3)[1]})
    return [Work(src, tgt, 1, settings.beam) for src in src_lens for tgt in tgt_lens]


def step_cells(settings: Settings, *, tells_steps: bool) -> list[Work]:
    """Return the cells of decode steps by batch size; several target lengths for an engine that does not report steps."""
    quick, src_len = settings.mode == "quick", min(STEP_SRC_LEN, settings.max_src_len)
    cells = []
    for batch in batches(settings):
        rows = batch * settings.beam
        steps = 20 if quick else next((steps for most, steps in SHORTENED if rows <= most), LEAST_STEPS)
        longest = min(steps, settings.max_tgt_len)
        tgt_lens = [longest] if tells_steps else _between(2, longest, 2 if quick else 4)
        cells += [Work(src_len, tgt, batch, settings.beam) for tgt in tgt_lens]
    return cells


def encoder_cells(settings: Settings, *, tells_steps: bool) -> list[Work]:
    """Return the cells of encoders by batch size and source length, each with a single decode step.

    For an engine that does not report steps, short sources are left out, whose encoders are below the noise of that step.
    """
    shortest = 4 if tells_steps else min(10, settings.max_src_len // 2)
    src_lens = _between(shortest, settings.max_src_len, 2 if settings.mode == "quick" else 4)
    return [Work(src, 1, batch, settings.beam) for batch in batches(settings) for src in src_lens]


def batches(settings: Settings) -> tuple[int, ...]:
    """Return the batch sizes of steps and encoders, rising; the largest is fitted."""
    quick = settings.mode == "quick"
    most = settings.max_batch or (QUICK_MOST_BATCH if quick else MOST_BATCH)
    fitted = [size for size in (QUICK_FITTED if quick else FITTED) if size <= most]
    return tuple(sorted(fitted + [size for size in (QUICK_JUDGING if quick else JUDGING) if size < fitted[-1]]))


def _between(low: int, high: int, count: int) -> list[int]:
    """Return `count` lengths evenly spaced in their logarithm, fewer if whole tokens coincide."""
    return sorted({round(length) for length in np.geomspace(low, high, count).tolist()})
