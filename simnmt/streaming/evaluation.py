"""Evaluate submodels on a task: answers and log-likelihoods; layers that two submodels share are computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.nmt.training.trainer import batch_slices
from simnmt.profile.streaming_block import Shard
from simnmt.streaming.encoder import ElasticEncoder, padded
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.shards import LayerBuffer, unpack_into
from simnmt.streaming.store import ShardStore

LayerShards = tuple[tuple[int, int], ...]
"""Shards of one layer: (slice, bits), by slice."""
BATCH_TOKENS = 2048
"""Padded tokens per batch: enough for large products, and few enough for a cache."""
KEPT_BYTES = 2_000_000_000
"""Most bytes of kept layer outputs, and most bytes of unpacked layers."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Answers of one submodel; columns have shape (examples,), in the order of the task."""

    predicted: NDArray[np.int64]
    correct: NDArray[np.bool_]
    log_likelihood: NDArray[np.float64]

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    def agreement(self, other: Evaluation) -> float:
        """Return the share of examples with equal answers; against the full model, the accuracy proxy of STI-27."""
        return float((self.predicted == other.predicted).mean())


class Evaluator:
    """Evaluator of the submodels of one store on one task; bottom layers that submodels share are computed once.

    Raises `StreamingError` for labels that are no class of the model.
    """

    def __init__(
        self,
        encoder: ElasticEncoder,
        store: ShardStore,
        token_ids: Sequence[Sequence[int]],
        labels: Sequence[int],
        *,
        kept_bytes: int = KEPT_BYTES,
        threads: int = 1,
    ) -> None:
        """`token_ids`, `labels`: a sequence and a class per example."""
        configuration = encoder.configuration
        self._labels = np.asarray(labels, np.int64)
        if not 0 <= self._labels.min() <= self._labels.max() < configuration.classes:
            what = f"label {self._labels.max()}, but the model has {configuration.classes} classes"
            raise StreamingError(what, remedy="name the task that the model was trained on")
        self.geometry = store.geometry
        self.layers_computed = 0
        """Number of computed layers, each over all examples."""
        self._encoder, self._store, self._threads = encoder, store, threads
        lengths = np.array([len(tokens) for tokens in token_ids])
        order = np.argsort(lengths, kind="stable")
        self._rows = [order[run] for run in batch_slices(lengths[order], BATCH_TOKENS)]
        """Examples of each batch, of similar length."""
        self._inputs = [padded([token_ids[row] for row in rows], configuration.padding_token) for rows in self._rows]
        with torch.inference_mode():
            self._embedded = [encoder.embed(*batch) for batch in self._inputs]
        self._most_kept = max(0, kept_bytes // sum(tensor.nbytes for tensor in self._embedded) - 1)
        self._kept_output = lru_cache(self._most_kept)(self._output)
        layers = kept_bytes // store.geometry.float32_bytes_per_layer
        self._unpacked = lru_cache(max(1, layers))(self._unpack)  # most submodels share most layers

    def __len__(self) -> int:
        return len(self._labels)

    @torch.inference_mode()
    def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
        """Return the evaluation of the bottom layers with these bits by shard; layers may differ in their shards.

        Raises `StoreError` for bits that the store lacks.
        """
        by_layer = groupby(sorted(bits.items()), lambda item: item[0][0])
        layers = tuple(tuple((piece, width) for (_, piece), width in shards) for _, shards in by_layer)
        return self._judged(self._output_of(layers))

    def _output_of(self, layers: tuple[LayerShards, ...]) -> list[Tensor]:
        """Return the output of the top one of these layers for each batch; bottom layers are kept, as many as fit."""
        return self._kept_output(layers) if len(layers) <= self._most_kept else self._output(layers)

    def _output(self, layers: tuple[LayerShards, ...]) -> list[Tensor]:
        if not layers:
            return self._embedded
        *_, shards = layers
        below, buffer, slices = self._output_of(layers[:-1]), self._unpacked(len(layers) - 1, shards), [at for at, _ in shards]
        self.layers_computed += 1
        return [
            self._encoder.layer(hidden, mask, len(layers) - 1, slices, buffer)
            for hidden, (_, mask) in zip(below, self._inputs, strict=True)
        ]

    def _unpack(self, layer: int, shards: LayerShards) -> LayerBuffer:
        buffer = LayerBuffer(self.geometry, len(shards))
        packed = [self._store.read(self._store.record(layer, piece, bits)) for piece, bits in shards]
        unpack_into(buffer, packed, threads=self._threads)
        return buffer

    def _judged(self, hidden: list[Tensor]) -> Evaluation:
        predicted = np.empty(len(self), np.int64)
        likelihood = np.empty(len(self), np.float64)
        for of_batch, (_, mask), rows in zip(hidden, self._inputs, self._rows, strict=True):
            logits = self._encoder.logits(of_batch, mask).to(torch.float64)
            labels = torch.from_numpy(self._labels[rows])
            predicted[rows] = logits.argmax(dim=1).numpy()
            likelihood[rows] = logits.log_softmax(dim=1).gather(1, labels[:, None])[:, 0].numpy()
        return Evaluation(predicted, predicted == self._labels, likelihood)
