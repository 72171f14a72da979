"""Decode steps and encoders by batch size, and the gaps between steps: tables of medians, and overheads (FNI-18).

A backend that does not report its steps is timed in whole translations of several target lengths, which are split.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from simnmt.calibrate.harness import counted
from simnmt.calibrate.parts import JUDGING, LARGE_ROUNDS, LARGE_ROWS, Bench, Blocks, Cases, Part, encoder_cells, step_cells
from simnmt.profile.blocks import GAP_NAMES, EncoderBlock, Overhead, StepBlock
from simnmt.profile.cost import CostTable
from simnmt.profile.execution_fit import bounded_least_squares, nonnegative_line


def split_totals(tgt_len: ArrayLike, total_s: ArrayLike) -> tuple[float, float, float]:
    """Fit (encode_and_fixed_s, s_first_step, s_per_position) of one batch size to translations of two target lengths or more.

    A translation of T tokens takes encode_and_fixed_s + T s_first_step + T (T - 1) / 2 s_per_position, because the step at
    position p, from 0, takes s_first_step + p s_per_position. The fit minimises relative errors, with no part below 0; with two
    target lengths, all steps are equal. Both columns of shape (translations,).
    """
    length, time = np.asarray(tgt_len, np.float64), np.asarray(total_s, np.float64)
    grown = length * (length - 1.0) / 2.0 * (np.unique(length).size > 2)
    design = np.column_stack([np.ones_like(length), length, grown]) / time[:, None]
    fixed, first, per_position = bounded_least_squares(design, np.ones_like(time)).tolist()
    return fixed, first, per_position


Grid = TypeVar("Grid", StepBlock, EncoderBlock)


def fit_grid(
    kind: type[Grid],
    batch: ArrayLike,
    length: ArrayLike,
    time_s: ArrayLike,
    *,
    judged_batches: Collection[int] = (),
    **fields: Any,
) -> Grid:
    """Return the cost of steps (over positions) or encoders (over source lengths): the median of each cell's repeats.

    Its error is that on the batch sizes of `judged_batches` inside its range, which are no part of the table; None without any.
    A batch size without its longest length is left out; shorter lengths that are missing are interpolated. Three columns of
    shape (measurements,), repeats and all; `fields`: further ones of the block.
    """
    timed = pd.DataFrame({"batch": np.asarray(batch), "length": np.asarray(length), "seconds": np.asarray(time_s)})
    rows, tokens, time = timed.groupby(["batch", "length"])["seconds"].median().reset_index().to_numpy(np.float64).T
    judges = np.isin(rows, list(judged_batches))
    lengths = np.unique(tokens[~judges])
    sizes = np.unique(rows[~judges & (tokens == lengths[-1])])
    seconds = [np.interp(lengths, tokens[rows == size], time[rows == size]) for size in sizes]
    table = CostTable.of(sizes, lengths, seconds)
    judges &= (rows >= sizes[0]) & (rows <= sizes[-1]) & (tokens >= lengths[0])
    judged = rows[judges], tokens[judges], time[judges]
    errors = np.abs(table.seconds(*judged[:2]) / judged[2] - 1.0)
    judging = ", ".join(f"{size:.0f}" for size in np.unique(judged[0]))
    return kind.model_validate(
        {
            "kind": "measured",
            "batch": tuple(map(int, sizes)),
            "seconds": table.rows,
            "judged_cells": tuple((int(size), int(at), float(second)) for size, at, second in zip(*judged, strict=True)),
            "heldout_error": float(errors.mean()) if errors.size else None,
            "heldout_how": f"batch sizes {judging}, measured only to judge" if judging else None,
            kind.length_name: tuple(map(int, lengths)),
        }
        | fields
    )


LEAST_WEIGHED = 0.1
"""Share of the usual overhead below which a measurement gets no more weight: the clock's noise must not decide."""


class OverheadFit(NamedTuple):
    """Seconds = s_fixed + s_per_sentence sentences."""

    s_fixed: float
    s_per_sentence: float
    heldout_error: float | None = None
    """Mean absolute relative error on the judged sizes; None without any."""


def fit_overhead(sentences: ArrayLike, time_s: ArrayLike, *, judged: Collection[int] = ()) -> OverheadFit:
    """Fit both parts by relative error, neither below 0, to one time for each number of sentences.

    Sizes in `judged` are not fitted, and give the error. Columns of shape (sizes,).
    """
    size, time = np.asarray(sentences, np.float64), np.asarray(time_s, np.float64)
    judging = np.isin(size, list(judged))
    usual = float(np.median(time[~judging]))
    if usual <= 0.0:  # nothing measurable
        return OverheadFit(0.0, 0.0)
    weighed = np.maximum(time, LEAST_WEIGHED * usual)
    fixed, per_sentence = nonnegative_line(size[~judging], time[~judging], 1.0 / weighed[~judging])
    off = np.abs(fixed + per_sentence * size - time) / weighed
    return OverheadFit(fixed, per_sentence, float(off[judging].mean()) if judging.any() else None)


ROUNDS, QUICK_ROUNDS, WITHIN_S = 5, 3, 420.0
POSITIONS = 7
"""Number of positions of decode steps beside the first, evenly spaced in their logarithm."""
BY_SPLITTING = "by splitting whole translations over the target length: the backend does not report its steps"
BY_STEP = "medians of whole translations of one token less their decode step: the backend does not report its encoder"
NOT_REPORTED = "the backend does not report its steps, which include the gap"


def rounds(bench: Bench) -> int:
    return QUICK_ROUNDS if bench.quick else ROUNDS


def cases(bench: Bench) -> Cases:
    settings, tells_steps = bench.settings, bench.settings.backend == "torch"
    works = [("step", work) for work in step_cells(settings, tells_steps=tells_steps)]
    works += [("encoder", work) for work in encoder_cells(settings, tells_steps=tells_steps)]
    return {
        f"{what} {work.src_len}+{work.tgt_len} x{work.batch}": bench.case(
            work, what, most_rounds=LARGE_ROUNDS if work.batch * work.beam > LARGE_ROWS else None
        )
        for what, work in works
    }


def fit(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `step`, `encoder`, and the gaps between steps."""
    if not frame["seconds"].notna().any():
        bench.remarks.append("no cost of steps and encoders by batch: out of memory")
        return {}
    timed, fields = dict[str, pd.DataFrame](), dict[str, dict[str, Any]]()
    for what in ("step", "encoder"):
        rows = frame[frame["cell"] == what]
        left_out = rows.loc[rows["seconds"].isna(), ["batch", "src_len", "tgt_len"]].drop_duplicates()
        omitted = "batch {}, {} source and {} target tokens: out of memory"
        timed[what] = counted(rows)
        fields[what] = {"beam": bench.settings.beam, "left_out": tuple(omitted.format(*row) for row in left_out.to_numpy())}
    step = step_block(timed["step"], **fields["step"])
    encoder = encoder_block(timed["encoder"], step, **fields["encoder"])
    for name, block in (("step", step), ("encoder", encoder)):
        if block is None:
            bench.remarks.append(f"no cost of the {name} by batch: fewer than two batch sizes could be measured")
    return {"step": step, "encoder": encoder, "overheads": gap_overheads(timed["step"], timed["encoder"])}


def step_block(timed: pd.DataFrame, **fields: Any) -> StepBlock | None:
    """Fit the cost of the model's decode steps; None with fewer than two batch sizes to fit to.

    If the backend reports its steps, the search between two steps is a separate overhead (`step_gap_s`), which the simulated
    world adds. If it does not, the block includes the search, and no gap is known.
    """
    reported = bool(timed["steps_s"].notna().all())
    cells = _reported_steps(timed) if reported else _split_steps(timed)
    if _fitted_batches(cells) < 2:
        return None
    cells, notes = _prolonged(cells)
    block = fit_grid(
        StepBlock,
        *(cells[name] for name in cells),
        judged_batches=JUDGING,
        notes=notes if reported else (BY_SPLITTING,),
        src_len=int(timed["src_len"].iloc[0]),
        **fields,
    )
    runs = [(batch, steps_s) for batch, steps_s in zip(timed["batch"].tolist(), timed["steps_s"], strict=True) if steps_s]
    ratios = [sum(steps_s) / float(block.cost.sum_s(batch, 0, len(steps_s) - 1)) for batch, steps_s in runs]
    return block.model_copy(update={"run_over_predicted": float(np.mean(ratios)) if ratios else None})


def encoder_block(timed: pd.DataFrame, step: StepBlock | None, **fields: Any) -> EncoderBlock | None:
    """Fit the cost of encoding; if the backend does not report it, to the time of a one-step translation less that step."""
    cells, reported = timed[["batch", "src_len", "encode_s"]], bool(timed["encode_s"].notna().all())
    if not reported:
        if step is None:
            return None
        # Measured steps if possible: an encoder takes hardly more than the error of a fit.
        judged_s = {batch: second for batch, position, second in step.judged_cells if position == 0}
        cells = timed.groupby(["batch", "src_len"])["seconds"].median().reset_index()
        cells["seconds"] -= [judged_s.get(batch) or float(step.cost.seconds(batch, 0)) for batch in cells["batch"]]
    short = cells[cells.iloc[:, 2] <= 0.0]
    cells = cells.drop(index=short.index)
    if _fitted_batches(cells) < 2:
        return None
    too_short = "batch {:.0f}, {:.0f} source tokens: took no longer than its decode step"
    fields["left_out"] = (*(too_short.format(*row) for row in short.to_numpy()), *fields.get("left_out", ()))
    return fit_grid(
        EncoderBlock, *(cells[name] for name in cells), judged_batches=JUDGING, notes=() if reported else (BY_STEP,), **fields
    )


COLUMNS = ["batch", "position", "seconds"]


def _reported_steps(timed: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of each timing: at each position the median of the step and its neighbours.

    The first step has no neighbours: nothing is cached before it.
    """
    rows = [
        (batch, position, float(np.median(steps_s[max(position - near, 1) if position else 0 : position + near + 1])))
        for position, near, last in _positions(timed)
        for batch, steps_s in zip(timed["batch"].tolist(), timed["steps_s"], strict=True)
        if min(position + near, last) < len(steps_s)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _split_steps(timed: pd.DataFrame) -> pd.DataFrame:
    """Return the cells by one fit per batch size to the medians of its target lengths."""
    rows = []
    for batch, of_batch in timed.groupby("batch"):
        medians_s = of_batch.groupby("tgt_len")["seconds"].median()
        if len(medians_s) >= 2:
            _, first_s, more_s = split_totals(medians_s.index, medians_s)
            rows += [(batch, position, first_s + position * more_s) for position, *_ in _positions(timed)]
    return pd.DataFrame([row for row in rows if row[2] > 0.0], columns=COLUMNS)


def _positions(timed: pd.DataFrame) -> list[tuple[int, int, int]]:
    """Return the positions of the table, how many neighbours on each side are pooled with it, and the last position."""
    last = int(timed["tgt_len"].max()) - 1 if len(timed) else 0
    middles = sorted({round(at) for at in np.geomspace(1, last, POSITIONS).tolist()}) if last else []
    return [(0, 0, last)] + [(middle, max(1, middle // 10), last) for middle in middles]


def _prolonged(cells: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the cells with those for positions beyond the short runs of large batches, and notes on them.

    Such a step grows from the timed steps as it does for the largest batch that was timed at all positions.
    """
    usual_s = cells.pivot_table("seconds", "batch", "position", "median").drop(index=list(JUDGING), errors="ignore")
    whole = usual_s.iloc[:, -1].notna()
    if whole.all() or not whole.any():
        return cells, ()
    model_s = usual_s[whole].iloc[-1]
    added, texts = [cells], []
    for batch, row_s in usual_s[~whole].iterrows():
        timed = row_s.dropna().index
        common = timed.drop([0]) if len(timed) > 1 else timed  # the first step differs from all others
        grown_s = row_s[common].sum() / model_s[common].sum() * model_s.drop(timed)
        added.append(pd.DataFrame({"batch": batch, "position": grown_s.index, "seconds": grown_s.to_numpy()}))
        texts.append(f"{batch} (from {timed[-1] + 1} on)")
    return pd.concat(added), (f"positions not timed, scaled from batch {model_s.name}: of batch {', '.join(texts)}",)


def _fitted_batches(cells: pd.DataFrame) -> int:
    return len(set(cells["batch"]) - set(JUDGING))


def gap_overheads(steps: pd.DataFrame, encoders: pd.DataFrame) -> dict[str, Overhead]:
    """Fit `step_gap_s` and `step_gap_s_per_sentence` of a profile, from decode steps and encoders.

    The gap of a batch size is the median time of a translation beside its encoder and steps, less that of a translation of a
    single token, which is the one-time part, divided by the number of further steps.
    """
    gaps_s = dict[int, float]()
    for batch, timed in steps.groupby("batch"):
        longest = timed[timed["tgt_len"] == timed["tgt_len"].max()]
        # The beginning may depend on the source: a beam's rows are copies of the encoded source.
        once = encoders[encoders["batch"] == batch]
        away = (once["src_len"] - longest["src_len"].iloc[0]).abs()
        gap_s, further = _beside_s(longest) - _beside_s(once[away == away.min()]), int(longest["tgt_len"].iloc[0]) - 1
        if further and not np.isnan(gap_s):
            gaps_s[int(longest["batch"].iloc[0])] = gap_s / further
    if not set(gaps_s) - set(JUDGING):
        return dict.fromkeys(GAP_NAMES, Overhead(kind="measured", note=NOT_REPORTED))
    fitted = fit_overhead(list(gaps_s), list(gaps_s.values()), judged=JUDGING)
    note = f"whole translations less encoder and steps, batch {min(gaps_s)} to {max(gaps_s)}"
    gap = Overhead(kind="measured", note=note, heldout_error=fitted.heldout_error)
    return {name: gap.model_copy(update={"value": value}) for name, value in zip(GAP_NAMES, fitted[:2], strict=True)}


def _beside_s(timed: pd.DataFrame) -> float:
    """Return the median over the timings of the whole less all parts; NaN where the backend does not report the parts."""
    steps_s = timed["steps_s"].map(sum, na_action="ignore").astype(float)
    return float((timed["seconds"] - timed["encode_s"].astype(float) - steps_s).median())


PARTS = (Part("step", ("step",), cases, fit, 1, rounds=rounds, within_s=WITHIN_S, beside_reference=True, decoder_only=False),)
