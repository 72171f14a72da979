"""Clusters of a direction's contexts at many r and K, compared with held-out text, and the choice among them (FVP-08, 10, 11).

Contexts and clusterings are computed once and, where a folder is given, kept on disk: every part of a study needs them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from simnmt.base.random_streams import stream
from simnmt.calibrate.settings import CalibrationError
from simnmt.kernels.columns import Centroids
from simnmt.nmt.checkpoint import read_tensors, write_tensors
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle, ClusterSet
from simnmt.nmt.vocabulary.contexts import METHOD, Clustering, Contexts, assign, cluster, collect
from simnmt.papers.fvp.study import Cell, ClusterSizes, Knowledge, Memory, Spread, TriedCell

BATCH = 128
"""Sentences decoded together: 1.3 times as fast on one thread as 64."""
SILENT_S = 10.0
"""Seconds of decoding before progress is reported."""
UNION_ROWS = 20
"""Rows of a step: the paper's batch."""
MASS_CONTEXTS = 4_096
"""Contexts whose probability is looked up, evenly taken: in about two seconds, to better than 0.1 %."""
_PIECE = 256
"""Contexts, or steps of a union, whose columns are held at a time."""
_HASHED_ROWS = 1 << 14
"""Contexts whose bytes are copied at a time."""
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)
"""Bits set in each byte."""


class Outcome(NamedTuple):
    """The fields of `Cell` that depend on held-out text."""

    share: Spread
    union: Spread
    union_rows: int
    miss_rate: float
    identical: float


class ActiveBits:
    """Active sets as bits, one row a cluster: for counting many unions at once."""

    def __init__(self, starts: NDArray[np.int64], columns: NDArray[np.int32], vocab: int) -> None:
        """Set i holds `columns[starts[i] : starts[i + 1]]`."""
        self.active = np.zeros((len(starts) - 1, vocab), dtype=bool)
        self.active[np.repeat(np.arange(len(starts) - 1), np.diff(starts)), columns] = True
        self.sizes: NDArray[np.int64] = self.active.sum(axis=1)
        self.vocab = vocab
        self._bits = np.packbits(self.active, axis=1)

    @classmethod
    def of(cls, cluster_set: ClusterSet) -> ActiveBits:
        """Return the active sets of clusters."""
        return cls(cluster_set.sets.starts.numpy(), cluster_set.sets.columns.numpy(), cluster_set.sets.vocab)

    def unions(self, sets: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """Count the columns of the union of each step's sets, with the sequence of `sets` split into `rows` lanes.

        Each lane is a consecutive run of the sequence and gives one row to every step, as if a finished sentence were replaced
        at once. Steps that do not fill every lane are left out.
        """
        steps = len(sets) // rows
        lanes = sets[: steps * rows].reshape(rows, steps).T
        parts = []
        for begin in range(0, steps, _PIECE):
            together = np.bitwise_or.reduce(self._bits[lanes[begin : begin + _PIECE]], axis=1)
            parts.append(_ONES[together].sum(axis=1, dtype=np.int64))
        return np.concatenate(parts)


def outcome(
    bits: ActiveBits, nearest: NDArray[np.int64], tokens: NDArray[np.int64], sentences: NDArray[np.int64], rows: int
) -> Outcome:
    """Compare active sets with the tokens that dense greedy decoding of held-out text wrote.

    Args:
        bits: the active sets.
        nearest: cluster of each step, shape (steps,).
        tokens: token of each step, shape (steps,).
        sentences: sentence of each step, ascending, shape (steps,).
        rows: most rows of a union.
    """
    hit = bits.active[nearest, tokens]
    rows = min(rows, len(nearest))
    _, sentence = np.unique(sentences, return_inverse=True)
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


@dataclass(frozen=True, slots=True)
class DirectionContexts:
    """Contexts of dense greedy decoding of one direction's texts."""

    label: str
    training: Contexts
    development: Contexts
    """Contexts of held-out text, sentence by sentence."""

    @property
    def emitted(self) -> int:
        """Return the number of distinct tokens that dense decoding wrote for both texts."""
        return len(torch.unique(torch.cat((self.training.emitted, self.development.emitted))))


def first_sentences(contexts: Contexts, sentences: int) -> Contexts:
    """Return the contexts of the first `sentences` sentences."""
    return replace(contexts.of(contexts.sentence < sentences), sentences=sentences)


def first_contexts(contexts: Contexts, count: int) -> Contexts:
    """Return the first `count` contexts, which are in sentence order; the last sentence may be cut."""
    first = contexts.of(torch.arange(min(count, len(contexts))))
    return replace(first, sentences=int(first.sentence.max()) + 1)


def by_sentence(contexts: Contexts) -> Contexts:
    """Return the contexts sentence by sentence, in the order of the steps."""
    return contexts.of(torch.sort(contexts.sentence, stable=True).indices)


_CONTEXTS = ("hidden", "top", "sentence", "emitted")


class KeptContexts:
    """Decodes text, or reads the contexts that an earlier run decoded."""

    def __init__(self, translator: Translator, model_sha256: str, folder: Path | None, say: Callable[[str], None]) -> None:
        """`folder`: where contexts are kept, None: nowhere; `say`: reports slow steps."""
        self._translator, self._model, self.folder, self._say = translator, model_sha256, folder, say

    def of(self, name: str, lines: Sequence[str], top: int) -> Contexts:
        """Return the contexts of `lines` with their `top` likeliest tokens, sentence by sentence; `name` is for messages."""
        path = None
        if self.folder is not None:
            key = _digest([f"{self._model} {top}\n".encode(), *(f"{line}\n".encode() for line in lines)])
            path = self.folder / f"contexts-{key}.safetensors"
            if path.is_file():
                self._say(f"contexts of {name}: kept from before")
                try:
                    hidden, tokens, sentence, emitted = (read_tensors(path)[0][tensor] for tensor in _CONTEXTS)
                except (OSError, ValueError, KeyError):
                    raise CalibrationError("not a file of contexts, or damaged", path=path, remedy="remove the file") from None
                return Contexts(hidden, tokens, sentence, emitted, len(lines))
        self._say(f"decoding {len(lines):,} sentences of {name}")
        translator, progress = self._translator, _tenths(self._say)
        sources, max_len = translator.encode(lines), translator.max_len
        contexts = by_sentence(collect(translator.model, sources, top, batch=BATCH, max_len=max_len, progress=progress))
        if path is not None:
            _keep(path, {tensor: getattr(contexts, tensor) for tensor in _CONTEXTS})
        return contexts


def _tenths(say: Callable[[str], None]) -> Callable[[str, float | None], None]:
    """Return a progress callback that reports each tenth once, after `SILENT_S` seconds."""
    next_share, begin_s = 0.1, time.monotonic()

    def progress(step: str, share: float | None) -> None:
        nonlocal next_share
        if share is not None and share >= next_share and time.monotonic() - begin_s > SILENT_S:
            say(f"{step}: {share:.0%}")
            next_share = share + 0.1

    return progress


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:32]


def _keep(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, str] | None = None) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, notes)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CalibrationError(f"cannot be written: {reason}", path=path, remedy="choose another folder") from None


_CLUSTERING = ("inertia", "iterations", "method", "seed")
_NOTE = "simnmt_clustering"


@dataclass(frozen=True, slots=True)
class Clusterer:
    """k-means of a study."""

    seed: int
    most: int
    """Most contexts that k-means sees: a random sample of larger texts; all others then join their nearest centroid."""
    """See `cluster`."""
    folder: Path | None = None
    """Where clusters are kept; None: nowhere."""

    def seen(self, contexts: Contexts) -> int:
        """Return how many of these contexts k-means sees."""
        return min(len(contexts), self.most)

    def clusters(self, contexts: Contexts, clusters: int) -> Clustering:
        """Cluster all contexts; the inertia is of the contexts that k-means saw. Raises what `cluster` raises.

        Clusters kept on disk are looked up by their contexts, not by name. Raises `CalibrationError` if their file is damaged.
        """
        if self.folder is None:
            return self._cluster(contexts, clusters)
        path = self.folder / f"clusters-{self._key(contexts, clusters)}.safetensors"
        if path.is_file():
            try:
                tensors, notes = read_tensors(path)
                return Clustering(tensors["centroids"], tensors["labels"], **json.loads(notes[_NOTE]))
            except (OSError, KeyError, ValueError, TypeError, RecursionError):
                raise CalibrationError("not a file of clusters, or damaged", path=path, remedy="remove the file") from None
        clustering = self._cluster(contexts, clusters)
        note = json.dumps({name: getattr(clustering, name) for name in _CLUSTERING})
        _keep(path, {"centroids": clustering.centroids, "labels": clustering.labels}, {_NOTE: note})
        return clustering

    def _cluster(self, contexts: Contexts, clusters: int) -> Clustering:
        if len(contexts) <= self.most:
            return cluster(contexts, clusters, seed=self.seed)
        drawn = stream(self.seed, 0, "clustered contexts").choice(len(contexts), self.most, replace=False)
        sample = contexts.hidden[torch.from_numpy(drawn).sort().values]
        clustering = cluster(sample, clusters, seed=self.seed)
        return replace(clustering, labels=assign(contexts.hidden, Centroids.of(clustering.centroids)))

    def _key(self, contexts: Contexts, clusters: int) -> str:
        identity = f"{clusters} {self.seed} {self.seen(contexts)} {METHOD} {list(contexts.hidden.shape)}"
        pieces = (contexts.hidden[first : first + _HASHED_ROWS] for first in range(0, len(contexts), _HASHED_ROWS))
        return _digest([identity.encode(), *(piece.numpy().tobytes() for piece in pieces)])


def cluster_sets(
    model: StepModel, label: str, contexts: Contexts, clusters: int, tops: Sequence[int], clusterer: Clusterer
) -> Iterator[ClusterSet]:
    """Cluster once and yield the clusters with the active sets of each K."""
    clustering = clusterer.clusters(contexts, clusters)
    for top in tops:
        yield ClusterSet.of(label, contexts, clustering, model, top=top)


def cells(
    model: StepModel,
    contexts: DirectionContexts,
    training: Contexts,
    clusters: int,
    tops: Sequence[int],
    clusterer: Clusterer,
    knowledge: Knowledge = "both",
) -> Iterator[Cell]:
    """Yield one cell for each K, from clusters of `training`, which may mix directions or be part of one."""
    nearest, emitted = None, contexts.emitted
    tokens, sentences = contexts.development.top[:, 0].long().numpy(), contexts.development.sentence.long().numpy()
    for cluster_set in cluster_sets(model, contexts.label, training, clusters, tops, clusterer):
        if nearest is None:
            nearest = assign(contexts.development.hidden, cluster_set.centroids).numpy()
        bits = ActiveBits.of(cluster_set)
        heldout = outcome(bits, nearest, tokens, sentences, UNION_ROWS)
        yield Cell(
            label=contexts.label,
            knowledge=knowledge,
            clusters=clusters,
            top=cluster_set.top,
            training_sentences=training.sentences,
            training_contexts=len(training),
            clustered_contexts=clusterer.seen(training),
            heldout_sentences=len(np.unique(sentences)),
            heldout_tokens=len(tokens),
            sets=spread(bits.sizes, bits.vocab),
            **heldout._asdict(),
            emitted=emitted,
            share_of_emitted=heldout.share.mean * bits.vocab / emitted,
            union_of_emitted=heldout.union.mean * bits.vocab / emitted,
            set_bytes=cluster_set.sets.columns.untyped_storage().nbytes(),
            bundle_bytes=cluster_set.sets.nbytes + cluster_set.centroids.nbytes,
        )


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
    )


def active_mass(model: StepModel, contexts: DirectionContexts, cluster_set: ClusterSet) -> float:
    """Return the mean probability on active columns at batch 1, over contexts of the development half."""
    bits, hidden = ActiveBits.of(cluster_set), contexts.development.hidden
    hidden = hidden[:: max(1, -(-len(hidden) // MASS_CONTEXTS))].contiguous().to(model.weight.dtype)
    nearest = assign(hidden.float(), cluster_set.centroids).numpy()
    mass = 0.0
    with torch.inference_mode():
        for first in range(0, len(hidden), _PIECE):
            logits = model.project(hidden[first : first + _PIECE]).float()
            if model.pad_token != model.eos_token:
                logits[:, model.pad_token] = -torch.inf
            active = torch.from_numpy(bits.active[nearest[first : first + _PIECE]])
            mass += float((logits.softmax(dim=1) * active).sum())
    return min(1.0, mass / len(hidden))


Trial = Callable[[Cell], Sequence[TriedCell]]
"""Decodes the development half with a cell: one entry a search, no more after the first that is not good.

A sweep shows how many sentences stay the same with greedy decoding, one at a time; a beam, whose scores are of active columns
alone, keeps fewer, and a missed token may cost BLEU. So cells are decoded before one of them is chosen.
"""


def columns_of(cell: Cell) -> float:
    """Return r + V', the mean columns that a row is multiplied with at batch 1, centroids included (FVP-09)."""
    return cell.clusters + cell.share_of_emitted * cell.emitted


def contenders(swept: Sequence[Cell], least_identical: float, most_share: float) -> list[Cell]:
    """Return the cells worth decoding, in rising order both of products and of greedily identical sentences.

    Leaves out cells with more than `most_share` of V active on average, with less than `least_identical` of the sentences,
    and cells that multiply more than another without keeping more. If none is left, returns the cell that keeps most among
    those within `most_share`, or among all.
    """
    within = [cell for cell in swept if cell.share.mean <= most_share] or list(swept)
    front: list[Cell] = []
    for cell in sorted(within, key=lambda cell: (columns_of(cell), -cell.identical, cell.clusters)):
        if not front or cell.identical > front[-1].identical:
            front.append(cell)
    return [cell for cell in front if cell.identical >= least_identical] or front[-1:]


def try_contenders(cells: Sequence[Cell], trial: Trial) -> list[TriedCell]:
    """Return the contenders' trials: a good trial drops the half that multiplies more, any other trial the other half."""
    trials: list[TriedCell] = []
    first, behind = 0, len(cells)
    while first < behind:
        middle = (first + behind) // 2
        cell_trials = trial(cells[middle])
        trials += cell_trials
        if all(entry.good for entry in cell_trials):
            behind = middle
        else:
            first = middle + 1
    return trials


def choose(tried: Sequence[TriedCell]) -> tuple[int, int]:
    """Return r and K of the cell that multiplies least among those that were good with every search tried.

    If none was good, return the cell that keeps most sentences with the search that keeps fewest.
    """
    cells: dict[tuple[int, int], list[TriedCell]] = {}
    for trial in tried:
        cells.setdefault((trial.clusters, trial.top), []).append(trial)
    good = {cell: cell_trials for cell, cell_trials in cells.items() if all(trial.good for trial in cell_trials)}
    if good:
        return min(good, key=lambda cell: (good[cell][0].columns, cell))
    return max(cells, key=lambda cell: (min(trial.identical for trial in cells[cell]), -cells[cell][0].columns))
