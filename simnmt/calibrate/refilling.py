"""What it costs when encoded sentences join a batch that is decoded, and leave it again (FNI-10)."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import numpy as np

from simnmt.calibrate.overheads import overhead
from simnmt.calibrate.plan import STEP_SRC_LEN
from simnmt.calibrate.settings import Settings
from simnmt.costs import fit_overhead
from simnmt.nmt.errors import OutOfMemory

NAMES = ("refill_s_fixed", "refill_s_per_sentence")
NEVER = "never refills a batch"
PASSES, ROUNDS = 3, 3
"""Over all sizes, and of each size in a pass."""
WITHIN_S = 30.0
"""No further pass is begun after so long: each takes steps of the largest batch."""


@runtime_checkable
class Joins(Protocol):
    """An engine whose decoder lets sentences join and leave."""

    def joining_s(self, joining: int, others: int, *, src_len: int, beam: int, rounds: int) -> float:
        """Seconds that encoded sentences take to join others and to leave again, the usual of `rounds`."""


def refill_overheads(
    engine: object, settings: Settings, most: int, clock: Callable[[], float] = perf_counter
) -> dict[str, Any]:
    """`refill_s_fixed` and `refill_s_per_sentence` of a profile, from 1, 2, 4 ... sentences that join, up to `most`.

    As many others are active as there is room for, at most as many as join. The first step after joining may take longer
    than its batch and position tell; that is not in here.
    """
    if not isinstance(engine, Joins):
        return {name: overhead(None, NEVER) for name in NAMES}
    src_len = min(STEP_SRC_LEN, settings.max_src_len)
    times_s: dict[int, list[float]] = {}
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
    fitted = fit_overhead(list(times_s), [float(np.median(each)) for each in times_s.values()])
    error = "" if fitted.error is None else f", error {100 * fitted.error:.1f} % on {fitted.how}"
    note = f"joining and leaving of 1 to {max(times_s)} sentences{error}"
    return {name: overhead(value, note) for name, value in zip(NAMES, (fitted.s_fixed, fitted.s_per_sentence), strict=True)}
