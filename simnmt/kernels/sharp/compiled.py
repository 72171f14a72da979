"""The search and the source side in C: a model packed for `native/sharp.c`, whose structures are read from its header."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.base.compile import KERNEL_LIBRARY, c_declarations
from simnmt.kernels.arrays import KernelError, checked, checked_out, huge_pages
from simnmt.kernels.beam_search import Ints, SharpTranslation, StageSeconds
from simnmt.kernels.native_library import compiled
from simnmt.kernels.packed_products import PackedMatrix, choose_scales, even_rows, packed_panels
from simnmt.kernels.sharp import model as sharp
from simnmt.kernels.sharp.model import Float32, ForcedSteps, Layer, SearchRequest, SharpWeights, SourceWeights
from simnmt.profile.decoder_settings import DecoderSettings

c = c_declarations(KERNEL_LIBRARY.folder / "sharp_model.h")
Activation = Literal["library", "table", "polynomial"]
MOST_MEMBERS = 16
"""Most models of an ensemble; `SHARP_MOST_MEMBERS` in sharp.c."""
_TABLE_ROWS = 1_024
"""Words whose products are made together."""


class _Packed:
    """A side of a model packed under one settings; holds all arrays that its C structure points to, and its memory."""

    def __init__(self, kernels: ctypes.CDLL, settings: DecoderSettings) -> None:
        self.kernels, self._settings, self._int16 = kernels, settings, settings.gemm == "int16"
        self._common = {"int16": self._int16, "activation": get_args(Activation).index(settings.activations)}
        self._held: list[Any] = []
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)

    def memory(self, size: int) -> int:
        """Return the address of memory of at least this size, which lasts until a larger one is asked for."""
        if self._memory.size < size:
            self._memory = huge_pages(size, np.uint8)
        return int(self._memory.ctypes.data)

    def _matrix(self, weight: Float32 | None, limit: float = 1.0) -> Any:
        """Pack weights [out, in] for inputs up to `limit`; an empty structure for None."""
        if weight is None:
            return c.sharp_matrix()
        packed = PackedMatrix(weight, limit if self._int16 else None)
        self._held.append(packed)
        scales = (1.0, 1.0) if packed.scales is None else (packed.scales.input, packed.scales.rescale)
        return c.sharp_matrix(packed.address, packed.outputs, packed.inner, limit, *scales)

    def _table(self, embedding: Float32) -> dict[str, Any]:
        """Return the products of the kept words with the matrix that was packed last (SHARP-06), and their number."""
        kept, vocab = self._settings.embeddings, len(embedding)
        words = vocab if kept == "precomputed" else min(self._settings.frequent_words, vocab) if kept == "frequent" else 0
        matrix = self._held[-1]
        table = huge_pages(words * matrix.outputs, np.float32).reshape(words, matrix.outputs)
        for first in range(0, words, _TABLE_ROWS):
            part = slice(first, min(first + _TABLE_ROWS, words))
            matrix.multiply(embedding[part], table[part])
        return {"table": self._address(table), "table_words": words, "embedding": self._address(embedding)}

    def _layer(self, layer: Layer, fed: Any, skips: bool = False) -> Any:
        biases = map(self._address, (layer.bias, layer.reset_bias))
        number = getattr(c, f"SHARP_{layer.kind.upper()}")
        return c.sharp_layer(number, layer.width, skips, fed, self._matrix(layer.state), *biases)

    def _stack(self, layers: Sequence[Any]) -> dict[str, Any]:
        self._held.append((c.sharp_layer * len(layers))(*layers))
        return {"stack": ctypes.addressof(self._held[-1])}

    def _address(self, array: NDArray[Any] | None) -> int | None:
        self._held.append(array)
        return None if array is None else int(array.ctypes.data)


class CompiledMember(_Packed):
    """The target side of one model under one settings."""

    def __init__(self, weights: SharpWeights, settings: DecoderSettings, kernels: ctypes.CDLL) -> None:
        super().__init__(kernels, settings)
        limits = weights.input_limits()
        layers = [
            self._layer(layer, self._matrix(layer.input, limit), skipped is not None)
            for layer, limit, skipped in zip(weights.stack, limits[:-1], weights.skips(), strict=True)
        ]
        self.model = c.sharp_model(
            vocab=weights.vocab,
            r=weights.width,
            s=weights.context.shape[1],
            a=len(weights.key),
            gates=sharp.GATES[weights.cell],
            layers=len(layers),
            additive=weights.score is not None,
            attention_kept=settings.attention == "precomputed",
            merge=settings.merge,
            word=self._matrix(weights.word, sharp.embedding_limit(weights.embedding)),
            **self._table(weights.embedding),
            state=self._matrix(weights.state),
            context=self._matrix(weights.context),
            key=self._matrix(weights.key),
            bias=self._address(weights.bias),
            score=self._address(weights.score),
            output_bias=self._address(weights.output_bias),
            **self._stack(layers),
            **self._common,
        )
        # Rows of the output layer, from which the candidates of each sentence are packed.
        output = weights.output
        scales = choose_scales(output, limits[-1]) if self._int16 else None
        factors = (1.0, 1.0) if scales is None else (scales.input, scales.rescale)
        self._output_rows = even_rows(output if scales is None else scales.quantise_weight(output))
        self.model.output = c.sharp_matrix(None, *output.shape, limits[-1], *factors)
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
        for sides in weights.layers:
            fed = self._matrix(np.concatenate([side.input for side in sides]), limit)
            tables = tables or self._table(weights.embedding)
            layers += [self._layer(side, fed) for side in sides]
            limit = 1.0
        self._source = c.sharp_source(layers=len(weights.layers), **tables, **self._stack(layers), **self._common)
        self._width = weights.width

    def encode(self, words: Ints) -> Float32:
        """Return the states [src_len, width] of a sentence, whose words the caller has checked."""
        states, source = np.empty((len(words), self._width), np.float32), ctypes.byref(self._source)
        memory = self.memory(self.kernels.simnmt_sharp_source_bytes(source, len(words)))
        self.kernels.simnmt_sharp_encode(source, memory, len(words), words.ctypes.data, len(words), states.ctypes.data)
        return states


def compiled_decode(members: Sequence[CompiledMember], sources: Sequence[Float32], request: SearchRequest) -> SharpTranslation:
    """Decode as `reference_decode` does; all memory is allocated before the search begins (SHARP-01)."""
    tokens, attended = np.empty(request.steps, np.int64), np.empty(request.steps, np.int64)
    call = _call(members, sources, request, tokens=tokens, attended=attended)
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


def compiled_forced(member: CompiledMember, source: Float32, request: SearchRequest, words: Ints) -> ForcedSteps:
    """Return the result of `reference_forced`."""
    best, log_probs = np.empty(len(words), np.int64), np.empty(len(words), np.float32)
    call = _call([member], [source], request, words=words, places=words, best=best, log_probs=log_probs)
    member.kernels.simnmt_sharp_forced(ctypes.byref(call))
    return ForcedSteps(best, log_probs)


def _call(members: Sequence[CompiledMember], sources: Sequence[Float32], request: SearchRequest, **arrays: NDArray[Any]) -> Any:
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
        **{name: array.ctypes.data for name, array in arrays.items()},
    )
    call.held = models, states
    call.memory = members[0].memory(members[0].kernels.simnmt_sharp_bytes(ctypes.byref(call)))
    return call


def activate(function: Literal["tanh", "sigmoid"], x: Float32, method: Activation, out: Float32 | None = None) -> Float32:
    """Return tanh or sigmoid of each element of an array of any shape; in place if `out` is `x` (SHARP-08). NaN stays NaN.

    The table has 4096 intervals on [-8, 8] and is constant beyond. Raises `KernelError` for a wrong array, and without compiled
    kernels.
    """
    checked("x", x, np.float32, (None,) * np.ndim(x))
    out, kernels = checked_out("out", out, x.shape), compiled()
    kernel = kernels.simnmt_tanh if function == "tanh" else kernels.simnmt_sigmoid
    kernel(x.ctypes.data, x.size, get_args(Activation).index(method), out.ctypes.data)
    return out
