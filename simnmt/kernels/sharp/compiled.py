"""A model packed for C: its matrices in panels, its tables, and the memory that one sentence takes."""

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
from simnmt.kernels.sharp.weights import (
    GATES,
    Float32,
    SharpWeights,
    SourceWeights,
    embedding_limit,
    input_limits,
    kept_words,
    skips,
)


class _Packing:
    """Arrays laid out for the native kernels under one settings; holds all that C structures point to."""

    def __init__(self, native: NativeLibrary, settings: DecoderSettings) -> None:
        self.native, self.int16 = native, settings.gemm == "int16"
        self._row_block = structs.declare(native.cdll)
        self._held: list[Any] = []

    def matrix(self, weight: Float32, limit: float) -> structs.Matrix:
        """Weights [out, in], packed, for inputs up to `limit`."""
        matrix, rows = self.scaled(weight, limit)
        matrix.packed = self.packed(rows)
        return matrix

    def scaled(self, weight: Float32, limit: float) -> tuple[structs.Matrix, NDArray[Any]]:
        """The scales of a matrix that is not packed yet, and its rows in the product's type (SHARP-05)."""
        outputs, inner = weight.shape
        if not self.int16:
            return structs.Matrix(None, outputs, inner, limit, 1.0, 1.0), weight
        scales = choose_scales(weight, limit)
        return structs.Matrix(None, outputs, inner, limit, scales.input, scales.rescale), scales.quantise_weight(weight)

    def packed(self, rows: NDArray[Any]) -> int:
        """Address of rows [out, in] in panels."""
        address = self.address(packed_panels(self.native, rows))
        assert address is not None
        return address

    def table(self, matrix: structs.Matrix, embedding: Float32, words: int) -> int | None:
        """Address of the matrix' products with the first `words` embeddings (SHARP-06); None for no words."""
        if not words:
            return None
        table = huge_pages(words * matrix.outputs, np.float32)
        rows = np.empty(self._row_block * (matrix.inner + 1), np.float32)
        self.native.cdll.simnmt_sharp_fill_table(
            self.int16, matrix, embedding.ctypes.data, words, rows.ctypes.data, table.ctypes.data
        )
        return self.address(table)

    def array(self, structures: list[Any], kind: type[ctypes.Structure]) -> int:
        """Address of structures one after the other."""
        together = (kind * len(structures))(*structures)
        self._held.append(together)
        return ctypes.addressof(together)

    def address(self, array: NDArray[Any] | None) -> int | None:
        """Of an array that is held from now on; None for None."""
        if array is None:
            return None
        self._held.append(array)
        return int(array.ctypes.data)


class CompiledMember:
    """One model's target side under one settings; holds all that its C structure points to."""

    def __init__(self, weights: SharpWeights, settings: DecoderSettings, native: NativeLibrary, most_src_len: int) -> None:
        self._weights, self._packing = weights, _Packing(native, settings)
        self.cdll = native.cdll
        self.model = self._described(settings)
        self._beam, self._most_src_len = settings.beam, most_src_len
        self._memory: dict[bool, tuple[int, NDArray[Any]]] = {}

    def memory(self, columns: int | None) -> int:
        """Address of memory enough for a sentence, so many candidates among it; None: all words.

        Set aside before the search begins: for longer lists of candidates anew.
        """
        whole, asked = columns is None, columns or 0
        if whole and self.model.output.packed is None:
            self.model.output.packed = self._packing.packed(self._output_rows)
        held = self._memory.get(whole)
        if held is None or held[0] < asked:
            size = self.cdll.simnmt_sharp_member_bytes(self.model, self._beam, self._most_src_len, asked)
            held = self._memory[whole] = (asked, huge_pages(size, np.uint8))
        return int(held[1].ctypes.data)

    def _described(self, settings: DecoderSettings) -> structs.Model:
        packing, weights = self._packing, self._weights
        bottom, attention = weights.bottom, weights.bottom.attention
        word_limit = embedding_limit(weights.embedding)
        limits = input_limits(weights)
        layers = [
            structs.Layer(
                structs.LAYER_KINDS[layer.kind],
                layer.width,
                -1 if skipped is None else skipped,
                packing.matrix(layer.input, limit),
                structs.Matrix() if layer.state is None else packing.matrix(layer.state, 1.0),
                packing.address(layer.bias),
            )
            for layer, limit, skipped in zip(weights.stack, limits[:-1], skips(weights.stack), strict=True)
        ]
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
            int16=packing.int16,
            activation=structs.ACTIVATIONS[settings.activations],
            attention_kept=settings.attention == "precomputed",
            merge=settings.merge,
            state=packing.matrix(np.concatenate((bottom.state, attention.state)), 1.0),
            word=packing.matrix(np.concatenate((bottom.word, attention.word)), word_limit),
            context=packing.matrix(bottom.context, 1.0),
            key=packing.matrix(attention.key, 1.0),
            embedding=packing.address(weights.embedding),
            bias=packing.address(bottom.bias),
            score=packing.address(attention.score),
            output_bias=packing.address(weights.output_bias),
            stack=packing.array(layers, structs.Layer),
        )
        model.output, rows = packing.scaled(weights.output, limits[-1])
        self._output_rows = rows
        odd = packing.int16 and rows.shape[1] % 2
        model.output_rows = packing.address(np.pad(rows, ((0, 0), (0, 1))) if odd else rows)
        model.table_words = kept_words(settings, weights.vocab)
        model.table = packing.table(model.word, weights.embedding, model.table_words)
        return model


class CompiledSource:
    """One model's source side under one settings; holds all that its C structure points to, and memory for one sentence."""

    def __init__(self, weights: SourceWeights, settings: DecoderSettings, native: NativeLibrary, most_src_len: int) -> None:
        packing = _Packing(native, settings)
        self._packing, self._cdll, self._most_src_len = packing, native.cdll, most_src_len
        layers, limit = [], embedding_limit(weights.embedding)
        for layer in weights.layers:
            both = layer.forward, layer.backward
            reset = None if layer.kind == "lstm" else np.concatenate([side.reset_bias for side in both])
            layers.append(
                structs.SourceLayer(
                    structs.LAYER_KINDS[layer.kind],
                    layer.width,
                    packing.matrix(np.concatenate([side.input for side in both]), limit),
                    (structs.Matrix * 2)(*(packing.matrix(side.state, 1.0) for side in both)),
                    packing.address(np.concatenate([side.bias for side in both])),
                    packing.address(reset),
                )
            )
            limit = 1.0
        words = kept_words(settings, weights.vocab)
        self._source = structs.Source(
            weights.vocab,
            weights.embedding.shape[1],
            len(layers),
            packing.int16,
            structs.ACTIVATIONS[settings.activations],
            words,
            packing.address(weights.embedding),
            packing.table(layers[0].input, weights.embedding, words),
            packing.array(layers, structs.SourceLayer),
        )
        self._width = weights.width
        self._memory = huge_pages(native.cdll.simnmt_sharp_source_bytes(self._source, most_src_len), np.uint8)

    def encode(self, words: NDArray[np.int64]) -> Float32:
        """States [src_len, width] of a sentence, whose words the caller has checked."""
        states = np.empty((len(words), self._width), np.float32)
        self._cdll.simnmt_sharp_encode(
            self._source, self._memory.ctypes.data, self._most_src_len, words.ctypes.data, len(words), states.ctypes.data
        )
        return states
