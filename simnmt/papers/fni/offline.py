"""All sentences at hand: the batching strategies, how full their steps are, and their speed on a device (FNI-12, FNI-16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from simnmt.base.random_streams import stream
from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.batching.batcher import schedule
from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.topup_published import BATCH, COLLECTED, SETS
from simnmt.results.device_accounts import SMALL_BATCH
from simnmt.workload.lognormal_lengths import MIXES, SENTENCES
from simnmt.world.batch_pool import decode_all

COLLECT = COLLECTED // BATCH
"""Batches in a maxi-batch: ten, whatever the size of a batch."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to form batches."""

    key: str
    name: str
    collects: bool
    """Sentences are collected and sorted first (maxi-batching)."""
    tops_up: bool
    of_size: Callable[[int], Batching]
    """The batching for batches of so many sentences, all of them at hand."""


OFFLINE = (
    Strategy("mini", "mini", False, False, mini),
    Strategy("half-empty", "top-up, half-empty", False, True, lambda size: top_up(size, half_empty(size))),
    Strategy("immediate", "top-up, immediate", False, True, lambda size: top_up(size, immediate(size))),
    Strategy("maxi", "maxi", True, False, lambda size: maxi(size, COLLECT * size)),
    Strategy(
        "maxi half-empty",
        "maxi and top-up, half-empty",
        True,
        True,
        lambda size: top_up(size, half_empty(size), COLLECT * size, inf),
    ),
    Strategy(
        "maxi immediate",
        "maxi and top-up, immediate",
        True,
        True,
        lambda size: top_up(size, immediate(size), COLLECT * size, inf),
    ),
)
"""Of the paper's figures: all sentences at hand, nothing is waited for."""
BY_KEY = {strategy.key: strategy for strategy in OFFLINE}


@dataclass(frozen=True, slots=True)
class Online:
    """One way to form batches of what arrives."""

    key: str
    name: str
    of_size: Callable[[int, float], Batching]
    """The batching for batches of so many, given how long the mean sentence takes alone, in seconds."""


ONLINE = (
    Online("single", "one at a time", lambda size, solo_s: mini(1, 0.0)),
    Online("mini", "mini, of whoever waits", lambda size, solo_s: mini(size, 0.0)),
    Online("maxi", "maxi, waiting for a mean sentence's time", lambda size, solo_s: maxi(size, COLLECT * size, solo_s)),
    Online("half-empty", "top-up, half-empty", lambda size, solo_s: top_up(size, half_empty(size))),
    Online("immediate", "top-up, immediate", lambda size, solo_s: top_up(size, immediate(size))),
)


SEEDS = (1, 2, 3, 4, 5)

Lengths = tuple[NDArray[np.int64], NDArray[np.int64]]


def lengths_of(test_set: str, seed: int, sentences: int | None = None) -> Lengths:
    """(src_len, tgt_len) of a set's sentences, or of the first so many; the same seed gives the same sentences."""
    size = SENTENCES[test_set] if sentences is None else sentences
    return MIXES[test_set].draw(stream(seed, 0, f"topup {test_set}"), size)


@dataclass(frozen=True, slots=True)
class StepOccupancy:
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
        """Return (mean, least, greatest) of one of the four measures by name."""
        mean_and_range: tuple[float, float, float] = getattr(self, measure)
        return mean_and_range


def step_occupancy(
    test_set: str, strategy: str, seeds: Sequence[int] = SEEDS, sentences: int | None = None, batch: int = BATCH
) -> StepOccupancy:
    """Decode a set under a strategy, all of it at hand, once per seed."""
    batching = BY_KEY[strategy].of_size(batch)
    by_seed = []
    shares = np.zeros(batch + 1)
    for seed in seeds:
        src_len, tgt_len = lengths_of(test_set, seed, sentences)
        plan = schedule(batching, src_len.tolist(), tgt_len.tolist())
        by_seed.append(
            (plan.share_full(batch), plan.share_below(SMALL_BATCH), float(plan.active.mean()), float(plan.active.size))
        )
        shares += np.bincount(plan.active, minlength=batch + 1) / plan.active.size
    full, few, active, steps = ((fmean(values), min(values), max(values)) for values in zip(*by_seed, strict=True))
    return StepOccupancy(test_set, strategy, full, few, active, steps, tuple((shares[1:] / len(seeds)).tolist()))


@dataclass(frozen=True, slots=True)
class Speed:
    """One set decoded on one device under one strategy; sums over seeds."""

    device: str
    beam: int
    test_set: str
    strategy: str
    total_s: tuple[float, ...]
    """One a seed, in the order of the seeds."""
    sentences: int
    """Of a seed."""
    refills: tuple[int, ...]
    """Times that sentences joined."""
    encode_s: float
    refill_s: float
    decode_s: float
    """In steps and the gaps between them."""
    mean_active: float

    @property
    def sentences_per_s(self) -> float:
        """Over all seeds."""
        return self.sentences * len(self.total_s) / sum(self.total_s)


def speed(decoder: Decoder, test_set: str, strategy: str, seeds: Sequence[int], sentences: int | None = None) -> Speed:
    """Decode a set once per seed."""
    batching = BY_KEY[strategy].of_size(decoder.batch)
    done = [decode_all(batching, decoder.cost, *lengths_of(test_set, seed, sentences)) for seed in seeds]
    accounts = [decoded.account for decoded in done]
    steps, active = (sum(int(account.steps.sum()) for account in accounts), sum(account.tokens for account in accounts))
    return Speed(
        decoder.device,
        decoder.beam,
        test_set,
        strategy,
        tuple(decoded.total_s for decoded in done),
        len(done[0].finish_s),
        tuple(account.refills for account in accounts),
        sum(account.encode_s for account in accounts),
        sum(account.refill_s for account in accounts),
        sum(float(account.step_s.sum()) for account in accounts),
        active / steps,
    )


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster one strategy is than another on the same sentences: the ratio of their times less one."""

    mean: float
    by_seed: tuple[float, ...]

    @property
    def least(self) -> float:
        """Over seeds."""
        return min(self.by_seed)

    @property
    def greatest(self) -> float:
        """Over seeds."""
        return max(self.by_seed)

    def percent(self) -> str:
        """Such as `+8.1 % (+7.9 to +8.4)`."""
        return f"{100 * self.mean:+.1f} % ({100 * self.least:+.1f} to {100 * self.greatest:+.1f})"


def gain(ours: Speed, theirs: Speed) -> Gain:
    """Of `ours` over `theirs`, paired by seed."""
    by_seed = tuple(slow / fast - 1.0 for slow, fast in zip(theirs.total_s, ours.total_s, strict=True))
    return Gain(sum(theirs.total_s) / sum(ours.total_s) - 1.0, by_seed)


@dataclass(frozen=True, slots=True)
class RefillLimit:
    """How much each joining may take beyond what it takes now before a top-up strategy is no faster than the one without.

    With all sentences at hand the order of events does not depend on what they cost, so a total time is linear in the cost of
    a joining and the limit exact.
    """

    device: str
    beam: int
    test_set: str
    strategy: str
    against: str
    limit_s: float | None
    """Below 0: it is slower already. None: it refills no more often, so no cost of it decides."""
    by_seed_s: tuple[float, ...]
    """The same of each seed alone; empty where no cost decides."""
    full_step_s: float
    """Seconds of a full batch's decode step with its gap, at half the mean output: the unit of `limit_steps`."""

    @property
    def limit_steps(self) -> float | None:
        """In decode steps of a full batch."""
        return None if self.limit_s is None else self.limit_s / self.full_step_s


def refill_limit(ours: Speed, theirs: Speed, decoder: Decoder) -> RefillLimit:
    """Of `ours`, which tops up, against `theirs`, which does not; mean over seeds."""
    more = [a - b for a, b in zip(ours.refills, theirs.refills, strict=True)]
    gained_s = [slow - fast for slow, fast in zip(theirs.total_s, ours.total_s, strict=True)]
    decides = min(more) > 0
    position = round(SETS[ours.test_set].mean / 2)
    return RefillLimit(
        ours.device,
        ours.beam,
        ours.test_set,
        ours.strategy,
        theirs.strategy,
        sum(gained_s) / sum(more) if decides else None,
        tuple(gained / times for gained, times in zip(gained_s, more, strict=True)) if decides else (),
        decoder.cost.steps_at(decoder.batch)(position, position),
    )


def refill_limits(speeds: Mapping[str, Speed], decoder: Decoder) -> list[RefillLimit]:
    """Return the limit of each strategy that tops up, against mini- or maxi-batching alone. `speeds`: by strategy."""
    return [
        refill_limit(speeds[strategy.key], speeds["maxi" if strategy.collects else "mini"], decoder)
        for strategy in OFFLINE
        if strategy.tops_up
    ]
