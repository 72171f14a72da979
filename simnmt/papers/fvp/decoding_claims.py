"""The claims that real decoding with a part of the vocabulary decides: quality and speed (FVP-08, 11, 20, SHARP-02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from simnmt.papers.fvp import published
from simnmt.papers.fvp.evidence import in_groups, study_record, unmeasured_record
from simnmt.papers.fvp.study import format_clusters
from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, Records, verdict_over_cases, worst_verdict

if TYPE_CHECKING:
    from simnmt.papers.fvp.study import Decoded, Speed, Study

ClaimText = tuple[str, str, str]
"""Identifier, claim, and what is published."""
IDENTICAL: ClaimText = (
    "FVP-08 (a)",
    f"At least {100 * published.LEAST_IDENTICAL:.0f} % of the sentences stay the same, token by token",
    f"about {100 * published.IDENTICAL:.0f} % of 200,000 a direction",
)
BLEU: ClaimText = (
    "FVP-08 (b)",
    f"BLEU stays within {published.MOST_BLEU_CHANGE} of dense decoding",
    "-0.27 to +0.12 in Tables 3 and 4",
)
ACTIVE: ClaimText = (
    "FVP-20 (d)",
    f"At most {100 * published.MOST_ACTIVE:.0f} % of the columns are active, at batch 1",
    "at most about 15 %, at beam 2 and batch 20",
)
STEP: ClaimText = (
    "FVP-20 (e)",
    f"The output layer gets up to {published.STEP_RATIO} times as fast",
    f"up to {published.STEP_RATIO} times: of the projection, on a V100",
)
WHOLE: ClaimText = (
    "FVP-20 (f)",
    f"Decoding gains up to {100 * published.END_TO_END_GAIN:.0f} % end to end",
    f"up to {100 * published.END_TO_END_GAIN:.0f} %",
)
AMDAHL: ClaimText = (
    "FVP-20 (g)",
    f"Amdahl's prediction of the output layer is within {100 * published.NEAR_PREDICTED:.0f} % of the speed-up end to end",
    "",
)
SINGLE: ClaimText = (
    "FVP-20 (h)",
    "Beam 1, batch 1 gains more than beam 2, batch 20",
    "so for the vocabulary of 250,000, not for that of 128,000",
)
FASTEST: ClaimText = (
    "FVP-11 (d)",
    "K = 1 is fastest, at a high number of clusters",
    f"K = 1 and {published.FIGURE_3_BEST:,} clusters, of 100 to 2,000",
)
LISTS: ClaimText = (
    "SHARP-02",
    f"Lists of candidate words make the output layer at least {published.LIST_RATIO:.0f} times as fast",
    "around 2 times elsewhere, quoted",
)
KEPT_BY_LISTS: ClaimText = (
    "SHARP-02 (b)",
    f"With lists of candidate words BLEU stays within {published.MOST_BLEU_CHANGE} of dense decoding",
    "",
)

TIMED = (STEP, WHOLE, AMDAHL, LISTS)
"""Claims on times, which disturbed rounds cannot decide; so are SINGLE and FASTEST."""


def decoding_claims(study: Study | None) -> Records:
    """Return all claims by one study; without a study, claims that name the missing study."""
    parts = {
        "chosen": (
            (IDENTICAL, _identical),
            (BLEU, _bleu),
            (ACTIVE, _active),
            (STEP, _step),
            (WHOLE, _whole),
            (AMDAHL, _amdahl),
        ),
        "candidates": ((LISTS, _step), (KEPT_BY_LISTS, _bleu)),
    }
    claims: Records = []
    for part, judges in parts.items():
        rows = () if study is None else getattr(study, part)
        for claim_text, judge in judges:
            if study is None or not rows:
                claims.append(unmeasured_record(*claim_text, study, part))
            else:
                claims.append(
                    _disturbed(study, claim_text, rows)
                    if claim_text in TIMED and not _undisturbed(rows)
                    else judge(study, claim_text, rows)
                )
    for claim_text, part, judge_all in ((SINGLE, "chosen", _single), (FASTEST, "speeds", _fastest)):
        rows = () if study is None else getattr(study, part)
        if study is None or not rows:
            claims.append(unmeasured_record(*claim_text, study, part))
        else:
            claims.append(judge_all(study) if _undisturbed(rows) else _disturbed(study, claim_text, rows))
    return claims


def _undisturbed(rows: Sequence[Decoded | Speed]) -> bool:
    """Return True if every row's times come from enough undisturbed stretches."""
    return all(row.rounds.conclusive for row in rows)


def _disturbed(study: Study, claim_text: ClaimText, rows: Sequence[Decoded | Speed]) -> dict[str, Any]:
    """Return the claim as unknown because too few undisturbed stretches were timed."""
    few = sum(not row.rounds.conclusive for row in rows)
    why = f"{few} of {len(rows)} cells have too few undisturbed stretches: measure the part again on a quiet box"
    return study_record(study, *claim_text, "", UNKNOWN, why)


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


def _identical(study: Study, claim_text: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    def describe(decoding: Decoded) -> str:
        ties = f" and {decoding.near_ties} near ties" if decoding.near_ties else ""
        return f"{100 * decoding.identical:.1f} % of {decoding.sentences:,}{ties}"

    kept = all(decoding.identical >= published.LEAST_IDENTICAL for decoding in rows)
    why = "near ties, closer than rounding, count as different"
    return study_record(study, *claim_text, by_search(rows, describe), kept, why)


def _bleu(study: Study, claim_text: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    def describe(decoding: Decoded) -> str:
        return f"{decoding.bleu_change:+.2f} of {decoding.dense.bleu:.2f}"

    known = [decoding for decoding in rows if decoding.bleu_change is not None]
    if not known:
        return study_record(study, *claim_text, "", UNKNOWN, "needs references")
    changes = [round(decoding.bleu_change or 0.0, 4) for decoding in known]
    lost = sum(change < -published.MOST_BLEU_CHANGE for change in changes)
    risen = sum(change > published.MOST_BLEU_CHANGE for change in changes)
    why = f"{lost} of {len(known)} cells lose more, {risen} gain more: that is different too, though no loss"
    return study_record(study, *claim_text, by_search(known, describe), not lost and not risen, why)


def _active(study: Study, claim_text: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    def describe(decoding: Decoded) -> str:
        return (
            f"{100 * decoding.share.mean:.2f} % of V with {100 * decoding.share.most:.2f} % at most, so "
            f"{100 * decoding.share_of_emitted:.1f} % of the {decoding.emitted:,} tokens ever written"
        )

    single = [decoding for decoding in rows if decoding.beam * decoding.batch == 1]
    ours = by_search(rows, describe)
    kept = all(decoding.share.most <= published.MOST_ACTIVE for decoding in single)
    return study_record(study, *claim_text, ours, kept if single else UNKNOWN, "judged by the most of any step at batch 1")


def _step(study: Study, claim_text: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    asked = published.LIST_RATIO if claim_text is LISTS else published.STEP_RATIO
    best = max(rows, key=lambda decoding: decoding.layer_ratio)
    fused = max(decoding.layer_ratio_over_fused for decoding in rows)
    ours = by_search(rows, lambda decoding: f"{decoding.layer_ratio:.2f}")
    reached = [ratio >= asked for ratio in best.layer_ratios]
    why = (
        f"projection, softmax and search, the choice of columns included; the best of {len(rows)} cells is judged, round by "
        f"round; {_over_both(best.layer_ratio, fused, asked, '{:.2f} times'.format)}"
    )
    return study_record(study, *claim_text, ours, verdict_over_cases([reached]), why)


def _whole(study: Study, claim_text: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    asked = 1.0 + published.END_TO_END_GAIN
    best = max(rows, key=lambda decoding: decoding.measured)
    fused = max(decoding.measured_over_fused for decoding in rows)
    ours = by_search(rows, lambda decoding: _percent(decoding.measured))
    reached = [ratio >= asked for ratio in best.gains]
    why = (
        f"the best of {len(rows)} cells is judged, round by round; {_over_both(best.measured, fused, asked, _percent)}; the "
        f"output layer has {100 * best.layer_share:.0f} % of its dense time"
    )
    return study_record(study, *claim_text, ours, verdict_over_cases([reached]), why)


def _amdahl(study: Study, claim_text: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    near = {id(decoding): [_is_near(decoding.predicted, ratio) for ratio in decoding.gains] for decoding in rows}
    trivial = [decoding for decoding in rows if all(_is_near(1.0, ratio) for ratio in decoding.gains)]
    tests = [decoding for decoding in rows if decoding not in trivial]
    ours = by_search(rows, lambda decoding: f"{_percent(decoding.measured)} where {_percent(decoding.predicted)} was foretold")
    bodies = [decoding.body_ratio for decoding in rows]
    why = "each round's ratio against the prediction; what is below the output layer, which it takes as it is, gets "
    why += f"{min(bodies):.2f} to {max(bodies):.2f} times as fast"
    if trivial:
        why += "; no test of it where a prediction of no gain passes too: "
        why += by_search(trivial, lambda decoding: _percent(decoding.measured))
    # A cell that no gain explains as well can speak against the law, but not for it.
    verdict = worst_verdict([verdict_over_cases([near[id(decoding)]]) for decoding in rows])
    return study_record(study, *claim_text, ours, verdict if tests or verdict == FAILS else UNCLEAR, why)


def _single(study: Study) -> dict[str, Any]:
    groups = in_groups(
        study.chosen,
        lambda decoding: (decoding.label, decoding.clusters, decoding.top),
        lambda decoding: decoding.beam * decoding.batch,
    )
    pairs = [pair for pair in groups.values() if len(pair) == 2 and pair[0].beam * pair[0].batch == 1]
    if not pairs:
        return unmeasured_record(*SINGLE, study, "chosen at both searches")
    verdicts = [_above(first.gains, last.gains) for first, last in pairs]
    ours = "; ".join(f"{first.label}: {_percent(first.measured)} against {_percent(last.measured)}" for first, last in pairs)
    why = "each round of the one against each of the other, since the two searches do not take turns; over plain dense decoding"
    fused = "; ".join(
        f"{first.label} {_percent(first.measured_over_fused)} against {_percent(last.measured_over_fused)}"
        for first, last in pairs
    )
    return study_record(study, *SINGLE, ours, worst_verdict(verdicts), f"{why}; over the fused output layer {fused}")


def _above(first: Sequence[float], last: Sequence[float]) -> str:
    """Return `HOLDS` if every ratio of `first` is above every ratio of `last`, `FAILS` if none is above any."""
    if min(first) > max(last):
        return HOLDS
    return FAILS if max(first) <= min(last) else UNCLEAR


def _over_both(plain: float, fused: float, asked: float, form: Callable[[float], str]) -> str:
    """Describe the best ratio over plain and over fused dense decoding, and if only the former reaches `asked`."""
    text = f"at best {form(plain)} over plain dense decoding, {form(fused)} over the fused output layer, which is exact"
    return f"{text}: reached over plain alone" if plain >= asked > fused else text


def _fastest(study: Study) -> dict[str, Any]:
    verdicts, ours, judged = [], [], []
    searches = in_groups(study.speeds, lambda speed: (speed.label, speed.beam, speed.batch), lambda speed: -speed.gain)
    for (label, beam, batch), rows in searches.items():
        best, most = rows[0], max(speed.clusters for speed in rows)
        for_it = [speed for speed in rows if speed.top == 1 and speed.clusters >= most / 2]
        against = [speed for speed in rows if speed not in for_it]
        ours.append(
            f"{label}, beam {beam}, batch {batch}: {_percent(1.0 + best.gain)} at {format_clusters(best.clusters, best.top)}"
        )
        if for_it and against:
            verdicts.append(_ahead(for_it[0], against[0]))
            judged.append(f"{_cell(for_it[0])} against {_cell(against[0])}")
    if not verdicts:
        return unmeasured_record(*FASTEST, study, "speeds of K = 1 and others at high numbers of clusters")
    why = (
        f"of {_describe_grid(study.speeds)}; the best with K = 1 and half of the most clusters or more against the best of the "
        f"others, round by round: {', '.join(judged)}"
    )
    return study_record(study, *FASTEST, "; ".join(ours), verdict_over_cases(verdicts), why)


def _ahead(speed: Speed, rival: Speed) -> list[bool]:
    return [one > another for one, another in zip(speed.ratios, rival.ratios, strict=True)]


def _cell(speed: Speed) -> str:
    return f"{format_clusters(speed.clusters, speed.top)} ({_percent(1.0 + speed.gain)})"


def _describe_grid(rows: Sequence[Speed]) -> str:
    clusters, tops = sorted({speed.clusters for speed in rows}), sorted({speed.top for speed in rows})
    few = f"these {len(clusters)} numbers of clusters, {', '.join(f'{count:,}' for count in clusters)},"
    return f"{few} and K = {', '.join(map(str, tops))}"


def _is_near(foretold: float, ratio: float) -> bool:
    return abs(foretold / ratio - 1.0) <= published.NEAR_PREDICTED


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"
