"""How many sentences are active in each decode step, over seeds: figures 2 and 8, which need no device (FNI-12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from simnmt.batching.schedule import schedule
from simnmt.reproduce.topup.published import BATCH
from simnmt.reproduce.topup.strategies import BY_KEY
from simnmt.results.batch_columns import FEW
from simnmt.streams import stream
from simnmt.workload.lognormal_lengths import MIXES, SENTENCES

SEEDS = (1, 2, 3, 4, 5)

Lengths = tuple[NDArray[np.int64], NDArray[np.int64]]


def lengths_of(test_set: str, seed: int, sentences: int | None = None) -> Lengths:
    """(src_len, tgt_len) of a set's sentences, or of the first so many; the same seed gives the same sentences."""
    size = SENTENCES[test_set] if sentences is None else sentences
    return MIXES[test_set].draw(stream(seed, 0, f"topup {test_set}"), size)


@dataclass(frozen=True, slots=True)
class Occupied:
    """What the decode steps of one set under one strategy were like; means over seeds, with the least and the greatest."""

    test_set: str
    strategy: str
    full_share: tuple[float, float, float]
    """Mean, least and greatest share of steps with a full batch."""
    below_8_share: tuple[float, float, float]
    mean_active: tuple[float, float, float]
    steps: tuple[float, float, float]
    share_by_active: tuple[float, ...]
    """Share of the steps with k active, k = 1..batch; mean over seeds."""

    def of(self, measure: str) -> tuple[float, float, float]:
        """One of the four by name."""
        found: tuple[float, float, float] = getattr(self, measure)
        return found


def occupied(
    test_set: str, strategy: str, seeds: Sequence[int] = SEEDS, sentences: int | None = None, batch: int = BATCH
) -> Occupied:
    """Decode a set under a strategy, all of it at hand, once per seed."""
    batching = BY_KEY[strategy].of_size(batch)
    found = []
    shares = np.zeros(batch + 1)
    for seed in seeds:
        src_len, tgt_len = lengths_of(test_set, seed, sentences)
        plan = schedule(batching, src_len.tolist(), tgt_len.tolist())
        found.append((plan.share_full(batch), plan.share_below(FEW), float(plan.active.mean()), float(plan.active.size)))
        shares += np.bincount(plan.active, minlength=batch + 1) / plan.active.size
    full, few, active, steps = ((fmean(values), min(values), max(values)) for values in zip(*found, strict=True))
    return Occupied(test_set, strategy, full, few, active, steps, tuple((shares[1:] / len(seeds)).tolist()))
