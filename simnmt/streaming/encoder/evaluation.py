"""Evaluate submodels on a task: answers and log-likelihoods; layers that two submodels share are computed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.nmt.training.learner import batch_slices
from simnmt.streaming.encoder.tokenizer import padded
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.store.shard_format import LayerBuffer, decode, unpack_into

if TYPE_CHECKING:
    from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
    from simnmt.streaming.store.shard_store import ShardStore

Shard = tuple[int, int]
LayerShards = tuple[tuple[int, int], ...]
"""Shards of one layer: (slice, bits), by slice."""
BATCH_TOKENS = 2048
"""Padded tokens per batch: enough for large products, and few enough for a cache."""
KEPT_BYTES = 2_000_000_000
"""Most bytes of kept layer outputs, which submodels with equal bottom layers share, and most bytes of unpacked layers."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Answers of one submodel; columns have shape (examples,), in the order of the task."""

    predicted: NDArray[np.int64]
    correct: NDArray[np.bool_]
    log_likelihood: NDArray[np.float64]
    """Natural log of the probability of the right class."""

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.correct.mean())

    @property
    def mean_log_likelihood(self) -> float:
        """Mean over examples; ranks submodels of equal accuracy."""
        return float(self.log_likelihood.mean())

    def agreement(self, other: Evaluation) -> float:
        """Return the share of examples with equal answers; against the full model, the accuracy proxy of STI-27."""
        return float((self.predicted == other.predicted).mean())


class Evaluator:
    """Evaluator of the submodels of one store on one task.

    Bottom layers that a submodel shares with the submodel before are not computed again.

    Args:
        token_ids: one sequence per example.
        labels: the class of each example.

    Raises:
        StreamingError: for a task without examples, or with labels that are no class of the model.
    """

    def __init__(
        self,
        encoder: ElasticEncoder,
        store: ShardStore,
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
        wrong = [label for label in labels if not 0 <= label < configuration.classes]
        if wrong:
            what = f"label {wrong[0]}, but the model has {configuration.classes} classes"
            raise StreamingError(what, remedy="name the task that the model was trained on")
        self.geometry = store.geometry
        self.evaluations = 0
        """Number of evaluated submodels."""
        self.layers_computed = 0
        """Number of computed layers, each over all examples."""
        self._encoder, self._store, self._threads, self._kept_bytes = encoder, store, threads, kept_bytes
        self._labels = np.asarray(labels, np.int64)
        lengths = np.array([len(tokens) for tokens in token_ids])
        order = np.argsort(lengths, kind="stable")
        self._batches = [
            _Batch(order[run], *padded([token_ids[at] for at in order[run]], configuration.padding_token))
            for run in batch_slices(lengths[order], batch_tokens)
        ]
        self._below: list[tuple[LayerShards, list[Tensor] | None]] = []
        """Shards and output of each layer of the last submodel; None for an output if memory was short."""
        self._embedded: list[Tensor] | None = None
        self._buffers: OrderedDict[tuple[int, LayerShards], LayerBuffer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._labels)

    @torch.inference_mode()
    def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
        """Return the evaluation of the submodel with these bits by shard; layers may differ in their shards.

        Raises `StreamingError` unless the layers are the bottom ones without a gap, and for shards that the store lacks.
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
        hidden = (self._below[-1][1] if self._below else None) or self._embedded
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
            what = f"layers {sorted(by_layer)} of {self.geometry.layers}: a submodel has the bottom ones, without a gap"
            raise StreamingError(what)
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
        """Return the unpacked shards of a layer, which are kept while there is room: most submodels share most layers."""
        buffer = self._buffers.get((layer, shards))
        if buffer is None:
            buffer = self._buffers[layer, shards] = LayerBuffer(self.geometry, len(shards))
            records = [self._store.record(layer, slice_, bits) for slice_, bits in shards]
            unpack_into(buffer, [decode(self._store.read(record)) for record in records], threads=self._threads)
            while sum(kept.array.nbytes for kept in self._buffers.values()) > self._kept_bytes and len(self._buffers) > 1:
                self._buffers.popitem(last=False)
        self._buffers.move_to_end((layer, shards))
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
    """Examples of similar length."""

    at: NDArray[np.int64]
    """Indices of the examples in the task."""
    token_ids: Tensor
    """[examples, longest], padded."""
    mask: Tensor
    """[examples, longest], True at tokens."""


def _bytes_of(tensors: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
