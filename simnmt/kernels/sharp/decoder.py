"""The sharp decoder: one model, written as its settings say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.errors import KernelError
from simnmt.kernels.sharp.arithmetic import arithmetic
from simnmt.kernels.sharp.reference import reference_decode, reference_forced
from simnmt.kernels.sharp.reference_member import ReferenceMember
from simnmt.kernels.sharp.translation import ForcedSteps, SharpTranslation
from simnmt.kernels.sharp.weights import Float32, SharpWeights

Ints = NDArray[np.int64]


class SharpDecoder:
    """Beam search of one sentence at a time, on one thread (SHARP-01). One decoder serves one thread.

    Of `settings`, `beam`, `fused`, `gemm` (None: float32), `embeddings`, `frequent_words`, `attention`, `activations` and
    `merge` say how; `candidates` is the caller's, who hands each sentence its list. Weights are packed here, once.

    Raises `KernelError` where a sentence may be longer than memory was set aside for, and for arrays of a wrong kind.
    """

    def __init__(
        self,
        weights: SharpWeights,
        settings: DecoderSettings,
        *,
        max_len: int,
        most_src_len: int,
        stop_margin: float = 3.0,
    ) -> None:
        if max_len < 1 or most_src_len < 1:
            raise KernelError("max_len and most_src_len: wanted at least 1 each")
        self.weights, self.settings = weights, settings
        self.max_len, self.most_src_len, self.stop_margin = max_len, most_src_len, stop_margin
        self._reference = ReferenceMember(weights, arithmetic(settings))

    @property
    def compiled(self) -> bool:
        """Whether the search runs in C; else in numpy, with the same results and no such speed."""
        return False

    def decode(
        self, source_states: Float32, candidates: Ints | None = None, forced_len: int | None = None, *, clock: bool = False
    ) -> SharpTranslation:
        """Translate one sentence.

        `source_states` [src_len, s] float32; `candidates` words that may be chosen, int64, each once, the end token among them
        (SHARP-02); None: all. `forced_len`: so many steps, the end token banned, for timing. `clock`: see `StageSeconds`.
        """
        return decode_ensemble([self], [source_states], candidates, forced_len, clock=clock)

    def forced(self, source_states: Float32, tokens: Sequence[int] | Ints, candidates: Ints | None = None) -> ForcedSteps:
        """Follow a given translation, whose words are among the candidates (SHARP-10); nothing is banned but padding."""
        source, words = _source(self, source_states), np.asarray(tokens, np.int64)
        _check_candidates(self, candidates, forced=True)
        return reference_forced(self._reference, source, self.weights.tokens, words, candidates)


def decode_ensemble(
    decoders: Sequence[SharpDecoder],
    source_states: Sequence[Float32],
    candidates: Ints | None = None,
    forced_len: int | None = None,
    *,
    clock: bool = False,
) -> SharpTranslation:
    """Translate one sentence by several models of one vocabulary and one `settings`, each with its own source states.

    Their distributions are averaged arithmetically over one shared beam (SHARP-14), as is their attention for `attended`.
    """
    first = decoders[0]
    for other in decoders[1:]:
        if (other.weights.vocab, other.weights.tokens, other.settings) != (
            first.weights.vocab,
            first.weights.tokens,
            first.settings,
        ):
            raise KernelError("an ensemble's decoders share vocabulary, special tokens and settings")
    sources = [_source(each, states) for each, states in zip(decoders, source_states, strict=True)]
    if len({len(source) for source in sources}) != 1:
        raise KernelError("source_states: the models of an ensemble read one sentence, of one length")
    _check_candidates(first, candidates, forced=forced_len is not None)
    longest = min(each.max_len for each in decoders)
    if forced_len is not None and not 1 <= forced_len <= longest:
        raise KernelError(f"forced_len: wanted 1 to max_len, {longest}, got {forced_len}")
    return reference_decode(
        [each._reference for each in decoders],
        sources,
        first.weights.tokens,
        beam=first.settings.beam,
        max_len=longest,
        candidates=candidates,
        forced_len=forced_len,
        stop_margin=first.stop_margin,
    )


def _source(decoder: SharpDecoder, states: Float32) -> Float32:
    width = decoder.weights.source_width
    if not isinstance(states, np.ndarray) or states.dtype != np.float32 or states.ndim != 2 or states.shape[1] != width:
        raise KernelError(f"source_states: wanted float32 [src_len, {width}]")
    if not 1 <= len(states) <= decoder.most_src_len:
        raise KernelError(f"source_states: wanted 1 to most_src_len, {decoder.most_src_len}, got {len(states)}")
    return np.ascontiguousarray(states)


def _check_candidates(decoder: SharpDecoder, candidates: Ints | None, *, forced: bool) -> None:
    if candidates is None:
        return
    if not isinstance(candidates, np.ndarray) or candidates.dtype != np.int64 or candidates.ndim != 1 or not len(candidates):
        raise KernelError("candidates: wanted int64 [words], at least one")
    seen = np.unique(candidates)
    if len(seen) != len(candidates) or seen[0] < 0 or seen[-1] >= decoder.weights.vocab:
        raise KernelError(f"candidates: wanted words of the vocabulary of {decoder.weights.vocab}, each once")
    if not forced and decoder.weights.tokens.eos not in seen:
        raise KernelError("candidates: the end token is missing, so that no translation could end")
