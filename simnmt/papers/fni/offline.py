"""All sentences at hand: the batching strategies, the occupancy of their steps, and their speed on a device (FNI-12, 16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.base.random_streams import stream
from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.devices.batch import decode_all
from simnmt.experiment.processes import run_tasks
from simnmt.papers.fni.cases import LEAST_BATCHES
from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.published import BATCH, COLLECTED, SETS, TestSet
from simnmt.papers.kit.page import estimate_bars, grouped
from simnmt.papers.kit.table import Table
from simnmt.profile.cost import CostTable, DecodingCost
from simnmt.report.charts import Chart
from simnmt.report.table import Column, read_value
from simnmt.results.device_accounts import SMALL_BATCH
from simnmt.results.statistics import Estimate
from simnmt.workload.lognormal_lengths import MIXES, SENTENCES
from simnmt.world import engine

COLLECT = COLLECTED // BATCH
"""Batches in a maxi-batch: ten, whatever the size of a batch."""
LEAST_SENTENCES = 100
"""Fewest sentences that a user may ask for."""
SEEDS = (1, 2, 3, 4, 5)
SPEED_SEEDS = SEEDS[:2]
"""Seeds of speeds. Speeds hardly differ between seeds, since 30,000 sentences average out more than a seed moves."""

Progress = Callable[[int, int], None]
"""Called with the number of tasks done and the number of all tasks."""
Task = Callable[[], Any]


def check_requests(requests: int | None) -> None:
    """Raise `InputError` for too few sentences."""
    if requests is not None and requests < LEAST_SENTENCES:
        remedy = f"give {LEAST_SENTENCES} or more; verdicts need {LEAST_BATCHES} batches"
        raise InputError(f"{requests} requests: too few to form batches", remedy=remedy)


def run_groups(groups: Sequence[Sequence[Task]], jobs: int, progress: Progress | None) -> list[list[Any]]:
    """Return the results of several groups of tasks, computed together on `jobs` processes."""
    results = iter(run_tasks(_call, [task for group in groups for task in group], jobs, progress))
    return [list(islice(results, len(group))) for group in groups]


def _call(task: Task) -> Any:
    return task()


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to form batches."""

    key: str
    name: str
    batching: Callable[[int, float], Batching]
    """Return the batching for a batch size and the seconds of the mean sentence alone (which offline strategies ignore)."""
    tops_up: bool = False
    baseline: str = "mini"
    """Offline strategy without top-up that it is compared with."""


def _maxi_top_up(alone: Strategy, threshold: Callable[[int], int]) -> Strategy:
    def batching(size: int, _: float) -> Batching:
        return top_up(size, threshold(size), COLLECT * size, inf)

    return Strategy(f"maxi {alone.key}", f"maxi and {alone.name}", batching, tops_up=True, baseline="maxi")


_HALF_EMPTY = Strategy("half-empty", "top-up, half-empty", lambda size, _: top_up(size, half_empty(size)), tops_up=True)
_IMMEDIATE = Strategy("immediate", "top-up, immediate", lambda size, _: top_up(size, immediate(size)), tops_up=True)
OFFLINE = (
    Strategy("mini", "mini", lambda size, _: mini(size)),
    _HALF_EMPTY,
    _IMMEDIATE,
    Strategy("maxi", "maxi", lambda size, _: maxi(size, COLLECT * size), baseline="maxi"),
    _maxi_top_up(_HALF_EMPTY, half_empty),
    _maxi_top_up(_IMMEDIATE, immediate),
)
"""The strategies of the paper's figures: all sentences at hand, no batch waits."""
BY_KEY = {strategy.key: strategy for strategy in OFFLINE}
ONLINE = (
    Strategy("single", "one at a time", lambda size, solo_s: mini(1, 0.0)),
    Strategy("mini", "mini, of all waiting sentences", lambda size, solo_s: mini(size, 0.0)),
    Strategy("maxi", "maxi, waiting for a mean sentence's time", lambda size, solo_s: maxi(size, COLLECT * size, solo_s)),
    _HALF_EMPTY,
    _IMMEDIATE,
)
"""Strategies for sentences that arrive one by one."""


def lengths_of(test_set: str, seed: int, sentences: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return src_len and tgt_len of a set's first `sentences` (None: all); the same seed gives the same sentences."""
    size = SENTENCES[test_set] if sentences is None else sentences
    return MIXES[test_set].draw(stream(seed, 0, f"topup {test_set}"), size)


class Moments(NamedTuple):
    """Mean and standard deviation of a set's source lengths as drawn, over seeds."""

    paper: TestSet
    """The set with its printed moments."""
    mean: float
    sd: float


def drawn_moments(test_set: str, seeds: Sequence[int]) -> Moments:
    """Return the moments of a set's source lengths."""
    lengths = [lengths_of(test_set, seed)[0] for seed in seeds]
    return Moments(SETS[test_set], fmean(src_len.mean() for src_len in lengths), fmean(src_len.std() for src_len in lengths))


class Spread(NamedTuple):
    """A quantity over seeds."""

    mean: float
    least: float
    greatest: float


@dataclass(frozen=True, slots=True)
class StepOccupancy:
    """Occupancy of the decode steps of one set under one strategy, over seeds."""

    test_set: str
    strategy: str
    full_share: Spread
    """Share of steps with a full batch."""
    below_8_share: Spread
    mean_active: Spread
    steps: Spread
    share_by_active: tuple[float, ...]
    """Share of the steps with k active sentences, k = 1..batch; mean over seeds."""

    @property
    def name(self) -> str:
        """Name of the strategy."""
        return BY_KEY[self.strategy].name

    def spread(self, measure: str) -> Spread:
        """Return one of the four measures by name."""
        spread: Spread = getattr(self, measure)
        return spread


_ONE_SECOND_A_STEP = DecodingCost(
    step=CostTable.of((1, BATCH), (0, 1), 1.0),
    encoder=CostTable.of((1, BATCH), (0, 1), 0.0),
)
"""Costs of no device: which sentences are decoded together does not depend on costs if all are at hand."""


def step_occupancy(
    test_set: str, strategy: str, seeds: Sequence[int] = SEEDS, sentences: int | None = None, batch: int = BATCH
) -> StepOccupancy:
    """Decode a set under a strategy, all of it at hand, once per seed."""
    batching = BY_KEY[strategy].batching(batch, inf)
    accounts = [
        engine.decode_all(batching, _ONE_SECOND_A_STEP, *lengths_of(test_set, seed, sentences)).account for seed in seeds
    ]
    shares = sum(account.steps / account.steps.sum() for account in accounts) / len(accounts)
    by_seed = [
        (account.share_full, account.share_below(SMALL_BATCH), account.mean_active, float(account.steps.sum()))
        for account in accounts
    ]
    full, few, active, steps = (Spread(fmean(values), min(values), max(values)) for values in zip(*by_seed, strict=True))
    return StepOccupancy(test_set, strategy, full, few, active, steps, tuple(shares[1:].tolist()))


@dataclass(frozen=True, slots=True)
class Speed:
    """One set decoded on one device under one strategy; sums over seeds."""

    device: str
    beam: int
    test_set: str
    strategy: str
    total_s: tuple[float, ...]
    """One per seed, in the order of the seeds."""
    sentences: int
    """Sentences of one seed."""
    refills: tuple[int, ...]
    """Number of times that sentences joined, by seed."""
    encode_s: float
    refill_s: float
    decode_s: float
    """Seconds of steps and of the gaps between them."""
    mean_active: float

    @property
    def name(self) -> str:
        """Name of the strategy."""
        return BY_KEY[self.strategy].name

    @property
    def sentences_per_s(self) -> float:
        """Sentences a second over all seeds."""
        return self.sentences * len(self.total_s) / sum(self.total_s)

    @property
    def shares(self) -> dict[str, float]:
        """Share of the busy time by activity; they sum to 1."""
        seconds = {"encode": self.encode_s, "refill": self.refill_s, "decode": self.decode_s}
        return {activity: activity_s / sum(seconds.values()) for activity, activity_s in seconds.items()}


def speed(decoder: Decoder, test_set: str, strategy: str, seeds: Sequence[int], sentences: int | None = None) -> Speed:
    """Decode a set once per seed."""
    batching = BY_KEY[strategy].batching(decoder.batch, inf)
    runs = [decode_all(batching, decoder.cost, *lengths_of(test_set, seed, sentences)) for seed in seeds]
    accounts = [run.account for run in runs]
    return Speed(
        *(decoder.device, decoder.beam, test_set, strategy),
        tuple(run.total_s for run in runs),
        len(runs[0].finish_s),
        tuple(account.refills for account in accounts),
        sum(account.encode_s for account in accounts),
        sum(account.refill_s for account in accounts),
        sum(float(account.step_s.sum()) for account in accounts),
        sum(account.tokens for account in accounts) / sum(int(account.steps.sum()) for account in accounts),
    )


@dataclass(frozen=True, slots=True)
class Gain:
    """Relative gain in speed of one strategy over another on the same sentences: the ratio of their times less one."""

    mean: float
    by_seed: tuple[float, ...]

    @property
    def ratio(self) -> Estimate:
        """The ratio of their times, with the least and the greatest over seeds."""
        return Estimate(1.0 + self.mean, 1.0 + min(self.by_seed), 1.0 + max(self.by_seed))

    def percent(self) -> str:
        """Return a text such as `+8.1 % (+7.9 to +8.4)`."""
        return f"{100 * self.mean:+.1f} % ({100 * min(self.by_seed):+.1f} to {100 * max(self.by_seed):+.1f})"


def gain(ours: Speed, theirs: Speed) -> Gain:
    """Return the gain of `ours` over `theirs`, paired by seed."""
    by_seed = tuple(slow / fast - 1.0 for slow, fast in zip(theirs.total_s, ours.total_s, strict=True))
    return Gain(sum(theirs.total_s) / sum(ours.total_s) - 1.0, by_seed)


@dataclass(frozen=True, slots=True)
class ComparedSpeed:
    """A speed beside the baseline of its strategy, as a row of tables and charts."""

    decoder: Decoder
    speed: Speed
    gain: Gain
    """Gain over the baseline."""

    @property
    def name(self) -> str:
        """Name of the strategy."""
        return self.speed.name

    @property
    def extrapolated(self) -> bool:
        """True if the speed rests on more than measured costs."""
        return self.decoder.extrapolates(self.speed.test_set)


def speed_table(title: str, rows: Sequence[ComparedSpeed], columns: Sequence[Column], note: str, name: str, keys: str) -> Table:
    """Return a table with a line for each device, beam and set.

    Args:
        title: title of the table.
        rows: the speeds.
        columns: further columns. A line of the table maps the names of its speeds to the speeds.
        note: note below the table.
        name: the attribute that names a speed.
        keys: further JSON keys of a speed.
    """
    groups = grouped(rows, "speed.device", "speed.beam", "speed.test_set").values()
    first = [
        Column("set, device (* extrapolated)", lambda line: _speed_name(line["mini"])),
        Column("mini/s", "mini.speed.sentences_per_s", 1),
    ]
    return Table(
        "speeds",
        title,
        rows,
        [*first, *columns],
        note,
        keys="device=speed.device beam=speed.beam batch=decoder.batch set=speed.test_set strategy=speed.strategy "
        "sentences_per_s=speed.sentences_per_s relative=gain.ratio.mean relative_least=gain.ratio.low "
        f"relative_greatest=gain.ratio.high {keys}",
        shown=[{read_value(row, name): row for row in group} for group in groups],
        on_terminal=True,
    )


def _speed_name(row: ComparedSpeed) -> str:
    mark = "*" if row.extrapolated else ""
    name = f"{SETS[row.speed.test_set].name}, beam {row.speed.beam}{mark}"
    return f"{name}, {row.speed.device}, batches of {row.decoder.batch}"


def speed_chart(rows: Iterable[ComparedSpeed], unit: str, reading: str) -> Chart:
    """Return bars of the speeds by beam, a series for each strategy; whiskers span the seeds."""
    bars = [
        (
            f"beam {row.speed.beam}, batches of {row.decoder.batch}{', extrapolated' if row.extrapolated else ''}",
            row.name,
            row.gain.ratio,
        )
        for row in rows
    ]
    return estimate_bars(bars, unit, reading)


@dataclass(frozen=True, slots=True)
class RefillLimit:
    """Additional cost of each refill from which a top-up strategy is no faster than the strategy without top-up.

    With all sentences at hand the order of events does not depend on their costs, so a total time is linear in the cost of
    a refill and the limit is exact.
    """

    device: str
    beam: int
    test_set: str
    strategy: str
    against: str
    limit_s: float | None
    """Below 0: it is slower already. None: it refills no more often, so no cost of a refill decides."""
    by_seed_s: tuple[float, ...]
    """The limit of each seed alone; empty if no cost decides."""
    full_step_s: float
    """Seconds of a full batch's decode step with its gap, at half the mean output: the unit of `limit_steps`."""

    @property
    def limit_steps(self) -> float | None:
        """The limit in decode steps of a full batch."""
        return None if self.limit_s is None else self.limit_s / self.full_step_s


def refill_limit(ours: Speed, theirs: Speed, decoder: Decoder) -> RefillLimit:
    """Return the limit of `ours`, which tops up, against `theirs`, which does not; mean over seeds."""
    more = [a - b for a, b in zip(ours.refills, theirs.refills, strict=True)]
    gained_s = [slow - fast for slow, fast in zip(theirs.total_s, ours.total_s, strict=True)]
    decides = min(more) > 0
    position = round(SETS[ours.test_set].mean / 2)
    return RefillLimit(
        *(ours.device, ours.beam, ours.test_set, ours.strategy, theirs.strategy),
        sum(gained_s) / sum(more) if decides else None,
        tuple(gained / times for gained, times in zip(gained_s, more, strict=True)) if decides else (),
        decoder.cost.steps_at(decoder.batch)(position, position),
    )


def refill_limits(speeds: Mapping[str, Speed], decoder: Decoder) -> list[RefillLimit]:
    """Return the limit of each strategy that tops up, against mini- or maxi-batching alone. `speeds`: by strategy."""
    return [refill_limit(speeds[strategy.key], speeds[strategy.baseline], decoder) for strategy in OFFLINE if strategy.tops_up]
