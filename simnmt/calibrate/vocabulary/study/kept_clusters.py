"""k-means of a study, which is done once for each r and kept on disk where a folder is given."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from simnmt.calibrate.errors import CalibrationError
from simnmt.kernels.centroids import Centroids
from simnmt.nmt.tensor_files import read_tensors, write_tensors
from simnmt.nmt.vocabulary.contexts import Contexts
from simnmt.nmt.vocabulary.kmeans import Clustering, assign, cluster, method_named
from simnmt.streams import stream

_TOLD = ("inertia", "iterations", "method", "seed")
_NOTE = "simnmt_clustering"
_PIECE = 1 << 14
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
            return _read(path)
        found = self._found(contexts, clusters)
        _write(path, found)
        return found

    def _found(self, contexts: Contexts, clusters: int) -> Clustering:
        if len(contexts) <= self.most:
            return cluster(contexts, clusters, seed=self.seed, method=self.method)
        drawn = stream(self.seed, 0, "clustered contexts").choice(len(contexts), self.most, replace=False)
        found = cluster(contexts.hidden[torch.from_numpy(drawn).sort().values], clusters, seed=self.seed, method=self.method)
        return replace(found, labels=assign(contexts.hidden, Centroids.of(found.centroids)))

    def _key(self, contexts: Contexts, clusters: int) -> str:
        told = f"{clusters} {self.seed} {self.seen(contexts)} {method_named(self.method)} {list(contexts.hidden.shape)}"
        digest = hashlib.sha256(told.encode())
        for first in range(0, len(contexts), _PIECE):
            digest.update(contexts.hidden[first : first + _PIECE].numpy().tobytes())
        return digest.hexdigest()[:32]


def _write(path: Path, found: Clustering) -> None:
    note = json.dumps({name: getattr(found, name) for name in _TOLD})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {"centroids": found.centroids, "labels": found.labels}, {_NOTE: note})
    except (OSError, SafetensorError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise CalibrationError(f"cannot be written: {said}", path=path, remedy="choose another folder") from None


def _read(path: Path) -> Clustering:
    try:
        tensors, notes = read_tensors(path)
        settings: dict[str, Any] = json.loads(notes[_NOTE])
        return Clustering(tensors["centroids"], tensors["labels"], **settings)
    except (OSError, KeyError, ValueError, TypeError, RecursionError):
        raise CalibrationError("no kept clusters, or damaged", path=path, remedy="remove the file") from None
