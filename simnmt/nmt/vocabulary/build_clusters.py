"""From a trained model and unlabelled text to clusters (FVP-02 to 04, FVP-10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simnmt.nmt.errors import NmtError
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle, ClusterSet
from simnmt.nmt.vocabulary.contexts import BATCH, Contexts, Progress, collect, joined
from simnmt.nmt.vocabulary.kmeans import ITERATIONS, cluster, method_named


def build_clusters(
    translator: Translator,
    texts: Mapping[str, Sequence[str]],
    clusters: int,
    top: int,
    *,
    pool: str | None = None,
    beam: int = 1,
    batch: int = BATCH,
    seed: int = 1,
    iterations: int = ITERATIONS,
    method: str | None = None,
    name: str = "",
    progress: Progress | None = None,
) -> ClusterBundle:
    """Clusters of each text by its label, or with `pool` one set of that label for all of them together (FVP-10).

    `name`: the model's, for people. Raises `NmtError` and `OutOfMemory` as `collect` and `cluster` do.
    """
    method = method_named(method)
    if clusters < 1 or iterations < 1:  # decoding may take long
        raise NmtError(f"{clusters:,} clusters by {iterations:,} iterations", remedy="give 1 or more of each")
    tell = progress or (lambda stage, share: None)

    def collected(label: str) -> Contexts:
        return collect(
            translator,
            texts[label],
            top,
            beam=beam,
            batch=batch,
            progress=lambda _, share: tell(f"decoding {label}", share),
        )

    def clustered(label: str, contexts: Contexts) -> ClusterSet:
        tell(f"clustering {label}", None)
        found = cluster(contexts, clusters, seed=seed, iterations=iterations, method=method)
        return ClusterSet.of(label, contexts, found, translator.model)

    if pool is None:
        sets = [clustered(label, collected(label)) for label in texts]
    else:
        sets = [clustered(pool, joined([collected(label) for label in texts]))]
    return ClusterBundle.of(translator.model, sets, name=name)


def evenly(lines: Sequence[str], count: int | None) -> list[str]:
    """So many of the lines, evenly spread over them in their order; all of them for None, or where there are no more."""
    if count is None or count >= len(lines):
        return list(lines)
    return [lines[at * len(lines) // count] for at in range(count)]
