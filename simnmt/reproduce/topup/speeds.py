"""All sentences at hand, on a device's calibrated step costs: figures 6 and 7, and what a refill may cost (FNI-16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simnmt.reproduce.topup.devices import Decoder
from simnmt.reproduce.topup.occupancies import lengths_of
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.topup.strategies import BY_KEY, OFFLINE
from simnmt.world.decode_all import decode_all


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
    accounts = [each.account for each in done]
    steps, active = (sum(int(each.steps.sum()) for each in accounts), sum(each.tokens for each in accounts))
    return Speed(
        decoder.device,
        decoder.beam,
        test_set,
        strategy,
        tuple(each.total_s for each in done),
        len(done[0].finish_s),
        tuple(each.refills for each in accounts),
        sum(each.encode_s for each in accounts),
        sum(each.refill_s for each in accounts),
        sum(float(each.step_s.sum()) for each in accounts),
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
    """A decode step of a full batch with its gap, at the mean output's half: the unit in which it is told."""

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
    """Of each strategy that tops up, against mini- or maxi-batching alone. `speeds`: by strategy."""
    return [
        refill_limit(speeds[each.key], speeds["maxi" if each.collects else "mini"], decoder) for each in OFFLINE if each.tops_up
    ]
