"""An encoder with all its shards in memory, one layer or several of which are timed over one text at a time (STI-08)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simnmt.elastic.pipeline.unpacking import unpack_into
from simnmt.elastic.shard_layout import LayerBuffer

if TYPE_CHECKING:
    from simnmt.costs.sti_cost import Shard
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.store import Packed


@dataclass(frozen=True, slots=True)
class LayerTiming:
    """Of one layer of one text; seconds."""

    total_s: float
    unpack_s: float


class LayerBench:
    """An encoder with its shards in memory and one working buffer for each width."""

    def __init__(
        self,
        encoder: ElasticEncoder,
        shards: Mapping[Shard, Packed],
        threads: int = 1,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._encoder, self._shards, self._threads, self._clock = encoder, shards, threads, clock
        self._buffers: dict[int, LayerBuffer] = {}
        self._texts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def warm_up(self, lengths: Sequence[int]) -> None:
        """Libraries load and pages appear at the first call of each kind."""
        for length in lengths:
            self.ends_s(length)
            for width in range(1, self._encoder.geometry.heads + 1):
                self.layers(length, width, 1)

    def layers(self, length: int, width: int, layers: int) -> list[LayerTiming]:
        """Each of the bottom layers, one after the other, of one text, all of it tokens."""
        _, mask, hidden = self._text(length)
        found = []
        for layer in range(layers):
            hidden, timing = self._run(hidden, mask, width, layer)
            found.append(timing)
        return found

    def submodel_s(self, length: int, width: int, layers: int) -> float:
        """The same in all, from its begin to its end."""
        begin_s = self._clock()
        self.layers(length, width, layers)
        return self._clock() - begin_s

    def submodels_s(self, length: int, width: int, least_s: float) -> float:
        """All layers, again and again for so long at least: the mean of one pass."""
        begin_s, passes = self._clock(), 0
        while (taken_s := self._clock() - begin_s) < least_s or not passes:
            self.submodel_s(length, width, self._encoder.geometry.layers)
            passes += 1
        return taken_s / passes

    def ends_s(self, length: int) -> tuple[float, float]:
        """Embedding, and classifying."""
        token_ids, mask, hidden = self._text(length)
        begin_s = self._clock()
        self._encoder.embed(token_ids, mask)
        embedded_s = self._clock()
        self._encoder.logits(hidden, mask)
        return embedded_s - begin_s, self._clock() - embedded_s

    def _run(self, hidden: Tensor, mask: Tensor, width: int, layer: int) -> tuple[Tensor, LayerTiming]:
        buffer = self._buffers.get(width)
        if buffer is None:
            buffer = self._buffers[width] = LayerBuffer(self._encoder.geometry, width)
        slices = tuple(range(width))
        begin_s = self._clock()
        unpack_into(buffer, [self._shards[layer, slice_] for slice_ in slices], threads=self._threads)
        unpacked_s = self._clock()
        hidden = self._encoder.layer(hidden, mask, layer, slices, buffer)
        end_s = self._clock()
        return hidden, LayerTiming(end_s - begin_s, unpacked_s - begin_s)

    def _text(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        if length not in self._texts:
            vocabulary = self._encoder.configuration.vocabulary
            generator = torch.Generator().manual_seed(length)
            token_ids = torch.randint(vocabulary, (1, length), generator=generator)
            mask = torch.ones((1, length), dtype=torch.bool)
            self._texts[length] = (token_ids, mask, self._encoder.embed(token_ids, mask))
        return self._texts[length]
