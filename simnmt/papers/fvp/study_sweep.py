"""Clusters of a direction's contexts at many r and K, each held against held-out text (FVP-08, 10, 11).

Contexts and clusterings are computed once and, where a folder is given, kept on disk: every part of a study needs them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from simnmt.base.random_streams import stream
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.column_sets import Centroids
from simnmt.nmt.checkpoint import read_tensors, write_tensors
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle, ClusterSet
from simnmt.nmt.vocabulary.contexts import Contexts, collect
from simnmt.nmt.vocabulary.kmeans import Clustering, assign, check_method, cluster
from simnmt.papers.fvp.study import Cell, ClusterSizes, Knowledge, Memory, Spread

_BLOCK = 256
"""Steps whose rows' sets are gathered at a time."""
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)
"""Bits set in each byte."""


@dataclass(frozen=True, slots=True)
class HeldOutTokens:
    """The tokens that dense greedy decoding of a text wrote, sentence by sentence, in the order of the steps."""

    tokens: NDArray[np.int64]
    """[steps], end tokens included."""
    sentences: NDArray[np.int64]
    """[steps]: the sentence of each step, ascending."""

    def __post_init__(self) -> None:
        if not len(self.tokens) or np.any(np.diff(self.sentences) < 0):
            raise ValueError("steps of at least one sentence, sentence by sentence")

    @property
    def sentence_count(self) -> int:
        """Sentences that have a step."""
        return len(np.unique(self.sentences))


@dataclass(frozen=True, slots=True)
class Outcome:
    """See the fields of `Cell` that have these names."""

    share: Spread
    union: Spread
    union_rows: int
    miss_rate: float
    identical: float


class ActiveBits:
    """Active sets as bits, one row a cluster: for counting many unions at once."""

    def __init__(self, starts: NDArray[np.int64], columns: NDArray[np.int32], vocab: int) -> None:
        """Set i holds `columns[starts[i] : starts[i + 1]]`."""
        active = np.zeros((len(starts) - 1, vocab), dtype=bool)
        active[np.repeat(np.arange(len(starts) - 1), np.diff(starts)), columns] = True
        self._active, self._bits, self.vocab = active, np.packbits(active, axis=1), vocab
        self.sizes: NDArray[np.int64] = active.sum(axis=1)
        """Columns of each set."""

    def holds(self, sets: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each token is in the set at the same place, shape (tokens,)."""
        contains: NDArray[np.bool_] = self._active[sets, tokens]
        return contains

    def of(self, sets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which columns are active, [sets, vocab]."""
        active: NDArray[np.bool_] = self._active[sets]
        return active

    def unions(self, sets: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """Count the columns of the union of each step's sets, with the sequence of `sets` split into `rows` lanes.

        Each lane is a consecutive run of the sequence and gives one row to every step, as if a finished sentence were replaced
        at once. Steps that do not fill every lane are left out.
        """
        steps = len(sets) // rows
        lanes = sets[: steps * rows].reshape(rows, steps).T
        parts = []
        for begin in range(0, steps, _BLOCK):
            together = np.bitwise_or.reduce(self._bits[lanes[begin : begin + _BLOCK]], axis=1)
            parts.append(_ONES[together].sum(axis=1, dtype=np.int64))
        return np.concatenate(parts)


def outcome(bits: ActiveBits, nearest: NDArray[np.int64], heldout: HeldOutTokens, rows: int) -> Outcome:
    """Return how held-out text fares with these sets; `nearest`: the cluster of each step; `rows`: most rows of a union."""
    hit = bits.holds(nearest, heldout.tokens)
    rows = min(rows, len(nearest))
    _, sentence = np.unique(heldout.sentences, return_inverse=True)
    misses = np.bincount(sentence, weights=~hit)
    return Outcome(
        spread(bits.sizes[nearest], bits.vocab),
        spread(bits.unions(nearest, rows), bits.vocab),
        rows,
        float(1.0 - hit.mean()),
        float((misses == 0).mean()),
    )


def spread(columns: NDArray[np.int64], vocab: int) -> Spread:
    """Return the spread of these column counts as shares of the vocabulary."""
    least, p10, median, p90, most = (float(quantile) / vocab for quantile in np.quantile(columns, (0.0, 0.1, 0.5, 0.9, 1.0)))
    return Spread(mean=float(columns.mean()) / vocab, least=least, p10=p10, median=median, p90=p90, most=most)


BATCH = 128
"""Sentences decoded together: 1.3 times as fast on one thread as 64."""


SILENT_S = 10.0
"""Seconds of decoding before progress is reported."""


@dataclass(frozen=True, slots=True)
class DirectionContexts:
    """Contexts of dense greedy decoding of one direction's texts."""

    label: str
    training: Contexts
    development: Contexts
    """Of held-out text, sentence by sentence."""

    @property
    def tokens(self) -> HeldOutTokens:
        """Return the tokens that dense decoding wrote for the held-out text."""
        return HeldOutTokens(self.development.top[:, 0].long().numpy(), self.development.sentence.long().numpy())

    @property
    def emitted(self) -> int:
        """Return the number of distinct tokens that dense decoding wrote for both texts."""
        return len(torch.unique(torch.cat((self.training.emitted, self.development.emitted))))


def beginning(contexts: Contexts, sentences: int) -> Contexts:
    """Return the contexts of the first `sentences` sentences."""
    return replace(contexts.of(contexts.sentence < sentences), sentences=sentences)


def first_contexts(contexts: Contexts, count: int) -> Contexts:
    """Return the first `count` contexts, which are in sentence order; the last sentence may be cut."""
    first = contexts.of(torch.arange(min(count, len(contexts))))
    return replace(first, sentences=int(first.sentence.max()) + 1)


def by_sentence(contexts: Contexts) -> Contexts:
    """Return the contexts sentence by sentence, in the order of the steps."""
    return contexts.of(torch.sort(contexts.sentence, stable=True).indices)


class KeptContexts:
    """Decodes text, or finds what an earlier run decoded."""

    def __init__(self, translator: Translator, model_sha256: str, folder: Path | None, say: Callable[[str], None]) -> None:
        """`folder`: where contexts are kept, None: nowhere; `say`: reports what takes long."""
        self._translator, self._model, self.folder, self._say = translator, model_sha256, folder, say

    def of(self, what: str, lines: Sequence[str], top: int) -> Contexts:
        """Contexts with their `top` likeliest tokens, sentence by sentence; `what`: for people."""
        path = None if self.folder is None else self.folder / f"contexts-{self._key(lines, top)}.safetensors"
        if path is not None and path.is_file():
            self._say(f"contexts of {what}: kept from before")
            return _read_contexts(path, len(lines))
        self._say(f"decoding {len(lines):,} sentences of {what}")
        contexts = by_sentence(collect(self._translator, lines, top, batch=BATCH, progress=_tenths(self._say)))
        if path is not None:
            _write_contexts(path, contexts)
        return contexts

    def _key(self, lines: Sequence[str], top: int) -> str:
        digest = hashlib.sha256(f"{self._model} {top}\n".encode())
        for line in lines:
            digest.update(f"{line}\n".encode())
        return digest.hexdigest()[:32]


def _tenths(say: Callable[[str], None]) -> Callable[[str, float | None], None]:
    """Return a progress callback that reports each tenth once, after `SILENT_S` seconds."""
    next_share, begin_s = 0.1, time.monotonic()

    def progress(what: str, share: float | None) -> None:
        nonlocal next_share
        if share is not None and share >= next_share and time.monotonic() - begin_s > SILENT_S:
            say(f"{what}: {share:.0%}")
            next_share = share + 0.1

    return progress


_NAMES = ("hidden", "top", "sentence", "emitted")


def _write_contexts(path: Path, contexts: Contexts) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {name: getattr(contexts, name) for name in _NAMES})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CalibrationError(f"cannot be written: {reason}", path=path, remedy="choose another folder") from None


def _read_contexts(path: Path, sentences: int) -> Contexts:
    try:
        tensors, _ = read_tensors(path)
        hidden, top, sentence, emitted = (tensors[name] for name in _NAMES)
    except (OSError, ValueError, KeyError):
        raise CalibrationError("no kept contexts, or damaged", path=path, remedy="remove the file") from None
    return Contexts(hidden, top, sentence, emitted, sentences)


_NOTED_FIELDS = ("inertia", "iterations", "method", "seed")
_NOTE = "simnmt_clustering"
_ASSIGN_ROWS = 1 << 14
"""Contexts whose bytes are copied at a time."""


@dataclass(frozen=True, slots=True)
class Clusterer:
    """k-means of a study."""

    seed: int
    most: int
    """Contexts that k-means sees; of more, so many are drawn, and the rest then join their nearest centroid."""
    method: str | None = None
    """See `cluster`."""
    folder: Path | None = None
    """Where clusters are kept; None: nowhere."""

    def seen(self, contexts: Contexts) -> int:
        """Contexts that k-means sees of these."""
        return min(len(contexts), self.most)

    def clusters(self, contexts: Contexts, clusters: int) -> Clustering:
        """Cluster all contexts; the inertia is of the contexts that k-means saw. Raises what `cluster` raises.

        Clusters kept on disk are looked up by their contexts, not by name. Raises `CalibrationError` if their file is damaged.
        """
        if self.folder is None:
            return self._cluster(contexts, clusters)
        path = self.folder / f"clusters-{self._key(contexts, clusters)}.safetensors"
        if path.is_file():
            return _read_clusters(path)
        clustering = self._cluster(contexts, clusters)
        _write_clusters(path, clustering)
        return clustering

    def _cluster(self, contexts: Contexts, clusters: int) -> Clustering:
        if len(contexts) <= self.most:
            return cluster(contexts, clusters, seed=self.seed, method=self.method)
        drawn = stream(self.seed, 0, "clustered contexts").choice(len(contexts), self.most, replace=False)
        sample = contexts.hidden[torch.from_numpy(drawn).sort().values]
        clustering = cluster(sample, clusters, seed=self.seed, method=self.method)
        return replace(clustering, labels=assign(contexts.hidden, Centroids.of(clustering.centroids)))

    def _key(self, contexts: Contexts, clusters: int) -> str:
        identity = f"{clusters} {self.seed} {self.seen(contexts)} {check_method(self.method)} {list(contexts.hidden.shape)}"
        digest = hashlib.sha256(identity.encode())
        for first in range(0, len(contexts), _ASSIGN_ROWS):
            digest.update(contexts.hidden[first : first + _ASSIGN_ROWS].numpy().tobytes())
        return digest.hexdigest()[:32]


def _write_clusters(path: Path, clustering: Clustering) -> None:
    note = json.dumps({name: getattr(clustering, name) for name in _NOTED_FIELDS})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {"centroids": clustering.centroids, "labels": clustering.labels}, {_NOTE: note})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CalibrationError(f"cannot be written: {reason}", path=path, remedy="choose another folder") from None


def _read_clusters(path: Path) -> Clustering:
    try:
        tensors, notes = read_tensors(path)
        settings: dict[str, Any] = json.loads(notes[_NOTE])
        return Clustering(tensors["centroids"], tensors["labels"], **settings)
    except (OSError, KeyError, ValueError, TypeError, RecursionError):
        raise CalibrationError("no kept clusters, or damaged", path=path, remedy="remove the file") from None


UNION_ROWS = 20
"""Of a step: the paper's batch."""
MASS_CONTEXTS = 4_096
"""Of which the probability is looked up, evenly taken: in about two seconds, to better than 0.1 %."""
_PIECE = 256
"""Contexts whose logits are held at a time."""


def cluster_sets(
    model: StepModel, label: str, contexts: Contexts, clusters: int, tops: Sequence[int], clusterer: Clusterer
) -> Iterator[ClusterSet]:
    """Cluster once and yield the clusters with the active sets of each K."""
    clustering = clusterer.clusters(contexts, clusters)
    for top in tops:
        yield ClusterSet.of(label, contexts, clustering, model, top=top)


def cells(
    model: StepModel,
    of: DirectionContexts,
    training: Contexts,
    clusters: int,
    tops: Sequence[int],
    clusterer: Clusterer,
    knowledge: Knowledge = "both",
) -> Iterator[Cell]:
    """Yield one cell for each K, from clusters of `training`, which may mix directions or be part of one."""
    nearest, heldout, emitted = None, of.tokens, of.emitted
    for cluster_set in cluster_sets(model, of.label, training, clusters, tops, clusterer):
        if nearest is None:
            nearest = assign(of.development.hidden, cluster_set.centroids).numpy()
        bits = active_bits(cluster_set)
        heldout_outcome = outcome(bits, nearest, heldout, UNION_ROWS)
        yield Cell(
            label=of.label,
            knowledge=knowledge,
            clusters=clusters,
            top=cluster_set.top,
            training_sentences=training.sentences,
            training_contexts=len(training),
            clustered_contexts=clusterer.seen(training),
            heldout_sentences=heldout.sentence_count,
            heldout_tokens=len(heldout.tokens),
            sets=spread(bits.sizes, bits.vocab),
            share=heldout_outcome.share,
            union=heldout_outcome.union,
            union_rows=heldout_outcome.union_rows,
            emitted=emitted,
            share_of_emitted=heldout_outcome.share.mean * bits.vocab / emitted,
            union_of_emitted=heldout_outcome.union.mean * bits.vocab / emitted,
            miss_rate=heldout_outcome.miss_rate,
            identical=heldout_outcome.identical,
            set_bytes=cluster_set.sets.columns.untyped_storage().nbytes(),
            bundle_bytes=cluster_set.sets.nbytes + cluster_set.centroids.nbytes,
        )


def active_bits(cluster_set: ClusterSet) -> ActiveBits:
    """Return the active sets as bits."""
    return ActiveBits(cluster_set.sets.starts.numpy(), cluster_set.sets.columns.numpy(), cluster_set.sets.vocab)


def sizes(cluster_set: ClusterSet) -> ClusterSizes:
    """Return the sizes of the active sets (figure 4)."""
    set_sizes = cluster_set.sets.sizes()
    return ClusterSizes(
        label=cluster_set.label,
        clusters=len(set_sizes),
        top=cluster_set.top,
        columns=tuple(set_sizes.sort(descending=True).values.tolist()),
        first=int(set_sizes[0]),
    )


def memory(model: StepModel, cluster_set: ClusterSet) -> Memory:
    """Return the bytes that the clusters need beside the model (FVP-12)."""
    account = ClusterBundle.of(model, [cluster_set]).account()
    assert account.share is not None, "a model has weights"
    return Memory(
        label=cluster_set.label,
        clusters=len(cluster_set.sets),
        top=cluster_set.top,
        centroid_bytes=account.centroids,
        norm_bytes=account.norms,
        set_bytes=account.indices,
        start_bytes=account.starts,
        flag_bytes=account.flags,
        total_bytes=account.total,
        share_of_model=account.share,
    )


def active_mass(model: StepModel, of: DirectionContexts, cluster_set: ClusterSet) -> float:
    """Return the mean probability on active columns at batch 1, over contexts of the development half."""
    bits, hidden = active_bits(cluster_set), of.development.hidden
    hidden = hidden[:: max(1, -(-len(hidden) // MASS_CONTEXTS))].contiguous().to(model.weight.dtype)
    nearest = assign(hidden.float(), cluster_set.centroids).numpy()
    mass = 0.0
    with torch.inference_mode():
        for first in range(0, len(hidden), _PIECE):
            logits = model.project(hidden[first : first + _PIECE]).float()
            if model.pad_token != model.eos_token:
                logits[:, model.pad_token] = -torch.inf
            active = torch.from_numpy(bits.of(nearest[first : first + _PIECE]))
            mass += float((logits.softmax(dim=1) * active).sum())
    return min(1.0, mass / len(hidden))
