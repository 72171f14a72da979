"""What a source token adds to a decode step, which attends to the longest source of its batch: pairs adjacent in time."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from simnmt.calibrate.plan import STEP_SRC_LEN
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Engine, Work
from simnmt.nmt.errors import OutOfMemory

LONG_SRC_LEN, BATCHES = 80, (8, 32)
"""And the largest batch."""
STEPS = 12
LEAST_PAIRS, PAIRS = 3, 15
WITHIN_S = 20.0
"""No further pair of each batch is begun after so long."""

Pairs = list[tuple[int, int, list[tuple[float, float]]]]
"""(batch, source tokens that the second has more, its pairs of seconds of the usual step: under short and long sources)."""


def source_pairs(engine: Engine, settings: Settings, most: int, clock: Callable[[], float] = perf_counter) -> Pairs:
    """Steps under short sources and under long ones right after or before, over and over; none where nothing is told.

    A box's speed wanders by more than the difference, but not within a pair.
    """
    short = min(STEP_SRC_LEN, settings.max_src_len)
    more = min(LONG_SRC_LEN, settings.max_src_len) - short
    if settings.mode == "quick" or not more:
        return []
    steps = min(STEPS, settings.max_tgt_len)
    found: dict[int, list[tuple[float, float]]] = {
        batch: [] for batch in sorted({*(each for each in BATCHES if each <= most), most})
    }
    begin_s = clock()
    # The first pair of each batch warms up.
    for number in range(1 + PAIRS):
        if number > LEAST_PAIRS and clock() - begin_s > WITHIN_S:
            break
        for batch in list(found):
            both_s = {}
            for src_len in (short, short + more) if number % 2 else (short + more, short):
                try:
                    steps_s = engine.run(Work(src_len, steps, batch, settings.beam)).steps_s
                except OutOfMemory:
                    del found[batch]
                    break
                if steps_s is None:
                    return []
                both_s[src_len] = float(np.median(steps_s[1:]))
            if number and len(both_s) == 2:
                found[batch].append((both_s[short], both_s[short + more]))
    return [(batch, more, pairs) for batch, pairs in found.items()]


def per_row_src_token_s(found: Pairs) -> tuple[float | None, str]:
    """What a source token adds to a step for each sentence, and how sure that is; never below 0, None without pairs.

    By least squares of relative errors to each batch's median difference.
    """
    if not found:
        return None, ""
    above, below = 0.0, 0.0
    grown = []
    for batch, more, pairs in found:
        share = np.array([long / short - 1.0 for short, long in pairs])
        tokens = batch * more / float(np.median([short for short, _ in pairs]))
        above += tokens * float(np.median(share))
        below += tokens * tokens
        grown.append((batch, tokens, np.percentile(share, (25, 50, 75)).tolist()))
    own = max(above / below, 0.0)
    off = float(np.mean([abs(own * tokens - middle) / (1.0 + middle) for _, tokens, (_, middle, _) in grown]))
    told = ", ".join(
        f"{_percent(middle)} ({_percent(low)} to {_percent(high)}) at batch {batch}" for batch, _, (low, middle, high) in grown
    )
    note = (
        f"{found[0][1]} source tokens more lengthen a step by {told}: medians, and the middle half, of {len(found[0][2])} pairs"
    )
    return own, f"{note}; told within {_percent(off)} of a step"


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"
