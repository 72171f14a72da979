"""Clusters of a model's contexts with their active columns: one set per direction, or one for a shared target (FVP-04, 10).

`ClusterBundle` is saved and loaded; `active_shares` describes how much of the vocabulary its clusters activate.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from simnmt.base.suggestions import did_you_mean
from simnmt.kernels.columns import Centroids, ColumnSets
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.bundle_file import BundleFile, control_tokens, fingerprint, load_bundle, write_bundle
from simnmt.nmt.vocabulary.contexts import BATCH, ITERATIONS, Clustering, Contexts, cluster, collect, join_contexts
from simnmt.profile.decoder_block import memory_account

if TYPE_CHECKING:
    from simnmt.nmt.translation import Translator

KIND = "clusters"
"""The kind of these bundles."""


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
"""Names of the tensors of a set in a bundle."""
_NOTE = {"label": str, "top": int, "origin": dict}
"""The other fields of a set, which are in the note of a bundle."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterBundle:
    """All clusters of one model."""

    fingerprint: dict[str, Any]
    model_name: str
    model_bytes: int
    """Bytes of all weights and buffers, shared ones once."""
    sets: tuple[ClusterSet, ...]

    @classmethod
    def of(cls, model: StepModel, sets: Sequence[ClusterSet], *, name: str = "") -> ClusterBundle:
        """Return the bundle of a model's sets: one or more, each with a different label."""
        sizes = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in model.state_dict().values()}
        return cls(fingerprint(model), name, sum(sizes.values()), tuple(sets))

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the sets."""
        return tuple(cluster_set.label for cluster_set in self.sets)

    def direction(self, label: str | None = None) -> ClusterSet:
        """Return the set with this label, or the only set for None. Raises `NmtError` for no match or several sets."""
        if label is None:
            if len(self.sets) == 1:
                return self.sets[0]
            raise NmtError(f"a bundle of several directions: {', '.join(self.labels)}", remedy="name one with --direction")
        if label not in self.labels:
            remedy = did_you_mean(label, self.labels, f"it has {', '.join(self.labels)}")
            raise NmtError(f"no direction {label} in this bundle", remedy=remedy)
        return self.sets[self.labels.index(label)]

    def memory(self) -> dict[str, int]:
        """Return the bytes allocated for all sets, by part (FVP-12)."""
        return dict(sum((Counter(cluster_set.memory) for cluster_set in self.sets), Counter()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bundle, whole or not at all; raises `NmtError`."""
        tensors: dict[str, Tensor] = {}
        for number, clusters in enumerate(self.sets):
            sets = clusters.sets
            parts = (clusters.centroids.points, sets.starts, sets.columns, clusters.members, clusters.emitted)
            tensors |= {f"{number}.{name}": tensor for name, tensor in zip(_TENSORS, parts, strict=True)}
        notes = [{name: getattr(clusters, name) for name in _NOTE} for clusters in self.sets]
        about_model = {**self.fingerprint, "model": self.model_name, "model_bytes": self.model_bytes}
        write_bundle(path, KIND, {**about_model, "sets": notes}, tensors)


def load_clusters(path: str | os.PathLike[str], model: StepModel | None = None) -> ClusterBundle:
    """Read what `ClusterBundle.save` wrote, and check it against a model if one is given.

    Raises `NmtError` for a file that is damaged or of another model.
    """
    return load_bundle(path, KIND, _bundle_of, model)


def _bundle_of(file: BundleFile) -> ClusterBundle:
    """Return the bundle in a file; raises `ValueError` and others for content that does not fit together."""
    note, sets = file.note, list[ClusterSet]()
    identity = {"vocab": int, "width": int, "sha256": str}
    _check_types(note, {**identity, "model": str, "model_bytes": int, "sets": list})
    for number, set_note in enumerate(note["sets"]):
        _check_types(set_note, _NOTE)
        centroids, starts, columns, members, emitted = (file.tensors[f"{number}.{name}"] for name in _TENSORS)
        if centroids.shape != (len(starts) - 1, note["width"]) or len(members) != len(centroids):
            raise ValueError("shapes")
        if members.dtype != torch.int64 or not bool((members > 0).all()):
            raise ValueError("a cluster without a member")
        active = ColumnSets(starts, columns, note["vocab"])
        sets.append(ClusterSet(**set_note, centroids=Centroids.of(centroids), sets=active, members=members, emitted=emitted))
    return ClusterBundle({name: note[name] for name in identity}, note["model"], note["model_bytes"], tuple(sets))


def _check_types(note: dict[str, Any], types: dict[str, type]) -> None:
    if {key: type(value) for key, value in note.items()} != types:
        raise ValueError("a note of other types")


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
    name: str = "",
    progress: Callable[[str, float | None], None] = lambda stage, share: None,
) -> ClusterBundle:
    """Build the clusters of each text by its label, or with `pool` one set of that label for all texts together (FVP-10).

    `name`: of the model, for messages; `progress`: called with the present stage and the share of it that is done, None if
    unknown. Raises the `NmtError` and `OutOfMemory` of `collect` and `cluster`.
    """
    if clusters < 1 or iterations < 1:  # decoding may take long
        raise NmtError(f"{clusters:,} clusters by {iterations:,} iterations", remedy="give 1 or more of each")
    model, collected = translator.model, dict[str, Contexts]()
    for label, lines in texts.items():
        report, sources = partial(progress, f"decoding {label}"), translator.encode(lines)
        max_len = translator.max_len
        collected[label] = collect(model, sources, top, beam=beam, batch=batch, max_len=max_len, progress=report)
    if pool is not None:
        collected = {pool: join_contexts(list(collected.values()))}
    sets = []
    for label, contexts in collected.items():
        progress(f"clustering {label}", None)
        sets.append(ClusterSet.of(label, contexts, cluster(contexts, clusters, seed=seed, iterations=iterations), model))
    return ClusterBundle.of(model, sets, name=name)


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
