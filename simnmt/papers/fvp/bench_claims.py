"""The claims that measurements of the output layer by itself decide (FVP-09, FVP-15)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from simnmt.calibrate.projection_bench import BAR_SIZE, BARS, FIT_WITHIN, ProjectionBench
from simnmt.papers.fvp.published import MOST_ACTIVE, PAPER
from simnmt.papers.kit.claims import Claim, ClaimRecord, Facts, Result, Undecided, at_most, judge, of_paper

ROWS = 40
"""Rows of a step: beam 2 and batch 20, as in Table 2."""
MOST_OVERHEAD = 0.5
"""Largest share of the dense time that assignment, union and scatter may take where a gain is required (FVP-15)."""
LEAST_STEP_RATIO = 1.5
"""Least speed-up of the projection at 15 % active and less, on a GPU (FVP-15's accept)."""


class Layer(Facts):
    """A measurement of the output layer by itself."""

    def __init__(self, bench: ProjectionBench) -> None:
        self.bench, self.device, self.basis = bench, name_of(bench), bench.kind


def name_of(bench: ProjectionBench) -> str:
    """Return the box, and the type of weights unless it is float32."""
    return bench.box if bench.setting.dtype == "float32" else f"{bench.box}, {bench.setting.dtype}"


def _fit(layer: Layer) -> Result:
    errors = layer.bench.errors
    if not errors:
        raise Undecided("no step was held out")
    why = (
        f"{len(errors)} steps of rows or shares that were not fitted, from their sizes alone; {100 * max(errors):.1f} % at most"
    )
    return Result(fmean(errors), f"{100 * fmean(errors):.1f} %", why)


def _on_cpu(layer: Layer) -> Result:
    bars = list(layer.bench.bars)
    if len(bars) < len(BARS):
        raise Undecided("these sizes were not measured, or not with float32 on one thread")
    ours = "; ".join(f"{step.ratio:.2f} times at {100 * step.share:.1f} %" for _, _, step in bars)
    why = "whole steps, the choice of columns and the search included, against the fastest of torch's products"
    return Result(all(step.ratio >= asked for _, asked, step in bars), ours, why)


def _on_gpu(layer: Layer) -> Result:
    bench = layer.bench
    steps = [step for step in bench.steps if (step.vocab, step.rows) == (BAR_SIZE[0], ROWS)]
    steps = [step for step in steps if step.share <= MOST_ACTIVE * 1.02]
    judged = [step for step in steps if step.overhead_share < MOST_OVERHEAD]
    limits = [cost.break_even(ROWS, bench.setting.clusters) for cost in bench.costs if cost.vocab == BAR_SIZE[0]]
    shares = ", ".join("no share" if limit is None else f"{100 * limit:.0f} %" for limit in limits)
    if not judged:
        raise Undecided(f"all columns win above {shares}" if steps else f"no step of V {BAR_SIZE[0]:,} and {ROWS} rows")
    ours = "; ".join(f"{step.ratio:.2f} times at {100 * step.share:.1f} %, width {step.width:,}" for step in judged)
    ordered = sorted(judged, key=lambda step: (step.width, step.share))
    falls = any(one.width == more.width and one.columns_s > more.columns_s for one, more in pairwise(ordered))
    why = f"steps of {ROWS} rows whose assignment, union and scatter take less than half of the dense time"
    why += "; not monotone in the active share" if falls else ""
    why += f"; {len(steps) - len(judged)} steps take more: all columns win above {shares}" if len(judged) < len(steps) else ""
    return Result(all(step.ratio > LEAST_STEP_RATIO for step in judged), ours, why)


def bench_claims(benches: Sequence[ProjectionBench]) -> list[ClaimRecord]:
    """Return the claims that measurements of the layer decide; without one, claims that name the missing measurement."""
    layers = [Layer(bench) for bench in benches]
    on_gpu = [layer for layer in layers if layer.bench.setting.device == "cuda"]
    on_cpu = [layer for layer in layers if layer not in on_gpu]
    no_bench = Undecided("needs a file of `simnmt vocab bench --out`: give --bench", "needs --bench")
    no_gpu = Undecided("needs a GPU: `simnmt vocab bench --device cuda --out FILE`, then --bench FILE", "needs --bench")
    judged: list[tuple[Claim[Layer], list[Layer], Undecided]] = [
        (Claim("FVP-09", value=_fit, holds=at_most(FIT_WITHIN)), layers, no_bench),
        (Claim("FVP-15 (b)", value=_on_cpu), on_cpu, no_bench),
        (Claim("FVP-15 (a)", value=_on_gpu), on_gpu, no_gpu),
    ]
    return [record for claim, some, missing in judged for record in judge(of_paper(PAPER, [claim]), some, missing)]
