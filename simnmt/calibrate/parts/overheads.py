"""Costs beside those of the model: the gateway's decision (CNMT-12), joining and leaving a batch (FNI-10)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from simnmt.calibrate.cells import STEP_SRC_LEN
from simnmt.calibrate.fits import fit_overhead
from simnmt.calibrate.harness import Case, counted
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part
from simnmt.policies import CNmt
from simnmt.profile.blocks import Overhead
from simnmt.profile.cost import Plane
from simnmt.workload.length_regression import LengthRegression

DECISIONS = 2_000
LONGEST_SRC_LEN = 500
DECISION_ROUNDS = 5


def decision_cases(bench: Bench) -> Cases:
    """Return decisions of C-NMT between two targets, one request at a time as in a live gateway.

    The policy is the one that the simulation runs. `prepare` computes the time-independent part once for every source length;
    a decision looks up both executions and adds the delay of each target.
    """
    planes = [Plane(0.0004, 0.003, 0.005), Plane(0.0001, 0.001, 0.004)]
    decide = CNmt(planes, LengthRegression(0.8, 1.0).predict).prepare(np.arange(LONGEST_SRC_LEN + 1))
    delays_s = (0.0, 0.050)

    def decisions() -> None:
        for number in range(DECISIONS):
            decide(1 + number % LONGEST_SRC_LEN, delays_s)

    return {"decisions": Case(decisions)}


def fit_decision(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return the overhead of one decision."""
    seconds = float(counted(frame)["seconds"].median()) / DECISIONS
    note = "length regression and two planes, one request at a time"
    return {"overheads": {"decision_s": Overhead(value=seconds, kind="measured", note=note)}}


NAMES_OF_JOINING = ("refill_s_fixed", "refill_s_per_sentence", "leave_s")
JOINING_ROUNDS, JOINING_WITHIN_S = 15, 30.0


def joining_cases(bench: Bench) -> Cases:
    """Return 1, 2, 4 ... sentences, up to the largest batch, that join a batch; none if the engine never refills.

    As many others are active as fit, at most as many as join. The first step after joining may take longer than its batch and
    position imply; that is not included.
    """
    settings, joining_timer = bench.settings, getattr(bench.engine, "joining_timer", None)
    if joining_timer is None:
        bench.add(_unknown("never refills a batch"))
        return {}
    sizes = [1 << power for power in range(bench.most_batch.bit_length())]
    timers: dict[int, Callable[[], dict[str, float]]] = {}

    def join(joining: int) -> dict[str, float]:
        if joining not in timers:
            others, src_len = min(joining, sizes[-1] - joining), min(STEP_SRC_LEN, settings.max_src_len)
            timers[joining] = joining_timer(joining, others, src_len=src_len, beam=settings.beam)
        return timers[joining]()

    return {size: Case(partial(join, size), size=(size,), about={"joining": size}) for size in sizes}


def fit_joining(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `refill_s_fixed`, `refill_s_per_sentence` and `leave_s`.

    Sentences that joined together end at different steps: the cost of leaving per sentence is added to its joining, and the
    fixed cost is `leave_s`, paid in each step that ends some sentence.
    """
    rows = counted(frame)
    if not len(rows):
        return _unknown("out of memory")
    medians_s = rows.groupby("joining")[["join_s", "leave_s"]].median()
    join, leave = (fit_overhead(medians_s.index, medians_s[name]) for name in medians_s)
    measured = (
        (join.s_fixed, f"joining of 1 to {medians_s.index.max()} sentences"),
        (join.s_per_sentence + leave.s_per_sentence, f"{1e6 * leave.s_per_sentence:.3g} us of each for leaving"),
        (leave.s_fixed, f"leaving of 1 to {medians_s.index.max()} sentences"),
    )
    overheads = (Overhead(value=value, kind="measured", note=note) for value, note in measured)
    return {"overheads": dict(zip(NAMES_OF_JOINING, overheads, strict=True))}


def _unknown(note: str) -> Blocks:
    return {"overheads": dict.fromkeys(NAMES_OF_JOINING, Overhead(kind="measured", note=note))}


PARTS = (
    Part("joining", ("step",), joining_cases, fit_joining, order=4, rounds=lambda _: JOINING_ROUNDS, within_s=JOINING_WITHIN_S),
    Part("decision", ("overheads",), decision_cases, fit_decision, order=5, rounds=lambda bench: DECISION_ROUNDS),
)
