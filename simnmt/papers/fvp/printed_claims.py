"""The claims that the printed figures decide, the presets' shapes, and measurements of the output layer by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from simnmt.calibrate.projection_bench import BAR_SIZE, BARS, FIT_WITHIN, ProjectionBench
from simnmt.papers.fvp.published import (
    BEST,
    CELLS,
    DIRECTIONS,
    FIGURE_4,
    MODELS,
    MOST_ACTIVE,
    MOST_BLEU_CHANGE,
    MOST_MEMORY,
    PAPER,
    PRESETS,
    PROJECTION,
    TYPICAL,
    implied_share,
    means,
    memory,
    of_model,
    parameters,
)
from simnmt.papers.kit.claims import (
    Claim,
    ClaimRecord,
    Facts,
    Printed,
    Result,
    Undecided,
    at_most,
    below,
    format_span,
    judge,
    of_paper,
    unmeasured,
)


def _printed() -> Iterator[tuple[str, bool, str, str]]:
    """Yield each claim that printed figures decide: whether it holds, our figures and why. Spans end before rounding."""
    active = [row.active_percent for row in of_model("dense")]
    ours = f"{fmean(active):.2f} %, at most {max(active):.2f} %"
    yield "FVP-21 (a)", abs(fmean(active) - 12.39) < 0.005, ours, "12.39 % is the value of EsEn alone"
    ratios = [row.ratio for row in PROJECTION]
    spans = ", ".join(f"{name} {format_span([row.ratio for row in of_model(model)])}" for model, name in MODELS.items())
    yield "FVP-21 (b)", _within(2.35, 2.65, ratios), format_span(ratios), f"{spans}, by Table 2"
    beyond = [row for row in PROJECTION if row.active_percent > 100 * MOST_ACTIVE + 0.5]
    ours = "; ".join(f"{MODELS[row.model]} {row.direction} {row.active_percent:.2f} %" for row in beyond)
    yield "FVP-21 (c)", not beyond, ours, "in Table 2; half a point allowed"
    shares = {name: [100 * implied_share(row) for row in of_model(model)] for model, name in MODELS.items()}
    ours = "; ".join(f"{name} {format_span(of, '.0f')} %, mean {fmean(of):.0f} %" for name, of in shares.items())
    why = "implied at beam 2, batch 20, by Table 2's ratios and Table 3's gains; 3 points allowed"
    yield "FVP-20 (a)", min(map(min, shares.values())) >= 100 * PAPER["projection_share"] - 3.0, ours, why
    gains = {(cell.model, cell.row, cell.beam): cell.gain_percent for cell in CELLS if cell.set == 1}
    for identifier, model, low, high in (("FVP-21 (d)", "dense", 12.95, 25.75), ("FVP-21 (e)", "m3", 5.5, 8.85)):
        of_model_gains = [gain for (name, _, _), gain in gains.items() if name == model]
        yield identifier, _within(low, high, of_model_gains), f"{format_span(of_model_gains)} %", "Table 3"
    higher = {model: sum(gains[model, row, 1] > gains[model, row, 2] for row in DIRECTIONS) for model in MODELS}
    why = f"with M3's smaller vocabulary in {higher['m3']} of {len(DIRECTIONS)}; Table 3"
    ours = f"in {higher['dense']} of {len(DIRECTIONS)} directions of ZCode Dense"
    yield "FVP-20 (b)", higher["dense"] == len(DIRECTIONS), ours, why
    worst, *_, best = sorted(CELLS, key=lambda cell: cell.bleu_change)
    ours = " to ".join(
        f"{cell.bleu_change:+.2f} ({MODELS[cell.model]} {cell.row}, set {cell.set}, beam {cell.beam})" for cell in (worst, best)
    )
    why = f"a loss of {MOST_BLEU_CHANGE} allowed in each of the {len(CELLS)} cells of Tables 3 and 4"
    mean = fmean(cell.bleu_change for cell in CELLS)
    yield "FVP-20 (c)", round(worst.bleu_change, 4) >= -MOST_BLEU_CHANGE, f"{ours}, mean {mean:+.3f}", why
    for identifier, table in (("FVP-16", 3), ("FVP-17", 4)):
        averages = [row for row in means() if row.table == table]
        odd = [row for row in averages if row.follows == "neither"]
        mixed = sum(row.follows == "by sentences" for row in averages)
        ours = "; ".join(
            f"{MODELS[row.model]} {row.row}, beam {row.beam}, {row.what} {row.simple:.2f} simple, "
            f"{row.by_sentences:.2f} by sentences"
            for row in odd
        )
        why = f"of {len(averages)}, {len(averages) - len(odd) - mixed} are simple means and {mixed} weighted by sentences"
        yield identifier, not odd, ours, why
    dense, m3 = (parameters(PRESETS[model]) / 1e9 for model in MODELS)
    why = "embedding tied, experts in every second layer, which the text leaves open; printed digits cut off, not rounded"
    ours = f"ZCode Dense {dense:.2f} billion; ZCode M3 {m3:.2f} billion"
    yield "FVP-13", 0.7 <= dense < 0.8 and 5.0 <= m3 < 6.0, ours, why
    rows = PAPER.table("table-6").rows
    same = sum(abs(row["clustered"] - row["baseline"] - row["printed_difference"]) <= 0.005 for row in rows)
    yield "FVP-19 (a)", same == len(rows), f"{same} of {len(rows)}", ""


def _within(low: float, high: float, values: Sequence[float]) -> bool:
    return min(values) >= low and max(values) < high


def _memory(identifier: str, clusters: int) -> Claim[Printed]:
    """Return the claim on the memory of so many clusters with K = 1, beside each preset."""
    rows = [row for row in memory() if (row.clusters, row.top) == (clusters, 1)]
    ours = "; ".join(f"{MODELS[row.model]} {row.more_mb:.1f} MB, {row.more_percent:.2f} %" for row in rows)
    why = "of the weights alone in float16; the paper prints cluster 0's share, about "
    why += f"{FIGURE_4[1]:.0f} % of the columns, which is taken for all clusters"
    effects = {row.model: row.more_percent / 100.0 for row in rows}
    result = Result(effects, ours, why, words=None, basis="inferred")
    return Claim(identifier, value=lambda _: result, holds=below(MOST_MEMORY))


def printed_claims() -> list[ClaimRecord]:
    """Return the claims that the printed figures and shapes decide, and those that nothing here can decide."""
    claims: list[Claim[Printed]] = [_memory("FVP-18 (a)", BEST), _memory("FVP-18 (b)", TYPICAL)]
    for identifier, *result in _printed():
        claims.append(Claim(identifier, value=lambda _, result=result: Result(*result)))  # type: ignore[misc]
    return [*judge(of_paper(PAPER, claims), [Printed()]), *unmeasured(PAPER.unmeasured)]


# By the output layer alone.

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


FIT, ON_CPU, ON_GPU = of_paper(
    PAPER,
    [
        Claim("FVP-09", value=_fit, holds=at_most(FIT_WITHIN)),
        Claim("FVP-15 (b)", value=_on_cpu),
        Claim("FVP-15 (a)", value=_on_gpu),
    ],
)


def bench_claims(benches: Sequence[ProjectionBench]) -> list[ClaimRecord]:
    """Return the claims that measurements of the layer decide; without one, claims that name the missing measurement."""
    layers = [Layer(bench) for bench in benches]
    on_gpu = [layer for layer in layers if layer.bench.setting.device == "cuda"]
    on_cpu = [layer for layer in layers if layer not in on_gpu]
    no_bench = Undecided("needs a file of `simnmt vocab bench --out`: give --bench", "needs --bench")
    no_gpu = Undecided("needs a GPU: `simnmt vocab bench --device cuda --out FILE`, then --bench FILE", "needs --bench")
    return [*judge([FIT], layers, no_bench), *judge([ON_CPU], on_cpu, no_bench), *judge([ON_GPU], on_gpu, no_gpu)]
