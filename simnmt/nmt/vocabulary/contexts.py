"""Contexts of a model and their clusters (FVP-02 to 04, FVP-10).

Contexts are outputs of the decoder's body with their likeliest tokens, recorded while a model translates unlabelled text;
k-means of scikit-learn groups them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from simnmt.batching import maxi
from simnmt.kernels.columns import Centroids
from simnmt.kernels.native_library import KernelError
from simnmt.kernels.output_layer import fused_best
from simnmt.nmt.decoder import decode
from simnmt.nmt.errors import NmtError, need
from simnmt.nmt.output_layer import NEVER
from simnmt.nmt.search import Search
from simnmt.nmt.source_lines import target_limit
from simnmt.nmt.step_model import StepModel

BATCH = 128
ITERATIONS = 20
"""Iterations of k-means, as in the paper (FVP-03)."""


@dataclass(frozen=True, slots=True, eq=False)
class Contexts:
    """Inputs of a model's output layer while it decoded text, on the CPU; a row is one row of one step."""

    hidden: Tensor
    """float32 [n, width]."""
    top: Tensor
    """int32 [n, K]: the likeliest tokens, the best first, of equals the lowest; without padding, which is never chosen."""
    sentence: Tensor
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
    progress: Callable[[float], None] = lambda share: None,
) -> Contexts:
    """Decode sources and record every context with its `top` likeliest tokens (FVP-02); no references are needed.

    `sources` are those of `Translator.encode`; a sentence without tokens is left out. `beam`: hypotheses per sentence, all of
    which are recorded; `batch`: sentences decoded together; `max_len`: most tokens of each, by default twice the source's and
    10; `progress` is called after each step with the share of the sentences that have begun.

    Raises `NmtError` for more tokens than the vocabulary has, for contexts that are not numbers, and without any sentence;
    `OutOfMemory`.
    """
    if not 1 <= top < model.vocab:
        remedy = f"give 1 to {model.vocab - 1:,}"
        raise NmtError(f"the {top:,} likeliest tokens of a vocabulary of {model.vocab:,}", remedy=remedy)
    decoded = torch.tensor([key for key, source in enumerate(sources) if source], dtype=torch.int32)
    if not len(decoded):
        raise NmtError("text without a sentence", remedy="give text with one sentence a line")
    recorded: list[tuple[Tensor, Tensor, Tensor]] = []
    begun: set[int] = set()
    allowed = torch.zeros(model.vocab, device=model.device)
    if model.pad_token != model.eos_token:
        allowed[model.pad_token] = NEVER

    def record(keys: Sequence[int], hidden: Tensor, logits: Tensor) -> None:
        try:
            best = fused_best(logits.contiguous(), allowed, top).columns
        except KernelError as error:
            raise NmtError(f"the model's contexts are no numbers: {error}", remedy="train it again") from None
        rows = decoded[list(keys)].repeat_interleave(beam)
        # Copies: the model may use its own memory again in the next step.
        recorded.append((hidden.to("cpu", torch.float32, copy=True), best.to("cpu", torch.int32, copy=True), rows))
        begun.update(keys)
        progress(len(begun) / len(decoded))

    present = [sources[key] for key in decoded.tolist()]
    batching = maxi(batch, max(batch, min(len(sources), 100 * batch)))
    limits = [target_limit(len(source), max_len, model.max_positions) for source in present]
    run = decode(model, present, batching, search=Search(beam), max_len=limits, observer=record)
    emitted = sorted({model.eos_token}.union(*(hypothesis.tokens for hypothesis in run.hypotheses)))
    hidden, tokens, sentence = (torch.cat(parts) for parts in zip(*recorded, strict=True))
    return Contexts(hidden, tokens, sentence, torch.tensor(emitted, dtype=torch.int32), len(sources), beam)


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
    seed: int

    @property
    def members(self) -> Tensor:
        """int64 [r]: contexts of each cluster."""
        return torch.bincount(self.labels, minlength=len(self.centroids))


def cluster(contexts: Contexts | Tensor, clusters: int, *, seed: int, iterations: int = ITERATIONS) -> Clustering:
    """Cluster contexts by k-means in Euclidean distance, from `clusters` contexts drawn at random with `seed` (FVP-03).

    scikit-learn runs on one thread, since with more threads its sums depend on their timing: the same seed gives the same
    clusters. It starts an empty cluster again at a far context; one that is empty at the end is left out. Raises `NmtError`
    for fewer contexts than clusters.
    """
    points = contexts if isinstance(contexts, Tensor) else contexts.hidden
    if len(points) < clusters:
        what = f"too few contexts for {clusters:,} clusters"
        raise NmtError(what, remedy="give more text, or ask for fewer clusters")
    kmeans = need("sklearn.cluster").KMeans(
        clusters, init="random", n_init=1, max_iter=iterations, tol=0.0, random_state=seed, copy_x=True
    )
    with need("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", need("sklearn.exceptions").ConvergenceWarning)  # fewer different points than clusters
        centroids = torch.from_numpy(kmeans.fit(points.numpy()).cluster_centers_)
    used, labels = torch.unique(assign(points, Centroids.of(centroids)), return_inverse=True)
    centroids = centroids[used]
    parts = zip(torch.split(points, _ROWS), torch.split(labels, _ROWS), strict=True)
    inertia = sum(float((part - centroids[nearest]).square().sum(dtype=torch.float64)) for part, nearest in parts)
    return Clustering(centroids, labels, inertia, iterations, seed)


def assign(points: Tensor, centroids: Centroids) -> Tensor:
    """Return the nearest centroid of each point, int64 [n], with a bounded number of scores in memory (FVP-05)."""
    return torch.cat([centroids.nearest(part) for part in torch.split(points, max(1, _PIECE // len(centroids)))])
