"""What a source token adds to a decode step, which attends to the longest source of its batch: pairs adjacent in time."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol, runtime_checkable

import numpy as np

from simnmt.calibrate.plan import STEP_SRC_LEN
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import Work
from simnmt.nmt.errors import OutOfMemory

LONG_SRC_LEN, BATCHES = 80, (8, 32)
"""And the largest batch."""
STEPS = 24
ROUNDS, WITHIN_S = 6, 25.0
"""Over all batches; after so long no more of them is begun than the first round."""

Pairs = list[tuple[int, int, list[tuple[float, float]]]]
"""(batch, source tokens that the second has more, its pairs of seconds of a step: under short and under long sources)."""


@runtime_checkable
class TakesTurns(Protocol):
    """An engine that takes steps of two batches in turn."""

    def in_turn_s(self, first: Work, second: Work) -> list[tuple[float, float]]:
        """Seconds of the steps of both, in pairs that are adjacent in time."""


def source_pairs(engine: object, settings: Settings, most: int, clock: Callable[[], float] = perf_counter) -> Pairs:
    """Steps under short sources and under long ones in turn; none where nothing is told.

    A box's speed wanders by more than the difference, but hardly within a pair.
    """
    short = min(STEP_SRC_LEN, settings.max_src_len)
    more = min(LONG_SRC_LEN, settings.max_src_len) - short
    if settings.mode == "quick" or not more or not isinstance(engine, TakesTurns):
        return []
    steps = min(STEPS, settings.max_tgt_len)
    sizes = sorted({*(each for each in BATCHES if each <= most), most})
    found: dict[int, list[tuple[float, float]]] = {}
    begin_s = clock()
    for number in range(ROUNDS):
        for batch in sizes:
            if number and clock() - begin_s > WITHIN_S:
                break
            both = (Work(src_len, steps, batch, settings.beam) for src_len in (short, short + more))
            try:
                found.setdefault(batch, []).extend(engine.in_turn_s(*both))
            except OutOfMemory:
                break
    return [(batch, more, pairs) for batch, pairs in found.items() if pairs]


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
    least = min(len(pairs) for _, _, pairs in found)
    note = (
        f"{found[0][1]} source tokens more lengthen a step by {told}: medians, and the middle half, of {least} pairs at least"
    )
    return own, f"{note}; told within {_percent(off)} of a step"


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"
