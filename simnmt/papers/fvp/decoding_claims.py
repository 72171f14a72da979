"""The claims that real decoding with a part of the vocabulary decides: quality and speed (FVP-08, 11, 20, SHARP-02)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from simnmt.papers.fvp import published
from simnmt.papers.fvp.evidence import in_groups, study_record, unmeasured_record
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
    """All of one study; of none, that they need one."""
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
    found: Records = []
    for part, ways in parts.items():
        rows = () if study is None else getattr(study, part)
        for way, judge in ways:
            if study is None or not rows:
                found.append(unmeasured_record(*way, study, part))
            else:
                found.append(
                    _disturbed(study, way, rows) if way in TIMED and not _undisturbed(rows) else judge(study, way, rows)
                )
    for way, part, judge_all in ((SINGLE, "chosen", _single), (FASTEST, "speeds", _fastest)):
        rows = () if study is None else getattr(study, part)
        if study is None or not rows:
            found.append(unmeasured_record(*way, study, part))
        else:
            found.append(judge_all(study) if _undisturbed(rows) else _disturbed(study, way, rows))
    return found


def _undisturbed(rows: Sequence[Decoded | Speed]) -> bool:
    """Return True if every row's times come from enough undisturbed stretches."""
    return all(row.rounds is not None and row.rounds.conclusive for row in rows)


def _disturbed(study: Study, way: ClaimText, rows: Sequence[Decoded | Speed]) -> dict[str, Any]:
    """Refuse a verdict on times that too few undisturbed stretches stand behind."""
    unguarded = sum(row.rounds is None for row in rows)
    few = sum(row.rounds is not None and not row.rounds.conclusive for row in rows)
    causes = [f"{unguarded} of {len(rows)} cells were timed without a guard against disturbances"] * bool(unguarded)
    causes += [f"{few} of {len(rows)} cells have too few undisturbed stretches"] * bool(few)
    return study_record(study, *way, "", UNKNOWN, f"{' and '.join(causes)}: measure the part again on a quiet box")


def ratios(each: Decoded) -> list[float]:
    """Times as many tokens a second as plain dense decoding, round by round; the median alone where no round was kept."""
    return list(each.gains) or [each.measured]


def body_ratio(each: Decoded) -> float:
    """Times as fast is a step below the output layer, which Amdahl's law takes for 1: weights may stay in a cache."""
    dense_s, part_s = (own.body_s / own.steps for own in (each.dense, each.part))
    return dense_s / part_s if part_s > 0.0 else 1.0


def bleu_change(each: Decoded) -> float | None:
    """In points; None without references."""
    if each.dense.bleu is None or each.part.bleu is None:
        return None
    return each.part.bleu - each.dense.bleu


def method_label(each: Decoded) -> str:
    """Clusters, or what lists are made from."""
    if each.way == "clustered":
        return format_clusters(each.clusters or 0, each.top or 0)
    always = f", {each.always:,} always" if each.always else ""
    made = {"ibm1": "IBM model 1", "attention": "attention"}.get(each.way, each.way)
    return f"lists of {each.candidates} by {made}{always}"


def format_clusters(clusters: int, top: int) -> str:
    """How many, and K."""
    return f"{clusters:,} clusters, K = {top}"


def by_search(rows: Sequence[Decoded], tell: Callable[[Decoded], str]) -> str:
    """What is told of each, by direction and way, and of these by beam and batch."""
    groups = in_groups(rows, lambda each: (each.label, method_label(each)), lambda each: each.beam * each.batch)
    return "; ".join(
        f"{label}, {way}: " + ", ".join(f"{tell(each)} (beam {each.beam}, batch {each.batch})" for each in own)
        for (label, way), own in groups.items()
    )


def _identical(study: Study, way: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    def tell(each: Decoded) -> str:
        ties = f" and {each.near_ties} near ties" if each.near_ties else ""
        return f"{100 * each.identical:.1f} % of {each.sentences:,}{ties}"

    kept = all(each.identical >= published.LEAST_IDENTICAL for each in rows)
    return study_record(study, *way, by_search(rows, tell), kept, "near ties, closer than rounding, count as different")


def _bleu(study: Study, way: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    def tell(each: Decoded) -> str:
        return f"{bleu_change(each):+.2f} of {each.dense.bleu:.2f}"

    known = [each for each in rows if bleu_change(each) is not None]
    if not known:
        return study_record(study, *way, "", UNKNOWN, "needs references")
    changes = [round(bleu_change(each) or 0.0, 4) for each in known]
    lost = sum(change < -published.MOST_BLEU_CHANGE for change in changes)
    risen = sum(change > published.MOST_BLEU_CHANGE for change in changes)
    why = f"{lost} of {len(known)} cells lose more, {risen} gain more: that is different too, though no loss"
    return study_record(study, *way, by_search(known, tell), not lost and not risen, why)


def _active(study: Study, way: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    def tell(each: Decoded) -> str:
        return (
            f"{100 * each.share.mean:.2f} % of V with {100 * each.share.most:.2f} % at most, so "
            f"{100 * each.share_of_emitted:.1f} % of the {each.emitted:,} tokens ever written"
        )

    single = [each for each in rows if each.beam * each.batch == 1]
    ours = by_search(rows, tell)
    kept = all(each.share.most <= published.MOST_ACTIVE for each in single)
    return study_record(study, *way, ours, kept if single else UNKNOWN, "judged by the most of any step at batch 1")


def _step(study: Study, way: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    asked = published.LIST_RATIO if way is LISTS else published.STEP_RATIO
    best = max(rows, key=lambda each: each.layer_ratio)
    fused = max(each.layer_ratio_over_fused for each in rows)
    ours = by_search(rows, lambda each: f"{each.layer_ratio:.2f}")
    reached = [ratio >= asked for ratio in best.layer_ratios or (best.layer_ratio,)]
    why = (
        f"projection, softmax and search, the choice of columns included; the best of {len(rows)} cells is judged, round by "
        f"round; {_over_both(best.layer_ratio, fused, asked, '{:.2f} times'.format)}"
    )
    return study_record(study, *way, ours, verdict_over_cases([reached]), why)


def _whole(study: Study, way: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    asked = 1.0 + published.END_TO_END_GAIN
    best = max(rows, key=lambda each: each.measured)
    fused = max(each.measured_over_fused for each in rows)
    ours = by_search(rows, lambda each: _percent(each.measured))
    reached = [ratio >= asked for ratio in ratios(best)]
    why = (
        f"the best of {len(rows)} cells is judged, round by round; {_over_both(best.measured, fused, asked, _percent)}; the "
        f"output layer has {100 * best.layer_share:.0f} % of its dense time"
    )
    return study_record(study, *way, ours, verdict_over_cases([reached]), why)


def _amdahl(study: Study, way: ClaimText, rows: Sequence[Decoded]) -> dict[str, Any]:
    near = {id(each): [_is_near(each.predicted, ratio) for ratio in ratios(each)] for each in rows}
    trivial = [each for each in rows if all(_is_near(1.0, ratio) for ratio in ratios(each))]
    tests = [each for each in rows if each not in trivial]
    ours = by_search(rows, lambda each: f"{_percent(each.measured)} where {_percent(each.predicted)} was foretold")
    bodies = [body_ratio(each) for each in rows]
    why = "each round's ratio against the prediction; what is below the output layer, which it takes as it is, gets "
    why += f"{min(bodies):.2f} to {max(bodies):.2f} times as fast"
    if trivial:
        why += "; no test of it where a prediction of no gain passes too: "
        why += by_search(trivial, lambda each: _percent(each.measured))
    # A cell that no gain explains as well can speak against the law, but not for it.
    verdict = worst_verdict([verdict_over_cases([near[id(each)]]) for each in rows])
    return study_record(study, *way, ours, verdict if tests or verdict == FAILS else UNCLEAR, why)


def _single(study: Study) -> dict[str, Any]:
    groups = in_groups(study.chosen, lambda each: (each.label, each.clusters, each.top), lambda each: each.beam * each.batch)
    pairs = [own for own in groups.values() if len(own) == 2 and own[0].beam * own[0].batch == 1]
    if not pairs:
        return unmeasured_record(*SINGLE, study, "chosen at both searches")
    verdicts = [_above(ratios(first), ratios(last)) for first, last in pairs]
    ours = "; ".join(f"{first.label}: {_percent(first.measured)} against {_percent(last.measured)}" for first, last in pairs)
    why = "each round of the one against each of the other, since the two searches do not take turns; over plain dense decoding"
    fused = "; ".join(
        f"{first.label} {_percent(first.measured_over_fused)} against {_percent(last.measured_over_fused)}"
        for first, last in pairs
    )
    return study_record(study, *SINGLE, ours, worst_verdict(verdicts), f"{why}; over the fused output layer {fused}")


def _above(own: Sequence[float], others: Sequence[float]) -> str:
    """Whether the least of the one is above the most of the other."""
    if min(own) > max(others):
        return HOLDS
    return FAILS if max(own) <= min(others) else UNCLEAR


def _over_both(plain: float, fused: float, asked: float, form: Callable[[float], str]) -> str:
    """The best over plain and over fused dense decoding, and whether the former alone reaches what is asked."""
    said = f"at best {form(plain)} over plain dense decoding, {form(fused)} over the fused output layer, which is exact"
    return f"{said}: reached over plain alone" if plain >= asked > fused else said


def _fastest(study: Study) -> dict[str, Any]:
    verdicts, ours, judged = [], [], []
    searches = in_groups(study.speeds, lambda each: (each.label, each.beam, each.batch), lambda each: -each.gain)
    for (label, beam, batch), rows in searches.items():
        best, most = rows[0], max(each.clusters for each in rows)
        for_it = [each for each in rows if each.top == 1 and each.clusters >= most / 2]
        against = [each for each in rows if each not in for_it]
        ours.append(
            f"{label}, beam {beam}, batch {batch}: {_percent(1.0 + best.gain)} at {format_clusters(best.clusters, best.top)}"
        )
        if for_it and against:
            verdicts.append(_ahead(for_it[0], against[0]))
            judged.append(f"{_cell(for_it[0])} against {_cell(against[0])}")
    if not verdicts:
        return unmeasured_record(*FASTEST, study, "speeds of K = 1 and others at high numbers of clusters")
    why = (
        f"of {_ways(study.speeds)}; the best with K = 1 and half of the most clusters or more against the best of the others, "
        f"round by round: {', '.join(judged)}"
    )
    return study_record(study, *FASTEST, "; ".join(ours), verdict_over_cases(verdicts), why)


def _ahead(own: Speed, other: Speed) -> list[bool]:
    rounds = [one > another for one, another in zip(own.ratios, other.ratios, strict=False)]
    return rounds or [own.gain > other.gain]


def _cell(each: Speed) -> str:
    return f"{format_clusters(each.clusters, each.top)} ({_percent(1.0 + each.gain)})"


def _ways(rows: Sequence[Speed]) -> str:
    clusters, tops = sorted({each.clusters for each in rows}), sorted({each.top for each in rows})
    few = f"these {len(clusters)} numbers of clusters, {', '.join(f'{each:,}' for each in clusters)},"
    return f"{few} and K = {', '.join(map(str, tops))}"


def _is_near(foretold: float, ratio: float) -> bool:
    return abs(foretold / ratio - 1.0) <= published.NEAR_PREDICTED


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"
