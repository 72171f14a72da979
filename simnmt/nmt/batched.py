"""Many sentences through one decoder, in batches that a `Batcher` forms; every part of it timed (FNI-08, 09, 10)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.batching import Batching
from simnmt.nmt.hypothesis import Hypothesis
from simnmt.nmt.step_model import StepModel


@dataclass(frozen=True, slots=True)
class BatchedRun:
    """What came out, and the time it took; the parts sum to the whole."""

    hypotheses: tuple[Hypothesis, ...]
    """In the order of the sources."""
    active: NDArray[np.int64]
    """Sentences under way in each step, shape (steps,)."""
    step_s: NDArray[np.float64]
    """Seconds of each step: the model, the search, and what is dropped and asked after it, shape (steps,)."""
    encode_s: float
    """All calls of the encoder, reading the sources' tokens included."""
    refill_s: float
    """All joining."""
    total_s: float
    encodings: int
    """Calls of the encoder."""
    refills: int
    """Times that sentences joined."""


def decode_batched(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    batching: Batching,
    *,
    beam: int = 1,
    max_len: int | Sequence[int] = 200,
    forced_lens: Sequence[int] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> BatchedRun:
    """Translate sources that are all at hand from the beginning, in the order given.

    `max_len`: most tokens, of all or of each; `forced_lens`: each gets just so many, none of them the end. Raises `NmtError`
    for lengths beyond the model's positions and `OutOfMemory`.
    """
    raise NotImplementedError
