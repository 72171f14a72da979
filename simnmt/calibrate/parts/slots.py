"""Iterations of a decoder-only model: what a step takes by slots, a token of context, and a token of a prompt."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict

import numpy as np
import pandas as pd

from simnmt.base.arrays import Floats
from simnmt.batching.slots import DEFAULT_CHUNK
from simnmt.calibrate.harness import Case, counted
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part, between, fitted_batches
from simnmt.calibrate.parts.step import WITHIN_S, rounds
from simnmt.nmt.engine import Work
from simnmt.profile.execution_fit import relative_least_squares
from simnmt.profile.slots_block import SlotsBlock, SlotsCost

QUICK_SLOTS, SLOTS = 4, 8
"""Default most slots."""
STEPS = 12
"""Iterations of a run, its first one without decoding."""
LONGEST_PROMPT = 256
"""The longest prompt has at least as many tokens, if the context allows: the cost of a token of context is small."""
LEAST_STEP_S = 1e-9


def cases(bench: Bench) -> Cases:
    """Return runs of several numbers of slots, each with short and long prompts, and prompts alone of further lengths."""
    settings, quick = bench.settings, bench.quick
    tgt_len = max(min(STEPS, settings.max_tgt_len), 2)
    longest = max(settings.max_src_len, min(LONGEST_PROMPT, max_positions(bench) - tgt_len))
    lengths = between(min(8, longest), longest, 4 if quick else 6)
    works = [Work(src_len, tgt_len, size) for size in sizes(bench) for src_len in (lengths[0], lengths[-1])]
    works += [Work(src_len, 2) for src_len in lengths[1:-1]]
    numbered: dict[Hashable, Case] = {f"{work.batch} x {work.src_len}": bench.case(work, "slots") for work in works}
    return numbered


def sizes(bench: Bench) -> list[int]:
    """Return the numbers of slots that are measured, rising."""
    return fitted_batches(bench.settings, QUICK_SLOTS if bench.quick else SLOTS)


def max_positions(bench: Bench) -> int:
    return int(bench.engine.account.architecture["max_positions"])


def fit(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `slots`; no block if memory did not suffice for a step of each number of slots."""
    rows, knots = counted(frame), sizes(bench)
    if missing := set(knots) - set(rows["batch"]):
        bench.remarks.append(f"no slots: {max(missing)} slots could not be measured")
        return {"slots": None}
    design, seconds = list[list[float]](), list[float]()
    for batch, src_len in rows[["batch", "src_len"]].drop_duplicates().to_numpy(np.int64).tolist():
        runs = rows[(rows["batch"] == batch) & (rows["src_len"] == src_len)]
        if batch == 1:
            design.append([1.0, *[0.0] * len(knots), 0.0, src_len])
            seconds.append(float(runs["encode_s"].median()))
        steps_s = np.median(np.array(runs["steps_s"].tolist()), axis=0)
        context = batch * (src_len + 1.0 + (len(steps_s) - 1) / 2.0)
        design.append([0.0, *(float(knot == batch) for knot in knots), context, 0.0])
        seconds.append(float(steps_s.mean()))
    cost = _cost(np.array(design), np.array(seconds), knots, rows)
    error, chunk = None, max(DEFAULT_CHUNK, knots[-1])
    if (execution := bench.blocks.get("execution")) is not None:
        src_len, tgt_len, measured_s = np.array([[s.src_len, s.tgt_len, s.mean_s] for s in execution.samples]).T
        error = float(np.abs(cost.solo_s(src_len, tgt_len, chunk) / measured_s - 1.0).mean())
    block = SlotsBlock(
        kind="measured",
        slots=knots[-1],
        chunk=chunk,
        context=max_positions(bench),
        **asdict(cost),
        iterations=sum(1 + len(steps_s) for steps_s in rows["steps_s"]),
        heldout_error=error,
        heldout_how=None if error is None else "whole executions of one request alone",
        notes=(f"iterations of at most {chunk:,} tokens are assumed",),
    )
    return {"slots": block}


def _cost(design: Floats, seconds: Floats, knots: list[int], rows: pd.DataFrame) -> SlotsCost:
    coefficients = relative_least_squares(design, seconds, 0.01 * float(seconds.mean()))
    reading_s, *steps_s = np.maximum(coefficients[:-2], LEAST_STEP_S).tolist()
    alone = rows[rows["batch"] == 1]
    beside_s = (alone["seconds"] - alone["encode_s"] - alone["steps_s"].map(sum)).median()
    by_slots = np.interp(np.arange(1, knots[-1] + 1), knots, steps_s).tolist()
    context_s, prompt_s = coefficients[-2:].tolist()
    return SlotsCost((reading_s, *by_slots), prompt_s, context_s, max(float(beside_s), 0.0))


PARTS = (Part("slots", ("step",), cases, fit, 1, rounds=rounds, within_s=WITHIN_S, beside_reference=True, decoder_only=True),)
