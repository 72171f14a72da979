"""What the search does between two decode steps, by batch size, from whole translations that tell their steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simnmt.calibrate.overheads import overhead
from simnmt.calibrate.plan import JUDGING
from simnmt.calibrate.samples import Cell
from simnmt.costs import fit_overhead

UNTOLD = "the backend does not tell its steps: the gap is in them"
ALONE = "single sentences only: how it grows with the batch was not measured"
NAMES = ("step_gap_s", "step_gap_s_per_sentence")


def gap_overheads(steps: Sequence[Cell], encoders: Sequence[Cell]) -> dict[str, Any]:
    """`step_gap_s` and `step_gap_s_per_sentence` of a profile, from the benches of decode steps and of encoders.

    Of each batch size the median of what a translation takes beside its encoder and its steps, less what one of a single
    token does, which is what happens once; over the other steps.
    """
    batches = sorted({cell.work.batch for cell in steps})
    gaps_s = {batch: _gap_s(*(_of_batch(cells, batch) for cells in (steps, encoders))) for batch in batches}
    known = {batch: gap for batch, gap in gaps_s.items() if gap is not None}
    if not set(known) - set(JUDGING):
        return {name: overhead(None, UNTOLD) for name in NAMES}
    fitted = fit_overhead(list(known), list(known.values()), judged=JUDGING)
    error = "" if fitted.error is None else f", error {100 * fitted.error:.1f} % on {fitted.how}"
    note = f"whole translations less encoder and steps, batch {min(known)} to {max(known)}{error}"
    heldout_error = fitted.error if set(known) & set(JUDGING) else None
    values = zip(NAMES, (fitted.s_fixed, fitted.s_per_sentence), strict=True)
    return {name: overhead(value, note, heldout_error) for name, value in values}


def lone_gap_overheads(executions: Sequence[Cell]) -> dict[str, Any]:
    """The same from single sentences, where no batches are measured: the growth with the batch stays unknown."""
    gap = gap_of_singles_s(executions)
    return {
        NAMES[0]: overhead(gap, UNTOLD if gap is None else ALONE),
        NAMES[1]: overhead(None, UNTOLD if gap is None else ALONE),
    }


def gap_of_singles_s(cells: Sequence[Cell]) -> float | None:
    """Seconds that each step adds to the whole beside its own, by target length; None where the backend does not tell."""
    gaps = [(cell.work.tgt_len, each) for cell in cells for each in _beside_s(cell)]
    tgt_lens = sorted({tgt_len for tgt_len, _ in gaps})
    if len(tgt_lens) < 2:
        return None
    medians_s = [float(np.median([gap for other, gap in gaps if other == tgt_len])) for tgt_len in tgt_lens]
    return max(float(np.polyfit(tgt_lens, medians_s, 1)[0]), 0.0)


def _gap_s(steps: Sequence[Cell], encoders: Sequence[Cell]) -> float | None:
    longest = max(steps, key=lambda cell: (cell.work.tgt_len, -cell.work.src_len))
    beside_s = _beside_s(longest)
    if not beside_s:
        return None
    src_len, tgt_len = longest.work.src_len, longest.work.tgt_len
    # Beginning may depend on the source: a beam's rows are copies of what was encoded.
    once = min(
        (cell for cell in encoders if cell.work.tgt_len == 1 and _beside_s(cell)),
        key=lambda cell: abs(cell.work.src_len - src_len),
        default=None,
    )
    if once is None or tgt_len == 1:
        # The whole over the steps would count joining and leaving, which are told apart, once more.
        return None
    return float(np.median(beside_s) - np.median(_beside_s(once))) / (tgt_len - 1)


def _of_batch(cells: Sequence[Cell], batch: int) -> list[Cell]:
    return [cell for cell in cells if cell.work.batch == batch]


def _beside_s(cell: Cell) -> list[float]:
    """Of each timing that tells its parts, the whole less all of them."""
    return [
        timing.total_s - timing.encode_s - sum(timing.steps_s)
        for timing in cell.timings
        if timing.encode_s is not None and timing.steps_s is not None
    ]
