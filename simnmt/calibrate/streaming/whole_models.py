"""Measure whole models in memory, without reading or unpacking: the execution plane of a device that streams them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from simnmt.calibrate.settings import StiSettings
from simnmt.calibrate.streaming.layer_times import Progress
from simnmt.nmt.devices import torch_threads
from simnmt.profile.blocks import Execution, ExecutionFit
from simnmt.profile.cost import Plane
from simnmt.profile.execution_fit import by_cell, cell_samples, fit_execution, nonnegative_line, r_squared
from simnmt.streaming.shards import LayerBuffer, unpack_into

if TYPE_CHECKING:
    from simnmt.calibrate.streaming.decoder_times import DecoderLayers
    from simnmt.streaming.encoder import ElasticEncoder
    from simnmt.streaming.shards import Packed

TGT_LENGTHS = (4, 16, 40)


class WholeEncoder:
    """All layers of an encoder, unpacked."""

    def __init__(self, encoder: ElasticEncoder, shards: Mapping[tuple[int, int], Packed]) -> None:
        self._encoder = encoder
        slices = range(encoder.geometry.heads)
        self._slices = tuple(slices)
        self._buffers = []
        for layer in range(encoder.geometry.layers):
            buffer = LayerBuffer(encoder.geometry, len(slices))
            unpack_into(buffer, [shards[layer, slice_] for slice_ in slices])
            self._buffers.append(buffer)

    def run(self, token_ids: Tensor, mask: Tensor) -> Tensor:
        """Embed a text and compute all layers."""
        hidden = self._encoder.embed(token_ids, mask)
        for layer, buffer in enumerate(self._buffers):
            hidden = self._encoder.layer(hidden, mask, layer, self._slices, buffer)
        return hidden

    def text(self, length: int) -> tuple[Tensor, Tensor]:
        """Draw the token ids of one text; return them and the mask, without padding."""
        token_ids = torch.randint(self._encoder.configuration.vocabulary, (1, length))
        return token_ids, torch.ones((1, length), dtype=torch.bool)

    def classified_s(self, length: int) -> float:
        """Return the seconds to classify a random text."""
        token_ids, mask = self.text(length)
        begin_s = perf_counter()
        self._encoder.logits(self.run(token_ids, mask), mask)
        return perf_counter() - begin_s


def encoder_execution(whole: WholeEncoder, settings: StiSettings) -> Execution:
    """Measure `execution` of a classifier's profile: a line over the source length."""
    drawn, lengths = random.Random(settings.seed), settings.lengths
    order = [length for length in lengths for _ in range(settings.repeats)]
    drawn.shuffle(order)
    with torch_threads(settings.threads), torch.inference_mode():
        for length in lengths:
            whole.classified_s(length)
        time_s = np.array([whole.classified_s(length) for length in order])
    src = np.array(order, np.float64)
    fixed, slope = _line(src, time_s)
    predicted_s = slope * src + fixed
    fit = ExecutionFit(inferences=len(order), cells=len(lengths), r2=r_squared(predicted_s, time_s))
    return Execution(
        kind="measured",
        plane=Plane(s_per_src_token=slope, s_per_tgt_token=0.0, s_fixed=fixed),
        residual_relative_sd=float(np.sqrt(np.mean((time_s / predicted_s - 1.0) ** 2))),
        fit=fit,
        samples=cell_samples(src, np.ones_like(src), time_s),
    )


def _line(length: NDArray[np.float64], time_s: NDArray[np.float64]) -> tuple[float, float]:
    """Fit fixed part and slope of the mean time, both at least 0: the shape to medians by relative error, then the level."""
    cells = by_cell(length, np.zeros_like(length), time_s)
    median = cells.quantile(0.5)
    if len(cells) < 2:
        return float(time_s.mean()), 0.0
    fixed, slope = nonnegative_line(cells.first, median, 1.0 / median)
    level = float((time_s / (fixed + slope * length)).mean())
    return level * fixed, level * slope


class WholeTranslator:
    """An encoder and a greedy decoder in memory; each step multiplies by the whole vocabulary."""

    def __init__(self, whole: WholeEncoder, decoder: DecoderLayers, vocabulary: int) -> None:
        self._whole, self._decoder = whole, decoder
        width = decoder.geometry.width
        self._embedding = torch.randn((vocabulary, width)) * width**-0.5

    def output_s(self, repeats: int) -> list[float]:
        """Return the seconds to embed a token and choose the next, by repeat."""
        vector, times_s = torch.randn((1, self._decoder.geometry.width)), []
        for _ in range(repeats):
            begin_s = perf_counter()
            self._chosen(vector)
            times_s.append(perf_counter() - begin_s)
        return times_s

    def translated_s(self, src_len: int, tgt_len: int) -> float:
        """Return the seconds to translate one sentence into `tgt_len` tokens."""
        token_ids, mask = self._whole.text(src_len)
        begin_s = perf_counter()
        self._decoder.read_source(self._whole.run(token_ids, mask))
        vector = self._embedding[:1]
        for position in range(tgt_len):
            vector = self._chosen(self._decoder.step(vector, position))
        return perf_counter() - begin_s

    def _chosen(self, vector: Tensor) -> Tensor:
        token = (vector @ self._embedding.T).argmax(1)
        return functional.embedding(token, self._embedding)


def translator_execution(translator: WholeTranslator, settings: StiSettings, progress: Progress) -> Execution:
    """Measure `execution` of a translator's profile, over both lengths."""
    drawn, src_lengths = random.Random(settings.seed), settings.lengths
    order = [(src, tgt) for src in src_lengths for tgt in TGT_LENGTHS for _ in range(max(3, settings.repeats // 2))]
    drawn.shuffle(order)
    time_s = []
    with torch_threads(settings.threads), torch.inference_mode():
        translator.translated_s(src_lengths[0], 2)
        for done, (src, tgt) in enumerate(order):
            time_s.append(translator.translated_s(src, tgt))
            progress(done + 1, len(order), "whole translations")
    src_len, tgt_len = (np.array(column, np.float64) for column in zip(*order, strict=True))
    block = fit_execution(src_len, tgt_len, time_s, mode="full_grid")
    return block.model_copy(update={"samples": cell_samples(src_len, tgt_len, time_s)})
