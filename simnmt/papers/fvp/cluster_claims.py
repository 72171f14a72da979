"""The claims that a trained model's clusters decide: active columns, and tokens that they miss (FVP-08, 10, 11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import TypeVar

from simnmt.papers.fvp import published
from simnmt.papers.fvp.evidence import in_groups, lacking, study_records
from simnmt.papers.fvp.study import Cell, ClusterSizes, Knowledge, Study
from simnmt.papers.kit.claim import (
    FAILS,
    HOLDS,
    UNCLEAR,
    Claim,
    ClaimRecord,
    Judgement,
    holds_if,
    verdict_over_cases,
    worst_verdict,
)

NOISE = 0.05
"""By how much a share may rise from step to step, relative, without spoiling a trend: k-means begins anew each time."""
SIGMAS = 2.0
"""Standard errors of a difference of two miss rates within which they count as alike."""
NESTED = "so by construction, as the set of a K is part of that of a larger one; the amount is the finding"
SAME_SIZE: Knowledge = "mixed, same size"
"""Clusters of a mix of directions that is cut to as many contexts as one of them has."""

Entry = TypeVar("Entry", Cell, ClusterSizes)
ByClusters = Mapping[tuple[str, int], Sequence[Entry]]
"""Entries by direction and number of clusters, sorted by K."""


def cluster_claims(study: Study | None) -> list[ClaimRecord]:
    """Return the six claims by one study; without a study, claims that name the missing study."""
    return study_records(_CLAIMS, study)


def _more_clusters(cells: Sequence[Cell], _: Study) -> Judgement:
    rows = in_groups(cells, lambda cell: (cell.label, cell.top), lambda cell: cell.clusters)
    shares = {key: [cell.share.mean for cell in row] for key, row in rows.items() if len(row) > 1}
    if not shares:
        raise lacking("sweep of several numbers of clusters")
    ours = "; ".join(
        f"{label}, K = {top}: {100 * means[0]:.2f} % at {rows[label, top][0].clusters:,} to "
        f"{100 * means[-1]:.2f} % at {rows[label, top][-1].clusters:,}"
        for (label, top), means in shares.items()
    )
    rises = sum(after > before for means in shares.values() for before, after in pairwise(means))
    steps = sum(len(means) - 1 for means in shares.values())
    why = f"of V, mean over held-out steps at batch 1; {rises} of {steps} steps rise, each by {NOISE:.0%} may"
    return Judgement(ours, worst_verdict(_trend(means) for means in shares.values()), why)


def _by_top(cells: Sequence[Cell], _: Study) -> Judgement:
    rows = _of_several_tops(cells)
    if not rows:
        raise lacking("sweep of several K")
    kept = all(before.share.mean < after.share.mean for row in rows.values() for before, after in pairwise(row))
    factors = [row[-1].share.mean / row[0].share.mean for row in rows.values() if row[0].share.mean > 0.0]
    why = f"{NESTED}: {_span(factors)} times as many columns with the largest K, {_compared_tops(rows)}; of V, mean over "
    why += "held-out steps at batch 1, with the most clusters"
    return Judgement(_format_shares(_most_clusters(rows), lambda cell: cell.share.mean), holds_if(kept), why)


def _misses_by_top(cells: Sequence[Cell], _: Study) -> Judgement:
    rows = _of_several_tops(cells)
    if not rows:
        raise lacking("sweep of several K")
    verdicts = [_fewer_misses(row) for row in rows.values()]
    factors = [row[0].miss_rate / row[-1].miss_rate for row in rows.values() if row[-1].miss_rate > 0.0]
    amount = f"{_span(factors)} times fewer with the largest K, {_compared_tops(rows)}" if factors else "none is left"
    why = f"{NESTED}: {amount}; held-out tokens that dense decoding writes and that are not active; {_counted(verdicts)}"
    return Judgement(_format_shares(_most_clusters(rows), lambda cell: cell.miss_rate), worst_verdict(verdicts), why)


def _figure_4(entries: Sequence[ClusterSizes], study: Study) -> Judgement:
    rows = _of_several_tops(entries)
    if not rows:
        raise lacking("per_cluster of several K")

    def share(sizes: ClusterSizes) -> float:
        return fmean(sizes.columns) / study.model.vocab

    kept = all(share(before) < share(after) for row in rows.values() for before, after in pairwise(row))
    why = f"{NESTED}; mean over clusters; judged by their order, as V differs from the paper's"
    return Judgement(_format_shares(rows, share), holds_if(kept), why)


def _knowledge(cells: Sequence[Cell], _: Study) -> Judgement:
    rows = in_groups(cells, lambda cell: (cell.label, cell.clusters, cell.top), lambda cell: cell.knowledge)
    most = {key: {cell.knowledge: cell.sets.most for cell in row} for key, row in rows.items()}
    pairs = {key: (largest["both"], largest["target"]) for key, largest in most.items() if {"both", "target"} <= largest.keys()}
    if not pairs:
        raise lacking("by_language of both kinds")
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
    return Judgement(ours, verdict_over_cases([kept]), why)


def _misses_by_volume(cells: Sequence[Cell], _: Study) -> Judgement:
    groups = in_groups(cells, lambda cell: (cell.label, cell.clusters, cell.top), lambda cell: cell.training_sentences)
    rows = {key: row for key, row in groups.items() if len(row) > 1}
    if not rows:
        raise lacking("volume of several texts")
    verdicts = [_fewer_misses(row) for row in rows.values()]
    ours = "; ".join(
        f"{label}, {clusters:,} clusters, K = {top}: {100 * row[0].miss_rate:.2f} % with {row[0].training_sentences:,} "
        f"sentences, {100 * row[-1].miss_rate:.2f} % with {row[-1].training_sentences:,}"
        for (label, clusters, top), row in rows.items()
    )
    return Judgement(ours, worst_verdict(verdicts), f"as a trend; {_counted(verdicts)}")


def _of_several_tops(entries: Sequence[Entry]) -> dict[tuple[str, int], list[Entry]]:
    """Return the groups of several K, as a trend needs two points."""
    groups = in_groups(entries, lambda entry: (entry.label, entry.clusters), lambda entry: entry.top)
    return {key: row for key, row in groups.items() if len(row) > 1}


def _most_clusters(rows: ByClusters[Cell]) -> ByClusters[Cell]:
    """Return the rows of the most clusters of each direction."""
    most = dict(sorted(rows))
    return {(label, clusters): row for (label, clusters), row in rows.items() if most[label] == clusters}


def _format_shares(rows: ByClusters[Entry], share: Callable[[Entry], float]) -> str:
    return "; ".join(
        f"{label}, {clusters:,} clusters: " + ", ".join(f"{100 * share(entry):.2f} % at K = {entry.top}" for entry in row)
        for (label, clusters), row in rows.items()
    )


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
    return (before.miss_rate - after.miss_rate) / error if error > 0.0 else 0.0


def _counted(verdicts: Sequence[str]) -> str:
    """Describe how many groups clearly follow the trend, and how many clearly do not."""
    return (
        f"clearly so in {verdicts.count(HOLDS)} of {len(verdicts)} cases and clearly not in {verdicts.count(FAILS)}, by "
        f"{SIGMAS:g} standard errors of the held-out tokens"
    )


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else "no"


def _compared_tops(rows: ByClusters[Cell]) -> str:
    ends = dict.fromkeys((row[0].top, row[-1].top) for row in rows.values())
    return ", ".join(f"K = {last} against K = {first}" for first, last in ends)


_CLAIMS = (
    Claim(
        "FVP-11 (a)",
        "More clusters make fewer columns active, as a trend",
        "a trend of figure 3's speeds",
        _more_clusters,
        "sweep",
    ),
    Claim("FVP-11 (b)", "With every K more columns are active", "2, 5, 6 % at K = 1, 3, 5", _by_top, "sweep"),
    Claim("FVP-08 (c)", "The miss rate falls as K grows", "", _misses_by_top, "sweep"),
    Claim(
        "FVP-11 (c)",
        f"With {published.FIGURE_3_BEST:,} clusters the sets of K = 1 are smaller than those of K = 3, and those than of K = 5",
        ", ".join(f"about {share:.0f} % at K = {top}" for top, share in published.FIGURE_4.items()) + " (cluster 0)",
        _figure_4,
        "per_cluster",
    ),
    Claim(
        "FVP-10",
        "The largest active set is no larger where source and target language are known than where the target alone is",
        f"{published.FIGURE_2['both']} against {published.FIGURE_2['target']} % with {published.FIGURE_2_CLUSTERS} clusters, "
        "K = 1",
        _knowledge,
        "by_language",
    ),
    Claim(
        "FVP-08 (d)",
        "The miss rate falls as the training text grows",
        "20 million sentences were used",
        _misses_by_volume,
        "volume",
    ),
)
