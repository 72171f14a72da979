"""Clusters of a model's contexts with their active columns: one set per direction, or one for a shared target (FVP-04, 10).

`ClusterBundle` is saved and loaded; `ActiveShares` describes how much of the vocabulary its clusters activate.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from simnmt.base.suggestions import did_you_mean
from simnmt.kernels.arrays import KernelError
from simnmt.kernels.columns import Centroids, ColumnSets
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.bundle_file import Fingerprint, control_tokens, model_bytes, read_bundle, write_bundle
from simnmt.nmt.vocabulary.memory_account import MemoryAccount, allocated_memory

if TYPE_CHECKING:
    from simnmt.nmt.vocabulary.contexts import Clustering, Contexts


def active_sets(labels: Tensor, top: Tensor, clusters: int, always: Iterable[int], *, vocab: int) -> ColumnSets:
    """Return for each cluster the union of the tokens of its contexts and the tokens `always` (FVP-04).

    `labels`: int64 [n], the cluster of each context; `top`: int32 [n, K], its tokens. Raises `NmtError` for a cluster without
    contexts, and for a token beyond the vocabulary.
    """
    members = torch.bincount(labels, minlength=clusters)
    if len(members) > clusters or not bool(members.all()):
        empty = int((members == 0).nonzero()[0]) if len(members) == clusters else int(labels.max())
        raise NmtError(f"cluster {empty:,} of {clusters:,} has no member", remedy="ask for fewer clusters")
    control = torch.tensor(sorted(set(always)), dtype=torch.int64)
    for tokens in (top, control):
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab:
            raise NmtError(f"tokens beyond a vocabulary of {vocab:,}", remedy="collect the contexts with this model")
    held = (labels[:, None] * vocab + top).view(-1)
    added = (torch.arange(clusters)[:, None] * vocab + control).view(-1)
    pairs = torch.unique(torch.cat((held, added)))
    starts = torch.zeros(clusters + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(pairs.div(vocab, rounding_mode="floor"), minlength=clusters).cumsum(0)
    return ColumnSets(starts, pairs.remainder(vocab).to(torch.int32), vocab)


KIND = "clusters"


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSet:
    """Clusters of the contexts of one text: of one direction, or of several that share a target."""

    label: str
    centroids: Centroids
    sets: ColumnSets
    """The active columns of each cluster, ascending (FVP-04)."""
    top: int
    """Likeliest tokens of each context in the sets: K."""
    members: Tensor
    """Training contexts of each cluster, int64 [r]."""
    emitted: Tensor
    """Tokens that dense decoding of the text wrote, int32, ascending."""
    sentences: int
    """Sentences with a context in the clusters."""
    beam: int
    inertia: float
    iterations: int
    method: str
    """Library that clustered the contexts."""
    seed: int

    @classmethod
    def of(
        cls, label: str, contexts: Contexts, clustering: Clustering, model: StepModel, *, top: int | None = None
    ) -> ClusterSet:
        """Return the set of these clusters; `top`: fewer tokens of each context than recorded. Raises `NmtError`."""
        taken = contexts.top.shape[1] if top is None else top
        if not 1 <= taken <= contexts.top.shape[1]:
            what = f"the {taken:,} likeliest tokens of contexts with {contexts.top.shape[1]:,} recorded"
            raise NmtError(what, remedy="record more of them")
        centroids, labels = clustering.centroids, clustering.labels
        sets = active_sets(labels, contexts.top[:, :taken], len(centroids), control_tokens(model), vocab=model.vocab)
        return cls(
            label,
            Centroids.of(centroids),
            sets,
            taken,
            clustering.members,
            contexts.emitted,
            int((torch.bincount(contexts.sentence) > 0).sum()),
            contexts.beam,
            clustering.inertia,
            clustering.iterations,
            clustering.method,
            clustering.seed,
        )

    @property
    def contexts(self) -> int:
        """Training contexts."""
        return int(self.members.sum())

    @property
    def shares(self) -> Tensor:
        """Active share of the vocabulary of each cluster, float64 [r]."""
        return self.sets.sizes().double() / self.sets.vocab


@dataclass(frozen=True, slots=True, eq=False)
class ClusterBundle:
    """All clusters of one model."""

    fingerprint: Fingerprint
    model_name: str
    model_bytes: int
    sets: tuple[ClusterSet, ...]

    @classmethod
    def of(cls, model: StepModel, sets: Sequence[ClusterSet], *, name: str = "") -> ClusterBundle:
        """Return the bundle of a model's sets: one or more, each with a different label."""
        labels = [cluster_set.label for cluster_set in sets]
        if not labels or len(set(labels)) < len(labels):
            raise NmtError(f"clusters labelled {', '.join(labels) or 'not at all'}", remedy="give each a label of its own")
        return cls(Fingerprint.of(model), name, model_bytes(model), tuple(sets))

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
        for cluster_set in self.sets:
            if cluster_set.label == label:
                return cluster_set
        remedy = did_you_mean(label, self.labels, f"it has {', '.join(self.labels)}")
        raise NmtError(f"no direction {label} in this bundle", remedy=remedy)

    def account(self) -> MemoryAccount:
        """Return the bytes allocated for all sets (FVP-12)."""
        return allocated_memory([(cluster_set.centroids, cluster_set.sets) for cluster_set in self.sets], self.model_bytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bundle, whole or not at all; raises `NmtError`."""
        tensors: dict[str, Tensor] = {}
        notes: list[dict[str, Any]] = []
        for number, clusters in enumerate(self.sets):
            sets = clusters.sets
            parts = (clusters.centroids.points, sets.starts, sets.columns, clusters.members, clusters.emitted)
            tensors |= {f"{number}.{name}": tensor for name, tensor in zip(_TENSORS, parts, strict=True)}
            notes.append({name: kind(getattr(clusters, name)) for name, kind in _NOTE_TYPES.items()})
        about_model = {"model": self.model_name, "model_bytes": self.model_bytes}
        write_bundle(path, KIND, {**asdict(self.fingerprint), **about_model, "sets": notes}, tensors)


_TENSORS = ("centroids", "starts", "columns", "members", "emitted")
"""Names of the tensors of a set in a bundle."""
_TYPES = {"str": str, "int": int, "float": float}
_NOTE_TYPES = {field.name: _TYPES[str(field.type)] for field in fields(ClusterSet) if field.type in _TYPES}
"""The other fields of a set, which are in the note of a bundle."""


def load_clusters(path: str | os.PathLike[str], model: StepModel | None = None) -> ClusterBundle:
    """Read what `ClusterBundle.save` wrote, and check it against a model if one is given.

    Raises `NmtError` for a file that is damaged, of another model or vocabulary, or has a cluster without a column.
    """
    file = read_bundle(path, KIND)
    try:
        note = file.note
        fingerprint = Fingerprint.of_note(note)
        sets = [_read_set(set_note, number, file.tensors, fingerprint) for number, set_note in enumerate(note["sets"])]
        bundle = ClusterBundle(fingerprint, note["model"], note["model_bytes"], tuple(sets))
        if not isinstance(bundle.model_name, str) or type(bundle.model_bytes) is not int:
            raise ValueError("a model of other types")
    except (AttributeError, KeyError, TypeError, ValueError, KernelError) as error:
        reason = f": {error}" if isinstance(error, KernelError) else ""
        raise NmtError(f"damaged{reason}", path=path, remedy="build it again with simnmt vocab build") from None
    if model is not None:
        fingerprint.check(model, path)
    return bundle


def _read_set(set_note: dict[str, Any], number: int, tensors: dict[str, Tensor], fingerprint: Fingerprint) -> ClusterSet:
    centroids, starts, columns, members, emitted = (tensors[f"{number}.{name}"] for name in _TENSORS)
    if centroids.shape != (len(starts) - 1, fingerprint.width) or len(members) != len(centroids):
        raise ValueError("shapes")
    if members.dtype != torch.int64 or not bool((members > 0).all()):
        raise KernelError("a cluster without a member")
    if {key: type(value) for key, value in set_note.items()} != _NOTE_TYPES:
        raise ValueError("a note of other types")
    return ClusterSet(
        **set_note,
        centroids=Centroids.of(centroids),
        sets=ColumnSets(starts, columns, fingerprint.vocab),
        members=members,
        emitted=emitted,
    )


QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class ActiveShares:
    """How much of the vocabulary the clusters of one direction activate.

    A cluster has the weight of its training contexts unless stated otherwise.
    """

    label: str
    vocab: int
    clusters: int
    top: int
    contexts: int
    sentences: int
    emitted: int
    """Different tokens that dense decoding of the training text wrote."""
    mean: float
    """Active share of the vocabulary for the one context of a step at batch 1."""
    quantiles: dict[str, float]
    """Quantiles of that share: min, p50, p90, p99, max."""
    mean_of_clusters: float
    """Mean share with equal weights of all clusters."""
    batch_20: float
    """Expected share of the union of 20 rows with independent contexts."""

    @classmethod
    def of(cls, clusters: ClusterSet) -> ActiveShares:
        """Compute the shares of a set; nothing is decoded."""
        shares, members = clusters.shares, clusters.members.double()
        return cls(
            clusters.label,
            clusters.sets.vocab,
            len(clusters.sets),
            clusters.top,
            clusters.contexts,
            clusters.sentences,
            len(clusters.emitted),
            float((shares * members).sum() / members.sum()),
            _quantiles(shares, members),
            float(shares.mean()),
            expected_union(clusters, 20) / clusters.sets.vocab,
        )

    def of_emitted(self, share: float) -> float:
        """Convert a share of the vocabulary to a share of the emitted tokens, which may exceed 1."""
        return share * self.vocab / self.emitted

    def as_json(self) -> dict[str, Any]:
        """Return every field, and `mean` and `batch_20` as shares of the emitted tokens."""
        return asdict(self) | {
            "mean_of_emitted": self.of_emitted(self.mean),
            "batch_20_of_emitted": self.of_emitted(self.batch_20),
        }


def expected_union(clusters: ClusterSet, rows: int) -> float:
    """Return the expected columns in the union of `rows` rows, whose clusters are drawn independently by training frequency."""
    weights = clusters.members.double() / clusters.members.sum()
    repeated = weights.repeat_interleave(clusters.sets.sizes())
    active = torch.zeros(clusters.sets.vocab, dtype=torch.float64).index_add_(0, clusters.sets.columns.long(), repeated)
    return float((1.0 - (1.0 - active.clamp(max=1.0)) ** rows).sum())


def _quantiles(shares: Tensor, members: Tensor) -> dict[str, float]:
    """Return the quantiles of shares weighted by members."""
    shares, order = shares.sort()
    reached = members[order].cumsum(0) / members.sum()
    places = torch.searchsorted(reached, torch.tensor(list(QUANTILES.values()), dtype=torch.float64) - 1e-12)
    return dict(zip(QUANTILES, shares[places.clamp(max=len(shares) - 1)].tolist(), strict=True))
