"""The measuring loop: follow the plan, keep each result at once, repeat disturbed stretches, and report the time left.

Only the engine reads a clock.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from simnmt.calibrate import box
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.plan import LEAST_ROUNDS, BenchPlan, Stretch, out_of_reach
from simnmt.calibrate.samples import BOUND, Cell, Drift, Reading, Sample, group_by_work, judge_drift, reduce_timing
from simnmt.nmt.engine import Engine, Work
from simnmt.nmt.errors import OutOfMemory


class Listener(Protocol):
    """Receiver of the messages and the progress of a calibration."""

    def say(self, text: str) -> None:
        """Show one important line."""

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        """Note a further measurement of a part; seconds of measuring since the start, and the estimate of those left."""


class _Silent:
    def say(self, text: str) -> None:
        pass

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        pass


Silent: Listener = _Silent()


class Estimate:
    """Estimate of the time of works from those measured so far."""

    def __init__(self) -> None:
        self._by_work: dict[Work, float] = {}
        self._seconds = 0.0
        self._effort = 0.0

    def learn(self, work: Work, seconds: float) -> None:
        """Note the time that a work took."""
        self._by_work[work] = seconds
        self._seconds += seconds
        self._effort += _effort(work)

    def seconds(self, works: Iterable[Work]) -> float:
        """Return the estimated seconds of these works one after another; 0 before the first measurement."""
        if self._effort == 0.0:
            return 0.0
        rate = self._seconds / self._effort
        return sum(self._by_work.get(work) or rate * _effort(work) for work in works)


def _effort(work: Work) -> float:
    """Return a rough time in decode steps of one sentence on a server processor: a further row costs a tenth of a step."""
    rows = work.batch * work.beam
    return work.tgt_len * (0.9 + 0.1 * rows) + 0.03 * work.src_len * work.batch + 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """All timings of the engine."""

    cells: dict[str, list[Cell]]
    """Cells by bench."""
    too_large: dict[str, list[Work]]
    """Works that did not fit into memory, and those skipped because of them, by bench; each once."""
    drift: Drift
    repeated: int
    """Stretches that were measured again."""
    stretches: int
    frequencies_mhz: tuple[float, ...] = ()
    """Clock of the CPUs of this process after each reading of the reference cell; empty if unknown."""


def measure(
    engine: Engine,
    plans: Sequence[BenchPlan],
    journal: Journal,
    listener: Listener,
    bound: float = BOUND,
    frequency_mhz: Callable[[], float | None] | None = None,
    gap_s: float | None = None,
) -> Measured:
    """Measure the works of the plans that the journal does not hold yet.

    `frequency_mhz`: returns the present clock of the CPUs of this process; `gap_s`: idling before each single execution.
    """
    clock = frequency_mhz or box.frequency_mhz
    return _Measuring(engine, plans, journal, listener, bound, clock, gap_s).all()


@dataclass
class _Measuring:
    _engine: Engine
    _plans: Sequence[BenchPlan]
    _journal: Journal
    _listener: Listener
    _bound: float
    _frequency_mhz: Callable[[], float | None]
    _gap_s: float | None = None
    _estimate: Estimate = field(default_factory=Estimate)
    _done_s: float = 0.0
    """Seconds of measuring in this session."""
    _spent_s: float = 0.0
    """Seconds of measuring in all sessions: decisions must not depend on the place of an interruption."""
    _before_s: float = 0.0
    """The part of `_spent_s` that earlier plans took."""
    _again_s: dict[str, float] = field(default_factory=dict)
    """Estimated seconds of measuring again, by bench."""
    _order: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """Stretches of each (bench, attempt) in the order of measuring."""
    _readings: list[Reading] = field(default_factory=list)
    _samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    _too_large: dict[str, list[Work]] = field(default_factory=lambda: defaultdict(list))
    _warm: set[Work] = field(default_factory=set)

    def all(self) -> Measured:
        """Measure all plans and return the result."""
        for number, plan in enumerate(self._plans):
            self._before_s = self._spent_s
            later = [work for other in self._plans[number + 1 :] for work in other.works]
            stretches = list(plan.stretches)
            for attempt in range(1 + plan.again):
                if attempt:
                    stretches = self._disturbed(plan)
                    if not stretches:
                        break
                    disturbance = f"{len(stretches)} of {len(self._order[plan.bench, 0])} stretches "
                    disturbance += f"disturbed by more than {100 * self._bound:g} %"
                    again_s = self._estimate.seconds(work for stretch in stretches for work in stretch.works)
                    again_in_all_s = self._again_s.get(plan.bench, 0.0) + again_s
                    first_s = self._estimate.seconds(self._measured_works(plan))
                    if self._spent_s + again_s > plan.within_s or again_in_all_s > plan.again_within_s(first_s):
                        self._listener.say(f"{plan.bench}: {disturbance}; measuring again would take another {again_s:.0f} s")
                        break
                    self._listener.say(f"{plan.bench}: {disturbance}, measured again")
                    self._again_s[plan.bench] = again_in_all_s
                self._attempt(plan, attempt, stretches, later)
        drift = judge_drift(self._readings, self._order, self._bound)
        return Measured(
            cells={
                bench: group_by_work(
                    self._samples[bench],
                    [(attempt, stretch) for name, attempt, stretch in drift.disturbed if name == plan.bench],
                    every=plan.drawn,
                )
                for plan in self._plans
                for bench in plan.benches
            },
            too_large=self._too_large,
            drift=drift,
            repeated=sum(len(stretches) for (_, attempt), stretches in self._order.items() if attempt),
            stretches=sum(len(stretches) for (_, attempt), stretches in self._order.items() if not attempt),
            frequencies_mhz=tuple(reading.frequency_mhz for reading in self._readings if reading.frequency_mhz is not None),
        )

    def _disturbed(self, plan: BenchPlan) -> list[Stretch]:
        """Return the measured stretches without an undisturbed attempt so far."""
        drift = judge_drift(self._readings, self._order, self._bound)
        calm = {
            stretch
            for (bench, attempt), stretches in self._order.items()
            for stretch in stretches
            if bench == plan.bench and (bench, attempt, stretch) not in drift.disturbed
        }
        measured = set(self._order[plan.bench, 0])
        return [stretch for stretch in plan.stretches if stretch.number in measured - calm]

    def _measured_works(self, plan: BenchPlan) -> list[Work]:
        """Return the works that the first attempt measured, without rounds that were left out for lack of time."""
        measured = set(self._order[plan.bench, 0])
        return [work for stretch in plan.stretches if stretch.number in measured for work in stretch.works]

    def _attempt(self, plan: BenchPlan, attempt: int, stretches: list[Stretch], later: list[Work]) -> None:
        order = self._order[plan.bench, attempt] = []
        self._read(plan, attempt, 0)
        if plan is self._plans[0] and not attempt:
            all_s = self._estimate.seconds([work for stretch in stretches for work in stretch.works] + later)
            self._listener.say(f"about {all_s:.0f} s of measuring, by the reference cell")
        begun = -1
        for position, stretch in enumerate(stretches, start=1):
            if not attempt and stretch.round > begun:
                begun = stretch.round
                if self._takes_too_long(plan, begun):
                    break
            order.append(stretch.number)
            after = [work for other in stretches[position:] for work in other.works] + later
            for index, work in enumerate(stretch.works):
                self._sample(attempt, stretch, index, work)
                within_s = math.inf if attempt else max(plan.rounds_within_s - (self._spent_s - self._before_s), 0.0)
                left_s = self._estimate.seconds([*stretch.works[index + 1 :], *after])
                self._listener.measured(stretch.bench, self._done_s, min(left_s, within_s))
            self._read(plan, attempt, position)

    def _takes_too_long(self, plan: BenchPlan, number: int) -> bool:
        """Return whether a round, and all rounds after it, are left out because of their time."""
        if number < LEAST_ROUNDS:
            return False
        round_s = self._estimate.seconds(
            work for stretch in plan.stretches if stretch.round == number for work in stretch.works
        )
        spent_s = self._spent_s - self._before_s
        if spent_s + round_s <= plan.rounds_within_s:
            return False
        self._listener.say(f"{number} rounds took {spent_s:.0f} s, and another would take {round_s:.0f} s: it is left out")
        return True

    def _read(self, plan: BenchPlan, attempt: int, position: int) -> None:
        reading = self._journal.readings.get((plan.bench, attempt, position))
        if reading is None:
            self._warm_up(plan.reference)
            times_s = tuple(self._engine.run(plan.reference).total_s for _ in range(plan.readings))
            self._done_s += sum(times_s)
            reading = Reading(plan.bench, attempt, position, times_s, self._frequency_mhz())
            self._journal.reading(reading)
        self._spent_s += sum(reading.total_s)
        self._estimate.learn(plan.reference, reading.least_s)
        self._readings.append(reading)

    def _sample(self, attempt: int, stretch: Stretch, index: int, work: Work) -> None:
        too_large = self._too_large[stretch.bench]
        sample = self._journal.samples.get((stretch.bench, attempt, stretch.number, index))
        if sample is None or sample.work != work:
            if out_of_reach(work, too_large):
                if work not in too_large:
                    too_large.append(work)
                return
            sample = self._timed(attempt, stretch, index, work)
            self._journal.sample(sample)
        if sample.timing is None:
            too_large.append(work)
            return
        self._estimate.learn(work, sample.timing.total_s)
        self._spent_s += sample.timing.total_s
        self._samples[stretch.bench].append(sample)

    def _timed(self, attempt: int, stretch: Stretch, index: int, work: Work) -> Sample:
        try:
            self._warm_up(work)
            if stretch.bench == "execution" and self._gap_s is not None:
                time.sleep(self._gap_s)  # waiting in a loop would keep the core awake, which a service does not
            timing = reduce_timing(stretch.bench, self._engine.run(work))
        except OutOfMemory:
            self._listener.say(f"out of memory at {_describe_work(work)}: this and larger ones are left out")
            return Sample(stretch.bench, attempt, stretch.number, index, work, None)
        self._done_s += timing.total_s
        return Sample(stretch.bench, attempt, stretch.number, index, work, timing)

    def _warm_up(self, work: Work) -> None:
        """Run a small work twice, untimed, before the first work of a batch size in this session."""
        small = Work(work.src_len if work.batch > 1 else 8, min(3, work.tgt_len), work.batch, work.beam)
        if not any(warm.batch == work.batch and warm.beam == work.beam for warm in self._warm):
            self._engine.run(small)
            self._engine.run(small)
            self._warm.add(small)


def _describe_work(work: Work) -> str:
    parts = [f"batch {work.batch}"] + [f"beam {work.beam}"] * (work.beam > 1)
    return ", ".join([*parts, f"{work.src_len} source and {work.tgt_len} target tokens"])
