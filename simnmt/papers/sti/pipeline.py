"""The measurement of `python -m benchmarks.sti_pipeline`: its file and its claims (STI-06, 16, 21)."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from simnmt.calibrate.settings import read_measurement
from simnmt.papers.kit.claims import Claim, Facts, Result, Undecided, at_least, at_most, of_paper
from simnmt.papers.kit.study import AboveZero, Positive
from simnmt.papers.sti.printed import PAPER
from simnmt.profile.streaming_block import BERT_BASE
from simnmt.streaming.plan.timeline import ROUNDING

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
    """The file of `python -m benchmarks.sti_pipeline --out FILE`."""

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


def read_pipeline(path: Path) -> PipelineMeasurement:
    """Read a measurement of `benchmarks.sti_pipeline`; raise `InputError` for any other file."""
    remedy = "make it with `python -m benchmarks.sti_pipeline --out FILE`"
    return read_measurement(path, PipelineMeasurement, "measurement of a pipeline", remedy)


class OfPipeline(Facts):
    """A measurement of `benchmarks.sti_pipeline`."""

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
        shares = [plan.stall_share for plan in plans if plan.simulated_stall_s <= ROUNDING * plan.simulated_s]
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
