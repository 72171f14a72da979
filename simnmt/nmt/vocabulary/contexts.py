"""Contexts of a model and their clusters (FVP-02, FVP-03).

Contexts are decoder outputs with their likeliest tokens, recorded while a model translates unlabelled text; k-means by
scikit-learn or faiss groups them.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor

from simnmt.batching import Join, maxi
from simnmt.kernels.columns import Centroids
from simnmt.kernels.errors import KernelError
from simnmt.kernels.output_layer import fused_best
from simnmt.nmt.errors import NmtError, need
from simnmt.nmt.searches import SlotSearch, make_search
from simnmt.nmt.slot_decoder import BatchedDecoder, DecodeRequest, SlotDecoder
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.subwords import LONGEST_SOURCE, Subwords

BATCH = 128


class TextModel(Protocol):
    """A model that reads text, as `Translator` is."""

    @property
    def model(self) -> StepModel:
        """The model itself."""

    @property
    def source(self) -> Subwords:
        """Encodes its sources."""

    @property
    def max_len(self) -> int | None:
        """Most tokens of a translation; None: by the source's length."""


Progress = Callable[[str, float | None], None]
"""Told what is at work and the share of it that is done; None where nobody knows."""


@dataclass(frozen=True, slots=True, eq=False)
class Contexts:
    """What a model's output layer was given while it decoded text, on the CPU; a row is one row of one step."""

    hidden: Tensor
    """float32 [n, width]."""
    top: Tensor
    """int32 [n, K]: its likeliest tokens, the best first, of equals the lowest; padding, which no search chooses, is none."""
    sentence: Tensor
    """int32 [n]: which of the sources it belongs to."""
    emitted: Tensor
    """int32, ascending: the tokens that decoding wrote, the end among them."""
    sentences: int
    """Sources that were given, those without a token among them: where the numbers of the next text begin."""
    beam: int = 1

    def __len__(self) -> int:
        return len(self.hidden)

    def of(self, rows: Tensor) -> Contexts:
        """These rows alone; `emitted` and `sentences` stay what they were."""
        return Contexts(self.hidden[rows], self.top[rows], self.sentence[rows], self.emitted, self.sentences, self.beam)


def join_contexts(parts: Sequence[Contexts]) -> Contexts:
    """Contexts of several texts as those of one, sentences numbered on: how clusters for a target alone are made (FVP-10)."""
    most = min(part.top.shape[1] for part in parts)
    firsts = [0]
    for part in parts:
        firsts.append(firsts[-1] + part.sentences)
    return Contexts(
        torch.cat([part.hidden for part in parts]),
        torch.cat([part.top[:, :most] for part in parts]),
        torch.cat([part.sentence + first for part, first in zip(parts, firsts, strict=False)]),
        torch.unique(torch.cat([part.emitted for part in parts])),
        firsts[-1],
        parts[0].beam,
    )


def encode_sources(translator: TextModel, lines: Iterable[str]) -> list[list[int]]:
    """The tokens of each line, cut as in translation; an empty line has none."""
    limit = translator.model.max_positions or LONGEST_SOURCE
    whole = translator.source.encode(lines)
    cut = [ids if len(ids) <= limit else [*ids[: limit - 1], translator.source.eos] for ids in whole]
    return [ids if len(ids) > 1 else [] for ids in cut]


def collect(
    model: StepModel | TextModel,
    texts: Sequence[str] | Sequence[Sequence[int]],
    top: int,
    *,
    beam: int = 1,
    batch: int = BATCH,
    max_len: int | None = None,
    progress: Progress | None = None,
) -> Contexts:
    """Decode source text and record every context with its `top` likeliest tokens (FVP-02); no translation is needed.

    `texts`: lines if the model reads text, else token ids, the end last; empty ones give nothing. With a beam, the contexts
    of all its rows. `max_len`: most tokens of each, by default twice the source's and 10. Raises `NmtError` for more tokens
    than the vocabulary has, for contexts that are no numbers, and for text without one; `OutOfMemory`.
    """
    if isinstance(getattr(model, "source", None), Subwords):
        reader = cast("TextModel", model)
        max_len = max_len or reader.max_len
        sources = encode_sources(reader, cast("Sequence[str]", texts))
        model = reader.model
    else:
        model = cast("StepModel", model)
        sources = [list(source) for source in cast("Sequence[Sequence[int]]", texts)]
    if not 1 <= top < model.vocab:
        remedy = f"give 1 to {model.vocab - 1:,}"
        raise NmtError(f"the {top:,} likeliest tokens of a vocabulary of {model.vocab:,}", remedy=remedy)
    noted = _RecordingModel(model, top)
    batching = maxi(batch, max(batch, min(len(sources), 100 * batch)))
    search = _TrackedSearch(noted, beam)
    batched = BatchedDecoder(SlotDecoder(model, capacity=batch, search=lambda: cast("SlotSearch", search)), batching)
    asked = [request for request, source in enumerate(sources) if source]
    for request in asked:
        positions, most = model.max_positions, max_len or 2 * len(sources[request]) + 10
        batched.arrive(request, DecodeRequest(sources[request], max_len=most if positions is None else min(most, positions)))
    batched.batcher.close()
    emitted, done = {model.eos_token}, 0
    while batched.busy:
        move, finished = batched.act()
        if isinstance(move, Join):
            search.keys += move.requests
        for _, hypothesis in finished:
            emitted.update(hypothesis.tokens)
        done += len(finished)
        if progress is not None and finished:
            progress("decoding", done / len(asked))
    if not noted.kept:
        raise NmtError("text without a sentence", remedy="give text with one sentence a line")
    return noted.contexts(emitted, len(sources), beam)


class _RecordingModel:
    """A model that notes what it is asked to project; all else is the model's own."""

    def __init__(self, model: StepModel, top: int) -> None:
        self._model, self._top = model, top
        self.rows: list[int] = []
        """The sentence of each row of the next step."""
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self._allowed = torch.zeros(model.vocab, device=model.device)
        if model.pad_token != model.eos_token:
            self._allowed[model.pad_token] = float("-inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def project(self, hidden: Tensor) -> Tensor:
        """See `StepModel`."""
        logits = self._model.project(hidden)
        try:
            best = fused_best(logits.contiguous(), self._allowed, self._top).columns
        except KernelError as error:
            raise NmtError(f"the model's contexts are no numbers: {error}", remedy="train it again") from None
        sentences = torch.tensor(self.rows, dtype=torch.int32)
        # Copies: the model may use its own memory again in the next step.
        self.kept.append((hidden.to("cpu", torch.float32, copy=True), best.to("cpu", torch.int32, copy=True), sentences))
        return logits

    def contexts(self, emitted: Iterable[int], sentences: int, beam: int) -> Contexts:
        """Return all recorded contexts and empty the record; each part is freed as soon as it is copied."""
        count = sum(len(part[0]) for part in self.kept)
        hidden, top, sentence = (torch.empty((count, *part.shape[1:]), dtype=part.dtype) for part in self.kept[0])
        self.kept.reverse()
        at = 0
        while self.kept:
            recorded = self.kept.pop()
            for whole, part in zip((hidden, top, sentence), recorded, strict=True):
                whole[at : at + len(part)] = part
            at += len(recorded[0])
        if not bool(hidden.isfinite().all()):
            raise NmtError("contexts that are no numbers", remedy="train the model again")
        return Contexts(hidden, top, sentence, torch.tensor(sorted(emitted), dtype=torch.int32), sentences, beam)


class _TrackedSearch:
    """See `SlotSearch`: the usual one, which also knows the sentence of each slot."""

    def __init__(self, noted: _RecordingModel, beam: int) -> None:
        self._search = make_search(cast("StepModel", noted), beam)
        self._noted = noted
        self.keys: list[int] = []
        """The sentence of each slot; the caller adds those of joining sentences."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._search, name)

    def project(self, hidden: Tensor) -> Any:
        """See `SlotSearch`."""
        self._noted.rows = [key for key in self.keys for _ in range(self._search.beam)]
        return self._search.project(hidden)

    def leave(self, order: Sequence[int]) -> None:
        """See `SlotSearch`."""
        self._search.leave(order)
        self.keys = [self.keys[slot] for slot in order]


ITERATIONS = 20
"""As in the paper (FVP-03)."""
ROUNDS = 20
"""Times that empty clusters are begun anew, all that are empty each time; two or three are usual."""
Method = Literal["sklearn", "faiss"]
_PIECE, _ROWS = 1 << 24, 1 << 14
"""Scores of rows with centroids, and differences of rows, that are held at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """Centroids, and the cluster that each context belongs to."""

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


def cluster(
    contexts: Contexts | Tensor, clusters: int, *, seed: int, iterations: int = ITERATIONS, method: str | None = None
) -> Clustering:
    """k-means in Euclidean distance, from `clusters` contexts drawn at random with `seed` (FVP-03).

    `method`: sklearn, on one thread, since with more its sums depend on which ends first; or faiss, which is given all
    contexts, not the sample that it takes by itself. None: faiss where it is installed. An empty cluster is begun anew at the
    context farthest from its centroid in the largest one. Same seed and method, same clusters. Raises `NmtError` for fewer
    different contexts than clusters, for contexts that are no numbers, for clusters that stay empty however often they are
    begun anew, and for a method that is not installed.
    """
    points = contexts if isinstance(contexts, Tensor) else contexts.hidden
    if clusters < 1 or iterations < 1:
        raise NmtError(f"{clusters:,} clusters by {iterations:,} iterations", remedy="give 1 or more of each")
    if not bool(points.isfinite().all()):
        raise NmtError("contexts that are no numbers", remedy="collect them again, with a model that has been trained")
    if (different := _count_distinct(points, clusters)) < clusters:
        what = f"{different:,} different contexts for {clusters:,} clusters"
        raise NmtError(what, remedy="give more text, or ask for fewer clusters")
    chosen = check_method(method)
    fitted = (_by_sklearn if chosen == "sklearn" else _by_faiss)(points, clusters, seed, iterations)
    centroids, labels = _without_empty(points, fitted)
    return Clustering(centroids, labels, _inertia(points, centroids, labels), iterations, chosen, seed)


def check_method(name: str | None) -> Method:
    """The method, or the usual one here for None. Raises `NmtError` for one that there is not."""
    if name is None:
        return "faiss" if importlib.util.find_spec("faiss") else "sklearn"
    if name not in ("sklearn", "faiss"):
        raise NmtError(f"no clustering by {name}", remedy="take sklearn or faiss")
    if name == "faiss" and not importlib.util.find_spec("faiss"):
        raise NmtError("this needs the package faiss", remedy="pip install 'simnmt[faiss]', or take sklearn")
    return cast("Method", name)


def assign(points: Tensor, centroids: Centroids) -> Tensor:
    """The nearest centroid of each point, int64 [n], a piece of the points at a time (FVP-05)."""
    rows = max(1, _PIECE // len(centroids))
    return torch.cat([centroids.nearest(points[first : first + rows]) for first in range(0, len(points), rows)])


def _by_sklearn(points: Tensor, clusters: int, seed: int, iterations: int) -> Tensor:
    need("sklearn")
    kmeans = need("sklearn.cluster").KMeans(
        clusters, init="random", n_init=1, max_iter=iterations, tol=0.0, random_state=seed, copy_x=True
    )
    with need("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        # Of clusters that stay empty: those are begun anew.
        warnings.simplefilter("ignore", need("sklearn.exceptions").ConvergenceWarning)
        centers: Any = kmeans.fit(points.numpy()).cluster_centers_
    return torch.from_numpy(centers)


def _by_faiss(points: Tensor, clusters: int, seed: int, iterations: int) -> Tensor:
    with warnings.catch_warnings():
        # Python 3.12 and later warn of what made faiss's wrapper.
        warnings.simplefilter("ignore", DeprecationWarning)
        faiss = need("faiss")
    kmeans = faiss.Kmeans(
        points.shape[1],
        clusters,
        niter=iterations,
        seed=seed,
        # By default it takes a sample of 256 contexts a cluster.
        max_points_per_centroid=-(-len(points) // clusters),
        # By default it warns of fewer than 39.
        min_points_per_centroid=1,
    )
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads())
    try:
        kmeans.train(points.contiguous().numpy())
    finally:
        faiss.omp_set_num_threads(before)
    return torch.from_numpy(kmeans.centroids.copy())


def _count_distinct(points: Tensor, enough: int) -> int:
    """How many of the points differ from each other, counted no further than `enough`; -0.0 is 0.0."""
    seen: set[bytes] = set()
    for row in points.numpy():
        seen.add((row + 0.0).tobytes())
        if len(seen) == enough:
            break
    return len(seen)


def _without_empty(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The centroids with the empty ones begun anew, and the labels of all points.

    Raises `NmtError` where some are empty still after so many `ROUNDS`.
    """
    rounds = 0
    while True:
        labels = assign(points, Centroids.of(centroids))
        empty = (torch.bincount(labels, minlength=len(centroids)) == 0).nonzero()[:, 0]
        if not len(empty):
            return centroids, labels
        if rounds == ROUNDS:
            what = f"{len(empty):,} of {len(centroids):,} clusters stay empty: the contexts are too much alike"
            raise NmtError(what, remedy="ask for fewer clusters, or give more text")
        centroids = _reseed_empty(points, centroids.clone(), labels, empty.tolist())
        rounds += 1


def _reseed_empty(points: Tensor, centroids: Tensor, labels: Tensor, empty: list[int]) -> Tensor:
    distances = _distances(points, centroids, labels)
    norms = points.square().sum(1)
    for index in empty:
        members = torch.bincount(labels, minlength=len(centroids))
        within = distances.where(labels == int(members.argmax()), distances.new_tensor(-1.0))
        farthest = int(within.argmax())
        if not within[farthest] > 0:  # the largest is one context many times
            farthest = int(distances.argmax())
        centroids[index] = points[farthest]
        anew = (norms - 2 * (points @ points[farthest]) + norms[farthest]).clamp_(min=0)
        anew[farthest] = -1.0
        closer = anew < distances
        labels = labels.masked_fill(closer, index)
        distances = torch.minimum(distances, anew).clamp_(min=0)
    return centroids


def _distances(points: Tensor, centroids: Tensor, labels: Tensor) -> Tensor:
    """float32 [n]: squared distance of each point from its centroid."""
    pieces = [slice(first, first + _ROWS) for first in range(0, len(points), _ROWS)]
    return torch.cat([(points[piece] - centroids[labels[piece]]).square().sum(1) for piece in pieces])


def _inertia(points: Tensor, centroids: Tensor, labels: Tensor) -> float:
    return float(_distances(points, centroids, labels).double().sum())
