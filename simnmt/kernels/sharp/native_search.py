"""The search in C: the structures of native/sharp.h, a model packed for them, and the calls.

The structures mirror native/sharp_model.h, sharp_source.h and sharp.h member by member. A packed model holds its matrices in
panels, its tables, and the memory for one sentence.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.activations import Activation
from simnmt.kernels.arrays import huge_pages
from simnmt.kernels.beam_search import Ints, SharpTranslation, StageSeconds
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import POINTER, REAL, SIZE, NativeLibrary, Signature, declare
from simnmt.kernels.packed_products import choose_scales, packed_panels
from simnmt.kernels.sharp import model as sharp
from simnmt.kernels.sharp.model import Float32, ForcedSteps, SharpWeights
from simnmt.profile.decoder_settings import DecoderSettings

LAYER_KINDS = {"fc_relu": 0, "fc_tanh": 1, "gru": 2, "lstm": 3}
ACTIVATIONS = {activation: number for number, activation in enumerate(get_args(Activation))}
"""Numbers of the activations in simnmt_tanh and simnmt_sigmoid."""
MOST_MEMBERS = 16
"""Most models of an ensemble."""


class Matrix(ctypes.Structure):
    """`sharp_matrix`."""

    _fields_ = (
        ("packed", POINTER),
        *((name, SIZE) for name in ("outputs", "inner")),
        *((name, REAL) for name in ("limit", "scale", "rescale")),
    )


class Layer(ctypes.Structure):
    """`sharp_layer`."""

    _fields_ = (("kind", SIZE), ("width", SIZE), ("skip", SIZE), ("input", Matrix), ("state", Matrix), ("bias", POINTER))


class Model(ctypes.Structure):
    """`sharp_model`."""

    _fields_ = (
        *((name, SIZE) for name in ("vocab", "e", "r", "s", "a", "gates", "top", "layers")),
        *((name, SIZE) for name in ("additive", "int16", "activation", "attention_kept", "merge", "table_words")),
        *((name, Matrix) for name in ("state", "word", "context", "key", "output")),
        *((name, POINTER) for name in ("embedding", "bias", "score", "output_bias", "table", "output_rows", "stack")),
    )


class SourceLayer(ctypes.Structure):
    """`sharp_source_layer`."""

    _fields_ = (
        *((name, SIZE) for name in ("kind", "width")),
        ("input", Matrix),
        ("state", Matrix * 2),
        *((name, POINTER) for name in ("bias", "reset_bias")),
    )


class Source(ctypes.Structure):
    """`sharp_source`."""

    _fields_ = (
        *((name, SIZE) for name in ("vocab", "e", "layers", "int16", "activation", "table_words")),
        *((name, POINTER) for name in ("embedding", "table", "stack")),
    )


class Request(ctypes.Structure):
    """`sharp_request`."""

    _fields_ = (
        *((name, SIZE) for name in ("members", "src_len", "columns", "beam", "max_len")),
        ("ids", POINTER),
        *((name, SIZE) for name in ("start", "eos", "pad", "forced", "fused", "clock")),
        ("margin", ctypes.c_double),
    )


class Result(ctypes.Structure):
    """`sharp_result`."""

    _fields_ = (
        ("log_prob", ctypes.c_double),
        *((name, SIZE) for name in ("length", "steps", "distinct", "hypotheses", "stopped_early")),
        ("seconds", ctypes.c_double * 4),
    )


_MODEL, _SOURCE, _REQUEST = ctypes.POINTER(Model), ctypes.POINTER(Source), ctypes.POINTER(Request)
SIGNATURES: dict[str, Signature] = {
    "simnmt_sharp_member_bytes": (SIZE, _MODEL, SIZE, SIZE, SIZE),
    "simnmt_sharp_beam_bytes": (SIZE, SIZE, SIZE, SIZE),
    "simnmt_sharp_layout": (SIZE, POINTER),
    "simnmt_sharp_fill_table": (None, SIZE, ctypes.POINTER(Matrix), POINTER, SIZE, POINTER, POINTER),
    "simnmt_sharp_source_bytes": (SIZE, _SOURCE, SIZE),
    "simnmt_sharp_encode": (None, _SOURCE, POINTER, SIZE, POINTER, SIZE, POINTER),
    "simnmt_sharp_decode": (SIZE, *[POINTER] * 4, _REQUEST, ctypes.POINTER(Result), POINTER, POINTER),
    "simnmt_sharp_forced": (None, _MODEL, POINTER, POINTER, _REQUEST, POINTER, POINTER, SIZE, POINTER, POINTER),
}
"""Signatures of the decoder's functions."""


def check_layout(cdll: ctypes.CDLL) -> int:
    """Declare the functions' types and return the compiled `ROW_BLOCK`.

    Raises `RuntimeError` if the structures or numbers here differ from the compiled ones.
    """
    declare(cdll, SIGNATURES)
    expected = [ctypes.sizeof(structure) for structure in (Matrix, Layer, Model, Request, Result, Source, SourceLayer)]
    expected += [MOST_MEMBERS, *LAYER_KINDS.values(), *ACTIVATIONS.values()]
    layout = (SIZE * cdll.simnmt_sharp_layout(None))()
    cdll.simnmt_sharp_layout(layout)
    *compiled, row_block = layout
    if compiled != expected:
        raise RuntimeError(f"structures and numbers of the sharp decoder are {expected} in Python and {compiled} in C")
    return int(row_block)


class _Packing:
    """Arrays packed for the native kernels under one settings; holds all arrays that C structures point to."""

    def __init__(self, native: NativeLibrary, settings: DecoderSettings) -> None:
        self.native, self.int16 = native, settings.gemm == "int16"
        self._row_block = check_layout(native.cdll)
        self._held: list[Any] = []

    def matrix(self, weight: Float32, limit: float) -> Matrix:
        """Pack weights [out, in] for inputs up to `limit`."""
        matrix, rows = self.scaled(weight, limit)
        matrix.packed = self.packed(rows)
        return matrix

    def scaled(self, weight: Float32, limit: float) -> tuple[Matrix, NDArray[Any]]:
        """Return a matrix with scales that is not packed yet, and its rows in the product's type (SHARP-05)."""
        outputs, inner = weight.shape
        if not self.int16:
            return Matrix(None, outputs, inner, limit, 1.0, 1.0), weight
        scales = choose_scales(weight, limit)
        return Matrix(None, outputs, inner, limit, scales.input, scales.rescale), scales.quantise_weight(weight)

    def packed(self, rows: NDArray[Any]) -> int:
        """Pack rows [out, in] into panels; return their address."""
        return self.address(packed_panels(self.native, rows)) or 0

    def table(self, matrix: Matrix, embedding: Float32, words: int) -> int | None:
        """Return the address of the matrix' products with the first `words` embeddings (SHARP-06); None for no words."""
        if not words:
            return None
        table = huge_pages(words * matrix.outputs, np.float32)
        rows = np.empty(self._row_block * (matrix.inner + 1), np.float32)
        memory = rows.ctypes.data, table.ctypes.data
        self.native.cdll.simnmt_sharp_fill_table(self.int16, matrix, embedding.ctypes.data, words, *memory)
        return self.address(table)

    def array(self, structures: list[Any], kind: type[ctypes.Structure]) -> int:
        """Return the address of an array of structures."""
        self._held.append((kind * len(structures))(*structures))
        return ctypes.addressof(self._held[-1])

    def address(self, array: NDArray[Any] | None) -> int | None:
        """Return the address of an array and hold the array; None for None."""
        if array is None:
            return None
        self._held.append(array)
        return int(array.ctypes.data)


class CompiledMember:
    """The target side of one model under one settings; holds all arrays that its C structure points to."""

    def __init__(self, weights: SharpWeights, settings: DecoderSettings, native: NativeLibrary, most_src_len: int) -> None:
        self._weights, self._packing = weights, _Packing(native, settings)
        self.cdll = native.cdll
        self.model = self._described(settings)
        self._beam, self._most_src_len = settings.beam, most_src_len
        self._memory: dict[bool, tuple[int, NDArray[Any]]] = {}

    def memory(self, columns: int | None) -> int:
        """Return the address of the memory for a sentence with this number of candidates (None: all words).

        The memory is allocated before the search starts, and again for longer lists of candidates.
        """
        whole, needed = columns is None, columns or 0
        if whole and self.model.output.packed is None:
            self.model.output.packed = self._packing.packed(self._output_rows)
        held = self._memory.get(whole)
        if held is None or held[0] < needed:
            size = self.cdll.simnmt_sharp_member_bytes(self.model, self._beam, self._most_src_len, needed)
            held = self._memory[whole] = (needed, huge_pages(size, np.uint8))
        return int(held[1].ctypes.data)

    def _described(self, settings: DecoderSettings) -> Model:
        packing, weights = self._packing, self._weights
        bottom, attention, limits = weights.bottom, weights.bottom.attention, sharp.input_limits(weights)
        layers = [
            Layer(
                LAYER_KINDS[layer.kind],
                layer.width,
                -1 if skipped is None else skipped,
                packing.matrix(layer.input, limit),
                Matrix() if layer.state is None else packing.matrix(layer.state, 1.0),
                packing.address(layer.bias),
            )
            for layer, limit, skipped in zip(weights.stack, limits[:-1], sharp.skips(weights.stack), strict=True)
        ]
        model = Model(
            vocab=weights.vocab,
            e=weights.embedding.shape[1],
            r=bottom.width,
            s=weights.source_width,
            a=len(attention.state),
            gates=sharp.GATES[bottom.kind],
            top=weights.output.shape[1],
            layers=len(layers),
            additive=attention.form == "additive",
            int16=packing.int16,
            activation=ACTIVATIONS[settings.activations],
            attention_kept=settings.attention == "precomputed",
            merge=settings.merge,
            state=packing.matrix(np.concatenate((bottom.state, attention.state)), 1.0),
            word=packing.matrix(np.concatenate((bottom.word, attention.word)), sharp.embedding_limit(weights.embedding)),
            context=packing.matrix(bottom.context, 1.0),
            key=packing.matrix(attention.key, 1.0),
            embedding=packing.address(weights.embedding),
            bias=packing.address(bottom.bias),
            score=packing.address(attention.score),
            output_bias=packing.address(weights.output_bias),
            stack=packing.array(layers, Layer),
        )
        model.output, self._output_rows = packing.scaled(weights.output, limits[-1])
        odd = packing.int16 and self._output_rows.shape[1] % 2
        model.output_rows = packing.address(np.pad(self._output_rows, ((0, 0), (0, 1))) if odd else self._output_rows)
        model.table_words = sharp.kept_words(settings, weights.vocab)
        model.table = packing.table(model.word, weights.embedding, model.table_words)
        return model


class CompiledSource:
    """The source side of one model under one settings; holds the arrays of its C structure and the memory for one sentence."""

    def __init__(
        self, weights: sharp.SourceWeights, settings: DecoderSettings, native: NativeLibrary, most_src_len: int
    ) -> None:
        packing = _Packing(native, settings)
        self._packing, self._cdll, self._most_src_len = packing, native.cdll, most_src_len
        layers, limit = [], sharp.embedding_limit(weights.embedding)
        for layer in weights.layers:
            sides = layer.forward, layer.backward
            reset = None if layer.kind == "lstm" else np.concatenate([side.reset_bias for side in sides])
            states = (Matrix * 2)(*(packing.matrix(side.state, 1.0) for side in sides))
            biases = packing.address(np.concatenate([side.bias for side in sides])), packing.address(reset)
            fed = packing.matrix(np.concatenate([side.input for side in sides]), limit)
            layers.append(SourceLayer(LAYER_KINDS[layer.kind], layer.width, fed, states, *biases))
            limit = 1.0
        words = sharp.kept_words(settings, weights.vocab)
        self._source = Source(
            weights.vocab,
            weights.embedding.shape[1],
            len(layers),
            packing.int16,
            ACTIVATIONS[settings.activations],
            words,
            packing.address(weights.embedding),
            packing.table(layers[0].input, weights.embedding, words),
            packing.array(layers, SourceLayer),
        )
        self._width = weights.width
        self._memory = huge_pages(native.cdll.simnmt_sharp_source_bytes(self._source, most_src_len), np.uint8)

    def encode(self, words: NDArray[np.int64]) -> Float32:
        """Return the states [src_len, width] of a sentence, whose words the caller has checked."""
        states, memory = np.empty((len(words), self._width), np.float32), self._memory.ctypes.data
        sentence = words.ctypes.data, len(words), states.ctypes.data
        self._cdll.simnmt_sharp_encode(self._source, memory, self._most_src_len, *sentence)
        return states


def compiled_decode(
    members: Sequence[CompiledMember], sources: Sequence[Float32], request: sharp.SearchRequest
) -> SharpTranslation:
    """Decode as `reference_decode` does; all memory is allocated before the search begins (SHARP-01)."""
    cdll, steps = members[0].cdll, request.steps
    call, columns = _request(request.tokens, members[0], sources[0], request.candidates)
    call.members, call.beam, call.max_len, call.margin = len(members), request.beam, steps, request.stop_margin
    call.forced, call.fused, call.clock = request.forced, request.fused, request.clock
    mixture = request.beam * call.columns if len(members) > 1 else 0
    beam_memory = np.empty(cdll.simnmt_sharp_beam_bytes(request.beam, steps, mixture), np.uint8)
    pointers = ctypes.c_void_p * len(members)
    memory = pointers(*(member.memory(columns) for member in members))
    models = pointers(*(ctypes.addressof(member.model) for member in members))
    states = pointers(*(source.ctypes.data for source in sources))
    result, words, attended = Result(), np.empty(steps, np.int64), np.empty(steps, np.int64)
    tokens = words.ctypes.data, attended.ctypes.data
    if not cdll.simnmt_sharp_decode(models, memory, beam_memory.ctypes.data, states, call, result, *tokens):
        raise KernelError("no word of the candidates may be chosen")
    return SharpTranslation(
        tuple(words[: result.length].tolist()),
        result.log_prob,
        tuple(attended[: result.length].tolist()),
        result.steps,
        result.distinct / result.hypotheses,
        bool(result.stopped_early),
        StageSeconds(*result.seconds) if request.clock else None,
    )


def compiled_forced(
    member: CompiledMember, source: Float32, tokens: sharp.SharpTokens, words: Ints, places: Ints, candidates: Ints | None
) -> ForcedSteps:
    """Return the result of `reference_forced`; `places`: the words' columns among the candidates."""
    request, columns = _request(tokens, member, source, candidates)
    request.members = request.beam = 1
    best, log_probs = np.empty(len(words), np.int64), np.empty(len(words), np.float32)
    given = words.ctypes.data, places.ctypes.data, len(words)
    results, states = (best.ctypes.data, log_probs.ctypes.data), source.ctypes.data
    member.cdll.simnmt_sharp_forced(member.model, member.memory(columns), states, request, *given, *results)
    return ForcedSteps(best, log_probs)


def _request(
    tokens: sharp.SharpTokens, member: CompiledMember, source: Float32, candidates: Ints | None
) -> tuple[Request, int | None]:
    """Return the C request of a sentence, and its number of candidates (None: all words)."""
    columns, ids = (None, None) if candidates is None else (len(candidates), candidates.ctypes.data)
    width, special = member.model.vocab if columns is None else columns, (tokens.start, tokens.eos, tokens.pad)
    return Request(0, len(source), width, 0, 0, ids, *special), columns
