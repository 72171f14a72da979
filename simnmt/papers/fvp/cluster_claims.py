"""The claims that a trained model's clusters decide: active columns, and tokens that they miss (FVP-08, 10, 11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simnmt.papers.fvp import published
from simnmt.papers.fvp.evidence import Key, Row, in_groups, study_record, unmeasured_record
from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, Records, verdict_over_cases, worst_verdict

if TYPE_CHECKING:
    from simnmt.papers.fvp.study import Cell, Knowledge, Study

NOISE = 0.05
"""By how much a share may rise from step to step, relative, without spoiling a trend: k-means begins anew each time."""
SIGMAS = 2.0
"""Standard errors of a difference of two miss rates within which they count as alike."""
NESTED = "so by construction, as the set of a K is part of that of a larger one; what it tells is by how much"

ClaimText = tuple[str, str, str]
"""Identifier, claim, and what is published."""
MORE_CLUSTERS: ClaimText = ("FVP-11 (a)", "More clusters make fewer columns active, as a trend", "a trend of figure 3's speeds")
MORE_TOKENS: ClaimText = ("FVP-11 (b)", "With every K more columns are active", "2, 5, 6 % at K = 1, 3, 5")
FIGURE_4: ClaimText = (
    "FVP-11 (c)",
    f"With {published.FIGURE_3_BEST:,} clusters the sets of K = 1 are smaller than those of K = 3, and those than of K = 5",
    ", ".join(f"about {share:.0f} % at K = {top}" for top, share in published.FIGURE_4.items()) + " (cluster 0)",
)
KNOWLEDGE: ClaimText = (
    "FVP-10",
    "The largest active set is no larger where source and target language are known than where the target alone is",
    f"{published.FIGURE_2['both']} against {published.FIGURE_2['target']} % with {published.FIGURE_2_CLUSTERS} clusters, K = 1",
)
MISS_BY_TOP: ClaimText = ("FVP-08 (c)", "The miss rate falls as K grows", "")
MISS_BY_VOLUME: ClaimText = ("FVP-08 (d)", "The miss rate falls as the training text grows", "20 million sentences were used")
SAME_SIZE: Knowledge = "mixed, same size"
"""Of a mix of directions that is cut to as many contexts as one of them has."""


def cluster_claims(study: Study | None) -> Records:
    """Return the six claims by one study; without a study, claims that name the missing study."""
    parts = {
        "sweep": (MORE_CLUSTERS, MORE_TOKENS, MISS_BY_TOP),
        "per_cluster": (FIGURE_4,),
        "by_language": (KNOWLEDGE,),
        "volume": (MISS_BY_VOLUME,),
    }
    claims: Records = []
    for part, claim_texts in parts.items():
        if study is None or not getattr(study, part):
            claims += [unmeasured_record(*claim_text, study, part) for claim_text in claim_texts]
    if study is None:
        return claims
    if study.sweep:
        claims += [_more_clusters(study), _by_top(study), _misses_by_top(study)]
    if study.per_cluster:
        claims.append(_figure_4(study))
    if study.by_language:
        claims.append(_knowledge(study))
    if study.volume:
        claims.append(_misses_by_volume(study))
    return claims


def _more_clusters(study: Study) -> dict[str, Any]:
    rows = _several(in_groups(study.sweep, lambda cell: (cell.label, cell.top), lambda cell: cell.clusters))
    shares = {key: [cell.share.mean for cell in cells] for key, cells in rows.items()}
    verdict = worst_verdict(_trend(means) for means in shares.values())
    if verdict == UNKNOWN:
        return unmeasured_record(*MORE_CLUSTERS, study, "sweep of several numbers of clusters")
    ours = "; ".join(
        f"{label}, K = {top}: {100 * shares[label, top][0]:.2f} % at {cells[0].clusters:,} to "
        f"{100 * shares[label, top][-1]:.2f} % at {cells[-1].clusters:,}"
        for (label, top), cells in rows.items()
    )
    rises = sum(after > before for means in shares.values() for before, after in pairwise(means))
    steps = sum(len(means) - 1 for means in shares.values())
    why = f"of V, mean over held-out steps at batch 1; {rises} of {steps} steps rise, each by {NOISE:.0%} may"
    return study_record(study, *MORE_CLUSTERS, ours, verdict, why)


def _by_top(study: Study) -> dict[str, Any]:
    rows = _several(in_groups(study.sweep, lambda cell: (cell.label, cell.clusters), lambda cell: cell.top))
    if not rows:
        return unmeasured_record(*MORE_TOKENS, study, "sweep of several K")
    kept = all(before.share.mean < after.share.mean for cells in rows.values() for before, after in pairwise(cells))
    factors = [cells[-1].share.mean / cells[0].share.mean for cells in rows.values() if cells[0].share.mean > 0.0]
    amount = _span(factors, f"times as many columns with the largest K, {_of(rows)}")
    why = f"{NESTED}: {amount}; of V, mean over held-out steps at batch 1; the most clusters told"
    return study_record(study, *MORE_TOKENS, _shares(rows), kept, why)


def _misses_by_top(study: Study) -> dict[str, Any]:
    rows = _several(in_groups(study.sweep, lambda cell: (cell.label, cell.clusters), lambda cell: cell.top))
    if not rows:
        return unmeasured_record(*MISS_BY_TOP, study, "sweep of several K")
    verdicts = [_fewer_misses(cells) for cells in rows.values()]
    ours = "; ".join(
        f"{label}, {clusters:,} clusters: "
        + ", ".join(f"{100 * cell.miss_rate:.2f} % at K = {cell.top}" for cell in rows[label, clusters])
        for label, clusters in _most_clusters(rows)
    )
    factors = [cells[0].miss_rate / cells[-1].miss_rate for cells in rows.values() if cells[-1].miss_rate > 0.0]
    amount = _span(factors, f"times fewer with the largest K, {_of(rows)}") if factors else "none is left"
    why = f"{NESTED}: {amount}; held-out tokens that dense decoding writes and that are not active; {_counted(verdicts)}"
    return study_record(study, *MISS_BY_TOP, ours, worst_verdict(verdicts), why)


def _figure_4(study: Study) -> dict[str, Any]:
    rows = in_groups(study.per_cluster, lambda sizes: (sizes.label, sizes.clusters), lambda sizes: sizes.top)
    means = {
        key: [(sizes.top, fmean(sizes.columns) / study.model.vocab) for sizes in group]
        for key, group in rows.items()
        if len(group) > 1
    }
    if not means:
        return unmeasured_record(*FIGURE_4, study, "per_cluster of several K")
    kept = all(before < after for shares in means.values() for (_, before), (_, after) in pairwise(shares))
    ours = "; ".join(
        f"{label}, {clusters:,} clusters: " + ", ".join(f"{100 * share:.2f} % at K = {top}" for top, share in shares)
        for (label, clusters), shares in means.items()
    )
    why = f"{NESTED}; mean over clusters; judged by their order, as V differs from the paper's"
    return study_record(study, *FIGURE_4, ours, kept, why)


def _knowledge(study: Study) -> dict[str, Any]:
    rows = in_groups(study.by_language, lambda cell: (cell.label, cell.clusters, cell.top), lambda cell: cell.knowledge)
    most = {key: {cell.knowledge: cell.sets.most for cell in cells} for key, cells in rows.items()}
    pairs = {key: (largest["both"], largest["target"]) for key, largest in most.items() if {"both", "target"} <= largest.keys()}
    if not pairs:
        return unmeasured_record(*KNOWLEDGE, study, "by_language of both kinds")
    kept = [both <= target for both, target in pairs.values()]
    shown = [key for key in pairs if key[1] == published.FIGURE_2_CLUSTERS] or list(pairs)
    ours = "; ".join(
        f"{label}, {clusters} clusters, K = {top}: {100 * pairs[label, clusters, top][0]:.2f} against "
        f"{100 * pairs[label, clusters, top][1]:.2f} %"
        for label, clusters, top in shown
    )
    why = f"so in {sum(kept)} of {len(kept)} pairs of a direction, a number of clusters and a K"
    same = [largest["both"] <= largest[SAME_SIZE] for largest in most.values() if {"both", SAME_SIZE} <= largest.keys()]
    if same:
        why += f"; against a mix cut to as many contexts as one direction has, in {sum(same)} of {len(same)}"
    else:
        why += "; the mix holds more contexts than one direction, which alone may make its sets larger"
    return study_record(study, *KNOWLEDGE, ours, verdict_over_cases([kept]), why)


def _misses_by_volume(study: Study) -> dict[str, Any]:
    rows = _several(
        in_groups(study.volume, lambda cell: (cell.label, cell.clusters, cell.top), lambda cell: cell.training_sentences)
    )
    if not rows:
        return unmeasured_record(*MISS_BY_VOLUME, study, "volume of several texts")
    verdicts = [_fewer_misses(cells) for cells in rows.values()]
    ours = "; ".join(
        f"{label}, {clusters:,} clusters, K = {top}: {100 * cells[0].miss_rate:.2f} % with {cells[0].training_sentences:,} "
        f"sentences, {100 * cells[-1].miss_rate:.2f} % with {cells[-1].training_sentences:,}"
        for (label, clusters, top), cells in rows.items()
    )
    return study_record(study, *MISS_BY_VOLUME, ours, worst_verdict(verdicts), f"as a trend; {_counted(verdicts)}")


def _several(rows: dict[Key, list[Row]]) -> dict[Key, list[Row]]:
    """Return the groups of several rows, as a trend needs two points."""
    return {key: group for key, group in rows.items() if len(group) > 1}


def _trend(values: Sequence[float]) -> str:
    """Return `HOLDS` if the values fall by more than `NOISE` in all, or to 0, and rise by no more than `NOISE` at any step."""
    if values[-1] > values[0] * (1 + NOISE) or any(after > before * (1 + NOISE) for before, after in pairwise(values)):
        return FAILS
    return HOLDS if values[-1] == 0.0 or values[-1] < values[0] * (1 - NOISE) else UNCLEAR


def _fewer_misses(cells: Sequence[Cell]) -> str:
    """Return `HOLDS` if misses fall clearly from first to last, or to 0, and rise clearly at no step."""
    if any(_apart(before, after) < -SIGMAS for before, after in (*pairwise(cells), (cells[0], cells[-1]))):
        return FAILS
    return HOLDS if cells[-1].miss_rate == 0.0 or _apart(cells[0], cells[-1]) > SIGMAS else UNCLEAR


def _apart(before: Cell, after: Cell) -> float:
    """Return the fall of the miss rate in standard errors of two binomial shares."""
    error = sqrt(sum(cell.miss_rate * (1.0 - cell.miss_rate) / cell.heldout_tokens for cell in (before, after)))
    fell = before.miss_rate - after.miss_rate
    return fell / error if error > 0.0 else 0.0


def _counted(verdicts: Sequence[str]) -> str:
    """Describe how many groups clearly follow the trend, and how many clearly do not."""
    clear, against = verdicts.count(HOLDS), verdicts.count(FAILS)
    return (
        f"clearly so in {clear} of {len(verdicts)} cases and clearly not in {against}, by {SIGMAS:g} standard errors of the "
        f"held-out tokens"
    )


def _span(values: Sequence[float], what: str) -> str:
    return f"{min(values):.2f} to {max(values):.2f} {what}" if values else f"no {what}"


def _of(rows: Mapping[tuple[str, int], Sequence[Cell]]) -> str:
    """Describe which K are compared."""
    ends = dict.fromkeys((cells[0].top, cells[-1].top) for cells in rows.values())
    return ", ".join(f"K = {last} against K = {first}" for first, last in ends)


def _shares(rows: Mapping[tuple[str, int], Sequence[Cell]]) -> str:
    """Describe the active share by K, at the most clusters of each direction."""
    return "; ".join(
        f"{label}, {clusters:,} clusters: "
        + ", ".join(f"{100 * cell.share.mean:.2f} % at K = {cell.top}" for cell in rows[label, clusters])
        for label, clusters in _most_clusters(rows)
    )


def _most_clusters(keys: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    most: dict[str, int] = {}
    for label, clusters in keys:
        most[label] = max(clusters, most.get(label, 0))
    return list(most.items())
