"""What it costs when encoded sentences join a batch that is decoded, and leave it again (FNI-10)."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import numpy as np

from simnmt.calibrate.overheads import overhead
from simnmt.calibrate.plan import STEP_SRC_LEN
from simnmt.calibrate.settings import Settings
from simnmt.costs import OverheadFit, fit_overhead
from simnmt.nmt.errors import OutOfMemory

NAMES = ("refill_s_fixed", "refill_s_per_sentence", "leave_s")
NEVER = "never refills a batch"
PASSES, ROUNDS = 3, 5
"""Over all sizes, and of each size in a pass."""
WITHIN_S = 30.0
"""No further pass is begun after so long: each takes steps of the largest batch."""


@runtime_checkable
class Joins(Protocol):
    """An engine whose decoder lets sentences join and leave."""

    def joining_s(self, joining: int, others: int, *, src_len: int, beam: int, rounds: int) -> tuple[float, float]:
        """Seconds that encoded sentences take to join others, and all in one step to leave again, the usual of `rounds`."""


def refill_overheads(
    engine: object, settings: Settings, most: int, clock: Callable[[], float] = perf_counter
) -> dict[str, Any]:
    """`refill_s_fixed`, `refill_s_per_sentence` and `leave_s` of a profile, from 1, 2, 4 ... sentences, up to `most`.

    Sentences that joined together end at steps of their own: of leaving, what each adds goes with its joining, and what is
    paid whatever their number is `leave_s`, paid in each step with which some leave. As many others are active as there is
    room for, at most as many as join. The first step after joining may take longer than its batch and position tell; that is
    not in here.
    """
    if not isinstance(engine, Joins):
        return {name: overhead(None, NEVER) for name in NAMES}
    src_len = min(STEP_SRC_LEN, settings.max_src_len)
    times_s: dict[int, list[tuple[float, float]]] = {}
    sizes = [1 << power for power in range(most.bit_length())]
    begin_s = clock()
    for number in range(PASSES):
        if number and clock() - begin_s > WITHIN_S:
            break
        for joining in sizes:
            others = min(joining, sizes[-1] - joining)
            try:
                found = engine.joining_s(joining, others, src_len=src_len, beam=settings.beam, rounds=ROUNDS)
            except OutOfMemory:
                break
            times_s.setdefault(joining, []).append(found)
    if not times_s:
        return {name: overhead(None, "out of memory") for name in NAMES}
    medians_s = np.array([np.median(each, axis=0) for each in times_s.values()])
    join, leave = (fit_overhead(list(times_s), column) for column in medians_s.T)
    each_s = join.s_per_sentence + leave.s_per_sentence
    told = (
        overhead(join.s_fixed, _note("joining", max(times_s), join)),
        overhead(each_s, f"{1e6 * leave.s_per_sentence:.3g} us of each for leaving"),
        overhead(leave.s_fixed, _note("leaving", max(times_s), leave)),
    )
    return dict(zip(NAMES, told, strict=True))


def _note(what: str, most: int, fit: OverheadFit) -> str:
    error = "" if fit.error is None else f", error {100 * fit.error:.1f} % on {fit.how}"
    return f"{what} of 1 to {most} sentences{error}"
