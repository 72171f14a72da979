"""Longer traces from short ones: the stationary block bootstrap of Politis and Romano (1994)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simnmt.base.random_streams import stream
from simnmt.network.errors import TraceError
from simnmt.network.traces.readings import Trace

MOST_SAMPLES = 20_000_000
"""More would not fit into memory."""


def resample(trace: Trace, duration_s: float, seed: int, block_s: float | None = None) -> Trace:
    """Draw a trace of random blocks of another, each continued at the start of that trace where it ends.

    Quantiles, losses and the dependence of neighbours within a block are those of the trace; changes slower than a block are
    not. Traces of one length and one seed are drawn from the same places.

    Args:
        trace: a trace, whose samples are taken to be evenly spaced.
        duration_s: length of the drawn trace.
        seed: seed of the random numbers.
        block_s: mean length of a block, geometrically distributed; None: a twentieth of the trace.
    """
    step_s = trace.duration_s / len(trace.value)
    samples = duration_s / step_s
    if not 1.0 <= samples <= MOST_SAMPLES:
        what = f"{duration_s:g} s are {samples:,.3g} samples of {step_s:g} s"
        raise TraceError(what, remedy=f"draw between 1 and {MOST_SAMPLES:,} samples")
    block = len(trace.value) / 20 if block_s is None else block_s / step_s
    random = stream(seed, 0, "resampled trace")
    position = np.arange(round(samples))
    begin = np.maximum.accumulate(np.where(random.random(len(position)) * max(block, 1.0) < 1.0, position, 0))
    jump = random.integers(len(trace.value), size=len(position))
    jump[0] = random.choice(np.flatnonzero(~trace.lost))
    origin = (jump[begin] + position - begin) % len(trace.value)
    lost = trace.lost[origin]
    return replace(
        trace,
        time_s=np.round(position * step_s, 6),
        value=trace.value[origin][np.maximum.accumulate(np.where(lost, 0, position))],
        lost=lost,
        lost_before=0,
        kind="synthetic",
        source=f"{trace.source}; drawn in blocks of {max(block, 1.0):.4g} samples on average, seed {seed}",
        mended=(),
        granted=(),
    )
