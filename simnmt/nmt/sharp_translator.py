"""Token ids in, token ids out, by the sharp decoder: one attentional model, or an ensemble of them (SHARP-01, SHARP-14)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.scales import Clipping
from simnmt.kernels.sharp import ForcedSteps, SharpDecoder, SharpTranslation, SharpWeights, SourceEncoder, decode_ensemble
from simnmt.nmt.errors import NmtError
from simnmt.nmt.sharp_model import AttentionalModel
from simnmt.nmt.sharp_weights import model_clipping, sharp_weights, source_weights
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists

SourceStates = list[NDArray[np.float32]]
"""Of one sentence by each model, [src_len, width]."""


class SharpTranslator:
    """Encodes and decodes one sentence at a time with the sharp kernels, on one thread.

    The models are float32, on the CPU, and of one target vocabulary; several are an ensemble, whose distributions are averaged.
    """

    def __init__(
        self,
        models: Sequence[AttentionalModel],
        settings: DecoderSettings,
        *,
        max_len: int = 200,
        most_src_len: int = 512,
        weights: Sequence[SharpWeights] | None = None,
    ) -> None:
        """`max_len`: most tokens of a translation; `weights`: the models' own, where the caller has them already.

        Raises `NmtError` for no model, for models of different vocabularies, and for a beam wider than the vocabulary.
        """
        if not models:
            raise NmtError("an ensemble of no model", remedy="give at least one")
        if len({(model.vocab, model.start_token, model.eos_token, model.pad_token) for model in models}) > 1:
            raise NmtError("the models of an ensemble speak different vocabularies", remedy="train them on the same subwords")
        if settings.beam > models[0].vocab - 1:
            what = f"a beam of {settings.beam:,} with a vocabulary of {models[0].vocab:,}"
            raise NmtError(what, remedy="give a smaller one")
        self.models, self.settings = list(models), settings
        self.max_len, self.most_src_len = max_len, most_src_len
        self._encoders = [SourceEncoder(source_weights(model), settings, most_src_len=most_src_len) for model in models]
        self._decoders = [
            SharpDecoder(each, settings, max_len=max_len, most_src_len=most_src_len)
            for each in weights or map(sharp_weights, models)
        ]

    def encode(self, source: Sequence[int]) -> SourceStates:
        """What the models' encoders make of a sentence. Raises `NmtError` for one of no token, or longer than memory is for."""
        if not 1 <= len(source) <= self.most_src_len:
            raise NmtError(f"a source of {len(source):,} tokens where 1 to {self.most_src_len:,} fit")
        return [encoder.encode(source) for encoder in self._encoders]

    def decode(
        self,
        states: SourceStates,
        *,
        candidates: NDArray[np.int64] | None = None,
        forced_len: int | None = None,
        max_len: int | None = None,
        clock: bool = False,
    ) -> SharpTranslation:
        """The best translation of a sentence; arguments as of `decode_ensemble`."""
        return decode_ensemble(self._decoders, states, candidates, forced_len, max_len=max_len, clock=clock)

    def translate(self, sources: Sequence[Sequence[int]], lists: CandidateLists | None = None) -> list[SharpTranslation]:
        """The best translation of each sentence, one after another; with lists, of its candidates alone (SHARP-02)."""
        return [self.decode(self.encode(source), candidates=candidates_of(lists, source)) for source in sources]

    def forced(self, states: SourceStates, tokens: Sequence[int]) -> ForcedSteps:
        """What the first model thinks along a given translation, its end token included where it has one (SHARP-10)."""
        return self._decoders[0].forced(states[0], tokens)

    @property
    def compiled(self) -> bool:
        """Whether the kernels run in C; else in numpy, much slower."""
        return self._decoders[0].compiled

    def clipping(self) -> Clipping | None:
        """Return how many weights the 16-bit products clip, of all models together; None where products are of float32."""
        return None if self.settings.gemm != "int16" else model_clipping(self.models)


def candidates_of(lists: CandidateLists | None, source: Sequence[int]) -> NDArray[np.int64] | None:
    """A sentence's candidates as the sharp decoder takes them; None, all words, without lists."""
    return None if lists is None else lists.of(source).astype(np.int64)
