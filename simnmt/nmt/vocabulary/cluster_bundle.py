"""Clusters of a model's contexts with their active columns, of one direction or of several into one target (FVP-04, 10).

A bundle is the file of one set; `active_shares` describes how much of the vocabulary its clusters activate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from simnmt.kernels.columns import Centroids, ColumnSets
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.bundle_file import BundleFile, control_tokens, fingerprint, read_bundle, write_bundle
from simnmt.nmt.vocabulary.contexts import BATCH, ITERATIONS, Clustering, Contexts, cluster, collect, join_contexts
from simnmt.profile.decoder_block import memory_account

if TYPE_CHECKING:
    from simnmt.nmt.translation import Translator

KIND = "clusters"


def active_sets(labels: Tensor, top: Tensor, clusters: int, always: Iterable[int], *, vocab: int) -> ColumnSets:
    """Return for each cluster the union of the tokens of its contexts and the tokens `always` (FVP-04).

    `labels`: int64 [n], the cluster of each context, none of them empty; `top`: int32 [n, K], its tokens.
    """
    held = (labels[:, None] * vocab + top).view(-1)
    added = (torch.arange(clusters)[:, None] * vocab + torch.tensor(list(always), dtype=torch.int64)).view(-1)
    pairs = torch.unique(torch.cat((held, added)))
    starts = torch.zeros(clusters + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(pairs.div(vocab, rounding_mode="floor"), minlength=clusters).cumsum(0)
    return ColumnSets(starts, pairs.remainder(vocab).to(torch.int32), vocab)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSet:
    """Clusters of the contexts of one text: of one direction, or of several that share a target."""

    label: str
    top: int
    """Likeliest tokens of each context in the sets: K."""
    centroids: Centroids
    sets: ColumnSets
    """The active columns of each cluster, ascending (FVP-04)."""
    members: Tensor
    """Training contexts of each cluster, int64 [r]."""
    emitted: Tensor
    """Tokens that dense decoding of the text wrote, int32, ascending."""
    origin: dict[str, Any]
    """How they were made: sentences with a context, beam, inertia, iterations of k-means, seed."""

    @classmethod
    def of(
        cls, label: str, contexts: Contexts, clustering: Clustering, model: StepModel, *, top: int | None = None
    ) -> ClusterSet:
        """Return the set of these clusters; `top`: fewer tokens of each context than recorded."""
        tokens, points = contexts.top[:, :top], clustering.centroids
        sets = active_sets(clustering.labels, tokens, len(points), control_tokens(model), vocab=model.vocab)
        origin = {"sentences": len(torch.unique(contexts.sentence)), "beam": contexts.beam, "inertia": clustering.inertia}
        origin |= {"iterations": clustering.iterations, "seed": clustering.seed}
        return cls(label, tokens.shape[1], Centroids.of(points), sets, clustering.members, contexts.emitted, origin)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes allocated, by part (FVP-12)."""
        points = self.centroids.points
        clusters, width = points.shape
        return memory_account(self.sets.vocab, width, clusters, len(self.sets.columns), points.element_size())


_TENSORS = ("centroids", "starts", "columns", "members", "emitted")


def save_clusters(clusters: ClusterSet, path: str | os.PathLike[str], model: StepModel, name: str = "") -> None:
    """Write clusters as a bundle of this model, whole or not at all; `name`: of the model. Raises `NmtError`."""
    sizes = {tensor.data_ptr(): tensor.nbytes for tensor in model.state_dict().values()}  # shared ones once
    note = {**fingerprint(model), "model": name, "model_bytes": sum(sizes.values())}
    note |= {"label": clusters.label, "top": clusters.top, "origin": clusters.origin}
    parts = clusters.centroids.points, clusters.sets.starts, clusters.sets.columns, clusters.members, clusters.emitted
    write_bundle(path, KIND, note, dict(zip(_TENSORS, parts, strict=True)))


def load_clusters(path: str | os.PathLike[str], model: StepModel | None = None) -> ClusterSet:
    """Read what `save_clusters` wrote, and check it against a model if one is given; raises `NmtError`."""
    return read_bundle(path, {KIND: clusters_in}, model)


def clusters_in(file: BundleFile) -> ClusterSet:
    """Return the clusters in a bundle, whose digest `read_bundle` has checked."""
    note = file.note
    centroids, starts, columns, members, emitted = (file.tensors[name] for name in _TENSORS)
    sets, origin = ColumnSets(starts, columns, note["vocab"]), note["origin"]
    return ClusterSet(note["label"], note["top"], Centroids.of(centroids), sets, members, emitted, origin)


def build_clusters(
    translator: Translator,
    texts: Sequence[Sequence[str]],
    clusters: int,
    top: int,
    *,
    label: str = "",
    beam: int = 1,
    batch: int = BATCH,
    seed: int = 1,
    iterations: int = ITERATIONS,
    progress: Callable[[str, float | None], None] = lambda stage, share: None,
) -> ClusterSet:
    """Build one set of clusters from texts: of one direction, or of several into one target (FVP-10).

    `progress`: called with the present stage and the share of it that is done, None if unknown. Raises the `NmtError` and
    `OutOfMemory` of `collect` and `cluster`.
    """
    if clusters < 1 or iterations < 1:  # decoding may take long
        raise NmtError(f"{clusters:,} clusters by {iterations:,} iterations", remedy="give 1 or more of each")
    model, collected = translator.model, list[Contexts]()
    for number, lines in enumerate(texts, 1):
        report, sources = partial(progress, f"decoding text {number}"), translator.encode(lines)
        collected.append(collect(model, sources, top, beam=beam, batch=batch, max_len=translator.max_len, progress=report))
    contexts = join_contexts(collected)
    progress("clustering", None)
    return ClusterSet.of(label, contexts, cluster(contexts, clusters, seed=seed, iterations=iterations), model)


def active_shares(clusters: ClusterSet) -> dict[str, Any]:
    """Return how much of the vocabulary the clusters activate, each as often as training met it; nothing is decoded.

    `mean` and `quantiles` are those of the active share for one context; `mean_of_emitted` is a share of the tokens that dense
    decoding wrote, which may exceed 1.
    """
    vocab, emitted, members = clusters.sets.vocab, len(clusters.emitted), clusters.members.numpy()
    shares = np.repeat(clusters.sets.sizes().numpy(), members) / vocab
    quantiles = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    at = np.quantile(shares, list(quantiles.values()), method="inverted_cdf").tolist()
    return {
        "label": clusters.label,
        "clusters": len(clusters.sets),
        "top": clusters.top,
        "contexts": int(members.sum()),
        "emitted": emitted,
        "mean": float(shares.mean()),
        "quantiles": dict(zip(quantiles, at, strict=True)),
        "mean_of_emitted": float(shares.mean()) * vocab / emitted,
        **clusters.origin,
    }
