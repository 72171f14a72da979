"""The claims that real decoding with a part of the vocabulary decides: quality and speed (FVP-08, 11, 20, SHARP-02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simnmt.papers.fvp import published
from simnmt.papers.fvp.evidence import in_groups, lacking, study_records
from simnmt.papers.fvp.study import Decoded, Speed, Study, format_clusters
from simnmt.papers.kit.claim import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    Claim,
    ClaimRecord,
    Judgement,
    holds_if,
    verdict_over_cases,
    worst_verdict,
)


def decoding_claims(study: Study | None) -> list[ClaimRecord]:
    """Return all claims by one study; without a study, claims that name the missing study."""
    return study_records(_CLAIMS, study)


def by_search(rows: Sequence[Decoded], describe: Callable[[Decoded], str]) -> str:
    """Describe every decoding, grouped by direction and method and sorted by beam and batch."""
    groups = in_groups(
        rows, lambda decoding: (decoding.label, decoding.method_label), lambda decoding: decoding.beam * decoding.batch
    )
    return "; ".join(
        f"{label}, {method}: "
        + ", ".join(f"{describe(decoding)} (beam {decoding.beam}, batch {decoding.batch})" for decoding in group)
        for (label, method), group in groups.items()
    )


def _identical(rows: Sequence[Decoded], _: Study) -> Judgement:
    def describe(decoding: Decoded) -> str:
        ties = f" and {decoding.near_ties} near ties" if decoding.near_ties else ""
        return f"{100 * decoding.identical:.1f} % of {decoding.sentences:,}{ties}"

    kept = all(decoding.identical >= published.LEAST_IDENTICAL for decoding in rows)
    return Judgement(by_search(rows, describe), holds_if(kept), "near ties, closer than rounding, count as different")


def _bleu(rows: Sequence[Decoded], _: Study) -> Judgement:
    def describe(decoding: Decoded) -> str:
        return f"{decoding.bleu_change:+.2f} of {decoding.dense.bleu:.2f}"

    known = [decoding for decoding in rows if decoding.bleu_change is not None]
    if not known:
        return Judgement("", UNKNOWN, "needs references")
    changes = [round(decoding.bleu_change or 0.0, 4) for decoding in known]
    lost = sum(change < -published.MOST_BLEU_CHANGE for change in changes)
    risen = sum(change > published.MOST_BLEU_CHANGE for change in changes)
    why = f"{lost} of {len(known)} cells lose more, {risen} gain more: a gain is a difference too, though no loss"
    return Judgement(by_search(known, describe), holds_if(not lost and not risen), why)


def _active(rows: Sequence[Decoded], _: Study) -> Judgement:
    def describe(decoding: Decoded) -> str:
        return (
            f"{100 * decoding.share.mean:.2f} % of V with {100 * decoding.share.most:.2f} % at most, so "
            f"{100 * decoding.share_of_emitted:.1f} % of the {decoding.emitted:,} tokens ever written"
        )

    single = [decoding for decoding in rows if decoding.beam * decoding.batch == 1]
    kept = holds_if(all(decoding.share.most <= published.MOST_ACTIVE for decoding in single))
    why = "judged by the most of any step at batch 1"
    return Judgement(by_search(rows, describe), kept if single else UNKNOWN, why)


def _step(rows: Sequence[Decoded], _: Study, *, asked: float) -> Judgement:
    best = max(rows, key=lambda decoding: decoding.layer_ratio)
    fused = max(decoding.layer_ratio_over_fused for decoding in rows)
    ours = by_search(rows, lambda decoding: f"{decoding.layer_ratio:.2f}")
    why = (
        f"projection, softmax and search, the choice of columns included; the best of {len(rows)} cells is judged, round by "
        f"round; {_over_both(best.layer_ratio, fused, asked, '{:.2f} times'.format)}"
    )
    return Judgement(ours, verdict_over_cases([[ratio >= asked for ratio in best.layer_ratios]]), why)


def _whole(rows: Sequence[Decoded], _: Study) -> Judgement:
    asked = 1.0 + published.END_TO_END_GAIN
    best = max(rows, key=lambda decoding: decoding.measured)
    fused = max(decoding.measured_over_fused for decoding in rows)
    ours = by_search(rows, lambda decoding: _percent(decoding.measured))
    why = (
        f"the best of {len(rows)} cells is judged, round by round; {_over_both(best.measured, fused, asked, _percent)}; the "
        f"output layer has {100 * best.layer_share:.0f} % of its dense time"
    )
    return Judgement(ours, verdict_over_cases([[ratio >= asked for ratio in best.gains]]), why)


def _amdahl(rows: Sequence[Decoded], _: Study) -> Judgement:
    trivial = [decoding for decoding in rows if all(_is_near(1.0, ratio) for ratio in decoding.gains)]
    ours = by_search(rows, lambda decoding: f"{_percent(decoding.measured)} where {_percent(decoding.predicted)} was predicted")
    bodies = [decoding.body_ratio for decoding in rows]
    why = "each round's ratio against the prediction; below the output layer, where it assumes no change, decoding gets "
    why += f"{min(bodies):.2f} to {max(bodies):.2f} times as fast"
    if trivial:
        why += "; no test of it where a prediction of no gain passes too: "
        why += by_search(trivial, lambda decoding: _percent(decoding.measured))
    # A cell that no gain explains as well can speak against the law, but not for it.
    verdict = worst_verdict(
        [verdict_over_cases([[_is_near(decoding.predicted, ratio) for ratio in decoding.gains]]) for decoding in rows]
    )
    return Judgement(ours, verdict if len(trivial) < len(rows) or verdict == FAILS else UNCLEAR, why)


def _single(rows: Sequence[Decoded], _: Study) -> Judgement:
    groups = in_groups(
        rows,
        lambda decoding: (decoding.label, decoding.clusters, decoding.top),
        lambda decoding: decoding.beam * decoding.batch,
    )
    pairs = [pair for pair in groups.values() if len(pair) == 2 and pair[0].beam * pair[0].batch == 1]
    if not pairs:
        raise lacking("chosen at both searches")
    verdicts = [_above(first.gains, last.gains) for first, last in pairs]
    ours = "; ".join(f"{first.label}: {_percent(first.measured)} against {_percent(last.measured)}" for first, last in pairs)
    why = "each round of the one against each of the other, since the two searches do not take turns; over plain dense decoding"
    fused = "; ".join(
        f"{first.label} {_percent(first.measured_over_fused)} against {_percent(last.measured_over_fused)}"
        for first, last in pairs
    )
    return Judgement(ours, worst_verdict(verdicts), f"{why}; over the fused output layer {fused}")


def _above(first: Sequence[float], last: Sequence[float]) -> str:
    """Return `HOLDS` if every ratio of `first` is above every ratio of `last`, `FAILS` if none is above any."""
    if min(first) > max(last):
        return HOLDS
    return FAILS if max(first) <= min(last) else UNCLEAR


def _over_both(plain: float, fused: float, asked: float, form: Callable[[float], str]) -> str:
    """Describe the best ratio over plain and over fused dense decoding, and if only the former reaches `asked`."""
    text = f"at best {form(plain)} over plain dense decoding, {form(fused)} over the fused output layer, which is exact"
    return f"{text}: reached over plain alone" if plain >= asked > fused else text


def _fastest(rows: Sequence[Speed], _: Study) -> Judgement:
    verdicts, ours, judged = [], [], []
    searches = in_groups(rows, lambda speed: (speed.label, speed.beam, speed.batch), lambda speed: -speed.gain)
    for (label, beam, batch), speeds in searches.items():
        best, most = speeds[0], max(speed.clusters for speed in speeds)
        for_it = [speed for speed in speeds if speed.top == 1 and speed.clusters >= most / 2]
        against = [speed for speed in speeds if speed not in for_it]
        ours.append(
            f"{label}, beam {beam}, batch {batch}: {_percent(1.0 + best.gain)} at {format_clusters(best.clusters, best.top)}"
        )
        if for_it and against:
            verdicts.append([one > rival for one, rival in zip(for_it[0].ratios, against[0].ratios, strict=True)])
            judged.append(f"{_cell(for_it[0])} against {_cell(against[0])}")
    if not verdicts:
        raise lacking("speeds of K = 1 and others at high numbers of clusters")
    why = (
        f"of {_describe_grid(rows)}; the best with K = 1 and half of the most clusters or more against the best of the "
        f"others, round by round: {', '.join(judged)}"
    )
    return Judgement("; ".join(ours), verdict_over_cases(verdicts), why)


def _cell(speed: Speed) -> str:
    return f"{format_clusters(speed.clusters, speed.top)} ({_percent(1.0 + speed.gain)})"


def _describe_grid(rows: Sequence[Speed]) -> str:
    clusters, tops = sorted({speed.clusters for speed in rows}), sorted({speed.top for speed in rows})
    few = f"these {len(clusters)} numbers of clusters, {', '.join(f'{count:,}' for count in clusters)},"
    return f"{few} and K = {', '.join(map(str, tops))}"


def _is_near(predicted: float, ratio: float) -> bool:
    return abs(predicted / ratio - 1.0) <= published.NEAR_PREDICTED


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


_CLAIMS = (
    Claim(
        "FVP-08 (a)",
        f"At least {100 * published.LEAST_IDENTICAL:.0f} % of the sentences stay the same, token by token",
        f"about {100 * published.IDENTICAL:.0f} % of 200,000 a direction",
        _identical,
        "chosen",
    ),
    Claim(
        "FVP-08 (b)",
        f"BLEU stays within {published.MOST_BLEU_CHANGE} of dense decoding",
        "-0.27 to +0.12 in Tables 3 and 4",
        _bleu,
        "chosen",
    ),
    Claim(
        "FVP-20 (d)",
        f"At most {100 * published.MOST_ACTIVE:.0f} % of the columns are active, at batch 1",
        "at most about 15 %, at beam 2 and batch 20",
        _active,
        "chosen",
    ),
    Claim(
        "FVP-20 (e)",
        f"The output layer gets up to {published.STEP_RATIO} times as fast",
        f"up to {published.STEP_RATIO} times: of the projection, on a V100",
        partial(_step, asked=published.STEP_RATIO),
        "chosen",
        timed=True,
    ),
    Claim(
        "FVP-20 (f)",
        f"Decoding gains up to {100 * published.END_TO_END_GAIN:.0f} % end to end",
        f"up to {100 * published.END_TO_END_GAIN:.0f} %",
        _whole,
        "chosen",
        timed=True,
    ),
    Claim(
        "FVP-20 (g)",
        f"Amdahl's prediction of the output layer is within {100 * published.NEAR_PREDICTED:.0f} % of the speed-up end to end",
        "",
        _amdahl,
        "chosen",
        timed=True,
    ),
    Claim(
        "SHARP-02",
        f"Lists of candidate words make the output layer at least {published.LIST_RATIO:.0f} times as fast",
        "around 2 times elsewhere, quoted",
        partial(_step, asked=published.LIST_RATIO),
        "candidates",
        timed=True,
    ),
    Claim(
        "SHARP-02 (b)",
        f"With lists of candidate words BLEU stays within {published.MOST_BLEU_CHANGE} of dense decoding",
        "",
        _bleu,
        "candidates",
    ),
    Claim(
        "FVP-20 (h)",
        "Beam 1, batch 1 gains more than beam 2, batch 20",
        "so for the vocabulary of 250,000, not for that of 128,000",
        _single,
        "chosen",
        timed=True,
    ),
    Claim(
        "FVP-11 (d)",
        "K = 1 is fastest, at a high number of clusters",
        f"K = 1 and {published.FIGURE_3_BEST:,} clusters, of 100 to 2,000",
        _fastest,
        "speeds",
        timed=True,
    ),
)
