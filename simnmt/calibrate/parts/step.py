"""Decode steps and encoders by batch size, and the gaps between steps (FNI-18)."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import pandas as pd

from simnmt.calibrate.cells import JUDGING, LARGE_ROUNDS, LARGE_ROWS, encoder_cells, step_cells
from simnmt.calibrate.fits import fit_grid, fit_overhead, split_totals
from simnmt.calibrate.harness import Case, counted
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part, by_batch
from simnmt.profile.blocks import GAP_NAMES, EncoderBlock, Overhead, StepBlock

ROUNDS, QUICK_ROUNDS = 5, 3
ROUNDS_WITHIN_S = 420.0
POSITIONS = 7
"""Number of positions of decode steps beside the first, evenly spaced in their logarithm."""
BY_SPLITTING = "by splitting whole translations over the target length: the backend does not report its steps"
BY_STEP = "medians of whole translations of one token less their decode step: the backend does not report its encoder"

Rows = list[tuple[int, int, float]]
"""(batch, length, seconds)."""


def rounds(bench: Bench) -> int:
    """Return the number of rounds."""
    return QUICK_ROUNDS if bench.quick else ROUNDS


def cases(bench: Bench) -> Cases:
    """Return the cells of decode steps and of encoders."""
    tells_steps = bench.settings.backend == "torch"
    cells = {
        "step": step_cells(bench.settings, tells_steps=tells_steps),
        "encoder": encoder_cells(bench.settings, tells_steps=tells_steps),
    }
    by_name: dict[Hashable, Case] = {}
    for what, works in cells.items():
        for work in works:
            most_rounds = LARGE_ROUNDS if work.batch * work.beam > LARGE_ROWS else None
            name = f"{what} {work.src_len}+{work.tgt_len} x{work.batch}"
            by_name[name] = bench.case(work, what, most_rounds=most_rounds)
    return by_name


def fit(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `step`, `encoder`, and the gaps between steps."""
    rows, left_out = counted(frame), frame[frame["seconds"].isna()]
    if not len(rows):
        bench.remarks.append("no cost of steps by batch: out of memory")
        return {"step": None, "encoder": None}
    steps, encoders = (rows[rows["cell"] == what] for what in ("step", "encoder"))
    bench.fitted_batches(steps["batch"].tolist())
    beam = bench.settings.beam
    step = step_block(steps, _describe_omitted(left_out, "step"), beam)
    encoder = encoder_block(encoders, _describe_omitted(left_out, "encoder"), beam, step)
    for name, block in (("step", step), ("encoder", encoder)):
        if block is None:
            bench.remarks.append(f"no cost of the {name} by batch: fewer than two batch sizes could be measured")
    return {"step": step, "encoder": encoder, "overheads": gap_overheads(steps, encoders)}


def step_block(timed: pd.DataFrame, left_out: tuple[str, ...], beam: int) -> StepBlock | None:
    """Fit the cost of the model's decode steps; None with fewer than two batch sizes to fit to, or without steps.

    If the backend reports its steps, the search between two steps is a separate overhead (`step_gap_s`), which the simulated
    world adds. If it does not, the block includes the search, and no gap is known.
    """
    reported = bool(timed["steps_s"].notna().all())
    rows = _reported_steps(timed) if reported else _split_steps(timed)
    if _fitted_batches(rows) < 2:
        return None
    more, notes = _prolonged(rows) if reported else ([], (BY_SPLITTING,))
    block = fit_grid(
        StepBlock,
        *zip(*(rows + more), strict=True),
        judged_batches=_judging(rows),
        beam=beam,
        left_out=left_out,
        notes=notes,
        repeats=_repeats(timed),
        src_len=int(timed["src_len"].iloc[0]),
    )
    return block.model_copy(update={"run_over_predicted": _run_over_predicted(timed, block)})


def encoder_block(timed: pd.DataFrame, left_out: tuple[str, ...], beam: int, step: StepBlock | None) -> EncoderBlock | None:
    """Fit the cost of encoding; if the backend does not report it, to the time of a one-step translation less that step."""
    reported = bool(timed["encode_s"].notna().all())
    if reported:
        rows = _tuples(timed, "batch", "src_len", "encode_s")
    elif step is None:
        return None
    else:
        first_s = _first_steps_s(step)
        medians = timed.groupby(["batch", "src_len"])["seconds"].median().reset_index()
        rows = [(batch, src_len, second - first_s(batch)) for batch, src_len, second in _tuples(medians, *medians.columns)]
    lost = [(batch, src_len) for batch, src_len, second in rows if second <= 0.0]
    rows = [row for row in rows if row[2] > 0.0]
    if _fitted_batches(rows) < 2:
        return None
    short = tuple(f"batch {batch}, {src_len} source tokens: took no longer than its decode step" for batch, src_len in lost)
    return fit_grid(
        EncoderBlock,
        *zip(*rows, strict=True),
        judged_batches=_judging(rows),
        beam=beam,
        left_out=(*short, *left_out),
        notes=() if reported else (BY_STEP,),
        repeats=_repeats(timed),
    )


def _tuples(timed: pd.DataFrame, *names: str) -> Rows:
    return list(zip(*(timed[name].tolist() for name in names), strict=True))


def _reported_steps(timed: pd.DataFrame) -> Rows:
    """Return (batch, position, seconds) per position and timing: the median of the step and its neighbours.

    The first step has no neighbours: nothing is cached before it.
    """
    windows = _windows(int(timed["tgt_len"].max()) if len(timed) else 1)
    return [
        (batch, position, float(np.median(steps_s[low : high + 1])))
        for low, position, high in windows
        for batch, steps_s in zip(timed["batch"].tolist(), timed["steps_s"], strict=True)
        if high < len(steps_s)
    ]


def _prolonged(rows: Rows) -> tuple[Rows, tuple[str, ...]]:
    """Return rows for positions beyond the short runs of large batches, and notes on them.

    Such a step grows from the timed steps as it does for the largest batch that was timed at all positions.
    """
    positions = sorted({position for _, position, _ in rows})
    usual_s = {
        key: float(np.median([second for batch, position, second in rows if (batch, position) == key]))
        for key in {(batch, position) for batch, position, _ in rows}
    }
    reached = {batch: max(at for other, at in usual_s if other == batch) for batch, _ in usual_s}
    whole = [batch for batch, last in reached.items() if last == positions[-1] and batch not in JUDGING]
    short = sorted(batch for batch, last in reached.items() if last < positions[-1] and batch not in JUDGING)
    if not whole or not short:
        return [], ()
    model, added = max(whole), list[tuple[int, int, float]]()
    for batch in short:
        # The first step differs from all others.
        timed = [at for at in positions if 0 < at <= reached[batch]] or [0]
        scale = sum(usual_s[batch, at] for at in timed) / sum(usual_s[model, at] for at in timed)
        added += [(batch, at, scale * usual_s[model, at]) for at in positions if at > reached[batch]]
    scaled = ", ".join(f"{batch} (from {reached[batch] + 1} on)" for batch in short)
    return added, (f"positions not timed, scaled from batch {model}: of batch {scaled}",)


def _run_over_predicted(timed: pd.DataFrame, block: StepBlock) -> float | None:
    """Return the mean ratio of the measured seconds of all steps of a run to those that `block` predicts."""
    runs = [(batch, steps_s) for batch, steps_s in zip(timed["batch"].tolist(), timed["steps_s"], strict=True) if steps_s]
    ratios = [sum(steps_s) / float(block.cost.sum_s(batch, 0, len(steps_s) - 1)) for batch, steps_s in runs]
    return float(np.mean(ratios)) if ratios else None


def _split_steps(timed: pd.DataFrame) -> Rows:
    """Return (batch, position, seconds) by one fit per batch size to the medians of its cells."""
    rows: Rows = []
    for batch, of_batch in by_batch(timed).items():
        medians_s = of_batch.groupby("tgt_len")["seconds"].median()
        if len(medians_s) < 2:
            continue
        _, first_s, more_s = split_totals(medians_s.index, medians_s)
        if first_s > 0.0 or more_s > 0.0:
            windows = _windows(int(medians_s.index.max()))
            rows += [(batch, position, first_s + position * more_s) for _, position, _ in windows]
    return [row for row in rows if row[2] > 0.0]


def _first_steps_s(step: StepBlock) -> Callable[[int], float]:
    """Return a function from batch size to seconds of a first step, measured if possible: an encoder takes hardly more than
    the error of a fit."""
    cost = step.cost
    measured_s = {batch: second for batch, position, second in step.judged_cells if position == 0}
    if step.seconds is not None and step.position[0] == 0:
        measured_s |= {batch: row[0] for batch, row in zip(step.batch, step.seconds, strict=True)}
    return lambda batch: measured_s[batch] if batch in measured_s else float(cost.seconds(batch, 0))


def _windows(tgt_len: int) -> list[tuple[int, int, int]]:
    """Return (first, middle, last) of the positions that are pooled; the first step is alone."""
    last = tgt_len - 1
    middles = sorted({round(at) for at in np.geomspace(1, last, POSITIONS).tolist()}) if last else []
    nears = [max(1, middle // 10) for middle in middles]
    return [(0, 0, 0)] + [(max(at - near, 1), at, min(at + near, last)) for at, near in zip(middles, nears, strict=True)]


def _judging(rows: Rows) -> tuple[int, ...]:
    return tuple(sorted({batch for batch, _, _ in rows} & set(JUDGING)))


def _fitted_batches(rows: Rows) -> int:
    return len({batch for batch, _, _ in rows} - set(JUDGING))


def _repeats(timed: pd.DataFrame) -> int:
    """Return the least number of timings of a cell."""
    return int(timed.groupby(["batch", "src_len", "tgt_len"]).size().min())


def _describe_omitted(left_out: pd.DataFrame, what: str) -> tuple[str, ...]:
    cells = left_out.loc[left_out["cell"] == what, ["batch", "src_len", "tgt_len"]].drop_duplicates().itertuples(index=False)
    return tuple(f"batch {batch}, {src} source and {tgt} target tokens: out of memory" for batch, src, tgt in cells)


NOT_REPORTED = "the backend does not report its steps, which include the gap"
ALONE = "single sentences only: how it grows with the batch was not measured"


def gap_overheads(steps: pd.DataFrame, encoders: pd.DataFrame) -> dict[str, Overhead]:
    """Fit `step_gap_s` and `step_gap_s_per_sentence` of a profile, from decode steps and encoders.

    The gap of a batch size is the median time of a translation beside its encoder and steps, less that of a translation of a
    single token, which is the one-time part, divided by the number of further steps.
    """
    gaps_s = {batch: _gap_s(of_batch, encoders) for batch, of_batch in by_batch(steps).items()}
    known = {batch: gap for batch, gap in gaps_s.items() if gap is not None}
    if not set(known) - set(JUDGING):
        return dict.fromkeys(GAP_NAMES, Overhead(value=None, kind="measured", note=NOT_REPORTED))
    fitted = fit_overhead(list(known), list(known.values()), judged=JUDGING)
    error = "" if fitted.error is None else f", error {100 * fitted.error:.1f} % on {fitted.how}"
    note = f"whole translations less encoder and steps, batch {min(known)} to {max(known)}{error}"
    heldout_error = fitted.error if set(known) & set(JUDGING) else None
    values = zip(GAP_NAMES, (fitted.s_fixed, fitted.s_per_sentence), strict=True)
    return {name: Overhead(value=value, kind="measured", note=note, heldout_error=heldout_error) for name, value in values}


def lone_gap_overheads(executions: pd.DataFrame) -> dict[str, Overhead]:
    """Fit the gap overheads to single sentences, without measured batches: the growth with the batch is unknown."""
    gap = gap_of_singles_s(executions)
    note = NOT_REPORTED if gap is None else ALONE
    return {name: Overhead(value=value, kind="measured", note=note) for name, value in zip(GAP_NAMES, (gap, None), strict=True)}


def gap_of_singles_s(executions: pd.DataFrame) -> float | None:
    """Fit the seconds of a gap by target length, from single sentences; None if the backend does not report steps."""
    medians_s = executions.assign(beside_s=_beside_s(executions)).groupby("tgt_len")["beside_s"].median().dropna()
    return max(float(np.polyfit(medians_s.index, medians_s, 1)[0]), 0.0) if len(medians_s) >= 2 else None


def _gap_s(of_batch: pd.DataFrame, encoders: pd.DataFrame) -> float | None:
    longest = of_batch[of_batch["tgt_len"] == of_batch["tgt_len"].max()]
    batch, src_len, tgt_len = (int(longest[name].iloc[0]) for name in ("batch", "src_len", "tgt_len"))
    # The beginning may depend on the source: a beam's rows are copies of the encoded source.
    once = encoders[encoders["batch"] == batch]
    once = once[(once["src_len"] - src_len).abs() == (once["src_len"] - src_len).abs().min()]
    gap_s = _beside_s(longest).median() - _beside_s(once).median()
    # With one step, the whole over the steps would include joining and leaving, which are measured separately.
    return None if tgt_len == 1 or np.isnan(gap_s) else float(gap_s) / (tgt_len - 1)


def _beside_s(timed: pd.DataFrame) -> pd.Series[float]:
    """Return the whole less all parts, of each timing; NaN where the backend does not report the parts."""
    steps_s = [np.nan if steps_s is None else sum(steps_s) for steps_s in timed["steps_s"]]
    return timed["seconds"] - timed["encode_s"].astype(float) - pd.Series(steps_s, timed.index, dtype=float)


PARTS = (Part("step", ("step",), cases, fit, order=1, rounds=rounds, within_s=ROUNDS_WITHIN_S, beside_reference=True),)
