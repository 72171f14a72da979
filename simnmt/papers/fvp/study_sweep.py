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
    """What dense greedy decoding of a text wrote, sentence by sentence, each in the order of its steps."""

    tokens: NDArray[np.int64]
    """[steps], end tokens included."""
    sentences: NDArray[np.int64]
    """[steps]: the sentence of each, ascending."""

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
        """Whether each token stands in the set beside it."""
        found: NDArray[np.bool_] = self._active[sets, tokens]
        return found

    def of(self, sets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which columns are active, [sets, vocab]."""
        found: NDArray[np.bool_] = self._active[sets]
        return found

    def unions(self, sets: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """Columns of the union of each step's sets, where the sequence of `sets` runs down `rows` lanes side by side.

        Each lane is a run of the sequence, so that a step has one row of each: decoding whose places are filled again at once.
        What is left over, less than a step of each lane, is left out.
        """
        steps = len(sets) // rows
        lanes = sets[: steps * rows].reshape(rows, steps).T
        parts = []
        for begin in range(0, steps, _BLOCK):
            together = np.bitwise_or.reduce(self._bits[lanes[begin : begin + _BLOCK]], axis=1)
            parts.append(_ONES[together].sum(axis=1, dtype=np.int64))
        return np.concatenate(parts)


def outcome(bits: ActiveBits, nearest: NDArray[np.int64], heldout: HeldOutTokens, rows: int) -> Outcome:
    """Held-out text with these sets; `nearest`: the cluster of each of its steps; `rows`: of the unions, or all there are."""
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
    """Shares of the vocabulary, of so many columns."""
    least, p10, median, p90, most = (float(each) / vocab for each in np.quantile(columns, (0.0, 0.1, 0.5, 0.9, 1.0)))
    return Spread(mean=float(columns.mean()) / vocab, least=least, p10=p10, median=median, p90=p90, most=most)


BATCH = 128
"""Sentences decoded together: 1.3 times as fast on one thread as 64."""


SILENT_S = 10.0
"""Seconds of decoding that need no word."""


@dataclass(frozen=True, slots=True)
class DirectionContexts:
    """Contexts of dense greedy decoding of one direction's texts."""

    label: str
    training: Contexts
    development: Contexts
    """Of held-out text, sentence by sentence."""

    @property
    def tokens(self) -> HeldOutTokens:
        """What dense decoding wrote of the held-out text."""
        return HeldOutTokens(self.development.top[:, 0].long().numpy(), self.development.sentence.long().numpy())

    @property
    def emitted(self) -> int:
        """Distinct tokens that dense decoding wrote of both texts."""
        return len(torch.unique(torch.cat((self.training.emitted, self.development.emitted))))


def beginning(contexts: Contexts, sentences: int) -> Contexts:
    """Those of the first so many sentences."""
    return replace(contexts.of(contexts.sentence < sentences), sentences=sentences)


def first_contexts(contexts: Contexts, count: int) -> Contexts:
    """The first so many, of which the last sentence may be a part; contexts sentence by sentence."""
    found = contexts.of(torch.arange(min(count, len(contexts))))
    return replace(found, sentences=int(found.sentence.max()) + 1)


def by_sentence(contexts: Contexts) -> Contexts:
    """The same, sentence by sentence, each in the order of its steps."""
    return contexts.of(torch.sort(contexts.sentence, stable=True).indices)


class KeptContexts:
    """Decodes text, or finds what an earlier run decoded."""

    def __init__(self, translator: Translator, model_sha256: str, folder: Path | None, say: Callable[[str], None]) -> None:
        """`folder`: where contexts are kept, None: nowhere; `say`: is told of what takes long."""
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
    """Says each tenth once, where there are minutes to tell of."""
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
        said = getattr(error, "strerror", None) or str(error)
        raise CalibrationError(f"cannot be written: {said}", path=path, remedy="choose another folder") from None


def _read_contexts(path: Path, sentences: int) -> Contexts:
    try:
        tensors, _ = read_tensors(path)
        hidden, top, sentence, emitted = (tensors[name] for name in _NAMES)
    except (OSError, ValueError, KeyError):
        raise CalibrationError("no kept contexts, or damaged", path=path, remedy="remove the file") from None
    return Contexts(hidden, top, sentence, emitted, sentences)


_TOLD = ("inertia", "iterations", "method", "seed")
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
        """All contexts in clusters; the inertia is that of those which k-means saw. Raises what `cluster` raises.

        Kept clusters are those of the same contexts, whatever they were called. Raises `CalibrationError` where their file is
        damaged.
        """
        if self.folder is None:
            return self._found(contexts, clusters)
        path = self.folder / f"clusters-{self._key(contexts, clusters)}.safetensors"
        if path.is_file():
            return _read_clusters(path)
        found = self._found(contexts, clusters)
        _write_clusters(path, found)
        return found

    def _found(self, contexts: Contexts, clusters: int) -> Clustering:
        if len(contexts) <= self.most:
            return cluster(contexts, clusters, seed=self.seed, method=self.method)
        drawn = stream(self.seed, 0, "clustered contexts").choice(len(contexts), self.most, replace=False)
        found = cluster(contexts.hidden[torch.from_numpy(drawn).sort().values], clusters, seed=self.seed, method=self.method)
        return replace(found, labels=assign(contexts.hidden, Centroids.of(found.centroids)))

    def _key(self, contexts: Contexts, clusters: int) -> str:
        told = f"{clusters} {self.seed} {self.seen(contexts)} {check_method(self.method)} {list(contexts.hidden.shape)}"
        digest = hashlib.sha256(told.encode())
        for first in range(0, len(contexts), _ASSIGN_ROWS):
            digest.update(contexts.hidden[first : first + _ASSIGN_ROWS].numpy().tobytes())
        return digest.hexdigest()[:32]


def _write_clusters(path: Path, found: Clustering) -> None:
    note = json.dumps({name: getattr(found, name) for name in _TOLD})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {"centroids": found.centroids, "labels": found.labels}, {_NOTE: note})
    except (OSError, SafetensorError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise CalibrationError(f"cannot be written: {said}", path=path, remedy="choose another folder") from None


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
    """The same clusters with the active sets of each K."""
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
    """One for each K, from clusters of `training`, which may be of more than this direction, or of less of it."""
    nearest, heldout, emitted = None, of.tokens, of.emitted
    for own in cluster_sets(model, of.label, training, clusters, tops, clusterer):
        if nearest is None:
            nearest = assign(of.development.hidden, own.centroids).numpy()
        bits = active_bits(own)
        found = outcome(bits, nearest, heldout, UNION_ROWS)
        yield Cell(
            label=of.label,
            knowledge=knowledge,
            clusters=clusters,
            top=own.top,
            training_sentences=training.sentences,
            training_contexts=len(training),
            clustered_contexts=clusterer.seen(training),
            heldout_sentences=heldout.sentence_count,
            heldout_tokens=len(heldout.tokens),
            sets=spread(bits.sizes, bits.vocab),
            share=found.share,
            union=found.union,
            union_rows=found.union_rows,
            emitted=emitted,
            share_of_emitted=found.share.mean * bits.vocab / emitted,
            union_of_emitted=found.union.mean * bits.vocab / emitted,
            miss_rate=found.miss_rate,
            identical=found.identical,
            set_bytes=own.sets.columns.untyped_storage().nbytes(),
            bundle_bytes=own.sets.nbytes + own.centroids.nbytes,
        )


def active_bits(own: ClusterSet) -> ActiveBits:
    """Its active sets."""
    return ActiveBits(own.sets.starts.numpy(), own.sets.columns.numpy(), own.sets.vocab)


def sizes(own: ClusterSet) -> ClusterSizes:
    """How large its active sets are (figure 4)."""
    found = own.sets.sizes()
    return ClusterSizes(
        label=own.label,
        clusters=len(found),
        top=own.top,
        columns=tuple(found.sort(descending=True).values.tolist()),
        first=int(found[0]),
    )


def memory(model: StepModel, own: ClusterSet) -> Memory:
    """What it holds beside the model (FVP-12)."""
    account = ClusterBundle.of(model, [own]).account()
    assert account.share is not None, "a model has weights"
    return Memory(
        label=own.label,
        clusters=len(own.sets),
        top=own.top,
        centroid_bytes=account.centroids,
        norm_bytes=account.norms,
        set_bytes=account.indices,
        start_bytes=account.starts,
        flag_bytes=account.flags,
        total_bytes=account.total,
        share_of_model=account.share,
    )


def active_mass(model: StepModel, of: DirectionContexts, own: ClusterSet) -> float:
    """Of the model's probability, what lies on active columns at batch 1: the mean over contexts of the development half."""
    bits, hidden = active_bits(own), of.development.hidden
    hidden = hidden[:: max(1, -(-len(hidden) // MASS_CONTEXTS))].contiguous().to(model.weight.dtype)
    nearest = assign(hidden.float(), own.centroids).numpy()
    found = 0.0
    with torch.inference_mode():
        for first in range(0, len(hidden), _PIECE):
            logits = model.project(hidden[first : first + _PIECE]).float()
            if model.pad_token != model.eos_token:
                logits[:, model.pad_token] = -torch.inf
            active = torch.from_numpy(bits.of(nearest[first : first + _PIECE]))
            found += float((logits.softmax(dim=1) * active).sum())
    return min(1.0, found / len(hidden))
