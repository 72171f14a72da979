"""The harness: time cases in interleaved rounds, beside reference work, and mark what was disturbed.

Calibrations, `kernels bench`, the studies of papers and `benchmarks/` time by `rounds` and compare by `ratio`. The rules:

- **Interleaving.** A round calls every case once, so that a slow minute of the box slows all cases alike.
- **Rotation.** The case that is first changes from round to round, so that none always follows the same other. With `shuffle`,
  each round has a random order, which suits many cases.
- **Untimed calls.** Every case is called once before the first round (`Case.prepare`). `Case.before` runs before each timed
  call: it restores what a call overwrites, empties a cache, or lets the box idle. `Case.warm` adds an untimed call before each
  timed one.
- **Stretches.** Calls are grouped into stretches of at least `STRETCH_S`: of whole rounds, or of `STRETCH_CALLS` calls in
  rounds of many cases. Before and after each stretch the reference work is timed, `READINGS` times, of which the least counts.
- **Disturbed** is a stretch during which other processes used more than `QUIET_SHARE` of the CPUs, or beside which the
  reference differs by more than `BOUND` from the usual reading. The usual one is the lower quartile of all readings:
  disturbances only slow a reading, but a single fast one may be exceptional.
- **Repeating.** After the last round, disturbed stretches are measured again, until there are `MOST_ATTEMPTS` attempts of each.
  All repeats together take at most as long as all first attempts, and at most `AGAIN_S`, or `AGAIN_SHARE` of the time of the
  first attempts if that is longer.
- **Giving up.** After `LEAST_ROUNDS` rounds, none begins that would end later than `within_s`. What is still disturbed after
  the last attempt stays in the frame, marked. A case for which memory does not suffice is left out from then on, and so are
  cases that are at least as large (`Case.size`): their rows have no seconds.
- **Going on.** With a journal, every finished stretch is kept at once; the same call after an interruption measures only the
  rest.
"""

from __future__ import annotations

import gc
import math
import operator
import os
import random
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simnmt.calibrate.box import QUIET_SHARE, BusyWatch
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.errors import OutOfMemory

BOUND = 0.05
"""A quiet box stays within 0.01 to 0.02."""
READINGS = 3
STRETCH_S, STRETCH_CALLS = 0.5, 10
"""The system counts processor time in hundredths of a second: over a shorter stretch the use by others is unknown."""
MOST_ATTEMPTS = 3
AGAIN_S, AGAIN_SHARE = 60.0, 0.25
"""On a box with permanent neighbours, further repeats would not help."""
LEAST_ROUNDS = 3
MOST_ROUNDS = 20
"""Greatest multiple of the requested rounds, where `least_s` asks for more."""

Run = Callable[[], object]


def nothing() -> None:
    """Prepare nothing, see `Case.prepare`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to be timed.

    If `run` returns a mapping, its numbers and lists of numbers become columns of the frame; a key `seconds` replaces the time
    by the harness's clock.
    """

    run: Run
    before: Run | None = None
    """Called untimed before each call of `run`."""
    warm: bool = False
    """True: `run` is called untimed directly before each timed call, so that it finds its data as its own call leaves them."""
    prepare: Run | None = None
    """Called once, before the first round; None: `run` itself."""
    size: tuple[int, ...] = ()
    """Sizes by which a case needs at least the memory of another; empty: it is compared with none."""
    most_rounds: int | None = None
    """Rounds in which the case takes part; None: all."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the frame, such as the batch size."""


class Listener(Protocol):
    """Receiver of the messages and the progress of a measurement."""

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


def rounds(
    cases: Mapping[Any, Case | Run],
    n: int,
    within_s: float = math.inf,
    reference: Case | Run | None = None,
    journal: Journal | None = None,
    *,
    name: str = "rounds",
    least_s: float = 0.0,
    shuffle: int | None = None,
    again: bool = True,
    clock: Callable[[], float] = perf_counter,
    watch: Callable[[], BusyWatch] | None = BusyWatch,
    listener: Listener = Silent,
) -> pd.DataFrame:
    """Time all cases in `n` rounds by the rules of this module.

    Args:
        cases: by name; the names are those of the column `case`.
        n: number of rounds.
        within_s: bound of the first attempts.
        reference: work timed beside each stretch; None: only the use of the CPUs is watched.
        journal: keeps each stretch.
        name: what is measured, for the journal and the progress; different in all calls with one journal.
        least_s: seconds for which each case is timed at least, by up to `MOST_ROUNDS` times `n` rounds.
        shuffle: seed of a new random order in each round.
        again: False: disturbed stretches are not measured again.
        clock: seconds; on a GPU a clock that waits for it.
        watch: begins to watch the CPUs; None: they are not watched.
        listener: receives messages and progress.

    Returns:
        One row per timed call: `round`, `attempt`, `stretch`, `case`, `seconds`, `reference_s` (the readings before and after
        the stretch, as a pair), `others_cpus` (CPUs' worth of time that other processes used during the stretch; NaN if
        unknown), `disturbed`, and the columns of the cases.

    Example:
        >>> frame = rounds({"plain": lambda: sorted(range(9)), "reverse": lambda: sorted(range(9), reverse=True)}, n=5)
        >>> ratio(frame, "reverse", "plain") > 0.0
        True
    """
    measuring = _Measuring(cases, reference, journal, name, clock, watch, listener)
    for number in range(MOST_ROUNDS * n if least_s else n):
        if number >= n and min(measuring.timed_s.values()) >= least_s:
            break
        if number >= LEAST_ROUNDS and measuring.spent_s * (number + 1) / number > within_s:
            listener.say(f"{name}: {number} rounds took {measuring.spent_s:.0f} s, and further ones are left out")
            break
        order = [key for key, case in measuring.cases.items() if case.most_rounds is None or number < case.most_rounds]
        if shuffle is None:
            first = number % len(order) if order else 0
            order = order[first:] + order[:first]
        else:
            random.Random(f"{shuffle} {name} {number}").shuffle(order)
        for place, key in enumerate(order, start=1):
            done = number + place / len(order)
            measuring.measure(number, key, ends_round=place == len(order), share=done / max(n, number + 1))
    measuring.close_stretch()
    if again:
        measuring.repeat_disturbed()
    return measuring.frame()


class _Measuring:
    """The state of one call of `rounds`.

    A stretch is what the journal keeps: `number`, `attempt`, `rows` (`round`, `case` as the place among the cases, `seconds`,
    and what a case returned), `reference_s` (the readings before and after) and `others_cpus`.
    """

    def __init__(
        self,
        cases: Mapping[Any, Case | Run],
        reference: Case | Run | None,
        journal: Journal | None,
        name: str,
        clock: Callable[[], float],
        watch: Callable[[], BusyWatch] | None,
        listener: Listener,
    ) -> None:
        self.cases = {key: case if isinstance(case, Case) else Case(case) for key, case in cases.items()}
        self._reference = reference if reference is None or isinstance(reference, Case) else Case(reference)
        self._journal, self._name, self._clock, self._watch, self._listener = journal, name, clock, watch, listener
        self._keys, self._places = list(self.cases), {key: place for place, key in enumerate(self.cases)}
        findings = {} if journal is None else journal.findings
        self._stretches = [record for key, record in findings.items() if key.startswith(f"{name} stretch ")]
        self._replayed = deque(row for stretch in self._stretches if not stretch["attempt"] for row in stretch["rows"])
        """Rows of the first attempts that the journal holds, taken in order instead of calls."""
        self._open: dict[str, Any] | None = None
        self._watching: BusyWatch | None = None
        self._left_out, self._prepared = set[Any](), False
        self.spent_s = 0.0
        """Seconds of the first attempts, of all sessions: decisions must not depend on the place of an interruption."""
        self.timed_s = dict.fromkeys(self.cases, 0.0)
        """The part of each case; infinite for one that is left out."""

    def measure(self, number: int, key: Any, *, ends_round: bool, share: float) -> None:
        """Measure a case once in this round, or take it from the journal; `share`: of all calls, this one included."""
        if self._journal is not None and self._replayed:
            row = self._replayed.popleft()
            if (row["round"], row["case"]) != (number, self._places[key]):
                what, remedy = f"the journal has other works than {self._name}", "choose another --out, or remove the journal"
                raise CalibrationError(what, path=self._journal.path, remedy=remedy)
            if row["seconds"] is None:
                self._left_out.add(key)
        else:
            row = self._call(number, key)
        self.spent_s += row["seconds"] or 0.0
        self.timed_s[key] += math.inf if row["seconds"] is None else row["seconds"]
        stretch = self._open or {"rows": []}
        may_end = ends_round or (self._reference is not None and len(stretch["rows"]) >= STRETCH_CALLS)
        if may_end and _seconds(stretch) >= STRETCH_S:
            self.close_stretch()
            self._listener.measured(self._name, self.spent_s, self.spent_s / share - self.spent_s)

    def _call(self, number: int, key: Any) -> dict[str, Any]:
        """Time a case in the open stretch; without one, in the next."""
        stretch = self._open or self._begin(sum(not stretch["attempt"] for stretch in self._stretches))
        timed = self._within_memory(key, lambda: self._timed(self.cases[key])) or {"seconds": None}
        row = {"round": number, "case": self._places[key], **timed}
        stretch["rows"].append(row)
        return row

    def _begin(self, number: int, attempt: int = 0) -> dict[str, Any]:
        """Look at the box before a stretch. The reading after the stretch before is still fresh."""
        readings = self._stretches[-1]["reference_s"][-1:] if self._prepared else []
        if not self._prepared:
            self._prepared = True
            if self._reference is not None:
                (self._reference.prepare or self._reference.run)()
            for key, case in self.cases.items():
                self._within_memory(key, case.prepare or (lambda case=case: self._timed(case)))
        self._open = {"number": number, "attempt": attempt, "rows": [], "reference_s": readings or self._readings()}
        self._watching = None if self._watch is None else self._watch()
        return self._open

    def close_stretch(self) -> None:
        """Look at the box after the open stretch, if there is one, and keep it."""
        stretch, self._open = self._open, None
        if stretch is None:
            return
        watching = self._watching if _seconds(stretch) >= STRETCH_S else None
        stretch["others_cpus"] = None if watching is None else watching.others_cpus()
        stretch["reference_s"] = [*stretch["reference_s"], *self._readings()]
        self._stretches.append(stretch)
        if self._journal is not None:
            self._journal.finding(f"{self._name} stretch {stretch['number']}.{stretch['attempt']}", stretch)

    def repeat_disturbed(self) -> None:
        """Measure disturbed stretches again, within the bounds of the module."""
        first = [stretch for stretch in self._stretches if not stretch["attempt"]]
        within_s = min(self.spent_s, max(AGAIN_S, AGAIN_SHARE * self.spent_s))
        for attempt in range(1, MOST_ATTEMPTS):
            looked_at = zip(self._stretches, self._disturbed(), strict=True)
            done = {stretch["number"] for stretch, disturbed in looked_at if not disturbed or stretch["attempt"] == attempt}
            again = [stretch for stretch in first if stretch["number"] not in done]
            repeated_s, again_s = sum(map(_seconds, self._stretches)) - self.spent_s, sum(map(_seconds, again))
            if not again:
                continue
            disturbance = f"{self._name}: {len(again)} of {len(first)} stretches were disturbed"
            if repeated_s + again_s > within_s:
                self._listener.say(f"{disturbance}; measuring them again would take another {again_s:.0f} s")
                return
            self._listener.say(f"{disturbance}, and are measured again")
            for stretch in again:
                self._begin(stretch["number"], attempt)
                for row in stretch["rows"]:
                    self._call(row["round"], self._keys[row["case"]])
                self.close_stretch()

    def _disturbed(self) -> list[bool]:
        readings = [reading for stretch in self._stretches for reading in stretch["reference_s"]]
        usual_s = float(np.quantile(readings, 0.25)) if readings else 0.0
        quiet = QUIET_SHARE * (os.cpu_count() or 1)
        return [
            (stretch["others_cpus"] or 0.0) > quiet
            or any(abs(reading / usual_s - 1.0) > BOUND for reading in stretch["reference_s"] if usual_s > 0.0)
            for stretch in self._stretches
        ]

    def _readings(self) -> list[float]:
        reference = self._reference
        return [] if reference is None else [min(float(self._timed(reference)["seconds"]) for _ in range(READINGS))]

    def _within_memory(self, key: Any, call: Callable[[], Any]) -> Any:
        """Return the result of a call; None for a case that does not fit into memory, or is as large as one that does not."""
        size = self.cases[key].size
        others = [self.cases[other].size for other in self._left_out]
        if key in self._left_out or any(size and other and all(map(operator.ge, size, other)) for other in others):
            self._left_out.add(key)
            return None
        try:
            return call()
        except OutOfMemory:
            self._left_out.add(key)
            self._listener.say(f"{self._name}: out of memory at {key}: this and larger ones are left out")
            return None

    def _timed(self, case: Case) -> dict[str, Any]:
        """Call a case; return its seconds and the numbers that it returned. Collecting garbage waits meanwhile."""
        collecting = gc.isenabled()
        for _ in range(1 + case.warm):
            if case.before is not None:
                case.before()
            gc.disable()
            try:
                begin_s = self._clock()
                result = case.run()
                seconds = self._clock() - begin_s
            finally:
                if collecting:
                    gc.enable()
        return {"seconds": seconds, **(result if isinstance(result, Mapping) else {})}

    def frame(self) -> pd.DataFrame:
        rows = []
        for stretch, disturbed in zip(self._stretches, self._disturbed(), strict=True):
            look = {"attempt": stretch["attempt"], "stretch": stretch["number"], "reference_s": tuple(stretch["reference_s"])}
            look |= {"others_cpus": stretch["others_cpus"], "disturbed": disturbed}
            for row in stretch["rows"]:
                key = self._keys[row["case"]]
                rows.append({**row, "case": key, **look, **self.cases[key].about})
        return pd.DataFrame(rows).astype({"seconds": float, "others_cpus": float})


def _seconds(stretch: Mapping[str, Any]) -> float:
    return sum(row["seconds"] or 0.0 for row in stretch["rows"])


def counted(frame: pd.DataFrame, *, every: bool = False) -> pd.DataFrame:
    """Return the rows that count, one for each round and case.

    Of several attempts an undisturbed one counts, else the last. Disturbed rows are dropped where the case has others; with
    `every` they are kept, so that all planned calls count.
    """
    timed = frame[frame["seconds"].notna()]
    ordered = timed.sort_values(["disturbed", "attempt"], ascending=[False, True], kind="stable")
    last = ordered.drop_duplicates(["round", "case"], keep="last").sort_index()
    if every:
        return last
    calm = set(last.loc[~last["disturbed"], "case"])
    return last[[not disturbed or case not in calm for disturbed, case in zip(last["disturbed"], last["case"], strict=True)]]


def by_round(frame: pd.DataFrame, *cases: Hashable, column: str = "seconds") -> dict[Any, NDArray[np.float64]]:
    """Return the seconds (or another column) of some cases, by default of all, in the rounds that count.

    The same place of two cases is the same round. Rounds in which one of these cases was disturbed or left out do not count, if
    there are others.
    """
    rows = counted(frame, every=True)
    wanted = list(cases) or list(dict.fromkeys(rows["case"]))
    by_number: dict[int, dict[Any, tuple[float, bool]]] = {}
    for number, case, value, disturbed in zip(*(rows[name] for name in ("round", "case", column, "disturbed")), strict=True):
        by_number.setdefault(number, {})[case] = value, disturbed
    whole = [times for times in by_number.values() if all(case in times for case in wanted)]
    calm = [times for times in whole if not any(times[case][1] for case in wanted)]
    return {case: np.array([times[case][0] for times in calm or whole]) for case in wanted}


def ratio(frame: pd.DataFrame, a: Hashable, b: Hashable) -> float:
    """Return how many times as long `a` takes as `b`: the median over the rounds, so that a slow minute of the box changes it
    little."""
    times = by_round(frame, a, b)
    return float(np.median(times[a] / times[b]))


def matrix_reference() -> Run:
    """Return reference work: products of an 8 MB matrix with a vector, as a small decoder's output layer computes them.

    The matrix does not fit into the private cache of a core, so that neighbours on shared caches and memory change the time.
    """
    matrix, vector = np.ones((4_096, 512), np.float32), np.ones(512, np.float32)
    return lambda: [np.einsum("ij,j->i", matrix, vector) for _ in range(25)]
