"""The claims that a study of a trained model decides, by its clusters and by real decoding (FVP-08, 10, 11, 20, SHARP-02)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import TypeVar

from simnmt.papers.fvp import published
from simnmt.papers.fvp.study import Cell, ClusterSizes, Decoded, Knowledge, Speed, Study, format_clusters
from simnmt.papers.kit import claim as kit
from simnmt.papers.kit.claim import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    Judgement,
    format_span,
    holds_if,
    verdict_over_cases,
    worst_verdict,
)
from simnmt.papers.kit.page import grouped

NEEDS = "needs a study of a trained model: give --study, or --model and its texts"
NOISE = 0.05
"""Relative rise of a share from step to step that a falling trend allows: k-means starts anew at each step."""
SIGMAS = 2.0
"""Standard errors of a difference of two miss rates within which they count as equal."""
NESTED = "so by construction, as the set of a K is part of that of a larger one; the amount is the finding"

Entry = TypeVar("Entry", Cell, ClusterSizes)
ByClusters = Mapping[tuple[str, int], Sequence[Entry]]
"""Entries by direction and number of clusters, sorted by K."""
CLAIMS = kit.ClaimList()


def study_claims(study: Study | None) -> list[kit.ClaimRecord]:
    """Return all claims by one study; without a study, claims that name the missing study."""
    if study is None:
        return [claim.unknown(NEEDS, basis="needs --model") for claim in CLAIMS]
    return [_record(claim, study) for claim in CLAIMS]


def _record(claim: kit.Claim, study: Study) -> kit.ClaimRecord:
    entries, setting = getattr(study, claim.part), f"V {study.model.vocab:,}, width {study.model.width:,}"
    if not entries:
        return claim.unknown(str(_lacking(claim.part)), study.name, basis="needs --model")
    if claim.timed and (disturbed := sum(not entry.rounds.conclusive for entry in entries)):
        why = f"{disturbed} of {len(entries)} cells have too few undisturbed stretches: measure the part again on a quiet box"
        return claim.unknown(f"{setting}; {why}", study.name, basis="measured")
    return claim.record(entries, study, device=study.name, setting=setting)


def _lacking(part: str) -> kit.Undecided:
    """Return the error that a study lacks a part, or what a claim needs of it."""
    return kit.Undecided(f"the study has no part `{part}`", "needs --model")


def _rows_of(decoding: Decoded) -> int:
    return decoding.beam * decoding.batch


def _by_search(decodings: Sequence[Decoded], describe: Callable[[Decoded], str]) -> str:
    """Describe every decoding, grouped by direction and method and sorted by beam and batch."""
    return "; ".join(
        f"{label}, {method}: "
        + ", ".join(f"{describe(decoding)} (beam {decoding.beam}, batch {decoding.batch})" for decoding in group)
        for (label, method), group in grouped(decodings, "label", "method_label", order=_rows_of).items()
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


@CLAIMS.declare(
    "FVP-08 (a)",
    f"At least {100 * published.LEAST_IDENTICAL:.0f} % of the sentences stay the same, token by token",
    f"about {100 * published.IDENTICAL:.0f} % of 200,000 a direction",
    "chosen",
)
def _identical(decodings: Sequence[Decoded], _: Study) -> Judgement:
    def describe(decoding: Decoded) -> str:
        ties = f" and {decoding.near_ties} near ties" if decoding.near_ties else ""
        return f"{100 * decoding.identical:.1f} % of {decoding.sentences:,}{ties}"

    kept = all(decoding.identical >= published.LEAST_IDENTICAL for decoding in decodings)
    return Judgement(_by_search(decodings, describe), holds_if(kept), "near ties, closer than rounding, count as different")


@CLAIMS.declare(
    "FVP-08 (b)",
    f"BLEU stays within {published.MOST_BLEU_CHANGE} of dense decoding",
    "-0.27 to +0.12 in Tables 3 and 4",
    "chosen",
)
def _bleu(decodings: Sequence[Decoded], _: Study) -> Judgement:
    known = [decoding for decoding in decodings if decoding.bleu_change is not None]
    if not known:
        return Judgement("", UNKNOWN, "needs references")
    changes = [round(decoding.bleu_change or 0.0, 4) for decoding in known]
    lost = sum(change < -published.MOST_BLEU_CHANGE for change in changes)
    risen = sum(change > published.MOST_BLEU_CHANGE for change in changes)
    ours = _by_search(known, lambda decoding: f"{decoding.bleu_change:+.2f} of {decoding.dense.bleu:.2f}")
    why = f"{lost} of {len(known)} cells lose more, {risen} gain more: a gain is a difference too, though no loss"
    return Judgement(ours, holds_if(not lost and not risen), why)


@CLAIMS.declare(
    "FVP-20 (d)",
    f"At most {100 * published.MOST_ACTIVE:.0f} % of the columns are active, at batch 1",
    "at most about 15 %, at beam 2 and batch 20",
    "chosen",
)
def _active(decodings: Sequence[Decoded], _: Study) -> Judgement:
    def describe(decoding: Decoded) -> str:
        return (
            f"{100 * decoding.share.mean:.2f} % of V with {100 * decoding.share.most:.2f} % at most, so "
            f"{100 * decoding.share_of_emitted:.1f} % of the {decoding.emitted:,} tokens ever written"
        )

    single = [decoding for decoding in decodings if _rows_of(decoding) == 1]
    kept = holds_if(all(decoding.share.most <= published.MOST_ACTIVE for decoding in single))
    why = "judged by the most of any step at batch 1"
    return Judgement(_by_search(decodings, describe), kept if single else UNKNOWN, why)


def _over_both(plain: float, fused: float, required: float, form: Callable[[float], str]) -> str:
    """Describe the best ratio over plain and over fused dense decoding, and if only the former is the `required` one."""
    text = f"at best {form(plain)} over plain dense decoding, {form(fused)} over the fused output layer, which is exact"
    return f"{text}: reached over plain alone" if plain >= required > fused else text


def _step(required: float, decodings: Sequence[Decoded], _: Study) -> Judgement:
    best = max(decodings, key=lambda decoding: decoding.layer_ratio)
    fused = max(decoding.layer_ratio_over_fused for decoding in decodings)
    why = f"projection, softmax and search, the choice of columns included; the best of {len(decodings)} cells is judged, "
    why += f"round by round; {_over_both(best.layer_ratio, fused, required, '{:.2f} times'.format)}"
    verdict = verdict_over_cases([[ratio >= required for ratio in best.layer_ratios]])
    return Judgement(_by_search(decodings, lambda decoding: f"{decoding.layer_ratio:.2f}"), verdict, why)


CLAIMS.declare(
    "FVP-20 (e)",
    f"The output layer gets up to {published.STEP_RATIO} times as fast",
    f"up to {published.STEP_RATIO} times: of the projection, on a V100",
    "chosen",
    timed=True,
)(partial(_step, published.STEP_RATIO))


@CLAIMS.declare(
    "FVP-20 (f)",
    f"Decoding gains up to {100 * published.END_TO_END_GAIN:.0f} % end to end",
    f"up to {100 * published.END_TO_END_GAIN:.0f} %",
    "chosen",
    timed=True,
)
def _whole(decodings: Sequence[Decoded], _: Study) -> Judgement:
    required = 1.0 + published.END_TO_END_GAIN
    best = max(decodings, key=lambda decoding: decoding.measured)
    fused = max(decoding.measured_over_fused for decoding in decodings)
    why = f"the best of {len(decodings)} cells is judged, round by round; "
    why += f"{_over_both(best.measured, fused, required, _percent)}; "
    why += f"the output layer has {100 * best.layer_share:.0f} % of its dense time"
    verdict = verdict_over_cases([[ratio >= required for ratio in best.gains]])
    return Judgement(_by_search(decodings, lambda decoding: _percent(decoding.measured)), verdict, why)


def _is_near(predicted: float, ratio: float) -> bool:
    return abs(predicted / ratio - 1.0) <= published.NEAR_PREDICTED


@CLAIMS.declare(
    "FVP-20 (g)",
    f"Amdahl's prediction of the output layer is within {100 * published.NEAR_PREDICTED:.0f} % of the speed-up end to end",
    part="chosen",
    timed=True,
)
def _amdahl(decodings: Sequence[Decoded], _: Study) -> Judgement:
    trivial = [decoding for decoding in decodings if all(_is_near(1.0, ratio) for ratio in decoding.gains)]
    bodies = [decoding.body_ratio for decoding in decodings]
    why = "each round's ratio against the prediction; below the output layer, where it assumes no change, decoding gets "
    why += f"{format_span(bodies)} times as fast"
    if trivial:
        why += "; no test of it where a prediction of no gain passes too: "
        why += _by_search(trivial, lambda decoding: _percent(decoding.measured))
    ours = _by_search(decodings, lambda cell: f"{_percent(cell.measured)} where {_percent(cell.predicted)} was predicted")
    # A cell that no gain explains as well can speak against the law, but not for it.
    verdict = worst_verdict(
        verdict_over_cases([[_is_near(decoding.predicted, ratio) for ratio in decoding.gains]]) for decoding in decodings
    )
    return Judgement(ours, verdict if len(trivial) < len(decodings) or verdict == FAILS else UNCLEAR, why)


CLAIMS.declare(
    "SHARP-02",
    f"Lists of candidate words make the output layer at least {published.LIST_RATIO:.0f} times as fast",
    "around 2 times elsewhere, quoted",
    "candidates",
    timed=True,
)(partial(_step, published.LIST_RATIO))
CLAIMS.declare(
    "SHARP-02 (b)",
    f"With lists of candidate words BLEU stays within {published.MOST_BLEU_CHANGE} of dense decoding",
    part="candidates",
)(_bleu)


@CLAIMS.declare(
    "FVP-20 (h)",
    "Beam 1, batch 1 gains more than beam 2, batch 20",
    "so for the vocabulary of 250,000, not for that of 128,000",
    "chosen",
    timed=True,
)
def _single(decodings: Sequence[Decoded], _: Study) -> Judgement:
    groups = grouped(decodings, "label", "clusters", "top", order=_rows_of).values()
    pairs = [group for group in groups if len(group) == 2 and _rows_of(group[0]) == 1]
    if not pairs:
        raise _lacking("chosen at both searches")
    ours = "; ".join(f"{one.label}: {_percent(one.measured)} against {_percent(other.measured)}" for one, other in pairs)
    why = "each round of the one against each of the other, since the two searches do not take turns; over plain dense decoding"
    fused = "; ".join(
        f"{one.label} {_percent(one.measured_over_fused)} against {_percent(other.measured_over_fused)}" for one, other in pairs
    )
    verdict = worst_verdict(_all_above(one.gains, other.gains) for one, other in pairs)
    return Judgement(ours, verdict, f"{why}; over the fused output layer {fused}")


def _all_above(ratios: Sequence[float], others: Sequence[float]) -> str:
    """Return `HOLDS` if every ratio is above all `others`, `FAILS` if none is above any."""
    if min(ratios) > max(others):
        return HOLDS
    return FAILS if max(ratios) <= min(others) else UNCLEAR


@CLAIMS.declare(
    "FVP-11 (d)",
    "K = 1 is fastest, at a high number of clusters",
    f"K = 1 and {published.FIGURE_3_BEST:,} clusters, of 100 to 2,000",
    "speeds",
    timed=True,
)
def _fastest(speeds: Sequence[Speed], _: Study) -> Judgement:
    verdicts, ours, judged = [], [], []
    searches = grouped(speeds, "label", "beam", "batch", order=lambda speed: -speed.gain)
    for (label, beam, batch), group in searches.items():
        best, most = group[0], max(speed.clusters for speed in group)
        supporting = [speed for speed in group if speed.top == 1 and speed.clusters >= most / 2]
        opposing = [speed for speed in group if speed not in supporting]
        ours.append(
            f"{label}, beam {beam}, batch {batch}: {_percent(1.0 + best.gain)} at {format_clusters(best.clusters, best.top)}"
        )
        if supporting and opposing:
            rounds = zip(supporting[0].ratios, opposing[0].ratios, strict=True)
            verdicts.append([ratio > rival for ratio, rival in rounds])
            judged.append(f"{_format_speed(supporting[0])} against {_format_speed(opposing[0])}")
    if not verdicts:
        raise _lacking("speeds of K = 1 and others at high numbers of clusters")
    clusters = sorted({speed.clusters for speed in speeds})
    tops = ", ".join(map(str, sorted({speed.top for speed in speeds})))
    why = f"of these {len(clusters)} numbers of clusters, {', '.join(f'{count:,}' for count in clusters)}, and K = {tops}; the "
    why += "best with K = 1 and half of the most clusters or more against the best of the others, round by round: "
    return Judgement("; ".join(ours), verdict_over_cases(verdicts), why + ", ".join(judged))


def _format_speed(speed: Speed) -> str:
    return f"{format_clusters(speed.clusters, speed.top)} ({_percent(1.0 + speed.gain)})"


@CLAIMS.declare(
    "FVP-11 (a)", "More clusters make fewer columns active, as a trend", "a trend of figure 3's speeds", part="sweep"
)
def _more_clusters(cells: Sequence[Cell], _: Study) -> Judgement:
    rows = {key: row for key, row in grouped(cells, "label", "top", order="clusters").items() if len(row) > 1}
    if not rows:
        raise _lacking("sweep of several numbers of clusters")
    ours = "; ".join(
        f"{label}, K = {top}: {100 * row[0].share.mean:.2f} % at {row[0].clusters:,} to "
        f"{100 * row[-1].share.mean:.2f} % at {row[-1].clusters:,}"
        for (label, top), row in rows.items()
    )
    series = [[cell.share.mean for cell in row] for row in rows.values()]
    rises = [after > before for shares in series for before, after in pairwise(shares)]
    why = f"of V, mean over held-out steps at batch 1; {sum(rises)} of {len(rises)} steps rise, each by {NOISE:.0%} may"
    return Judgement(ours, worst_verdict(map(_falls, series)), why)


def _falls(values: Sequence[float]) -> str:
    """Return `HOLDS` if the values fall by more than `NOISE` in all, or to 0, and rise by no more than `NOISE` at any step."""
    if values[-1] > values[0] * (1 + NOISE) or any(after > before * (1 + NOISE) for before, after in pairwise(values)):
        return FAILS
    return HOLDS if values[-1] == 0.0 or values[-1] < values[0] * (1 - NOISE) else UNCLEAR


def _by_clusters(entries: Sequence[Entry], part: str) -> dict[tuple[str, int], list[Entry]]:
    """Return the groups of several K, as a trend needs two points. Raises `Undecided` if there is none."""
    groups = grouped(entries, "label", "clusters", order="top")
    rows = {(label, clusters): group for (label, clusters), group in groups.items() if len(group) > 1}
    if not rows:
        raise _lacking(f"{part} of several K")
    return rows


def _format_shares(rows: ByClusters[Entry], share: Callable[[Entry], float]) -> str:
    return "; ".join(
        f"{label}, {clusters:,} clusters: " + ", ".join(f"{100 * share(entry):.2f} % at K = {entry.top}" for entry in row)
        for (label, clusters), row in rows.items()
    )


def _with_most_clusters(rows: ByClusters[Cell]) -> ByClusters[Cell]:
    """Return the rows of the most clusters of each direction."""
    most = dict(sorted(rows))
    return {(label, clusters): row for (label, clusters), row in rows.items() if most[label] == clusters}


def _compared_tops(rows: ByClusters[Cell]) -> str:
    ends = dict.fromkeys((row[0].top, row[-1].top) for row in rows.values())
    return ", ".join(f"K = {last} against K = {first}" for first, last in ends)


@CLAIMS.declare("FVP-11 (b)", "With every K more columns are active", "2, 5, 6 % at K = 1, 3, 5", "sweep")
def _more_by_top(cells: Sequence[Cell], _: Study) -> Judgement:
    rows = _by_clusters(cells, "sweep")
    kept = all(before.share.mean < after.share.mean for row in rows.values() for before, after in pairwise(row))
    factors = [row[-1].share.mean / row[0].share.mean for row in rows.values() if row[0].share.mean > 0.0]
    why = f"{NESTED}: {format_span(factors)} times as many columns with the largest K, {_compared_tops(rows)}; of V, mean over "
    why += "held-out steps at batch 1, with the most clusters"
    return Judgement(_format_shares(_with_most_clusters(rows), lambda cell: cell.share.mean), holds_if(kept), why)


def _apart(before: Cell, after: Cell) -> float:
    """Return the fall of the miss rate in standard errors of two binomial shares."""
    error = sqrt(sum(cell.miss_rate * (1.0 - cell.miss_rate) / cell.heldout_tokens for cell in (before, after)))
    return (before.miss_rate - after.miss_rate) / error if error > 0.0 else 0.0


def _fewer_misses(cells: Sequence[Cell]) -> str:
    """Return `HOLDS` if misses fall clearly from first to last, or to 0, and rise clearly at no step."""
    if any(_apart(before, after) < -SIGMAS for before, after in (*pairwise(cells), (cells[0], cells[-1]))):
        return FAILS
    return HOLDS if cells[-1].miss_rate == 0.0 or _apart(cells[0], cells[-1]) > SIGMAS else UNCLEAR


def _describe_counts(verdicts: Sequence[str]) -> str:
    """Describe how many groups clearly follow the trend, and how many clearly do not."""
    text = f"clearly so in {verdicts.count(HOLDS)} of {len(verdicts)} cases and clearly not in {verdicts.count(FAILS)}, by "
    return f"{text}{SIGMAS:g} standard errors of the held-out tokens"


@CLAIMS.declare("FVP-08 (c)", "The miss rate falls as K grows", part="sweep")
def _misses_by_top(cells: Sequence[Cell], _: Study) -> Judgement:
    rows = _by_clusters(cells, "sweep")
    verdicts = [_fewer_misses(row) for row in rows.values()]
    factors = [row[0].miss_rate / row[-1].miss_rate for row in rows.values() if row[-1].miss_rate > 0.0]
    amount = f"{format_span(factors)} times fewer with the largest K, {_compared_tops(rows)}" if factors else "none is left"
    why = f"{NESTED}: {amount}; held-out tokens that dense decoding writes and that are not active; "
    ours = _format_shares(_with_most_clusters(rows), lambda cell: cell.miss_rate)
    return Judgement(ours, worst_verdict(verdicts), why + _describe_counts(verdicts))


@CLAIMS.declare(
    "FVP-11 (c)",
    f"With {published.FIGURE_3_BEST:,} clusters the sets of K = 1 are smaller than those of K = 3, and those than of K = 5",
    ", ".join(f"about {share:.0f} % at K = {top}" for top, share in published.FIGURE_4.items()) + " (cluster 0)",
    "per_cluster",
)
def _figure_4(entries: Sequence[ClusterSizes], study: Study) -> Judgement:
    def share(sizes: ClusterSizes) -> float:
        return fmean(sizes.columns) / study.model.vocab

    rows = _by_clusters(entries, "per_cluster")
    kept = all(share(before) < share(after) for row in rows.values() for before, after in pairwise(row))
    why = f"{NESTED}; mean over clusters; judged by their order, as V differs from the paper's"
    return Judgement(_format_shares(rows, share), holds_if(kept), why)


@CLAIMS.declare(
    "FVP-10",
    "The largest active set is no larger where source and target language are known than where the target alone is",
    f"{published.FIGURE_2['both']} against {published.FIGURE_2['target']} % with {published.FIGURE_2_CLUSTERS} clusters, K = 1",
    "by_language",
)
def _knowledge(cells: Sequence[Cell], _: Study) -> Judgement:
    rows = grouped(cells, "label", "clusters", "top")
    most = {key: {cell.knowledge: cell.sets.most for cell in row} for key, row in rows.items()}
    pairs = {key: (largest["both"], largest["target"]) for key, largest in most.items() if {"both", "target"} <= largest.keys()}
    if not pairs:
        raise _lacking("by_language of both kinds")
    kept = [both <= target for both, target in pairs.values()]
    shown = [key for key in pairs if key[1] == published.FIGURE_2_CLUSTERS] or pairs
    ours = "; ".join(
        "{}, {} clusters, K = {}: ".format(*key) + f"{100 * pairs[key][0]:.2f} against {100 * pairs[key][1]:.2f} %"
        for key in shown
    )
    why = f"so in {sum(kept)} of {len(kept)} pairs of a direction, a number of clusters and a K; "
    mixed: Knowledge = "mixed, same size"
    if same := [largest["both"] <= largest[mixed] for largest in most.values() if {"both", mixed} <= largest.keys()]:
        why += f"against a mix cut to as many contexts as one direction has, in {sum(same)} of {len(same)}"
    else:
        why += "the mix holds more contexts than one direction, which alone may make its sets larger"
    return Judgement(ours, verdict_over_cases([kept]), why)


@CLAIMS.declare("FVP-08 (d)", "The miss rate falls as the training text grows", "20 million sentences were used", part="volume")
def _misses_by_volume(cells: Sequence[Cell], _: Study) -> Judgement:
    groups = grouped(cells, "label", "clusters", "top", order="training_sentences")
    rows = {key: row for key, row in groups.items() if len(row) > 1}
    if not rows:
        raise _lacking("volume of several texts")
    verdicts = [_fewer_misses(row) for row in rows.values()]
    ours = "; ".join(
        f"{label}, {clusters:,} clusters, K = {top}: {100 * row[0].miss_rate:.2f} % with {row[0].training_sentences:,} "
        f"sentences, {100 * row[-1].miss_rate:.2f} % with {row[-1].training_sentences:,}"
        for (label, clusters, top), row in rows.items()
    )
    return Judgement(ours, worst_verdict(verdicts), f"as a trend; {_describe_counts(verdicts)}")
