"""Accuracy of submodels on a task, and the importance of each shard (STI-09).

The importance of a shard is what the task gains when that shard alone is raised from 2 to 32 bits.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.base.files import MOST_TEXT_BYTES, check_regular, lock_journal
from simnmt.profile.streaming_block import StiImportance
from simnmt.streaming.encoder.tokenizer import padded
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.store.shard_format import LayerBuffer, decode, unpack_into

if TYPE_CHECKING:
    from simnmt.profile.streaming_cost import ShardGeometry
    from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
    from simnmt.streaming.store.shard_format import Record

Shard = tuple[int, int]
LayerShards = tuple[tuple[int, int], ...]
"""Of one layer: (slice, bits), by slice."""
BATCH_TOKENS = 2048
"""Padded tokens that are computed together: enough for large products, few enough to lie in a cache."""
KEPT_BYTES = 2_000_000_000
"""Most memory for what layers made of the examples, kept for submodels that begin alike; and as much for unpacked layers."""


class Shards(Protocol):
    """What of a `ShardStore` is needed here."""

    geometry: ShardGeometry

    def record(self, layer: int, index: int, bits: int) -> Record:
        """Where a shard lies."""
        ...

    def read(self, record: Record) -> NDArray[np.uint8]:
        """A record's bytes, verified."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Answers of one submodel; columns of shape (examples,), in the order of the task."""

    predicted: NDArray[np.int64]
    correct: NDArray[np.bool_]
    log_likelihood: NDArray[np.float64]
    """Natural log of the right class's probability."""

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.correct.mean())

    @property
    def mean_log_likelihood(self) -> float:
        """Over examples; tells submodels apart that have as many right."""
        return float(self.log_likelihood.mean())

    def agreement(self, other: Evaluation) -> float:
        """Share of examples answered alike: with the full model for `other`, the accuracy proxy of STI-27."""
        return float((self.predicted == other.predicted).mean())


class Evaluator:
    """Evaluates submodels of one store on one task; each layer that a submodel shares with the one before, from the bottom up,
    is not computed again.

    `token_ids`: one sequence an example; `labels`: its class. Raises `StreamingError` for a task without examples, or whose
    labels the model has no class for.
    """

    def __init__(
        self,
        encoder: ElasticEncoder,
        store: Shards,
        token_ids: Sequence[Sequence[int]],
        labels: Sequence[int],
        *,
        batch_tokens: int = BATCH_TOKENS,
        kept_bytes: int = KEPT_BYTES,
        threads: int = 1,
    ) -> None:
        configuration = encoder.configuration
        if not len(token_ids) or len(token_ids) != len(labels):
            raise StreamingError(f"{len(token_ids)} texts and {len(labels)} labels: nothing to evaluate on")
        if not all(0 <= label < configuration.classes for label in labels):
            wrong = next(label for label in labels if not 0 <= label < configuration.classes)
            raise StreamingError(
                f"label {wrong} where the model tells {configuration.classes} classes apart",
                remedy="name the task that the model was trained on",
            )
        self.geometry = store.geometry
        self.evaluations = 0
        """Submodels that were evaluated so far."""
        self.layers_computed = 0
        """Layers that were computed for them, over all examples each."""
        self._encoder, self._store, self._threads, self._kept_bytes = encoder, store, threads, kept_bytes
        self._labels = np.asarray(labels, np.int64)
        self._batches = _batches(token_ids, configuration.padding_token, batch_tokens)
        self._below: list[tuple[LayerShards, list[Tensor] | None]] = []
        """The submodel before: of each layer its shards and what it made of the batches, None where memory ended."""
        self._embedded: list[Tensor] | None = None
        self._buffers: OrderedDict[tuple[int, LayerShards], LayerBuffer] = OrderedDict()

    def __len__(self) -> int:
        """Examples."""
        return len(self._labels)

    @torch.inference_mode()
    def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
        """Of the submodel that has these shards at these bitwidths; its layers must be the bottom ones, without a gap.

        Layers may differ in their shards. Raises `StreamingError` for no layer, a gap, or a shard that the store has not.
        """
        wanted = self._layers(bits)
        common = 0
        for (before, hidden), shards in zip(self._below, wanted, strict=False):
            if before != shards or hidden is None:
                break
            common += 1
        if self._embedded is None:
            self._embedded = [self._encoder.embed(batch.token_ids, batch.mask) for batch in self._batches]
        del self._below[common:]
        hidden = self._embedded
        if common:
            known = self._below[-1][1]
            assert known is not None
            hidden = known
        for layer in range(common, len(wanted)):
            hidden = self._computed(hidden, layer, wanted[layer])
            self._keep(wanted[layer], hidden)
        self.evaluations += 1
        return self._judged(hidden)

    def _layers(self, bits: Mapping[Shard, int]) -> list[LayerShards]:
        by_layer: dict[int, list[tuple[int, int]]] = {}
        for (layer, slice_), width in sorted(bits.items()):
            by_layer.setdefault(layer, []).append((slice_, width))
        if not by_layer or sorted(by_layer) != list(range(len(by_layer))) or len(by_layer) > self.geometry.layers:
            raise StreamingError(
                f"layers {sorted(by_layer)} of {self.geometry.layers}: a submodel has the bottom ones, without a gap"
            )
        return [tuple(by_layer[layer]) for layer in range(len(by_layer))]

    def _computed(self, hidden: list[Tensor], layer: int, shards: LayerShards) -> list[Tensor]:
        slices = tuple(slice_ for slice_, _ in shards)
        buffer = self._buffer(layer, shards)
        self.layers_computed += 1
        return [
            self._encoder.layer(batch_hidden, batch.mask, layer, slices, buffer)
            for batch_hidden, batch in zip(hidden, self._batches, strict=True)
        ]

    def _keep(self, shards: LayerShards, hidden: list[Tensor]) -> None:
        kept = sum(_bytes_of(below) for _, below in self._below if below is not None)
        room = kept + 2 * _bytes_of(hidden) <= self._kept_bytes  # the embedded texts stay too
        self._below.append((shards, hidden if room else None))

    def _buffer(self, layer: int, shards: LayerShards) -> LayerBuffer:
        """The layer's unpacked shards, kept while there is room: most submodels share most layers."""
        buffer = self._buffers.get((layer, shards))
        if buffer is None:
            buffer = self._unpacked(layer, shards)
            self._buffers[layer, shards] = buffer
            while sum(kept.array.nbytes for kept in self._buffers.values()) > self._kept_bytes and len(self._buffers) > 1:
                self._buffers.popitem(last=False)
        self._buffers.move_to_end((layer, shards))
        return buffer

    def _unpacked(self, layer: int, shards: LayerShards) -> LayerBuffer:
        buffer = LayerBuffer(self.geometry, len(shards))
        records = [self._store.record(layer, slice_, bits) for slice_, bits in shards]
        unpack_into(buffer, [decode(self._store.read(record)) for record in records], threads=self._threads)
        return buffer

    def _judged(self, hidden: list[Tensor]) -> Evaluation:
        predicted = np.empty(len(self), np.int64)
        likelihood = np.empty(len(self), np.float64)
        for batch_hidden, batch in zip(hidden, self._batches, strict=True):
            logits = self._encoder.logits(batch_hidden, batch.mask).to(torch.float64)
            labels = torch.from_numpy(self._labels[batch.at])
            predicted[batch.at] = logits.argmax(dim=1).numpy()
            likelihood[batch.at] = logits.log_softmax(dim=1).gather(1, labels[:, None])[:, 0].numpy()
        return Evaluation(predicted, predicted == self._labels, likelihood)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Examples of about one length."""

    at: NDArray[np.int64]
    """Which, of the task."""
    token_ids: Tensor
    """[examples, longest], padded."""
    mask: Tensor
    """The same shape, true at tokens."""

    @classmethod
    def of(cls, group: list[int], token_ids: Sequence[Sequence[int]], padding: int) -> _Batch:
        return cls(np.asarray(group, np.int64), *padded([token_ids[at] for at in group], padding))


def _batches(token_ids: Sequence[Sequence[int]], padding: int, batch_tokens: int) -> list[_Batch]:
    order = sorted(range(len(token_ids)), key=lambda at: (len(token_ids[at]), at))
    batches: list[_Batch] = []
    group: list[int] = []
    for at in order:
        if group and (len(group) + 1) * len(token_ids[at]) > batch_tokens:
            batches.append(_Batch.of(group, token_ids, padding))
            group = []
        group.append(at)
    return [*batches, _Batch.of(group, token_ids, padding)]


def _bytes_of(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


LOW, HIGH = 2, 32
"""Bits of all shards, and of the one that is raised; between them is nothing measured (STI-28)."""
Score = tuple[float, float]
"""Accuracy and mean log-likelihood."""
BASE = (-1, -1)
"""Names the evaluation with all shards at `LOW`."""


def measure_importance(
    evaluator: Evaluator,
    *,
    task: str,
    task_sha256: str,
    fingerprint: str,
    journal: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> StiImportance:
    """The base and one evaluation for each shard; `progress(done, total)` counts them.

    `journal` keeps each as soon as it is made, and one that is there already is gone on with, if it is of this store, task and
    set of examples. Raises `StreamingError` for another's journal, or one that is in use or cannot be written.
    """
    layers, slices = evaluator.geometry.layers, evaluator.geometry.heads
    # The top layer first: all below it are the base's, and are not computed again.
    wanted = [BASE, *((layer, slice_) for layer in reversed(range(layers)) for slice_ in range(slices))]
    header = {
        "importance": 1,
        "fingerprint": fingerprint,
        "task_sha256": task_sha256,
        "examples": len(evaluator),
        "layers": layers,
        "slices": slices,
    }
    base = {(layer, slice_): LOW for layer in range(layers) for slice_ in range(slices)}
    scores: dict[tuple[int, int], Score] = {}
    with _journal(journal, header, scores) as keep:
        for done, shard in enumerate(wanted):
            if progress is not None:
                progress(done, len(wanted))
            if shard not in scores:
                result = evaluator.evaluate(base if shard == BASE else base | {shard: HIGH})
                scores[shard] = (result.accuracy, result.mean_log_likelihood)
                keep(shard, scores[shard])
        if progress is not None:
            progress(len(wanted), len(wanted))
    accuracy, likelihood = (
        tuple(tuple(scores[layer, slice_][part] for slice_ in range(slices)) for layer in range(layers)) for part in (0, 1)
    )
    return StiImportance(
        task=task,
        task_sha256=task_sha256,
        examples=len(evaluator),
        base_accuracy=scores[BASE][0],
        base_log_likelihood=scores[BASE][1],
        accuracy=accuracy,
        log_likelihood=likelihood,
    )


Keep = Callable[[tuple[int, int], Score], None]


@contextmanager
def _journal(
    path: str | os.PathLike[str] | None, header: Mapping[str, Any], scores: dict[tuple[int, int], Score]
) -> Iterator[Keep]:
    """Fill `scores` from an interrupted run, and yield the function that appends to the journal; the file stays."""
    if path is None:
        yield lambda shard, score: None
        return
    try:
        if Path(path).exists():
            check_regular(path, MOST_TEXT_BYTES)
        file = open(path, "r+b" if Path(path).exists() else "w+b", buffering=0)  # noqa: SIM115, PTH123
    except OSError as error:
        raise StreamingError(f"cannot be written: {error.strerror}", path=path, remedy="choose another --out") from None
    with file:
        lock_journal(file.fileno(), path, StreamingError, "measurement")
        end = _read(file, path, header, scores)
        file.seek(end)
        file.truncate()
        if not end:
            _append(file, path, header)
        yield lambda shard, score: _append(file, path, {"shard": shard, "told": score})


def _append(file: FileIO, path: str | os.PathLike[str], line: Mapping[str, Any]) -> None:
    rest = memoryview(json.dumps(line).encode() + b"\n")
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        remedy = "make room and give the same command again"
        raise StreamingError(f"cannot be written: {error.strerror}", path=path, remedy=remedy) from None


def _read(file: FileIO, path: str | os.PathLike[str], header: Mapping[str, Any], scores: dict[tuple[int, int], Score]) -> int:
    """Fill `scores` and return the bytes of whole lines, without a last line that an interruption cut short."""
    end = 0
    for number, line in enumerate(file.read().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            entry = json.loads(line)
            if number == 1:
                _compare(entry, header, path)
            else:
                (layer, slice_), (accuracy, likelihood) = entry["shard"], entry["told"]
                scores[int(layer), int(slice_)] = (float(accuracy), float(likelihood))
        except (ValueError, KeyError, TypeError, AttributeError):
            remedy = "remove it, or choose another --out"
            raise StreamingError("not a journal of importance", path=path, line=number, remedy=remedy) from None
        end += len(line)
    return end


def _compare(theirs: Mapping[str, Any], ours: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    for key in dict.fromkeys([*ours, *theirs]):
        if theirs.get(key) != ours.get(key):
            raise StreamingError(
                f"the journal has {key} {theirs.get(key)}, this measurement {ours.get(key)}",
                path=path,
                remedy="give what it was begun with, choose another --out, or remove the journal",
            )
