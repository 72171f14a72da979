"""The sharp decoder and its source encoder: one model with the techniques of its settings, in C (SHARP-01, SHARP-16).

The paper's words per second include the source side, so the decoder's techniques apply there too: 16-bit products (SHARP-05),
kept products of source embeddings (SHARP-06), activations by table or polynomial (SHARP-08). Input products are computed for
all positions of a layer at once in every variant. Kept attention and merged states have no counterpart there. The structures of
`native/sharp.c` are read from its header and filled by name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.base.compile import KERNEL_LIBRARY, c_declarations
from simnmt.kernels import sharp_model as sharp
from simnmt.kernels.beam_search import Ints, SharpTranslation, StageSeconds
from simnmt.kernels.native_library import KernelError, checked, checked_out, compiled, huge_pages
from simnmt.kernels.packed_products import PackedMatrix, choose_scales, even_rows, packed_panels
from simnmt.kernels.sharp_model import Float32, ForcedSteps, Layer, SharpWeights, SourceWeights
from simnmt.profile.decoder_settings import DecoderSettings

c = c_declarations(KERNEL_LIBRARY.folder / "sharp_model.h")
Activation = Literal["library", "table", "polynomial"]
MOST_MEMBERS = 16
"""Most models of an ensemble; `SHARP_MOST_MEMBERS` in sharp.c."""
_TABLE_ROWS = 1_024
"""Words whose products are made together."""


class _Packed:
    """A side of a model packed under one settings; holds all arrays that its C structure points to, and its memory."""

    def __init__(self, settings: DecoderSettings) -> None:
        self.kernels, self.settings, self._int16 = compiled(), settings, settings.gemm == "int16"
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
        kept, vocab = self.settings.embeddings, len(embedding)
        words = vocab if kept == "precomputed" else min(self.settings.frequent_words, vocab) if kept == "frequent" else 0
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


class SharpDecoder(_Packed):
    """Beam search of one sentence at a time on one thread (SHARP-01); each thread needs its own decoder.

    `settings` gives `beam`, `fused`, `gemm` (None: float32), `embeddings`, `frequent_words`, `attention`, `activations` and
    `merge`; the caller gives each sentence's `candidates`. Weights are packed once, here.
    """

    def __init__(self, weights: SharpWeights, settings: DecoderSettings, *, max_len: int, stop_margin: float = 3.0) -> None:
        """Pack weights. Raises `KernelError` without compiled kernels."""
        super().__init__(settings)
        self.weights, self.max_len, self.stop_margin = weights, max_len, stop_margin
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

    def decode(
        self, source_states: Float32, candidates: Ints | None = None, forced_len: int | None = None, *, clock: bool = False
    ) -> SharpTranslation:
        """Translate one sentence; arguments as in `decode_ensemble`."""
        return decode_ensemble([self], [source_states], candidates, forced_len, clock=clock)

    def forced(self, source_states: Float32, tokens: Sequence[int] | Ints) -> ForcedSteps:
        """Follow a given translation (SHARP-10); only padding is banned."""
        words = np.ascontiguousarray(tokens, np.int64)
        sharp.check_words(words, self.weights.vocab)
        best, log_probs = np.empty(len(words), np.int64), np.empty(len(words), np.float32)
        call = _call([self], [source_states], beam=1, steps=len(words))
        call.words, call.best, call.log_probs = words.ctypes.data, best.ctypes.data, log_probs.ctypes.data
        self.kernels.simnmt_sharp_forced(ctypes.byref(call))
        return ForcedSteps(best, log_probs)


class SourceEncoder(_Packed):
    """Encodes one sentence at a time on one thread; each thread needs its own encoder.

    `settings` gives `gemm` (None: float32), `embeddings`, `frequent_words` and `activations`. Weights are packed once, here.

    Example:
        >>> encoder = SourceEncoder(weights, DecoderSettings(gemm="int16"))
        >>> encoder.encode([17, 4, 3]).shape
        (3, 1024)
    """

    def __init__(self, weights: SourceWeights, settings: DecoderSettings) -> None:
        """Pack weights. Raises `KernelError` without compiled kernels."""
        super().__init__(settings)
        layers, tables, limit = [], dict[str, Any](), sharp.embedding_limit(weights.embedding)
        for sides in weights.layers:
            fed = self._matrix(np.concatenate([side.input for side in sides]), limit)
            tables = tables or self._table(weights.embedding)
            layers += [self._layer(side, fed) for side in sides]
            limit = 1.0
        self._source = c.sharp_source(layers=len(weights.layers), **tables, **self._stack(layers), **self._common)
        self._weights = weights

    def encode(self, words: Sequence[int] | Ints) -> Float32:
        """Return the states of a sentence, [src_len, width] float32 within [-1, 1].

        Raises `KernelError` for a sentence without words, or with a word outside the vocabulary.
        """
        ids = np.ascontiguousarray(words, np.int64)
        sharp.check_words(ids, self._weights.vocab)
        states, source = np.empty((len(ids), self._weights.width), np.float32), ctypes.byref(self._source)
        memory = self.memory(self.kernels.simnmt_sharp_source_bytes(source, len(ids)))
        self.kernels.simnmt_sharp_encode(source, memory, len(ids), ids.ctypes.data, len(ids), states.ctypes.data)
        return states


def decode_ensemble(
    decoders: Sequence[SharpDecoder],
    source_states: Sequence[Float32],
    candidates: Ints | None = None,
    forced_len: int | None = None,
    *,
    max_len: int | None = None,
    clock: bool = False,
) -> SharpTranslation:
    """Translate one sentence by different decoders of one vocabulary and one `settings`, each with its own source states.

    Their distributions are averaged arithmetically over one shared beam (SHARP-14), as is their attention for `attended`. All
    memory is allocated before the search begins (SHARP-01).

    Args:
        decoders: at most `MOST_MEMBERS`; the `stop_margin` and `max_len` of the first hold.
        source_states: [src_len, s] float32, of each decoder.
        candidates: words that may be chosen, int64 (SHARP-02); None: all. Not checked: each is there once, and the end token.
        forced_len: exact number of steps, without the end token, for timing.
        max_len: most steps for this sentence alone.
        clock: also return `StageSeconds`.

    Raises `KernelError` for arrays that no search could use.
    """
    settings, forced = decoders[0].settings, forced_len is not None
    steps = forced_len if forced_len is not None else decoders[0].max_len if max_len is None else max_len
    if steps < 1:
        raise KernelError(f"{steps} steps: 1 is the least")
    tokens, attended = np.empty(steps, np.int64), np.empty(steps, np.int64)
    asked = {"beam": settings.beam, "steps": steps, "forced": forced, "fused": settings.fused, "clock": clock}
    call = _call(decoders, source_states, candidates, **asked)
    call.tokens, call.attended = tokens.ctypes.data, attended.ctypes.data
    if not decoders[0].kernels.simnmt_sharp_decode(ctypes.byref(call)):
        raise KernelError("no word of the candidates may be chosen")
    return SharpTranslation(
        tuple(tokens[: call.length].tolist()),
        call.log_prob,
        tuple(attended[: call.length].tolist()),
        call.taken,
        call.distinct / call.hypotheses,
        bool(call.stopped_early),
        StageSeconds(*call.seconds) if clock else None,
    )


def _call(decoders: Sequence[SharpDecoder], states: Sequence[Float32], ids: Ints | None = None, **asked: int) -> Any:
    """Return the C structure of one sentence, with its memory; `asked`: further fields."""
    first, pointers = decoders[0], ctypes.c_void_p * len(decoders)
    if len(decoders) > MOST_MEMBERS:
        raise KernelError(f"an ensemble has at most {MOST_MEMBERS} decoders, not {len(decoders)}")
    for decoder, source in zip(decoders, states, strict=True):
        if not len(checked("source_states", source, np.float32, (None, decoder.model.s))):
            raise KernelError("source_states hold no word")
        if len(source) != len(states[0]) or decoder.weights.vocab != first.weights.vocab:
            raise KernelError("decoders of an ensemble have one vocabulary, and states of one sentence")
        if ids is None:
            decoder.pack_all_words()
    if ids is not None:
        sharp.check_words(checked("candidates", ids, np.int64, (None,)), first.weights.vocab)
    models = pointers(*(ctypes.addressof(decoder.model) for decoder in decoders))
    sources = pointers(*(source.ctypes.data for source in states))
    call = c.sharp_call(
        members=len(decoders),
        src_len=len(states[0]),
        columns=first.weights.vocab if ids is None else len(ids),
        margin=first.stop_margin,
        models=ctypes.addressof(models),
        sources=ctypes.addressof(sources),
        ids=None if ids is None else ids.ctypes.data,
        **first.weights.tokens._asdict(),
        **asked,
    )
    call.held = models, sources
    call.memory = first.memory(first.kernels.simnmt_sharp_bytes(ctypes.byref(call)))
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
