"""k-means clustering of contexts, by scikit-learn or faiss (FVP-03)."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from simnmt.kernels.column_sets import Centroids
from simnmt.nmt.errors import NmtError, need

if TYPE_CHECKING:
    from simnmt.nmt.vocabulary.contexts import Contexts

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
