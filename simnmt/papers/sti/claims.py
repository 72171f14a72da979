"""The claims that measurements decide: of the pipeline by a recorded measurement, of a trained classifier by a study.

The pipeline shows STI-06, 16 and 21; the study accuracy, fidelity, memory and operations (STI-22 to 25, 27).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from functools import lru_cache
from math import log10
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from simnmt.papers.kit.claims import (
    Claim,
    ClaimRecord,
    Effect,
    Facts,
    Printed,
    Result,
    Undecided,
    above,
    at_least,
    at_most,
    between,
    judge,
    of_paper,
    unmeasured,
)
from simnmt.papers.kit.study import AboveZero, Positive
from simnmt.papers.sti.plans import DEVICES, GPU, PROCESSOR, Studied
from simnmt.papers.sti.printed import PAPER, PRINTED_CLAIMS
from simnmt.profile.streaming_block import BERT_BASE
from simnmt.results.statistics import CONFIDENCE, Estimate
from simnmt.streaming.plan import timeline

FASTER_BY, MOST_STALL, LARGEST_ERROR, LEAST_PLANS, UNPACKS_BY, EVEN = 4.0, 0.15, 0.10, 10, 2.0, 0.8
"""The bars of the claims."""


class _Entry(BaseModel):
    """A part of the file; keys that no claim needs are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    pace_mb: AboveZero
    cold: bool = True


class PacedRuns(_Entry):
    """All layers loaded in 32 bits and then computed, over the pipeline of 6 bits: median ratio of pairs."""

    ratio: float


class ExecutedPlan(_Entry):
    """One plan, simulated and executed."""

    simulated_s: AboveZero
    simulated_stall_s: float
    error: float
    """Simulated over measured latency, less 1, by costs of the same rounds."""
    stall_share: float


class Unpacking(BaseModel):
    """Speed of native unpacking over the best of torch and numba, least over bits, and at 6 bits over that at 2."""

    least_ratio: float
    six_over_two: float


class PipelineMeasurement(BaseModel):
    """The recorded measurement of a real pipeline, `calibration/sti/pipeline-cpu1.json`."""

    version: Literal[2]
    date: str
    layers: Positive
    heads: Positive
    width: Positive
    ffn: Positive
    faster: Annotated[tuple[PacedRuns, ...], Field(min_length=1)]
    skew: _Entry
    """The pace at which a layer loads for as many times its computation as the paper's."""
    grid: Annotated[tuple[ExecutedPlan, ...], Field(min_length=1)]
    unpack: Unpacking


class OfPipeline(Facts):
    """A measurement of a real pipeline."""

    def __init__(self, measured: PipelineMeasurement) -> None:
        self.measured = measured
        self.device = f"{measured.layers} layers of width {measured.width}, {measured.date}"

    def lacks(self, need: str) -> Undecided | None:
        """Return the reason why nothing of the measurement can be judged."""
        measured = self.measured
        if (measured.layers, measured.heads, measured.width, measured.ffn) != astuple(BERT_BASE)[:4]:
            return Undecided("the model is not of BERT's base size")
        cold = all(entry.cold for entries in (measured.faster, measured.grid) for entry in entries)
        return None if cold else Undecided("the store's file was not dropped from memory, so that reads were not cold")

    def faster(self) -> Result:
        ratios = {f"at {runs.pace_mb:g} MB/s": runs.ratio for runs in self.measured.faster}
        ours = "; ".join(f"{ratio:.2f} times {pace}" for pace, ratio in ratios.items())
        return Result(min(ratios.values()), ours, "16 tokens, cold reads, medians of repeats in turn")

    def stalls(self) -> Result:
        """Return the largest share of stall of plans at the paper's skew that are predicted not to stall."""
        pace_mb = self.measured.skew.pace_mb
        plans = [plan for plan in self.measured.grid if plan.pace_mb == pace_mb]
        shares = [plan.stall_share for plan in plans if plan.simulated_stall_s <= timeline.ROUNDING * plan.simulated_s]
        if len(shares) < LEAST_PLANS:
            raise Undecided(f"{len(shares)} such plans, of {LEAST_PLANS} that are asked for")
        why = f"paced to {pace_mb:.0f} MB/s, where 32 bits of a layer load for 3.57 times as long as it computes"
        ours = f"{100 * min(shares):.1f} to {100 * max(shares):.1f} % of {len(shares)} plans"
        return Result(max(shares), ours, why)

    def simulated(self) -> Result:
        errors = [abs(plan.error) for plan in self.measured.grid]
        within, mean = sum(error <= LARGEST_ERROR for error in errors), sum(errors) / len(errors)
        ours = f"{within} of {len(errors)} plans; off by {100 * max(errors):.1f} % at most, {100 * mean:.1f} % on average"
        return Result(max(errors), ours, "by costs of reads and layers alone, measured beside the plans and not fitted to them")

    def unpacking(self) -> Result:
        least, even = self.measured.unpack.least_ratio, self.measured.unpack.six_over_two
        ours = f"{least:.2f} times as fast; 6 bits at {100 * even:.0f} % of the speed of 2"
        return Result(least >= UNPACKS_BY and even >= EVEN, ours, "one thread; the least over bits")


PIPELINE_CLAIMS: list[Claim[OfPipeline]] = of_paper(
    PAPER,
    [
        Claim("STI-16 (a)", value=OfPipeline.faster, holds=at_least(FASTER_BY), needs="measurement"),
        Claim("STI-16 (b)", value=OfPipeline.stalls, holds=at_most(MOST_STALL), needs="measurement"),
        Claim("STI-16 (c)", value=OfPipeline.simulated, holds=at_most(LARGEST_ERROR), needs="measurement"),
        Claim("STI-06", value=OfPipeline.unpacking, needs="measurement"),
    ],
)


NEEDS = "needs a study of a trained classifier: give --study, or --store and --task"
RESAMPLES, ROUNDING = 10_000, 1e-12
WITHIN = 0.01
"""Accuracy that may be lost against the whole model in memory (STI-22's accept)."""
EQUAL = 0.10
"""Relative difference of operations and busy times that still counts as equal."""
CASE = ["layers", "slices", "raised", "to_bits"]
"""Columns that tell the cases of the part `upgrades` apart."""


def gain(first: pd.Series, second: pd.Series) -> Estimate:
    """Return the accuracy of `first` less that of `second` over the same examples, with its interval.

    Both have a truth value for each example and row, such as a deadline. The interval is the percentile bootstrap's over
    examples. It resamples the differences of pairs, so that examples that both find hard do not widen it.
    """
    off = np.mean(np.stack([*first]), axis=0, dtype=float) - np.mean(np.stack([*second]), axis=0, dtype=float)
    values, counts = np.unique(off, return_counts=True)
    return Estimate(float(off.mean()), *_interval(tuple(values.tolist()), tuple(counts.tolist())))


@lru_cache(maxsize=4096)
def _interval(values: tuple[float, ...], counts: tuple[int, ...]) -> tuple[float, float]:
    # Few values occur, so that drawing how often each one does is drawing the examples. Kept for claims and tables alike.
    examples = sum(counts)
    drawn = np.random.default_rng(0).multinomial(examples, np.array(counts) / examples, size=RESAMPLES)
    low, high = np.quantile(drawn @ np.array(values) / examples, (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2)).tolist()
    return low, high


def rise(difference: Estimate) -> Effect:
    """Return the effect of claims that something rises, which an interval that contains 0, or is 0, leaves open."""
    return difference if difference.excludes_zero else [True, False]


def in_points(difference: Estimate) -> tuple[float, float, float]:
    mean, low, high = (100 * (value or 0.0) for value in (difference.mean, difference.low, difference.high))
    return mean, low, high


def format_gain(difference: Estimate) -> str:
    return "{:+.2f} points ({:+.2f} to {:+.2f})".format(*in_points(difference))


def format_shares(shares: pd.Series) -> str:
    return ", ".join(f"{100 * share:g} %" for share in shares)


def paired(points: pd.DataFrame, second: str, first: str = "STI") -> pd.DataFrame:
    """Return the points of two methods by deadline, rising; columns of the second end in `_other`.

    Of methods with a preload buffer, the points with one; with `, no buffer` after its name, those without.
    """
    name = points["method"] + (points["preload_share"] == 0.0).map({True: ", no buffer", False: ""})
    return points[name == first].merge(points[name == second], on="deadline_share", suffixes=("", "_other"))


def in_time(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs in which neither method misses its deadline (errata to STI-22)."""
    return pairs[~(pairs["misses"] | pairs["misses_other"])]


def ratio(pairs: pd.DataFrame, column: str) -> float:
    """Return the mean ratio of both methods, where the second's value is not 0."""
    known = pairs[pairs[f"{column}_other"] > 0]
    return float((known[column] / known[f"{column}_other"]).mean())


def raised_gain(upgrades: pd.DataFrame) -> Estimate:
    """Return the gain of raising by importance over the mean of random orders, mean over cases."""
    best = upgrades[upgrades["order"] == "importance"]["right"]
    by_chance = upgrades[upgrades["order"] == "random"].groupby(CASE, sort=False)["right"]
    return gain(best, pd.Series([np.mean(np.stack([*right]), axis=0) for _, right in by_chance]))


class OfStudy(Facts):
    """A study, by the name of the model and its task."""

    def __init__(self, studied: Studied) -> None:
        self.studied, self.device = studied, studied.study.name

    def rises(self) -> Result:
        """Return the gain of the most over the fewest bits, layers and slices, the other two as in the whole model."""
        uniform, model = self.studied.uniform, self.studied.study.model
        whole = {"uniform_bits": 32, "layers": model.layers, "slices": model.heads}
        effects: dict[str, Effect] = {}
        texts = []
        for name in whole:
            others = {key: value for key, value in whole.items() if key != name}
            line = uniform[(uniform[[*others]] == others).all(axis=1)].sort_values(name)
            difference = gain(line["right"].tail(1), line["right"].head(1))
            effects[name] = rise(difference)
            ends = f"{name.removeprefix('uniform_')} from {line[name].iloc[0]} to {line[name].iloc[-1]}"
            texts.append(f"{ends}: {format_gain(difference)}")
        return Result(effects, "; ".join(texts), "one of them at a time, the others as in the whole model", words=None)

    def importance(self) -> Result:
        upgrades = self.studied.upgrades
        by_case = [
            f"{layers} x {slices}, {raised} to {bits} bits: {format_gain(raised_gain(rows))}"
            for (layers, slices, raised, bits), rows in upgrades.groupby(CASE, sort=False)
        ]
        overall, orders = raised_gain(upgrades), (upgrades["order"] == "random").sum() / len(by_case)
        why = f"{'; '.join(by_case)}; {orders:.0f} random orders each, all else at 2 bits"
        if self.studied.study.ranked_on_judged:
            why += "; the order was found on the same examples, as in the paper"
        return Result(overall, format_gain(overall), why)

    def sizes(self) -> Result:
        gains, texts, falls = [], [], 0
        for _, line in self.studied.sizes.groupby(["device", "deadline_share"]):
            gains.append(gain(line["right"].tail(1), line["right"].head(1)))
            at = f"{line['device'].iloc[0]}, {format_shares(line['deadline_share'].head(1))}"
            texts.append(f"{at}: {format_gain(gains[-1])}")
            falls += int((line["accuracy"].diff() < 0.0).sum())
        clear = [difference.mean > 0.0 for difference in gains if difference.excludes_zero]
        why = f"smallest to largest buffer under one deadline; {falls} single steps fall, as the planner is greedy"
        return Result(all(clear) if clear else [True, False], "; ".join(texts), why)

    def shapes(self) -> Result:
        """Return the submodels of the devices whose computation grows most and least with slices."""
        ratios, ours = [], []
        for device in (PROCESSOR, GPU):
            points = OnDevice(self.studied, device.name).against("PreloadModel-32")
            ratios.append((points["layers"] / points["slices"]).mean())
            middle = points.iloc[len(points) // 2]
            ours.append(f"{device.name}: {middle.layers} x {middle.slices} at {100 * middle.deadline_share:g} %")
        why = f"layers over slices, on average: {ratios[0]:.2f} and {ratios[1]:.2f}"
        return Result(ratios[0] > ratios[1], "; ".join(ours), why, basis="inferred")


class OnDevice(OfStudy):
    """A study's plans for one device, whose costs are inferred."""

    basis = "inferred"

    def __init__(self, studied: Studied, on: str) -> None:
        super().__init__(studied)
        self.device = f"{self.device}, {on}"
        self.points = studied.grid[studied.grid["device"] == on]

    def against(self, second: str, first: str = "STI") -> pd.DataFrame:
        return paired(self.points, second, first)

    def accuracy(self, method: str) -> Result:
        """Return the gains over a method of the published plan and of the one that may wait, where neither side is late."""
        pairs, waiting = self.against(method), self.against(method, "STI, waiting")
        plans = {"in time": in_time(pairs), "allowed to wait until the deadline": in_time(waiting)}
        gains = {name: gain(rows["right"], rows["right_other"]) for name, rows in plans.items() if len(rows)}
        ours = [
            f"{name}: {format_gain(gains[name]) if name in gains else 'never in time together'}, "
            f"{len(rows)} of {len(pairs)} deadlines"
            for name, rows in plans.items()
        ]
        kept = plans["in time"]
        worse = kept[kept["accuracy"] < kept["accuracy_other"]]["deadline_share"]
        why = f"less accurate at {format_shares(worse)} of the whole computation; " if len(worse) else ""
        why += f"late answers included {format_gain(gain(pairs['right'], pairs['right_other']))}, over {len(pairs)} deadlines, "
        why += f"of which the plan misses {pairs['misses'].sum()} and the other {pairs['misses_other'].sum()}"
        return Result(gains, "; ".join(ours), why, words=None)

    def deadlines(self) -> Result:
        pairs = self.against("PreloadModel-32")
        kept = pairs[~pairs["misses_other"]]
        late = kept[kept["misses"]]["deadline_share"]
        why = f"late at {format_shares(late)}" if len(late) else ""
        return Result(late.empty, f"{len(kept) - len(late)} of {len(kept)} kept", why)

    def buffer(self) -> Result:
        pairs = self.against("STI, no buffer")
        overall = gain(pairs["right"], pairs["right_other"])
        why = f"without it {pairs['misses_other'].sum()} of {len(pairs)} deadlines are missed, with it {pairs['misses'].sum()}"
        return Result(rise(overall), format_gain(overall), why)

    def tight(self) -> Result:
        """Return the gains under the lower half of the deadlines (tight) and under the upper half (loose)."""
        texts, clear, refuted = [], True, False
        for method in ("StdPL-2", "StdPL-6"):
            pairs = self.against(method)
            halves = pairs.head(len(pairs) // 2), pairs.tail(-(len(pairs) // 2))
            tight, loose = (gain(half["right"], half["right_other"]) for half in halves)
            (_, low, high), (_, loose_low, loose_high) = in_points(tight), in_points(loose)
            clear, refuted = clear and low > loose_high, refuted or high < loose_low
            limit = format_shares(halves[0]["deadline_share"].tail(1))
            texts.append(f"{method}: {format_gain(tight)} up to {limit}, {format_gain(loose)} beyond")
        return Result(True if clear else False if refuted else [True, False], "; ".join(texts), "halves of the deadlines")

    def memory(self) -> Result:
        """Return by how many orders of magnitude fewer bytes are held than the whole model's."""
        ratios = {name: ratio(self.against("STI", name), "held_mb") for name in ("PreloadModel-32", "PreloadModel-6")}
        whole = self.against("STI", "PreloadModel-32")
        working = whole["working_mb_other"].mean() / whole["held_mb"].mean()
        why = (
            "by construction, as the buffer is the board's; the working buffer of one layer in float32, "
            f"{100 * working:.1f} %, and the compressed shards that an execution reads come on top while it runs"
        )
        ours = "; ".join(f"{value:.0f} times fewer than {method}" for method, value in ratios.items())
        return Result({method: log10(value) for method, value in ratios.items()}, ours, why, words=None)

    def work(self, *methods: str) -> Result:
        """Return how many times as many shards plans compute as these methods."""
        ratios = {method: ratio(self.against(method), "shards") for method in methods}
        ours = "; ".join(f"{value:.2f} times {method}" for method, value in ratios.items())
        return Result(ratios, ours, "n x m, mean over deadlines", words=None)

    def busy(self) -> Result:
        methods = ("Load&Exec", "StdPL-32", "PreloadModel-32")
        loaded, pipeline, in_memory = ratios = [ratio(self.against(method), "compute_busy_ms") for method in methods]
        ours = "; ".join(f"{value:.2f} times as long as {method}" for method, value in zip(methods, ratios, strict=True))
        io_ms = self.against("PreloadModel-32")["io_busy_ms"].mean()
        why = f"the disk is busy for {io_ms:.1f} ms beside it; busy times alone, no energy was measured"
        return Result(min(loaded, pipeline) > 1.0 and abs(in_memory - 1.0) <= EQUAL, ours, why)


STUDY_CLAIMS: list[Claim[OfStudy]] = of_paper(
    PAPER,
    [
        Claim("STI-24 (h)", value=OfStudy.shapes),
        Claim("STI-27", value=OfStudy.rises, holds=above(0.0)),
        Claim("STI-24 (e)", value=OfStudy.importance, holds=at_least(-ROUNDING)),
        Claim("STI-24 (f)", value=OfStudy.sizes),
    ],
)
DEVICE_CLAIMS: list[Claim[OnDevice]] = of_paper(
    PAPER,
    [
        Claim("STI-22 (a)", value=lambda on: on.accuracy("Load&Exec"), holds=at_least(-ROUNDING)),
        Claim("STI-22 (b)", value=lambda on: on.accuracy("StdPL-32"), holds=at_least(-ROUNDING)),
        Claim("STI-22 (c)", value=lambda on: on.accuracy("StdPL-2"), holds=at_least(-ROUNDING)),
        Claim("STI-22 (d)", value=lambda on: on.accuracy("StdPL-6"), holds=at_least(-ROUNDING)),
        Claim("STI-22 (e)", value=lambda on: on.accuracy("PreloadModel-32"), holds=at_least(-WITHIN - ROUNDING)),
        Claim("STI-22 (f)", value=OnDevice.deadlines),
        Claim("STI-24 (d)", value=OnDevice.buffer, holds=above(0.0)),
        Claim("STI-24 (g)", value=OnDevice.tight),
        Claim("STI-23 (c)", value=OnDevice.memory, holds=at_least(PAPER["least_order"])),
        Claim("STI-24 (a)", value=lambda on: on.work("PreloadModel-32"), holds=between(1 - EQUAL, 1 + EQUAL)),
        Claim("STI-24 (b)", value=lambda on: on.work("Load&Exec", "StdPL-32"), holds=above(1.0)),
        Claim("STI-24 (c)", value=lambda on: on.work("StdPL-2", "StdPL-6"), holds=above(1.0)),
        Claim("STI-25", value=OnDevice.busy),
    ],
)


def all_claims(studies: Sequence[Studied], pipeline: PipelineMeasurement) -> list[ClaimRecord]:
    devices = [OnDevice(study, device.name) for study in studies for device in DEVICES]
    no_study = Undecided(NEEDS, "needs --study")
    return [
        *judge(DEVICE_CLAIMS, devices, no_study),
        *judge(STUDY_CLAIMS, list(map(OfStudy, studies)), no_study),
        *judge(PIPELINE_CLAIMS, [OfPipeline(pipeline)]),
        *judge(PRINTED_CLAIMS, [Printed()]),
        *unmeasured(PAPER.unmeasured),
    ]
