"""What a trained model says of its clusters: how many columns they make active, and which tokens they miss (FVP-08, 10, 11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.verdicts import Records, together
from simnmt.reproduce.vocab import published
from simnmt.reproduce.vocab.studies import in_groups, told, unasked

if TYPE_CHECKING:
    from simnmt.calibrate.vocabulary.study.document import Cell, Study

NOISE = 0.05
"""By how much a share may rise from one step to the next, relative, without spoiling a trend."""

Way = tuple[str, str, str]
"""Identifier, claim, and what is published."""
MORE_CLUSTERS: Way = ("FVP-11 (a)", "More clusters make fewer columns active, as a trend", "a trend of figure 3's speeds")
MORE_TOKENS: Way = ("FVP-11 (b)", "With every K more columns are active", "2, 5, 6 % at K = 1, 3, 5")
FIGURE_4: Way = (
    "FVP-11 (c)",
    f"With {published.FIGURE_3_BEST:,} clusters the sets of K = 1 are smaller than those of K = 3, and those than of K = 5",
    ", ".join(f"about {share:.0f} % at K = {top}" for top, share in published.FIGURE_4.items()) + " (cluster 0)",
)
KNOWLEDGE: Way = (
    "FVP-10",
    "The largest active set is no larger where source and target language are known than where the target alone is",
    f"{published.FIGURE_2['both']} against {published.FIGURE_2['target']} % with {published.FIGURE_2_CLUSTERS} clusters, K = 1",
)
MISS_BY_TOP: Way = ("FVP-08 (c)", "The miss rate falls as K grows", "")
MISS_BY_VOLUME: Way = ("FVP-08 (d)", "The miss rate falls as the training text grows", "20 million sentences were used")


def cluster_claims(study: Study | None) -> Records:
    """Six claims by one study; of none, that they need one."""
    parts = {
        "sweep": (MORE_CLUSTERS, MORE_TOKENS, MISS_BY_TOP),
        "per_cluster": (FIGURE_4,),
        "by_language": (KNOWLEDGE,),
        "volume": (MISS_BY_VOLUME,),
    }
    found: Records = []
    for part, ways in parts.items():
        if study is None or not getattr(study, part):
            found += [unasked(*way, study, part) for way in ways]
    if study is None:
        return found
    if study.sweep:
        found += [_more_clusters(study), _by_top(study), _misses_by_top(study)]
    if study.per_cluster:
        found.append(_figure_4(study))
    if study.by_language:
        found.append(_knowledge(study))
    if study.volume:
        found.append(_misses_by_volume(study))
    return found


def _more_clusters(study: Study) -> dict[str, Any]:
    rows = in_groups(study.sweep, lambda cell: (cell.label, cell.top), lambda cell: cell.clusters)
    shares = {key: [cell.share.mean for cell in own] for key, own in rows.items()}
    kept = all(_falls(own) for own in shares.values())
    ours = "; ".join(
        f"{label}, K = {top}: {100 * shares[label, top][0]:.2f} % at {own[0].clusters:,} to "
        f"{100 * shares[label, top][-1]:.2f} % at {own[-1].clusters:,}"
        for (label, top), own in rows.items()
    )
    rises = sum(after > before for own in shares.values() for before, after in pairwise(own))
    return told(
        study, *MORE_CLUSTERS, ours, kept, f"of V, mean over held-out steps at batch 1; {rises} rises, {NOISE:.0%} allowed"
    )


def _by_top(study: Study) -> dict[str, Any]:
    rows = in_groups(study.sweep, lambda cell: (cell.label, cell.clusters), lambda cell: cell.top)
    kept = all(before.share.mean < after.share.mean for own in rows.values() for before, after in pairwise(own))
    return told(study, *MORE_TOKENS, _shares(rows), kept, "of V, mean over held-out steps at batch 1; the most clusters told")


def _misses_by_top(study: Study) -> dict[str, Any]:
    rows = in_groups(study.sweep, lambda cell: (cell.label, cell.clusters), lambda cell: cell.top)
    worse = [own for own in rows.values() if not all(_is_less(before, after) for before, after in pairwise(own))]
    ours = "; ".join(
        f"{label}, {clusters:,} clusters: "
        + ", ".join(f"{100 * cell.miss_rate:.2f} % at K = {cell.top}" for cell in rows[label, clusters])
        for label, clusters in _most_clusters(rows)
    )
    why = "held-out tokens that dense decoding writes and that are not active"
    return told(study, *MISS_BY_TOP, ours, not worse, f"{why}; {len(worse)} of {len(rows)} numbers of clusters say otherwise")


def _figure_4(study: Study) -> dict[str, Any]:
    rows = in_groups(study.per_cluster, lambda each: (each.label, each.clusters), lambda each: each.top)
    means = {key: [(each.top, fmean(each.columns) / study.model.vocab) for each in own] for key, own in rows.items()}
    kept = all(before < after for own in means.values() for (_, before), (_, after) in pairwise(own))
    ours = "; ".join(
        f"{label}, {clusters:,} clusters: " + ", ".join(f"{100 * share:.2f} % at K = {top}" for top, share in own)
        for (label, clusters), own in means.items()
    )
    return told(study, *FIGURE_4, ours, kept, "mean over clusters; judged by their order, as V differs from the paper's")


def _knowledge(study: Study) -> dict[str, Any]:
    rows = in_groups(study.by_language, lambda cell: (cell.label, cell.clusters, cell.top), lambda cell: cell.knowledge)
    pairs = {key: (own[0].sets.most, own[1].sets.most) for key, own in rows.items() if len(own) == 2}
    kept = [both <= target for both, target in pairs.values()]
    shown = [key for key in pairs if key[1] == published.FIGURE_2_CLUSTERS] or list(pairs)
    ours = "; ".join(
        f"{label}, {clusters} clusters, K = {top}: {100 * pairs[label, clusters, top][0]:.2f} against "
        f"{100 * pairs[label, clusters, top][1]:.2f} %"
        for label, clusters, top in shown
    )
    if not pairs:
        return unasked(*KNOWLEDGE, study, "by_language of both kinds")
    why = f"so in {sum(kept)} of {len(kept)} pairs of a direction, a number of clusters and a K"
    return told(study, *KNOWLEDGE, ours, together([kept]), why)


def _misses_by_volume(study: Study) -> dict[str, Any]:
    rows = in_groups(study.volume, lambda cell: (cell.label, cell.clusters, cell.top), lambda cell: cell.training_sentences)
    kept = all(_falls([cell.miss_rate for cell in own]) for own in rows.values())
    ours = "; ".join(
        f"{label}, {clusters:,} clusters, K = {top}: {100 * own[0].miss_rate:.2f} % with {own[0].training_sentences:,} "
        f"sentences, {100 * own[-1].miss_rate:.2f} % with {own[-1].training_sentences:,}"
        for (label, clusters, top), own in rows.items()
    )
    return told(study, *MISS_BY_VOLUME, ours, kept, f"as a trend: a rise of {NOISE:.0%} from step to step is allowed")


def _falls(values: Sequence[float]) -> bool:
    """As a trend."""
    return values[-1] < values[0] and all(after <= before * (1 + NOISE) for before, after in pairwise(values))


def _is_less(before: Cell, after: Cell) -> bool:
    """Missed tokens; none cannot become fewer."""
    return after.miss_rate < before.miss_rate or after.miss_rate == 0.0


def _shares(rows: Mapping[tuple[str, int], Sequence[Cell]]) -> str:
    """By K, with the most clusters of each direction."""
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
