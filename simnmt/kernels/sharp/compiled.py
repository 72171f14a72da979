"""A model packed for the C search: its matrices in panels, its tables, and the memory that one sentence takes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.native_library import NativeLibrary
from simnmt.kernels.products import packed_panels
from simnmt.kernels.scales import choose_scales
from simnmt.kernels.sharp import structs
from simnmt.kernels.sharp.weights import GATES, Float32, SharpWeights, input_limits, skips


class CompiledMember:
    """One model under one settings; holds all that its C structure points to."""

    def __init__(self, weights: SharpWeights, settings: DecoderSettings, native: NativeLibrary, most_src_len: int) -> None:
        self._weights, self._int16 = weights, settings.gemm == "int16"
        self._native, self.cdll = native, native.cdll
        self._row_block = structs.declare(native.cdll)
        self._held: list[Any] = []
        self.model = self._described(settings)
        self._beam, self._most_src_len = settings.beam, most_src_len
        self._memory: dict[bool, tuple[int, NDArray[Any]]] = {}

    def memory(self, columns: int | None) -> int:
        """Address of memory enough for a sentence, so many candidates among it; None: all words.

        Set aside before the search begins: for longer lists of candidates anew.
        """
        whole, asked = columns is None, columns or 0
        if whole and self.model.output.packed is None:
            self.model.output.packed = self._packed(self._output_rows)
        held = self._memory.get(whole)
        if held is None or held[0] < asked:
            size = self.cdll.simnmt_sharp_member_bytes(self.model, self._beam, self._most_src_len, asked)
            held = self._memory[whole] = (asked, huge_pages(size, np.uint8))
        return int(held[1].ctypes.data)

    def _described(self, settings: DecoderSettings) -> structs.Model:
        weights, bottom, attention = self._weights, self._weights.bottom, self._weights.bottom.attention
        limits = input_limits(weights)
        word_limit = max(float(np.abs(weights.embedding).max()), 1e-6)
        layers = [
            structs.Layer(
                structs.LAYER_KINDS[layer.kind],
                layer.width,
                -1 if skipped is None else skipped,
                self._matrix(layer.input, limit),
                structs.Matrix() if layer.state is None else self._matrix(layer.state, 1.0),
                self._address(layer.bias),
            )
            for layer, limit, skipped in zip(weights.stack, limits[:-1], skips(weights.stack), strict=True)
        ]
        stack = (structs.Layer * len(layers))(*layers)
        self._held.append(stack)
        r, a = bottom.width, len(attention.state)
        model = structs.Model(
            vocab=weights.vocab,
            e=weights.embedding.shape[1],
            r=r,
            s=weights.source_width,
            a=a,
            gates=GATES[bottom.kind],
            top=weights.output.shape[1],
            layers=len(layers),
            additive=attention.form == "additive",
            int16=self._int16,
            activation=structs.ACTIVATIONS[settings.activations],
            attention_kept=settings.attention == "precomputed",
            merge=settings.merge,
            state=self._matrix(np.concatenate((bottom.state, attention.state)), 1.0),
            word=self._matrix(np.concatenate((bottom.word, attention.word)), word_limit),
            context=self._matrix(bottom.context, 1.0),
            key=self._matrix(attention.key, 1.0),
            embedding=self._address(weights.embedding),
            bias=self._address(bottom.bias),
            score=self._address(attention.score),
            output_bias=self._address(weights.output_bias),
            stack=ctypes.addressof(stack),
        )
        model.output, rows = self._scaled(weights.output, limits[-1])
        self._output_rows = rows
        odd = self._int16 and rows.shape[1] % 2
        model.output_rows = self._address(np.pad(rows, ((0, 0), (0, 1))) if odd else rows)
        kept = {"computed": 0, "precomputed": weights.vocab, "frequent": min(settings.frequent_words, weights.vocab)}
        if words := kept[settings.embeddings]:
            self._fill_table(model, words)
        return model

    def _fill_table(self, model: structs.Model, words: int) -> None:
        table = huge_pages(words * model.word.outputs, np.float32)
        rows = np.empty(self._row_block * (model.e + 1), np.float32)
        self.cdll.simnmt_sharp_fill_table(model, words, rows.ctypes.data, table.ctypes.data)
        model.table, model.table_words = self._address(table), words

    def _matrix(self, weight: Float32, limit: float) -> structs.Matrix:
        matrix, rows = self._scaled(weight, limit)
        matrix.packed = self._packed(rows)
        return matrix

    def _scaled(self, weight: Float32, limit: float) -> tuple[structs.Matrix, NDArray[Any]]:
        """What the product is told of a matrix not packed yet, and its rows in the product's type (SHARP-05)."""
        outputs, inner = weight.shape
        if not self._int16:
            return structs.Matrix(None, outputs, inner, limit, 1.0, 1.0), weight
        scales = choose_scales(weight, limit)
        return structs.Matrix(None, outputs, inner, limit, scales.input, scales.rescale), scales.quantise_weight(weight)

    def _packed(self, rows: NDArray[Any]) -> int:
        address = self._address(packed_panels(self._native, rows))
        assert address is not None
        return address

    def _address(self, array: NDArray[Any] | None) -> int | None:
        if array is None:
            return None
        self._held.append(array)
        return int(array.ctypes.data)
