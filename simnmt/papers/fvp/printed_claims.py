"""The claims that the printed figures decide, the presets' shapes, and measurements of the output layer by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from simnmt.calibrate.projection_bench import BAR_SIZE, BARS, FIT_WITHIN, ProjectionBench
from simnmt.papers.fvp.published import (
    BEST,
    CELLS,
    DIRECTIONS,
    FIGURE_4,
    LEAST_STEP_RATIO,
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
    of_model,
    parameters,
    preset_memory,
)
from simnmt.papers.kit.claims import (
    Claim,
    ClaimRecord,
    Effects,
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

Value = Callable[[Any], Result | Effects]


# By the printed figures.


def _mean_active(_: Printed) -> Result:
    percents = [row.active_percent for row in of_model("dense")]
    ours = f"{fmean(percents):.2f} %, at most {max(percents):.2f} %"
    return Result(abs(fmean(percents) - 12.39) < 0.005, ours, "12.39 % is the value of EsEn alone")


def _spanned(low: float, high: float, values: Sequence[float], why: str, unit: str = "") -> Value:
    """Return what compares values with a printed span by its ends before rounding."""
    return lambda _: Result(min(values) >= low and max(values) < high, f"{format_span(values)}{unit}", why)


def _fifteen_percent(_: Printed) -> Result:
    beyond = [row for row in PROJECTION if row.active_percent > 100 * MOST_ACTIVE + 0.5]
    ours = "; ".join(f"{MODELS[row.model]} {row.direction} {row.active_percent:.2f} %" for row in beyond)
    return Result(not beyond, ours, "in Table 2; half a point allowed")


def _quarter_of_time(_: Printed) -> Result:
    shares = {model: [100 * implied_share(row) for row in of_model(model)] for model in MODELS}
    spans = [
        f"{MODELS[model]} {format_span(percents, '.0f')} %, mean {fmean(percents):.0f} %" for model, percents in shares.items()
    ]
    why = "implied at beam 2, batch 20, by Table 2's ratios and Table 3's gains; 3 points allowed"
    return Result(min(map(min, shares.values())) >= 100 * PAPER["projection_share"] - 3.0, "; ".join(spans), why)


def _gains(model: str) -> list[float]:
    return [cell.gain_percent for cell in CELLS if (cell.model, cell.set) == (model, 1)]


def _beam_one_gains_more(_: Printed) -> Result:
    gains = {(cell.model, cell.row, cell.beam): cell.gain_percent for cell in CELLS if cell.set == 1}
    higher = {model: sum(gains[model, row, 1] > gains[model, row, 2] for row in DIRECTIONS) for model in MODELS}
    why = f"with M3's smaller vocabulary in {higher['m3']} of {len(DIRECTIONS)}; Table 3"
    ours = f"in {higher['dense']} of {len(DIRECTIONS)} directions of ZCode Dense"
    return Result(higher["dense"] == len(DIRECTIONS), ours, why)


def _bleu_kept(_: Printed) -> Result:
    changes = sorted(CELLS, key=lambda cell: cell.bleu_change)
    worst, best = (
        f"{cell.bleu_change:+.2f} ({MODELS[cell.model]} {cell.row}, set {cell.set}, beam {cell.beam})"
        for cell in (changes[0], changes[-1])
    )
    ours = f"{worst} to {best}, mean {fmean(cell.bleu_change for cell in CELLS):+.3f}"
    why = f"a loss of {MOST_BLEU_CHANGE} allowed in each of the {len(CELLS)} cells of Tables 3 and 4"
    return Result(round(changes[0].bleu_change, 4) >= -MOST_BLEU_CHANGE, ours, why)


WHAT = {"baseline": "BLEU", "clustered": "BLEU with clusters", "gain_percent": "gain, %"}


def _averages(test_set: int) -> Value:
    def value(_: Printed) -> Result:
        averages = [row for row in means() if row.set == test_set]
        odd = [row for row in averages if row.follows == "neither"]
        mixed = sum(row.follows == "by sentences" for row in averages)
        texts = [f"{row.simple:.2f} simple, {row.by_sentences:.2f} by sentences" for row in odd]
        ours = "; ".join(
            f"{MODELS[row.model]} {row.row}, beam {row.beam}, {WHAT[row.what]} {text}"
            for row, text in zip(odd, texts, strict=True)
        )
        why = f"of {len(averages)}, {len(averages) - len(odd) - mixed} are simple means"
        return Result(not odd, ours, f"{why} and {mixed} weighted by sentences" if mixed else why)

    return value


def _size(_: Printed) -> Result:
    dense, m3 = (parameters(PRESETS[model]) / 1e9 for model in MODELS)
    why = "embedding tied, experts in every second layer, which the text leaves open; printed digits cut off, not rounded"
    return Result(0.7 <= dense < 0.8 and 5.0 <= m3 < 6.0, f"ZCode Dense {dense:.2f} billion; ZCode M3 {m3:.2f} billion", why)


def _table_6(_: Printed) -> Result:
    rows = PAPER.table("table-6").rows
    same = sum(abs(row["clustered"] - row["baseline"] - row["printed_difference"]) <= 0.005 for row in rows)
    return Result(same == len(rows), f"{same} of {len(rows)}")


SPANS = ", ".join(f"{name} {format_span([row.ratio for row in of_model(model)])}" for model, name in MODELS.items())
PRINTED_CLAIMS: list[Claim[Printed]] = of_paper(
    PAPER,
    [
        Claim("FVP-21 (a)", value=_mean_active),
        Claim("FVP-21 (b)", value=_spanned(2.35, 2.65, [row.ratio for row in PROJECTION], f"{SPANS}, by Table 2")),
        Claim("FVP-21 (c)", value=_fifteen_percent),
        Claim("FVP-20 (a)", value=_quarter_of_time),
        Claim("FVP-21 (d)", value=_spanned(12.95, 25.75, _gains("dense"), "Table 3", " %")),
        Claim("FVP-21 (e)", value=_spanned(5.5, 8.85, _gains("m3"), "Table 3", " %")),
        Claim("FVP-20 (b)", value=_beam_one_gains_more),
        Claim("FVP-20 (c)", value=_bleu_kept),
        Claim("FVP-16", value=_averages(1)),
        Claim("FVP-17", value=_averages(2)),
        Claim("FVP-13", value=_size),
        Claim("FVP-19 (a)", value=_table_6),
    ],
)


class Presets(Facts):
    """The memory of clusters beside the paper's models, by their shapes."""

    basis = "inferred"


def _preset_memory(clusters: int) -> Value:
    def value(_: Presets) -> Result:
        rows = [row for row in preset_memory() if (row.clusters, row.top) == (clusters, 1)]
        ours = "; ".join(f"{MODELS[row.model]} {row.bytes / 1e6:.1f} MB, {100 * row.of_model:.2f} %" for row in rows)
        published = ", ".join(f"{100 * row.of_published:.2f} %" for row in rows)
        why = f"of the weights alone in float16; of the memory that Table 5 prints {published}; the paper prints cluster 0's "
        why += f"share, about {FIGURE_4[1]:.0f} % of the columns, which is taken for all clusters"
        return Result({row.model: row.of_model for row in rows}, ours, why, words=None)

    return value


PRESET_CLAIMS: list[Claim[Presets]] = of_paper(
    PAPER,
    [
        Claim("FVP-18 (a)", value=_preset_memory(BEST), holds=below(MOST_MEMORY)),
        Claim("FVP-18 (b)", value=_preset_memory(TYPICAL), holds=below(MOST_MEMORY)),
    ],
)


# By the output layer alone.

ROWS = 40
"""Rows of a step: beam 2 and batch 20, as in Table 2."""
MOST_OVERHEAD = 0.5
"""Largest share of the dense time that assignment, union and scatter may take where a gain is required (FVP-15)."""


@dataclass(frozen=True)
class Layer(Facts):
    """A measurement of the output layer by itself."""

    bench: ProjectionBench

    @property
    def device(self) -> str:  # type: ignore[override]
        """The box, and the type of weights unless it is float32."""
        return name_of(self.bench)

    @property
    def basis(self) -> str:  # type: ignore[override]
        """How it is known."""
        return self.bench.kind


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
    why = "whole steps, the choice of columns and the search included, against the fastest of torch's products and the same "
    why += "search; as published, scattered, " + ", ".join(f"{step.scattered_ratio:.2f}" for _, _, step in bars)
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


def printed_claims() -> list[ClaimRecord]:
    """Return the claims that the printed figures and shapes decide, and those that nothing here can decide."""
    return [*judge(PRESET_CLAIMS, [Presets()]), *judge(PRINTED_CLAIMS, [Printed()]), *unmeasured(PAPER.unmeasured)]
