"""The claims that a measured output layer decides: the cost model, and the gain of a step (FVP-09, FVP-15)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from simnmt.calibrate.projection_bench import BAR_SIZE, BARS, FIT_WITHIN, ProjectionBench, StepTime
from simnmt.papers.fvp import published
from simnmt.papers.kit.claim import ClaimList, ClaimRecord, Judgement, Undecided, format_span, holds_if

ROWS = 40
"""Rows of a step: beam 2 and batch 20, as in Table 2."""
MOST_OVERHEAD = 0.5
"""Largest share of the dense time that assignment, union and scatter may take where a gain is required (FVP-15)."""
NEEDS = {
    "cpu": "needs a file of `simnmt vocab bench --out`: give --bench",
    "cuda": "needs a GPU: `simnmt vocab bench --device cuda --out FILE`, then --bench FILE",
}
"""Missing evidence by device."""
CLAIMS = ClaimList()


def bench_claims(benches: Sequence[ProjectionBench]) -> list[ClaimRecord]:
    """Return the claims that each measurement decides; without one, claims that name the missing measurement."""
    fit, cpu, cuda = CLAIMS
    records = [
        claim.record(bench, device=name_of(bench), basis=bench.kind)
        for bench in benches
        for claim in (fit, cuda if bench.setting.device == "cuda" else cpu)
    ]
    measured = {bench.setting.device for bench in benches}
    missing = [] if benches else [(fit, NEEDS["cpu"])]
    missing += [(claim, NEEDS[device]) for device, claim in (("cpu", cpu), ("cuda", cuda)) if device not in measured]
    return [*records, *(claim.unknown(needs, basis="needs --bench") for claim, needs in missing)]


def name_of(bench: ProjectionBench) -> str:
    """Return the box, and the type of weights unless it is float32."""
    return bench.box if bench.setting.dtype == "float32" else f"{bench.box}, {bench.setting.dtype}"


@CLAIMS.declare(
    "FVP-09", f"A fitted cost is within {100 * FIT_WITHIN:.0f} % of whole steps that it was not fitted to, on average"
)
def _fit(bench: ProjectionBench) -> Judgement:
    error, most, knowing = bench.heldout_error, bench.most_heldout_error, bench.heldout_error_knowing
    if error is None or most is None:
        raise Undecided("no step was held out")
    why = f"{len(bench.heldout)} steps of rows or shares that were not fitted, from their sizes alone; "
    why += f"{100 * most:.1f} % at most"
    if knowing is not None:
        why += f"; knowing how each was multiplied and how far sets overlap, {100 * knowing:.1f} %"
    return Judgement(f"{100 * error:.1f} %", holds_if(error <= FIT_WITHIN), why)


@CLAIMS.declare(
    "FVP-15 (b)",
    f"On one CPU thread a step of V {BAR_SIZE[0]:,}, width {BAR_SIZE[1]:,}, batch 1 gets "
    + " and ".join(f"{required:.0f} times as fast with {100 * share:.0f} % of the columns active" for share, required in BARS),
)
def _on_cpu(bench: ProjectionBench) -> Judgement:
    bars = bench.bars
    if len(bars) < len(BARS):
        raise Undecided("these sizes were not measured, or not with float32 on one thread")
    ours = "; ".join(f"{bar.measured:.2f} times at {100 * bar.step.share:.1f} %" for bar in bars)
    missed = [f"{100 * bar.share:.0f} %" for bar in bars if not bar.reached]
    why = "whole steps, the choice of columns and the search included, against the fastest of torch's products and the same "
    why += "search; as published, scattered, " + ", ".join(f"{bar.step.ratios['scattered']:.2f}" for bar in bars)
    return Judgement(ours, holds_if(not missed), f"{why}; missed at {', '.join(missed)}" if missed else why)


@CLAIMS.declare(
    "FVP-15 (a)",
    f"On a GPU at {100 * published.MOST_ACTIVE:.0f} % active and less the projection gains more than "
    f"{published.LEAST_STEP_RATIO} times",
    format_span([row.ratio for row in published.TABLE_2 if row.active_percent <= 100 * published.MOST_ACTIVE]),
)
def _on_gpu(bench: ProjectionBench) -> Judgement:
    steps = [step for step in bench.steps if (step.vocab, step.rows) == (BAR_SIZE[0], ROWS)]
    steps = [step for step in steps if step.share <= published.MOST_ACTIVE * 1.02]
    judged = [step for step in steps if step.overhead_share < MOST_OVERHEAD]
    if not judged:
        raise Undecided(_break_even(bench) if steps else f"no step of V {BAR_SIZE[0]:,} and {ROWS} rows")
    ours = "; ".join(f"{step.ratios['columns']:.2f} times at {100 * step.share:.1f} %, width {step.width:,}" for step in judged)
    why = f"steps of {ROWS} rows whose assignment, union and scatter take less than half of the dense time; as published, "
    why += f"scattered, {min(step.ratios['scattered'] for step in judged):.2f} times and more"
    why += "" if _monotone(judged) else "; not monotone in the active share"
    if len(judged) < len(steps):
        why += f"; {len(steps) - len(judged)} steps take more: {_break_even(bench)}"
    return Judgement(ours, holds_if(all(step.ratios["columns"] > published.LEAST_STEP_RATIO for step in judged)), why)


def _monotone(steps: Sequence[StepTime]) -> bool:
    """Return True if the time of every width grows with the active share."""
    ordered = sorted(steps, key=lambda step: (step.width, step.share))
    times_by_width = [[step.columns_s for step in group] for _, group in groupby(ordered, key=lambda step: step.width)]
    return all(times_s == sorted(times_s) for times_s in times_by_width)


def _break_even(bench: ProjectionBench) -> str:
    points = [point for point in bench.break_even if (point.vocab, point.rows) == (BAR_SIZE[0], ROWS)]
    shares = [f"{100 * point.columns:.0f} %" if point.columns is not None else "no share" for point in points]
    return f"all columns win above {', '.join(shares) or 'a share that was not measured'}"
