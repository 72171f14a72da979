"""Measure single executions in service conditions: with the workload's idle gaps, and every repeat kept.

The bench times a tight loop on a quiet box and leaves disturbed repeats out. In service, after 5 to 100 ms of idling, the same
executions took 8 to 15 % longer, short ones 20 to 30 %. Here each execution follows a gap as the workload leaves one. Between
them one short work, the reference, records the pace of the box itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.configuration import end_tokens
from simnmt.base.shipped_files import find
from simnmt.calibrate.measurement import Listener, Silent
from simnmt.calibrate.settings import CalibrationError, Gaps, Settings
from simnmt.nmt.engine import Engine, Work
from simnmt.profile.blocks import CellSample
from simnmt.profile.execution_fit import cell_samples, fit_mean_plane
from simnmt.profile.service_block import (
    SHORT_TARGET,
    SLOW,
    ResidualQuantiles,
    ServiceBlock,
    ServiceConditions,
)
from simnmt.workload.length_table import read_table

SPREAD = "spread"
"""Name of the lengths that are measured if no length table is given."""
SPREAD_TARGETS, SPREAD_SOURCES = 12, 3
TABLE_CELLS = 40
"""Pairs of a length table that are measured: the middles of as many equal shares of its pairs."""
LEAST_CELLS = 4
SHORTEST_CELLS = 4
"""Further pairs of a length table, those with the shortest targets, from which the fixed cost follows."""
ROUNDS, QUICK_ROUNDS, LEAST_ROUNDS = 10, 4, 2
"""Executions of each cell; each round measures every cell once, in a new order."""
WITHIN_S, QUICK_WITHIN_S = 420.0, 60.0
"""No further round is begun that would end later."""
REFERENCE = (8, 4)
"""Source and target tokens of the reference: an execution of a few milliseconds to a few hundredths of a second."""
REFERENCE_EVERY_S = 0.5
"""Least time from one reference to the next."""


class Idling:
    """Draws the idle time before each execution.

    With `poisson`, requests arrive in an open loop and wait for each other (Lindley's recursion on the measured times): the box
    idles as long as it would in service, and not at all before a request that had to wait.
    """

    def __init__(self, gaps: Gaps, random: np.random.Generator) -> None:
        self._gaps, self._random = gaps, random
        self._late_s = 0.0

    def after(self, execution_s: float) -> float:
        """Return the seconds of idling that follow an execution of this length."""
        if self._gaps.rate_rps is None:
            return self._gaps.gap_s or 0.0
        self._late_s += execution_s - float(self._random.exponential(1.0 / self._gaps.rate_rps))
        idle_s = max(-self._late_s, 0.0)
        self._late_s = max(self._late_s, 0.0)
        return idle_s


@dataclass
class Executions:
    """Everything that was measured in service conditions, in order."""

    reference: Work
    works: list[Work] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    idle_s: list[float] = field(default_factory=list)
    """Idling before each execution, as measured."""
    reference_s: list[float] = field(default_factory=list)


def service_works(settings: Settings) -> list[Work]:
    """Return the cells to measure: pairs of the settings' length table, or a spread with short targets.

    Lengths count the end of the sentence on both sides, as an engine does. Raises `CorpusError` for a table that cannot be
    read, and `CalibrationError` for one with too few pairs.
    """
    if settings.lengths is None:
        tgt_lens = np.unique(np.geomspace(1, settings.max_tgt_len, SPREAD_TARGETS).round())
        src_lens = np.unique(np.geomspace(2, settings.max_src_len, SPREAD_SOURCES).round())
        pairs = [(src, tgt) for src in src_lens for tgt in tgt_lens]
    else:
        path = find("traces/lengths", settings.lengths) if settings.lengths.startswith("@") else settings.lengths
        table = read_table(path)
        src_end, tgt_end = (1 - counted for counted in end_tokens(table.end_of_sentence))
        shares = (np.arange(TABLE_CELLS) + 0.5) / TABLE_CELLS
        src, tgt = table.at_quantiles(shares)
        shortest = np.lexsort((table.src_len, table.tgt_len))[:SHORTEST_CELLS]
        src, tgt = np.append(src, table.src_len[shortest]) + src_end, np.append(tgt, table.tgt_len[shortest]) + tgt_end
        pairs = list(zip(src.tolist(), tgt.tolist(), strict=True))
    works = [Work(int(src), int(tgt), 1, settings.beam) for src, tgt in dict.fromkeys(pairs)]
    if len(works) < LEAST_CELLS:
        what = f"{len(works)} distinct pairs of lengths do not determine a plane"
        raise CalibrationError(what, path=settings.lengths, remedy="give a table with more pairs, or leave --lengths out")
    return works


def measure_in_situ(
    engine: Engine,
    works: Sequence[Work],
    settings: Settings,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.perf_counter,
    listener: Listener = Silent,
) -> Executions:
    """Execute the works in rounds, each after an idle gap, with the reference between them.

    The process sleeps during a gap (`time.sleep` ends about 0.1 ms late): waiting in a loop would keep the core awake, which a
    service does not.
    """
    quick = settings.mode == "quick"
    rounds, within_s = (QUICK_ROUNDS, QUICK_WITHIN_S) if quick else (ROUNDS, WITHIN_S)
    reference = Work(min(REFERENCE[0], settings.max_src_len), min(REFERENCE[1], settings.max_tgt_len), 1, settings.beam)
    idling = Idling(settings.idle_gaps, random_streams.stream(settings.seed, 0, "calibrate_gaps"))
    done = Executions(reference)
    for work in (reference, max(works, key=lambda work: (work.tgt_len, work.src_len)), reference):
        engine.run(work)  # the first executions of a session allocate memory
    begin_s, referred_s, idle_s = clock(), -math.inf, idling.after(0.0)
    for number in range(rounds):
        spent_s = clock() - begin_s
        if number >= LEAST_ROUNDS and spent_s * (number + 1) / number > within_s:
            listener.say(f"in situ: {number} rounds took {spent_s:.0f} s, and further ones are left out")
            break
        order = random_streams.stream(settings.seed, number, "calibrate_in_situ").permutation(len(works))
        for place, at in enumerate(order.tolist()):
            if clock() - referred_s >= REFERENCE_EVERY_S:
                done.reference_s.append(engine.run(reference).total_s)
                referred_s = clock()
            slept_s = clock()
            if idle_s > 0.0:
                sleep(idle_s)
                done.idle_s.append(clock() - slept_s)
            else:
                done.idle_s.append(0.0)
            done.works.append(works[at])
            done.seconds.append(engine.run(works[at]).total_s)
            idle_s = idling.after(done.seconds[-1])
            share = (number + (place + 1) / len(works)) / rounds
            spent_s = clock() - begin_s
            listener.measured("in_situ", spent_s, min(spent_s / share - spent_s, max(within_s - spent_s, 0.0)))
    return done


def fit_service(done: Executions, gaps: Gaps, **conditions: object) -> ServiceBlock:
    """Fit the block `in_service` of a profile to all executions.

    `conditions`: the fields of `ServiceConditions` that do not follow from the executions.
    """
    src, tgt = (np.array([getattr(work, name) for work in done.works], np.float64) for name in ("src_len", "tgt_len"))
    seconds, idle_s = np.array(done.seconds), np.array(done.idle_s)
    fit = fit_mean_plane(src, tgt, seconds)
    short = tgt < SHORT_TARGET
    return ServiceBlock(
        kind="measured",
        conditions=ServiceConditions.model_validate(
            {
                "gaps": gaps.kind,
                "rate_rps": gaps.rate_rps,
                "gap_s": gaps.gap_s,
                "mean_gap_s": float(idle_s.mean()),
                "idled_share": float((idle_s > 0.0).mean()),
                "load": float(seconds.sum() / (seconds.sum() + idle_s.sum())),
                **conditions,
            }
        ),
        plane=fit.plane.coefficients,
        residual=ResidualQuantiles.of(fit.factor),
        executions=seconds.size,
        heldout_error=fit.heldout_error,
        slow_share=float((fit.factor > SLOW).mean()),
        short_over_plane=_mean_or_none(fit.factor[short]),
        reference=_reference_sample(done),
        samples=cell_samples(src, tgt, seconds, beam=done.works[0].beam),
    )


@dataclass(frozen=True, slots=True)
class InSitu:
    """What the part `in_situ` of a calibration measures, and where."""

    works: Sequence[Work]
    engine_cpus: Sequence[int] = ()
    """Processors to which the engine is bound; empty: none."""

    def block(self, engine: Engine, settings: Settings, listener: Listener = Silent) -> ServiceBlock:
        """Measure, and return the block `in_service` of a profile."""
        done = measure_in_situ(engine, self.works, settings, listener=listener)
        return fit_service(
            done,
            settings.idle_gaps,
            pinned_cpus=tuple(self.engine_cpus),
            lengths=settings.lengths or SPREAD,
        )


def _reference_sample(done: Executions) -> CellSample | None:
    if not done.reference_s:
        return None
    work, seconds = done.reference, np.array(done.reference_s)
    src_len, tgt_len = (np.full(seconds.size, length) for length in (work.src_len, work.tgt_len))
    return cell_samples(src_len, tgt_len, seconds, beam=work.beam)[0]


def _mean_or_none(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if values.size else None
