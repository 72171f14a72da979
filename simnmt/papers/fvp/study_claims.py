"""The claims that a study of a trained model decides, by its clusters and by real decoding (FVP-08, 10, 11, 20)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any

from simnmt.papers.fvp.published import LEAST_IDENTICAL, MOST_ACTIVE, MOST_BLEU_CHANGE, NEAR_PREDICTED, PAPER
from simnmt.papers.fvp.study import Cell, Decoded, Speed, Study, format_clusters
from simnmt.papers.kit.claims import (
    Claim,
    ClaimRecord,
    Effect,
    Facts,
    Result,
    Undecided,
    about,
    above,
    at_least,
    format_span,
    judge,
    of_paper,
)
from simnmt.papers.kit.figures import grouped
from simnmt.results.statistics import Estimate

UNCLEAR: Effect = (True, False)
"""Neither clearly so nor clearly not."""
NEEDS = "needs a study of a trained model: give --study, or --model and its texts"
NOISE = 0.05
"""Relative rise of a share from step to step that a falling trend allows: k-means starts anew at each step."""
SIGMAS = 2.0
"""Standard errors of a difference of two miss rates within which they count as equal."""


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


@dataclass(frozen=True)
class Studied(Facts):
    """A study of one model."""

    study: Study

    @property
    def device(self) -> str:  # type: ignore[override]
        """Name of the model."""
        return self.study.name

    @property
    def setting(self) -> str:  # type: ignore[override]
        """The size of the layer: a share of V means nothing without V."""
        return f"V {self.study.model.vocab:,}, width {self.study.model.width:,}"

    def lacks(self, need: str) -> Undecided | None:
        """Return the reason why a claim that needs this part, or its times (`timed chosen`), cannot be judged."""
        part = need.removeprefix("timed ")
        entries = getattr(self.study, part)
        if not entries:
            return Undecided(f"the study has no part `{part}`", "needs --model")
        disturbed = sum(not entry.conclusive for entry in entries) if part != need else 0
        what = f"{disturbed} of {len(entries)} cells have too few undisturbed stretches: measure the part again on a quiet box"
        return Undecided(what) if disturbed else None


def _lacking(part: str) -> Undecided:
    return Undecided(f"the study has no part `{part}`", "needs --model")


def _rows_of(decoding: Decoded) -> int:
    return decoding.beam * decoding.batch


def _by_search(decodings: Sequence[Decoded], describe: Callable[[Decoded], str]) -> str:
    """Describe every decoding, grouped by direction and method and sorted by beam and batch."""
    return "; ".join(
        f"{label}, {method}: " + ", ".join(f"{describe(one)} (beam {one.beam}, batch {one.batch})" for one in group)
        for (label, method), group in grouped(decodings, "label", "method", order=_rows_of).items()
    )


def _identical(studied: Studied) -> Result:
    def describe(decoding: Decoded) -> str:
        ties = f" and {decoding.near_ties} near ties" if decoding.near_ties else ""
        return f"{100 * decoding.identical:.1f} % of {decoding.sentences:,}{ties}"

    chosen = studied.study.chosen
    kept = all(decoding.identical >= LEAST_IDENTICAL for decoding in chosen)
    return Result(kept, _by_search(chosen, describe), "near ties, closer than rounding, count as different")


def _bleu(studied: Studied) -> Result:
    known = [decoding for decoding in studied.study.chosen if decoding.bleu_change is not None]
    if not known:
        raise Undecided("needs references")
    changes = [round(decoding.bleu_change or 0.0, 4) for decoding in known]
    lost, risen = (sum(sign * change > MOST_BLEU_CHANGE for change in changes) for sign in (-1, 1))
    why = f"{lost} of {len(known)} cells lose more, {risen} gain more: a gain is a difference too, though no loss"
    ours = _by_search(known, lambda decoding: f"{decoding.bleu_change:+.2f} of {decoding.bleu:.2f}")
    return Result(not lost and not risen, ours, why)


def _active(studied: Studied) -> Result:
    vocab, chosen = studied.study.model.vocab, studied.study.chosen

    def describe(decoding: Decoded) -> str:
        written = 100 * decoding.share_mean * vocab / decoding.emitted
        mean, most = 100 * decoding.share_mean, 100 * decoding.share_most
        return f"{mean:.2f} % of V with {most:.2f} % at most, so {written:.1f} % of the {decoding.emitted:,} tokens written"

    single = [decoding.share_most <= MOST_ACTIVE for decoding in chosen if _rows_of(decoding) == 1]
    if not single:
        raise Undecided("no decoding at batch 1")
    return Result(all(single), _by_search(chosen, describe), "judged by the most of any step at batch 1")


def _over_both(plain: float, fused: float, required: float, form: Callable[[float], str]) -> str:
    """Describe the best ratio over plain and over fused dense decoding, and if only the former is the `required` one."""
    text = f"at best {form(plain)} over plain dense decoding, {form(fused)} over the fused output layer, which is exact"
    return f"{text}: reached over plain alone" if plain >= required > fused else text


def _step(studied: Studied) -> Result:
    decodings, required = studied.study.chosen, PAPER["step_ratio"]
    best = max(decodings, key=lambda decoding: decoding.layer_ratio)
    fused = max(decoding.layer_ratio_over_fused for decoding in decodings)
    why = f"projection, softmax and search, the choice of columns included; the best of {len(decodings)} cells is judged, "
    why += f"round by round; {_over_both(best.layer_ratio, fused, required, '{:.2f} times'.format)}"
    return Result(best.layer_ratios, _by_search(decodings, lambda decoding: f"{decoding.layer_ratio:.2f}"), why)


def _whole(studied: Studied) -> Result:
    chosen, required = studied.study.chosen, 1.0 + PAPER["gain"]
    best = max(chosen, key=lambda decoding: decoding.measured)
    fused = max(decoding.measured_over_fused for decoding in chosen)
    why = f"the best of {len(chosen)} cells is judged, round by round; {_over_both(best.measured, fused, required, _percent)}; "
    why += f"the output layer has {100 * best.layer_share:.0f} % of its dense time"
    return Result(best.gains, _by_search(chosen, lambda decoding: _percent(decoding.measured)), why)


def _amdahl(studied: Studied) -> Result:
    chosen, near = studied.study.chosen, about(1.0, NEAR_PREDICTED)
    trivial = [decoding for decoding in chosen if all(near.allows(1.0 / ratio) for ratio in decoding.gains)]
    why = "each round's ratio against the prediction; below the output layer, where it assumes no change, decoding gets "
    why += f"{format_span([decoding.body_ratio for decoding in chosen])} times as fast"
    effects: dict[str, Effect] = {
        str(place): [decoding.predicted / ratio for ratio in decoding.gains] for place, decoding in enumerate(chosen)
    }
    if trivial:
        why += "; no test of it where a prediction of no gain passes too: "
        why += _by_search(trivial, lambda decoding: _percent(decoding.measured))
    if len(trivial) == len(chosen):
        effects["no test"] = UNCLEAR  # what no gain explains as well can speak against the law, but not for it
    ours = _by_search(chosen, lambda one: f"{_percent(one.measured)} where {_percent(one.predicted)} was predicted")
    return Result(effects, ours, why, words=None)


def _single(studied: Studied) -> Result:
    groups = grouped(studied.study.chosen, "label", "clusters", "top", order=_rows_of).values()
    pairs = [group for group in groups if len(group) == 2 and _rows_of(group[0]) == 1]
    if not pairs:
        raise _lacking("chosen at both searches")
    ours = "; ".join(f"{one.label}: {_percent(one.measured)} against {_percent(other.measured)}" for one, other in pairs)
    fused = "; ".join(
        f"{one.label} {_percent(one.measured_over_fused)} against {_percent(other.measured_over_fused)}" for one, other in pairs
    )
    why = "each round of the one against each of the other, as the two searches do not take turns; over plain decoding; "
    effects: dict[str, Effect] = {
        one.label: Estimate(one.measured - other.measured, min(one.gains) - max(other.gains), max(one.gains) - min(other.gains))
        for one, other in pairs
    }
    return Result(effects, ours, f"{why}over the fused output layer {fused}", words=None)


def _fastest(studied: Studied) -> Result:
    effects: dict[str, Effect] = {}
    ours, judged = [], []
    speeds = studied.study.speeds
    for (label, beam, batch), group in grouped(speeds, "label", "beam", "batch", order=lambda speed: -speed.gain).items():
        best, most = group[0], max(speed.clusters for speed in group)
        supporting = [speed for speed in group if speed.top == 1 and speed.clusters >= most / 2]
        opposing = [speed for speed in group if speed not in supporting]
        where = f"{label}, beam {beam}, batch {batch}"
        ours.append(f"{where}: {_percent(1.0 + best.gain)} at {format_clusters(best.clusters, best.top)}")
        if supporting and opposing:
            effects[where] = [ratio > rival for ratio, rival in zip(supporting[0].ratios, opposing[0].ratios, strict=True)]
            judged.append(f"{_format_speed(supporting[0])} against {_format_speed(opposing[0])}")
    if not effects:
        raise _lacking("speeds of K = 1 and others at high numbers of clusters")
    why = "the best with K = 1 and half of the most clusters or more against the best of the others, round by round: "
    return Result(effects, "; ".join(ours), why + ", ".join(judged), words=None)


def _format_speed(speed: Speed) -> str:
    return f"{format_clusters(speed.clusters, speed.top)} ({_percent(1.0 + speed.gain)})"


def _series(cells: Sequence[Cell], *keys: str, along: str) -> dict[tuple[Any, ...], list[Cell]]:
    """Return the cells that differ in `along` alone, sorted by it. Raises `Undecided` without two, which a trend needs."""
    series = {key: group for key, group in grouped(cells, *keys, order=along).items() if len(group) > 1}
    if not series:
        raise _lacking(f"of cells that differ in {along}")
    return series


def _points(cells: Iterable[Cell], share: str, place: str) -> str:
    """Describe a share of some cells; `place`: template of what differs between them."""
    return ", ".join(f"{100 * getattr(cell, share):.2f} % {place.format(cell)}" for cell in cells)


def _more_clusters(studied: Studied) -> Result:
    series = _series(studied.study.sweep, "label", "top", along="clusters")
    ours = [
        f"{label}, K = {top}: {_points((cells[0], cells[-1]), 'share_mean', 'at {0.clusters:,}')}"
        for (label, top), cells in series.items()
    ]
    rises = [after.share_mean > before.share_mean for cells in series.values() for before, after in pairwise(cells)]
    why = f"of V, mean over held-out steps at batch 1; {sum(rises)} of {len(rises)} steps rise, each by {NOISE:.0%} may"
    effects = {str(key): _falls([cell.share_mean for cell in cells]) for key, cells in series.items()}
    return Result(effects, "; ".join(ours), why, words=None)


def _falls(values: Sequence[float]) -> Effect:
    """Return whether values fall by more than `NOISE` in all, or to 0; false if they rise by more than `NOISE` at any step."""
    if values[-1] > values[0] * (1 + NOISE) or any(after > before * (1 + NOISE) for before, after in pairwise(values)):
        return False
    return True if values[-1] == 0.0 or values[-1] < values[0] * (1 - NOISE) else UNCLEAR


def _by_top(
    share: str, follows: Callable[[Sequence[Cell]], Effect], amount: str, *, grows: bool
) -> Callable[[Studied], Result]:
    """Return what measures how a share grows or falls with K, which it does by construction."""

    def value(studied: Studied) -> Result:
        series = _series(studied.study.sweep, "label", "clusters", along="top")
        ends = [[getattr(cell, share) for cell in (cells[0], cells[-1])] for cells in series.values()]
        factors = [last / first if grows else first / last for first, last in ends if min(first, last) > 0.0]
        compared = dict.fromkeys(f"K = {cells[-1].top} against K = {cells[0].top}" for cells in series.values())
        largest = dict(sorted(series))
        ours = [
            f"{label}, {clusters:,} clusters: {_points(cells, share, 'at K = {0.top}')}"
            for (label, clusters), cells in series.items()
            if largest[label] == clusters
        ]
        why = "so by construction, as the set of a K is part of that of a larger one"
        why += f"; {format_span(factors)} times {amount} with the largest K, {', '.join(compared)}" if factors else ""
        return Result({str(key): follows(cells) for key, cells in series.items()}, "; ".join(ours), why, words=None)

    return value


def _more_columns(cells: Sequence[Cell]) -> Effect:
    return all(before.share_mean < after.share_mean for before, after in pairwise(cells))


def _apart(before: Cell, after: Cell) -> float:
    """Return the fall of the miss rate in standard errors of two binomial shares."""
    error = sqrt(sum(cell.miss_rate * (1.0 - cell.miss_rate) / cell.heldout_tokens for cell in (before, after)))
    return (before.miss_rate - after.miss_rate) / error if error > 0.0 else 0.0


def _fewer_misses(cells: Sequence[Cell]) -> Effect:
    """Return whether misses fall clearly from first to last, or to 0; false if they rise clearly at any step."""
    if any(_apart(before, after) < -SIGMAS for before, after in (*pairwise(cells), (cells[0], cells[-1]))):
        return False
    return True if cells[-1].miss_rate == 0.0 or _apart(cells[0], cells[-1]) > SIGMAS else UNCLEAR


def _misses_by_volume(studied: Studied) -> Result:
    series = _series(studied.study.volume, "label", "clusters", "top", along="training_sentences")
    ours = [
        f"{label}, {clusters:,} clusters, K = {top}: "
        + _points((cells[0], cells[-1]), "miss_rate", "with {0.training_sentences:,} sentences")
        for (label, clusters, top), cells in series.items()
    ]
    why = f"as a trend, by {SIGMAS:g} standard errors of the held-out tokens"
    return Result({str(key): _fewer_misses(cells) for key, cells in series.items()}, "; ".join(ours), why, words=None)


def _knowledge(studied: Studied) -> Result:
    rows = grouped(studied.study.by_language, "label", "clusters", "top")
    most = {key: {cell.knowledge: cell.set_most for cell in row} for key, row in rows.items()}
    pairs = {key: (largest["both"], largest["target"]) for key, largest in most.items() if {"both", "target"} <= largest.keys()}
    if not pairs:
        raise _lacking("by_language of both kinds")
    kept = [both <= target for both, target in pairs.values()]
    shown = [key for key in pairs if key[1] == PAPER["figure_2"]["clusters"]] or list(pairs)
    ours = "; ".join(
        "{}, {} clusters, K = {}: ".format(*key) + f"{100 * pairs[key][0]:.2f} against {100 * pairs[key][1]:.2f} %"
        for key in shown
    )
    why = f"so in {sum(kept)} of {len(kept)} pairs of a direction, a number of clusters and a K; "
    why += "the mix holds more contexts than one direction, which alone may make its sets larger"
    return Result(kept, ours, why)


STUDY_CLAIMS: list[Claim[Studied]] = of_paper(
    PAPER,
    [
        Claim("FVP-08 (a)", value=_identical, needs="chosen"),
        Claim("FVP-08 (b)", value=_bleu, needs="chosen"),
        Claim("FVP-20 (d)", value=_active, needs="chosen"),
        Claim("FVP-20 (e)", value=_step, holds=at_least(PAPER["step_ratio"]), needs="timed chosen"),
        Claim("FVP-20 (f)", value=_whole, holds=at_least(1.0 + PAPER["gain"]), needs="timed chosen"),
        Claim("FVP-20 (g)", value=_amdahl, holds=about(1.0, NEAR_PREDICTED), needs="timed chosen"),
        Claim("FVP-20 (h)", value=_single, holds=above(0.0), needs="timed chosen"),
        Claim("FVP-11 (a)", value=_more_clusters, needs="sweep"),
        Claim("FVP-11 (b)", value=_by_top("share_mean", _more_columns, "as many columns", grows=True), needs="sweep"),
        Claim("FVP-11 (d)", value=_fastest, needs="timed speeds"),
        Claim("FVP-08 (c)", value=_by_top("miss_rate", _fewer_misses, "fewer misses", grows=False), needs="sweep"),
        Claim("FVP-10", value=_knowledge, needs="by_language"),
        Claim("FVP-08 (d)", value=_misses_by_volume, needs="volume"),
    ],
)


def study_claims(studies: Sequence[Study]) -> list[ClaimRecord]:
    """Return all claims by every study; without a study, claims that name the missing study."""
    return judge(STUDY_CLAIMS, [Studied(study) for study in studies], Undecided(NEEDS, "needs --model"))
