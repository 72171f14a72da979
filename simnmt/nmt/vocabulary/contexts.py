"""Contexts of a model and their clusters (FVP-02, FVP-03).

Contexts are outputs of the decoder's body with their likeliest tokens, recorded while a model translates unlabelled text;
k-means of scikit-learn groups them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from simnmt.batching import maxi
from simnmt.kernels.arrays import KernelError
from simnmt.kernels.columns import Centroids
from simnmt.kernels.output_layer import fused_best
from simnmt.nmt.decoder import Decoder
from simnmt.nmt.errors import NmtError, need
from simnmt.nmt.output_layer import NEVER
from simnmt.nmt.search import Search
from simnmt.nmt.sentence_decoder import DecodeRequest
from simnmt.nmt.source_lines import target_limit
from simnmt.nmt.step_model import StepModel

BATCH = 128


Progress = Callable[[str, float | None], None]
"""Called with the name of the present stage and the share of it that is done; None if unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Contexts:
    """Inputs of a model's output layer while it decoded text, on the CPU; a row is one row of one step."""

    hidden: Tensor
    """float32 [n, width]."""
    top: Tensor
    """int32 [n, K]: the likeliest tokens, the best first, of equals the lowest; without padding, which is never chosen."""
    sentence: Tensor
    """int32 [n]: the index of the source."""
    emitted: Tensor
    """int32, ascending: the tokens that decoding wrote, the end included."""
    sentences: int
    """All sources, including those without tokens."""
    beam: int = 1

    def __len__(self) -> int:
        return len(self.hidden)

    def of(self, rows: Tensor) -> Contexts:
        """Return only these rows; `emitted` and `sentences` do not change."""
        return replace(self, hidden=self.hidden[rows], top=self.top[rows], sentence=self.sentence[rows])


def join_contexts(parts: Sequence[Contexts]) -> Contexts:
    """Join the contexts of several texts, with sentences numbered on, for clusters shared by several directions (FVP-10)."""
    most = min(part.top.shape[1] for part in parts)
    firsts = [0, *accumulate(part.sentences for part in parts)]
    return Contexts(
        torch.cat([part.hidden for part in parts]),
        torch.cat([part.top[:, :most] for part in parts]),
        torch.cat([part.sentence + first for part, first in zip(parts, firsts, strict=False)]),
        torch.unique(torch.cat([part.emitted for part in parts])),
        firsts[-1],
        parts[0].beam,
    )


def collect(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    top: int,
    *,
    beam: int = 1,
    batch: int = BATCH,
    max_len: int | None = None,
    progress: Progress | None = None,
) -> Contexts:
    """Decode sources and record every context with its `top` likeliest tokens (FVP-02); no references are needed.

    `sources` are those of `Translator.encode`; a sentence without tokens is left out. `beam`: hypotheses per sentence, all of
    which are recorded; `batch`: sentences decoded together; `max_len`: most tokens of each, by default twice the source's and
    10; `progress` is called after each finished sentence.

    Raises `NmtError` for more tokens than the vocabulary has, for contexts that are not numbers, and without any sentence;
    `OutOfMemory`.
    """
    if not 1 <= top < model.vocab:
        remedy = f"give 1 to {model.vocab - 1:,}"
        raise NmtError(f"the {top:,} likeliest tokens of a vocabulary of {model.vocab:,}", remedy=remedy)
    recorded: list[tuple[Tensor, Tensor, Tensor]] = []
    allowed = torch.zeros(model.vocab, device=model.device)
    if model.pad_token != model.eos_token:
        allowed[model.pad_token] = NEVER

    def record(keys: Sequence[int], hidden: Tensor, logits: Tensor) -> None:
        try:
            best = fused_best(logits.contiguous(), allowed, top).columns
        except KernelError as error:
            raise NmtError(f"the model's contexts are no numbers: {error}", remedy="train it again") from None
        rows = torch.tensor(keys, dtype=torch.int32).repeat_interleave(beam)
        # Copies: the model may use its own memory again in the next step.
        recorded.append((hidden.to("cpu", torch.float32, copy=True), best.to("cpu", torch.int32, copy=True), rows))

    batching = maxi(batch, max(batch, min(len(sources), 100 * batch)))
    decoder = Decoder(model, batching, Search(beam), observer=record)
    decoded = [key for key, source in enumerate(sources) if source]
    for key in decoded:
        most = target_limit(len(sources[key]), max_len, model.max_positions)
        decoder.arrive(key, DecodeRequest(sources[key], max_len=most))
    decoder.batcher.close()
    emitted, done = {model.eos_token}, 0
    while decoder.busy:
        _, finished = decoder.act()
        for _, hypothesis in finished:
            emitted.update(hypothesis.tokens)
        done += len(finished)
        if progress is not None and finished:
            progress("decoding", done / len(decoded))
    if not recorded:
        raise NmtError("text without a sentence", remedy="give text with one sentence a line")
    hidden, tokens, sentence = _joined(recorded)
    if not bool(hidden.isfinite().all()):
        raise NmtError("contexts that are no numbers", remedy="train the model again")
    return Contexts(hidden, tokens, sentence, torch.tensor(sorted(emitted), dtype=torch.int32), len(sources), beam)


def _joined(recorded: list[tuple[Tensor, Tensor, Tensor]]) -> list[Tensor]:
    """Join the parts of all steps and empty the record, freeing each part after its copy."""
    count = sum(len(part[0]) for part in recorded)
    wholes = [torch.empty((count, *part.shape[1:]), dtype=part.dtype) for part in recorded[0]]
    recorded.reverse()
    at = 0
    while recorded:
        step = recorded.pop()
        for whole, part in zip(wholes, step, strict=True):
            whole[at : at + len(part)] = part
        at += len(step[0])
    return wholes


ITERATIONS = 20
"""Iterations of k-means, as in the paper (FVP-03)."""
ROUNDS = 20
"""Most rounds in which all empty clusters are started again; two or three are usual."""
METHOD = "sklearn"
"""Library that clusters, as a file of clusters names it."""
_PIECE, _ROWS = 1 << 24, 1 << 14
"""Most scores of points with centroids in memory, and most points of which differences are in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """Centroids, and the cluster of each context."""

    centroids: Tensor
    """float32 [r, d]."""
    labels: Tensor
    """int64 [n]: the nearest centroid, as `Centroids.nearest` finds it; no cluster is empty."""
    inertia: float
    """Sum of the contexts' squared distances from their centroids."""
    iterations: int
    method: str
    seed: int

    @property
    def members(self) -> Tensor:
        """int64 [r]: contexts of each cluster."""
        return torch.bincount(self.labels, minlength=len(self.centroids))


def cluster(contexts: Contexts | Tensor, clusters: int, *, seed: int, iterations: int = ITERATIONS) -> Clustering:
    """Cluster contexts by k-means in Euclidean distance, from `clusters` contexts drawn at random with `seed` (FVP-03).

    scikit-learn runs on one thread, since with more threads its sums depend on their timing. An empty cluster starts again at
    the context farthest from the centroid of the largest cluster. The same seed gives the same clusters. Raises `NmtError` for
    fewer different contexts than clusters, for contexts that are not numbers, and for clusters that stay empty.
    """
    points = contexts if isinstance(contexts, Tensor) else contexts.hidden
    if clusters < 1 or iterations < 1:
        raise NmtError(f"{clusters:,} clusters by {iterations:,} iterations", remedy="give 1 or more of each")
    if not bool(points.isfinite().all()):
        raise NmtError("contexts that are no numbers", remedy="collect them again, with a model that has been trained")
    if (different := _count_distinct(points, clusters)) < clusters:
        what = f"{different:,} different contexts for {clusters:,} clusters"
        raise NmtError(what, remedy="give more text, or ask for fewer clusters")
    fitted = _by_sklearn(points, clusters, seed, iterations)
    centroids, labels = _without_empty(points, fitted)
    inertia = float(_distances(points, centroids, labels).double().sum())
    return Clustering(centroids, labels, inertia, iterations, METHOD, seed)


def assign(points: Tensor, centroids: Centroids) -> Tensor:
    """Return the nearest centroid of each point, int64 [n], with a bounded number of scores in memory (FVP-05)."""
    rows = max(1, _PIECE // len(centroids))
    return torch.cat([centroids.nearest(points[first : first + rows]) for first in range(0, len(points), rows)])


def _by_sklearn(points: Tensor, clusters: int, seed: int, iterations: int) -> Tensor:
    need("sklearn")
    kmeans = need("sklearn.cluster").KMeans(
        clusters, init="random", n_init=1, max_iter=iterations, tol=0.0, random_state=seed, copy_x=True
    )
    with need("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        # It warns of empty clusters, which are started again below.
        warnings.simplefilter("ignore", need("sklearn.exceptions").ConvergenceWarning)
        centers: Any = kmeans.fit(points.numpy()).cluster_centers_
    return torch.from_numpy(centers)


def _count_distinct(points: Tensor, enough: int) -> int:
    """Return the number of different points, but not more than `enough`; -0.0 equals 0.0."""
    seen: set[bytes] = set()
    for row in points.numpy():
        seen.add((row + 0.0).tobytes())
        if len(seen) == enough:
            break
    return len(seen)


def _without_empty(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centroids with empty clusters started again, and the labels of all points.

    Raises `NmtError` if some clusters are empty after `ROUNDS` rounds.
    """
    for remaining in reversed(range(ROUNDS + 1)):
        labels = assign(points, Centroids.of(centroids))
        empty = (torch.bincount(labels, minlength=len(centroids)) == 0).nonzero()[:, 0]
        if not len(empty):
            break
        if not remaining:
            what = f"{len(empty):,} of {len(centroids):,} clusters stay empty: the contexts are too much alike"
            raise NmtError(what, remedy="ask for fewer clusters, or give more text")
        centroids = _reseed_empty(points, centroids.clone(), labels, empty.tolist())
    return centroids, labels


def _reseed_empty(points: Tensor, centroids: Tensor, labels: Tensor, empty: list[int]) -> Tensor:
    distances = _distances(points, centroids, labels)
    norms = points.square().sum(1)
    for index in empty:
        members = torch.bincount(labels, minlength=len(centroids))
        within = distances.where(labels == int(members.argmax()), distances.new_tensor(-1.0))
        farthest = int(within.argmax())
        if not within[farthest] > 0:  # the largest cluster is one context many times
            farthest = int(distances.argmax())
        centroids[index] = points[farthest]
        anew = (norms - 2 * (points @ points[farthest]) + norms[farthest]).clamp_(min=0)
        anew[farthest] = -1.0
        closer = anew < distances
        labels = labels.masked_fill(closer, index)
        distances = torch.minimum(distances, anew).clamp_(min=0)
    return centroids


def _distances(points: Tensor, centroids: Tensor, labels: Tensor) -> Tensor:
    """Return the squared distance of each point from its centroid, float32 [n]."""
    pieces = [slice(first, first + _ROWS) for first in range(0, len(points), _ROWS)]
    return torch.cat([(points[piece] - centroids[labels[piece]]).square().sum(1) for piece in pieces])
