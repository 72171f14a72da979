"""The measurement of `python -m benchmarks.sti_pipeline`: its file and its claims (STI-06, 16, 21)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from simnmt.calibrate.settings import read_measurement
from simnmt.papers.kit.claims import Claim, Facts, Result, Undecided, at_least, of_paper
from simnmt.papers.kit.study import AboveZero, Positive, shipped_measurements
from simnmt.papers.sti.printed import PAPER
from simnmt.profile.streaming_cost import BERT_BASE
from simnmt.streaming.plan.timeline import ROUNDING

FASTER_BY, MOST_STALL, LARGEST_ERROR, LEAST_PLANS, UNPACKS_BY, EVEN = 4.0, 0.15, 0.10, 10, 2.0, 0.8
"""The bars of the claims."""


class _Entry(BaseModel):
    """A part of the file; keys that no claim needs are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class PacedRuns(_Entry):
    """All layers at one pace of reading: in 32 bits loaded first, and in pipelines of 6 and 2 bits."""

    pace_mb: AboveZero
    cold: bool
    load_then_run_s: AboveZero
    load_then_run_stall_s: float
    bits_6_s: AboveZero
    bits_6_stall_s: float
    bits_2_s: AboveZero
    bits_2_stall_s: float
    ratio: float
    """Loaded first over the pipeline of 6 bits, median of pairs."""


class ExecutedPlan(_Entry):
    """One plan, simulated and executed."""

    layers: Positive
    slices: Positive
    mean_bits: float
    pace_mb: AboveZero
    length: Positive
    deadline_ms: AboveZero
    preload_mb: float
    simulated_s: AboveZero
    simulated_stall_s: float
    measured_s: AboveZero
    error: float
    """Simulated over measured latency, less 1, by costs of the same rounds."""
    error_before: float
    """By costs measured ahead of all rounds."""
    stall_share: float
    """Of the measured latency."""
    cold: bool

    @property
    def no_stall_predicted(self) -> bool:
        """True if the simulated stall is 0 but for rounding."""
        return self.simulated_stall_s <= ROUNDING * self.simulated_s


class Skew(_Entry):
    """The pace at which a layer loads for as many times its computation as the paper's."""

    pace_mb: AboveZero


class Unpacking(_Entry):
    """Speed of native unpacking."""

    least_ratio: float
    """Over the best of torch and numba, least over bits."""
    six_over_two: float
    """Speed at 6 bits over that at 2 bits."""


class PipelineMeasurement(_Entry):
    """The file of `python -m benchmarks.sti_pipeline --out FILE`."""

    version: Literal[2]
    date: str
    layers: Positive
    heads: Positive
    width: Positive
    ffn: Positive
    faster: tuple[PacedRuns, ...]
    skew: Skew
    grid: tuple[ExecutedPlan, ...]
    unpack: Unpacking

    @property
    def why_unjudged(self) -> str | None:
        """The reason why no claim can be judged; None if all can."""
        if any(getattr(self, size) != getattr(BERT_BASE, size) for size in ("layers", "heads", "width", "ffn")):
            return "the model is not of BERT's base size"
        if not all([runs.cold for runs in self.faster] + [plan.cold for plan in self.grid]):
            return "the store's file could not be dropped from memory, so that reads were not cold"
        return None

    @property
    def stall_free(self) -> list[ExecutedPlan]:
        """Plans at the paper's skew that are predicted not to stall."""
        return [plan for plan in self.grid if plan.pace_mb == self.skew.pace_mb and plan.no_stall_predicted]


def shipped_pipeline() -> PipelineMeasurement | None:
    """Return the shipped measurement; None if there is none."""
    paths = shipped_measurements("sti", "pipeline")
    return read_pipeline(paths[0]) if paths else None


def read_pipeline(path: Path) -> PipelineMeasurement:
    """Read a measurement of `benchmarks.sti_pipeline`; raise `InputError` for any other file."""
    remedy = "make it with `python -m benchmarks.sti_pipeline --out FILE`"
    return read_measurement(path, PipelineMeasurement, "measurement of a pipeline", remedy)


@dataclass(frozen=True)
class OfPipeline(Facts):
    """A measurement of `benchmarks.sti_pipeline`."""

    measured: PipelineMeasurement

    @property
    def device(self) -> str:  # type: ignore[override]
        """The model, and the date."""
        return f"{self.measured.layers} layers of width {self.measured.width}, {self.measured.date}"

    def lacks(self, need: str) -> Undecided | None:
        """Return the reason why nothing of the measurement can be judged."""
        reason = self.measured.why_unjudged
        return None if reason is None else Undecided(reason)

    def faster(self) -> Result:
        """Return the speed of a pipeline of 6 bits over loading 32 bits first, by pace."""
        ratios = {f"at {runs.pace_mb:g} MB/s": runs.ratio for runs in self.measured.faster}
        ours = "; ".join(f"{ratio:.2f} times {pace}" for pace, ratio in ratios.items())
        return Result(min(ratios.values(), default=0.0), ours, "16 tokens, cold reads, medians of repeats in turn")

    def stalls(self) -> Result:
        """Return the largest share of stall of plans that are predicted not to stall."""
        free = self.measured.stall_free
        if len(free) < LEAST_PLANS:
            raise Undecided(f"{len(free)} such plans, of {LEAST_PLANS} that are asked for")
        shares = sorted(100 * plan.stall_share for plan in free)
        pace = f"paced to {self.measured.skew.pace_mb:.0f} MB/s"
        why = f"{pace}, where 32 bits of a layer load for 3.57 times as long as it computes"
        ours = f"{shares[0]:.1f} to {shares[-1]:.1f} % of {len(free)} plans"
        return Result(shares[-1] <= 100 * MOST_STALL, ours, why)

    def simulated(self) -> Result:
        """Return how many plans are simulated well enough."""
        if not self.measured.grid:
            raise Undecided("no plan was measured")
        errors = [abs(plan.error) for plan in self.measured.grid]
        within, mean = sum(error <= LARGEST_ERROR for error in errors), sum(errors) / len(errors)
        ours = f"{within} of {len(errors)} plans; off by {100 * max(errors):.1f} % at most, {100 * mean:.1f} % on average"
        before = max(abs(plan.error_before) for plan in self.measured.grid)
        why = (
            "deadlines, preload buffers and paces; costs of reads and layers alone, from the same rounds as the plans and not "
            f"fitted to them; by costs measured ahead of all rounds it is {100 * before:.1f} % at most"
        )
        return Result(within == len(errors), ours, why)

    def unpacking(self) -> Result:
        """Return the speed of native unpacking, and its evenness."""
        least, even = self.measured.unpack.least_ratio, self.measured.unpack.six_over_two
        ours = f"{least:.2f} times as fast; 6 bits at {100 * even:.0f} % of the speed of 2"
        return Result(least >= UNPACKS_BY and even >= EVEN, ours, "one thread; the least over bits")


PIPELINE_CLAIMS: list[Claim[OfPipeline]] = of_paper(
    PAPER,
    [
        Claim("STI-16 (a)", value=OfPipeline.faster, holds=at_least(FASTER_BY), needs="measurement"),
        Claim("STI-16 (b)", value=OfPipeline.stalls, needs="measurement"),
        Claim("STI-16 (c)", value=OfPipeline.simulated, needs="measurement"),
        Claim("STI-06", value=OfPipeline.unpacking, needs="measurement"),
    ],
)
