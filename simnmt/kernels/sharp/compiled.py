"""The search and the source side in C: a model packed for `native/sharp.c`, whose structures are read from its header."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.base.compile import KERNEL_LIBRARY, c_declarations
from simnmt.kernels.activations import Activation
from simnmt.kernels.arrays import KernelError, huge_pages
from simnmt.kernels.beam_search import Ints, SharpTranslation, StageSeconds
from simnmt.kernels.packed_products import PackedMatrix, choose_scales, even_rows, packed_panels
from simnmt.kernels.sharp import model as sharp
from simnmt.kernels.sharp.model import Float32, ForcedSteps, SearchRequest, SharpWeights, SourceWeights
from simnmt.profile.decoder_settings import DecoderSettings

c = c_declarations(KERNEL_LIBRARY.folder / "sharp_model.h")
ACTIVATIONS = {activation: number for number, activation in enumerate(get_args(Activation))}
MOST_MEMBERS = 16
"""Most models of an ensemble; `SHARP_MOST_MEMBERS` in sharp.c."""
_TABLE_ROWS = 1_024
"""Words whose products are made together."""


class _Packed:
    """A side of a model packed under one settings; holds all arrays that its C structure points to, and its memory."""

    def __init__(self, kernels: ctypes.CDLL, settings: DecoderSettings) -> None:
        self.kernels, self._settings = kernels, settings
        self._int16 = settings.gemm == "int16"
        self._common = {"int16": self._int16, "activation": ACTIVATIONS[settings.activations]}
        self._held: list[Any] = []
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)

    def memory(self, size: int) -> int:
        """Return the address of memory of at least this size, which lasts until a larger one is asked for."""
        if self._memory.size < size:
            self._memory = huge_pages(size, np.uint8)
        return int(self._memory.ctypes.data)

    def _matrix(self, weight: Float32, limit: float) -> Any:
        """Pack weights [out, in] for inputs up to `limit`."""
        packed = PackedMatrix.of(weight, limit if self._int16 else None)
        self._held.append(packed)
        scales = (1.0, 1.0) if packed.scales is None else (packed.scales.input, packed.scales.rescale)
        return c.sharp_matrix(packed.address, packed.outputs, packed.inner, limit, *scales)

    def _table(self, embedding: Float32) -> dict[str, Any]:
        """Return the products of the kept words with the matrix that was packed last (SHARP-06), and their number."""
        matrix, words = self._held[-1], sharp.kept_words(self._settings, len(embedding))
        table = huge_pages(words * matrix.outputs, np.float32).reshape(words, matrix.outputs)
        for first in range(0, words, _TABLE_ROWS):
            part = slice(first, min(first + _TABLE_ROWS, words))
            matrix.multiply(embedding[part], table[part])
        return {"table": self._address(table), "table_words": words, "embedding": self._address(embedding)}

    def _layers(self, layers: Sequence[Any]) -> dict[str, Any]:
        self._held.append((c.sharp_layer * len(layers))(*layers))
        return {"stack": ctypes.addressof(self._held[-1])}

    def _address(self, array: NDArray[Any] | None) -> int | None:
        self._held.append(array)
        return None if array is None else int(array.ctypes.data)


class CompiledMember(_Packed):
    """The target side of one model under one settings."""

    def __init__(self, weights: SharpWeights, settings: DecoderSettings, kernels: ctypes.CDLL) -> None:
        super().__init__(kernels, settings)
        bottom, attention, limits = weights.bottom, weights.bottom.attention, sharp.input_limits(weights)
        layers = [
            c.sharp_layer(
                getattr(c, f"SHARP_{layer.kind.upper()}"),
                layer.width,
                skipped is not None,
                self._matrix(layer.input, limit),
                c.sharp_matrix() if layer.state is None else self._matrix(layer.state, 1.0),
                self._address(layer.bias),
            )
            for layer, limit, skipped in zip(weights.stack, limits[:-1], sharp.skips(weights.stack), strict=True)
        ]
        word = self._matrix(np.concatenate((bottom.word, attention.word)), sharp.embedding_limit(weights.embedding))
        self.model = c.sharp_model(
            vocab=weights.vocab,
            r=bottom.width,
            s=weights.source_width,
            a=len(attention.state),
            gates=sharp.GATES[bottom.kind],
            layers=len(layers),
            additive=attention.form == "additive",
            attention_kept=settings.attention == "precomputed",
            merge=settings.merge,
            word=word,
            **self._table(weights.embedding),
            state=self._matrix(np.concatenate((bottom.state, attention.state)), 1.0),
            context=self._matrix(bottom.context, 1.0),
            key=self._matrix(attention.key, 1.0),
            bias=self._address(bottom.bias),
            score=self._address(attention.score),
            output_bias=self._address(weights.output_bias),
            **self._layers(layers),
            **self._common,
        )
        self._describe_output(weights.output, limits[-1])

    def _describe_output(self, weight: Float32, limit: float) -> None:
        """Hold the rows of the output layer, from which the candidates of each sentence are packed."""
        scales = choose_scales(weight, limit) if self._int16 else None
        factors = (1.0, 1.0) if scales is None else (scales.input, scales.rescale)
        self._output_rows = even_rows(weight if scales is None else scales.quantise_weight(weight))
        self.model.output = c.sharp_matrix(None, *weight.shape, limit, *factors)
        self.model.output_rows = self._address(self._output_rows)

    def pack_all_words(self) -> None:
        """Pack the whole output layer, unless it is packed."""
        if not self.model.output.packed:
            self.model.output.packed = self._address(packed_panels(self.kernels, self._output_rows))


class CompiledSource(_Packed):
    """The source side of one model under one settings."""

    def __init__(self, weights: SourceWeights, settings: DecoderSettings, kernels: ctypes.CDLL) -> None:
        super().__init__(kernels, settings)
        layers, tables, limit = [], dict[str, Any](), sharp.embedding_limit(weights.embedding)
        for layer in weights.layers:
            sides = layer.forward, layer.backward
            fed = self._matrix(np.concatenate([side.input for side in sides]), limit)
            tables = tables or self._table(weights.embedding)
            for side in sides:
                kind, biases = getattr(c, f"SHARP_{layer.kind.upper()}"), map(self._address, (side.bias, side.reset_bias))
                layers.append(c.sharp_layer(kind, layer.width, False, fed, self._matrix(side.state, 1.0), *biases))
            limit = 1.0
        self._source = c.sharp_source(layers=len(weights.layers), **tables, **self._layers(layers), **self._common)
        self._width = weights.width

    def encode(self, words: NDArray[np.int64]) -> Float32:
        """Return the states [src_len, width] of a sentence, whose words the caller has checked."""
        states, source = np.empty((len(words), self._width), np.float32), ctypes.byref(self._source)
        memory = self.memory(self.kernels.simnmt_sharp_source_bytes(source, len(words)))
        self.kernels.simnmt_sharp_encode(source, memory, len(words), words.ctypes.data, len(words), states.ctypes.data)
        return states


def compiled_decode(members: Sequence[CompiledMember], sources: Sequence[Float32], request: SearchRequest) -> SharpTranslation:
    """Decode as `reference_decode` does; all memory is allocated before the search begins (SHARP-01)."""
    tokens, attended = np.empty(request.steps, np.int64), np.empty(request.steps, np.int64)
    call = _call(members, sources, request, tokens=tokens.ctypes.data, attended=attended.ctypes.data)
    if not members[0].kernels.simnmt_sharp_decode(ctypes.byref(call)):
        raise KernelError("no word of the candidates may be chosen")
    return SharpTranslation(
        tuple(tokens[: call.length].tolist()),
        call.log_prob,
        tuple(attended[: call.length].tolist()),
        call.taken,
        call.distinct / call.hypotheses,
        bool(call.stopped_early),
        StageSeconds(*call.seconds) if request.clock else None,
    )


def compiled_forced(member: CompiledMember, source: Float32, request: SearchRequest, words: Ints, places: Ints) -> ForcedSteps:
    """Return the result of `reference_forced`."""
    best, log_probs = np.empty(len(words), np.int64), np.empty(len(words), np.float32)
    arrays: dict[str, NDArray[Any]] = {"words": words, "places": places, "best": best, "log_probs": log_probs}
    call = _call([member], [source], request, **{name: array.ctypes.data for name, array in arrays.items()})
    member.kernels.simnmt_sharp_forced(ctypes.byref(call))
    return ForcedSteps(best, log_probs)


def _call(members: Sequence[CompiledMember], sources: Sequence[Float32], request: SearchRequest, **arrays: int) -> Any:
    """Return the C structure of one sentence, with its memory."""
    ids, tokens, pointers = request.candidates, request.tokens, ctypes.c_void_p * len(members)
    if ids is None:
        for member in members:
            member.pack_all_words()
    models = pointers(*(ctypes.addressof(member.model) for member in members))
    states = pointers(*(source.ctypes.data for source in sources))
    call = c.sharp_call(
        members=len(members),
        src_len=len(sources[0]),
        columns=members[0].model.vocab if ids is None else len(ids),
        beam=request.beam,
        steps=request.steps,
        start=tokens.start,
        eos=tokens.eos,
        pad=tokens.pad,
        forced=request.forced,
        fused=request.fused,
        clock=request.clock,
        margin=request.stop_margin,
        models=ctypes.addressof(models),
        sources=ctypes.addressof(states),
        ids=None if ids is None else ids.ctypes.data,
        **arrays,
    )
    call.held = models, states
    call.memory = members[0].memory(members[0].kernels.simnmt_sharp_bytes(ctypes.byref(call)))
    return call
