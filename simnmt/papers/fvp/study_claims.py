"""The claims that a study of a trained model, and a bench of the output layer, decide (FVP-08 to 11, 15, 20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, median
from typing import cast

from simnmt.calibrate.projection_bench import BAR_SIZE, BARS, FIT_WITHIN, ProjectionBench
from simnmt.papers.fvp.published import LEAST_IDENTICAL, MOST_ACTIVE, MOST_BLEU_CHANGE, PAPER
from simnmt.papers.fvp.study import Part, Row, Study
from simnmt.papers.kit.claims import (
    Bound,
    Claim,
    ClaimRecord,
    Effect,
    Effects,
    Facts,
    Result,
    Undecided,
    about,
    above,
    agrees,
    at_least,
    at_most,
    judge,
    of_paper,
)
from simnmt.papers.kit.rendering import grouped
from simnmt.results.statistics import Estimate

UNCLEAR: Effect = (True, False)
"""Neither clearly so nor clearly not."""
NEEDS = "needs a study of a trained model: give --study, or --model and its texts"
NEAR_PREDICTED = about(1.0, 0.10)
"""Largest relative difference of Amdahl's prediction from the measurement (FVP-20's accept)."""
NOISE = 0.05
"""Relative rise of a share from step to step that a falling trend allows: k-means starts anew at each step."""
SIGMAS = 2.0
"""Standard errors of a difference of two miss rates within which they count as equal."""
Rows = Sequence[Row]


class Studied(Facts):
    """A study of one model; a share of V means nothing without V."""

    def __init__(self, study: Study) -> None:
        self.study, self.device = study, study.name
        self.setting = f"V {study.model.vocab:,}, width {study.model.width:,}"

    def lacks(self, need: str) -> Undecided | None:
        """Return the reason why a claim that needs this part, or its times (`timed chosen`), cannot be judged."""
        part = need.removeprefix("timed ")
        entries = getattr(self.study, part)
        if not entries:
            return _lacking(part)
        disturbed = sum(not entry.conclusive for entry in entries) if part != need else 0
        what = f"{disturbed} of {len(entries)} cells have too few undisturbed stretches: measure the part again on a quiet box"
        return Undecided(what) if disturbed else None


def _lacking(part: str) -> Undecided:
    return Undecided(f"the study has no part `{part}`", "needs --model")


def _claim(identifier: str, needs: str, value: Callable[[Rows], Result], holds: Bound = agrees) -> Claim[Studied]:
    """Return a claim that rows of a part decide; `needs`: see `Studied.lacks`."""
    part = cast(Part, needs.removeprefix("timed "))
    return Claim(identifier, value=lambda studied: value(studied.study.rows(part)), holds=holds, needs=needs)


def _fill(template: str, row: Row) -> str:
    return template.format(**vars(row)).replace("%", " %")


def _decoded(identifier: str, ours: str, effects: Callable[[Rows], Effects], why: str, holds: Bound = agrees) -> Claim[Studied]:
    """Return a claim on the decodings with the chosen clusters; `ours`: template of our figures of one."""

    def value(rows: Rows) -> Result:
        effect = effects(rows)
        texts = [
            f"{label}, {method}: " + ", ".join(_fill(f"{ours} (beam {{beam}}, batch {{batch}})", row) for row in group)
            for (label, method), group in grouped(rows, "label", "method", order="rows").items()
        ]
        return Result(effect, "; ".join(texts), why, words=None)

    return _claim(identifier, "chosen" if holds is agrees else "timed chosen", value, holds)


def _all_kept(rows: Rows) -> Effects:
    return all(row.identical >= LEAST_IDENTICAL for row in rows)


def _rounds(key: str) -> Callable[[Rows], Effects]:
    return lambda rows: max((getattr(row, key) for row in rows), key=median)


def _same_bleu(rows: Rows) -> Effects:
    if any(row.bleu_change is None for row in rows):
        raise Undecided("needs references")
    return all(abs(round(row.bleu_change, 4)) <= MOST_BLEU_CHANGE for row in rows)


def _few_active(rows: Rows) -> Effects:
    single = [row.share_most <= MOST_ACTIVE for row in rows if row.rows == 1]
    if not single:
        raise Undecided("no decoding at batch 1")
    return all(single)


def _predicted(rows: Rows) -> Effects:
    effects: dict[str, Effect] = {str(at): [row.predicted / gain for gain in row.gains] for at, row in enumerate(rows)}
    if all(NEAR_PREDICTED.allows(1.0 / gain) for row in rows for gain in row.gains):
        effects["no test"] = UNCLEAR  # what no gain explains as well can speak against the law, but not for it
    return effects


def _single(rows: Rows) -> Result:
    groups = grouped(rows, "label", "method", order="rows").values()
    pairs = [(group[0], group[1]) for group in groups if len(group) == 2 and group[0].rows == 1]
    if not pairs:
        raise _lacking("chosen at both searches")
    effects: dict[str, Effect] = {
        one.label: Estimate(one.measured - other.measured, min(one.gains) - max(other.gains), max(one.gains) - min(other.gains))
        for one, other in pairs
    }
    ours = [f"{one.label}: {one.gain_percent:+.1f} % against {other.gain_percent:+.1f} %" for one, other in pairs]
    return Result(effects, "; ".join(ours), "each round against each, as the two searches do not take turns", words=None)


def _fastest(rows: Rows) -> Result:
    effects: dict[str, Effect] = {}
    ours, judged = [], []
    for (label, beam, batch), group in grouped(rows, "label", "beam", "batch", order=lambda row: -row.measured).items():
        most = max(row.clusters for row in group)
        supporting = [row for row in group if row.top == 1 and row.clusters >= most / 2]
        opposing = [row for row in group if row not in supporting]
        where = f"{label}, beam {beam}, batch {batch}"
        ours.append(f"{where}: {group[0].gain_percent:+.1f} % at {group[0].method}")
        if supporting and opposing:
            best, rival = supporting[0], opposing[0]
            effects[where] = [ours > theirs for ours, theirs in zip(best.gains, rival.gains, strict=True)]
            judged.append(f"{best.method} ({best.gain_percent:+.1f} %) against {rival.method} ({rival.gain_percent:+.1f} %)")
    if not effects:
        raise _lacking("speeds of K = 1 and others at high numbers of clusters")
    why = "the best with K = 1 and half of the most clusters or more against the best of the others, round by round: "
    return Result(effects, "; ".join(ours), why + ", ".join(judged), words=None)


def _trend(
    share: str, along: str, follows: Callable[[Rows], Effect], name: str, place: str, why: str, *, every: bool = False
) -> Callable[[Rows], Result]:
    """Return what judges how a share changes along a column, in series of rows that differ in it alone.

    `follows`: whether a series follows the claim; `name`, `place`: templates of a series and of what differs in it; `every`:
    show all rows of each direction's series with the most clusters, else the ends of all series.
    """
    keys = [key for key in ("label", "clusters", "top", "training_sentences") if key != along]

    def value(rows: Rows) -> Result:
        series = {key: group for key, group in grouped(rows, *keys, order=along).items() if len(group) > 1}
        if not series:
            raise _lacking(f"of cells that differ in {along}")
        most = {group[0].label: max(other[0].clusters for other in series.values()) for group in series.values()}
        texts = []
        for group in series.values():
            if not every or group[0].clusters == most[group[0].label]:
                shown = group if every else (group[0], group[-1])
                texts.append(f"{_fill(name, group[0])}: {', '.join(_fill(f'{{{share}:.2%}} {place}', row) for row in shown)}")
        return Result({str(key): follows(group) for key, group in series.items()}, "; ".join(texts), why, words=None)

    return value


def _falls(rows: Rows) -> Effect:
    """Return whether shares fall by more than `NOISE` in all, or to 0; false if they rise by more than `NOISE` at any step."""
    values = [row.share_mean for row in rows]
    if values[-1] > values[0] * (1 + NOISE) or any(after > before * (1 + NOISE) for before, after in pairwise(values)):
        return False
    return True if values[-1] == 0.0 or values[-1] < values[0] * (1 - NOISE) else UNCLEAR


def _more_columns(rows: Rows) -> Effect:
    return all(before.share_mean < after.share_mean for before, after in pairwise(rows))


def _fewer_misses(rows: Rows) -> Effect:
    """Return whether misses fall clearly from first to last, or to 0; false if they rise clearly at any step."""

    def fall(before: Row, after: Row) -> float:
        """Return the fall in standard errors of two binomial shares."""
        error = sqrt(sum(row.miss_rate * (1.0 - row.miss_rate) / row.heldout_tokens for row in (before, after)))
        return float((before.miss_rate - after.miss_rate) / error) if error > 0.0 else 0.0

    if any(fall(before, after) < -SIGMAS for before, after in (*pairwise(rows), (rows[0], rows[-1]))):
        return False
    return True if rows[-1].miss_rate == 0.0 or fall(rows[0], rows[-1]) > SIGMAS else UNCLEAR


def _knowledge(rows: Rows) -> Result:
    pairs = {
        key: {row.knowledge: row.set_most for row in group} for key, group in grouped(rows, "label", "clusters", "top").items()
    }
    pairs = {key: most for key, most in pairs.items() if len(most) == 2}
    if not pairs:
        raise _lacking("by_language of both kinds")
    kept = [most["both"] <= most["target"] for most in pairs.values()]
    ours = "; ".join(
        "{}, {} clusters, K = {}: ".format(*key) + _fill("{both:.2%} against {target:.2%}", Row(**pairs[key]))
        for key in [key for key in pairs if key[1] == PAPER["figure_2"]["clusters"]] or list(pairs)
    )
    why = f"so in {sum(kept)} of {len(kept)} pairs of a direction, a number of clusters and a K; "
    return Result(kept, ours, f"{why}the mix holds more contexts than one direction, which alone may make its sets larger")


ACTIVE = "{share_mean:.2%} of V with {share_most:.2%} at most, so {share_of_emitted:.1%} of the {emitted:,} tokens written"
TIES = "near ties, closer than rounding, count as different"
BEST_CELL = "the best cell is judged, round by round, over plain dense decoding"
GAINS = "{gain_percent:+.1f}%"
NO_TEST = "by round; where a prediction of no gain passes too, it is no test"
BY_K = ("{label}, {clusters:,} clusters", "at K = {top}", "so by construction: the set of a K is part of that of a larger one")
BY_R = ("{label}, K = {top}", "at {clusters:,}", "of V, mean over held-out steps at batch 1; a step may rise by 5 %")
BY_TEXT = (
    "{label}, {clusters:,} clusters, K = {top}",
    "with {training_sentences:,} sentences",
    "as a trend, by 2 standard errors",
)
STUDY_CLAIMS = of_paper(
    PAPER,
    [
        _decoded("FVP-08 (a)", "{identical:.1%} of {sentences:,}{ties}", _all_kept, TIES),
        _decoded("FVP-08 (b)", "{bleu_change:+.2f} of {bleu:.2f}", _same_bleu, "a gain is a difference too, though no loss"),
        _decoded("FVP-20 (d)", ACTIVE, _few_active, "judged by the most of any step at batch 1"),
        _decoded("FVP-20 (e)", "{layer_ratio:.2f}", _rounds("layer_ratios"), BEST_CELL, at_least(PAPER["step_ratio"])),
        _decoded("FVP-20 (f)", GAINS, _rounds("gains"), BEST_CELL, at_least(1.0 + PAPER["gain"])),
        _decoded("FVP-20 (g)", f"{GAINS} where {{predicted_percent:+.1f}}% was predicted", _predicted, NO_TEST, NEAR_PREDICTED),
        _claim("FVP-20 (h)", "timed chosen", _single, above(0.0)),
        _claim("FVP-11 (a)", "sweep", _trend("share_mean", "clusters", _falls, *BY_R)),
        _claim("FVP-11 (b)", "sweep", _trend("share_mean", "top", _more_columns, *BY_K, every=True)),
        _claim("FVP-11 (d)", "timed speeds", _fastest),
        _claim("FVP-08 (c)", "sweep", _trend("miss_rate", "top", _fewer_misses, *BY_K, every=True)),
        _claim("FVP-10", "by_language", _knowledge),
        _claim("FVP-08 (d)", "volume", _trend("miss_rate", "training_sentences", _fewer_misses, *BY_TEXT)),
    ],
)


def study_claims(studies: Sequence[Study]) -> list[ClaimRecord]:
    """Return all claims by every study; without a study, claims that name the missing study."""
    return judge(STUDY_CLAIMS, [Studied(study) for study in studies], Undecided(NEEDS, "needs --model"))


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
