"""Translate with the sharp decoder: one attentional model or an ensemble, one sentence at a time (SHARP-01, SHARP-14).

The module converts the weights of trained models to the arrays of the kernels, and translates token ids and text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from simnmt.batching import mini
from simnmt.kernels.beam_search import SharpTranslation
from simnmt.kernels.packed_products import Clipping, clipping_of
from simnmt.kernels.sharp import model as sharp
from simnmt.kernels.sharp.compiled import MOST_MEMBERS
from simnmt.kernels.sharp.decoder import SharpDecoder, SourceEncoder, decode_ensemble
from simnmt.nmt.attentional_model import AttentionalModel, DenseBlock, RecurrentLayer
from simnmt.nmt.errors import NmtError
from simnmt.nmt.sentence_decoder import MOST_TARGET_TOKENS, DecodeRequest, Hypothesis, WholeBatchDecoder
from simnmt.nmt.source_lines import LONGEST_SOURCE, LineCoder, SourceLine
from simnmt.nmt.translation import TextTranslator, check_search, load_folder
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
from simnmt.profile.decoder_settings import DecoderSettings


def sharp_weights(model: AttentionalModel) -> sharp.SharpWeights:
    """Return the target side of a float32 model on the CPU; arrays share its memory if their layout allows."""
    architecture, bottom = model.architecture, model.bottom
    compared = bottom.compared
    recur, feed = bottom.recur.weight, bottom.feed.weight
    return sharp.SharpWeights(
        embedding=_as_array(model.tgt_embedding.weight),
        bottom=sharp.BottomCell(
            kind="attgru" if architecture.cell == "gru" else "attlstm",
            state=_as_array(recur[compared:]),
            word=_as_array(feed[compared:]),
            context=_as_array(bottom.read.weight),
            bias=_as_array(bottom.read.bias),
            attention=sharp.Attention(
                form=architecture.attention,
                state=_as_array(recur[:compared]),
                word=_as_array(feed[:compared]),
                key=_as_array(bottom.keys.weight),
                score=None if bottom.score is None else _as_array(bottom.score.weight[0]),
            ),
        ),
        stack=tuple(layer for part in model.stack for layer in _stack_layers(part)),
        output=_as_array(model.projection.weight),
        output_bias=_as_array(model.projection.bias),
        tokens=sharp.SharpTokens(model.start_token, model.eos_token, model.unk_token, model.pad_token),
    )


def source_weights(model: AttentionalModel) -> sharp.SourceWeights:
    """Return the source side of a float32 model on the CPU, with gates in the order of the sharp kernels."""
    layers = tuple(
        sharp.SourceLayer(model.architecture.source_cell, _direction(model, layer, ""), _direction(model, layer, "_reverse"))
        for layer in range(model.architecture.source_layers)
    )
    return sharp.SourceWeights(_as_array(model.src_embedding.weight), layers)


def model_clipping(models: Iterable[AttentionalModel]) -> Clipping:
    """Return how many weights of both sides of the models 16-bit products clip (SHARP-05)."""
    return clipping_of(
        matrix for model in models for side in (source_weights(model), sharp_weights(model)) for matrix in side.matrices()
    )


def _direction(model: AttentionalModel, layer: int, side: str) -> sharp.SourceDirection:
    fed, carried, fed_bias, carried_bias = (
        _as_array(getattr(model.encoder, f"{name}_l{layer}{side}")) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    if model.architecture.source_cell == "lstm":
        return sharp.SourceDirection(fed, carried, fed_bias + carried_bias)
    width = model.architecture.source_hidden
    # Torch's order is reset, update, candidate; its reset gate also multiplies the candidate's carried bias.
    order = np.r_[width : 2 * width, 0:width, 2 * width : 3 * width]
    bias = fed_bias[order]
    bias[: 2 * width] += carried_bias[order][: 2 * width]
    return sharp.SourceDirection(fed[order], carried[order], bias, carried_bias[2 * width :].copy())


def _stack_layers(part: nn.Module) -> list[sharp.StackLayer]:
    if isinstance(part, RecurrentLayer):
        arrays = (_as_array(weight) for weight in (part.feed.weight, part.recur.weight, part.feed.bias))
        return [sharp.StackLayer(part.kind, *arrays)]
    assert isinstance(part, DenseBlock)
    return [sharp.StackLayer(part.kind, _as_array(weight)) for weight in part.weights]


def _as_array(weight: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = np.ascontiguousarray(weight.detach().numpy(), dtype=np.float32)
    return array


SourceStates = list[NDArray[np.float32]]
"""The encodings of one sentence by each model, [src_len, width]."""


class SharpTranslator:
    """A translator of token ids with the sharp kernels, one sentence at a time on one thread.

    The models are float32, on the CPU, and have the same target vocabulary; the distributions of an ensemble are averaged.
    """

    def __init__(
        self,
        models: Sequence[AttentionalModel],
        settings: DecoderSettings,
        *,
        max_len: int = 200,
        most_src_len: int = 512,
        weights: Sequence[sharp.SharpWeights] | None = None,
    ) -> None:
        """`max_len`: most tokens of a translation; `weights`: the result of `sharp_weights` for each model, if at hand.

        Raises `NmtError` for models of different vocabularies, and for a beam wider than the vocabulary.
        """
        if len({(model.vocab, model.start_token, model.eos_token, model.pad_token) for model in models}) > 1:
            raise NmtError("the models of an ensemble speak different vocabularies", remedy="train them on the same subwords")
        check_search(settings.beam, max_len, models[0].vocab)
        self.models, self.settings = list(models), settings
        self.max_len, self.most_src_len = max_len, most_src_len
        self._encoders = [SourceEncoder(source_weights(model), settings) for model in models]
        self._decoders = [
            SharpDecoder(decoder_weights, settings, max_len=max_len)
            for decoder_weights in weights or map(sharp_weights, models)
        ]

    def encode(self, source: Sequence[int]) -> SourceStates:
        """Encode a sentence by each model. Raises `NmtError` for a sentence without tokens or of more than `most_src_len`."""
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
        """Return the best translation of a sentence; arguments as of `decode_ensemble`."""
        return decode_ensemble(self._decoders, states, candidates, forced_len, max_len=max_len, clock=clock)

    def hypothesis(self, request: DecodeRequest, candidates: NDArray[np.int64] | None) -> Hypothesis:
        """Return the best translation of a request."""
        if request.forced_len == 0:
            return Hypothesis((), None)
        most = request.forced_len or request.max_len or MOST_TARGET_TOKENS
        states = self.encode(request.source)
        best = self.decode(states, candidates=candidates, forced_len=request.forced_len, max_len=most)
        counted = len(best.tokens) + (len(best.tokens) < most)
        return Hypothesis(tuple(best.tokens), best.log_prob / counted, best.steps, tuple(best.attended))

    def translate(self, sources: Sequence[Sequence[int]], lists: CandidateLists | None = None) -> list[SharpTranslation]:
        """Return the best translation of each sentence, with `lists` of its candidates only (SHARP-02)."""
        return [self.decode(self.encode(source), candidates=candidates_of(lists, source)) for source in sources]

    def forced(self, states: SourceStates, tokens: Sequence[int]) -> sharp.ForcedSteps:
        """Return the steps of the first model along a given translation, which may have its end token (SHARP-10)."""
        return self._decoders[0].forced(states[0], tokens)

    def clipping(self) -> Clipping | None:
        """Return how many weights of all models the 16-bit products clip; None for products in float32."""
        return None if self.settings.gemm != "int16" else model_clipping(self.models)


def candidates_of(lists: CandidateLists | None, source: Sequence[int]) -> NDArray[np.int64] | None:
    """Return a sentence's candidates as the sharp decoder takes them; without lists None, which means all words."""
    return None if lists is None else lists.of(source).astype(np.int64)


TECHNIQUES: Mapping[str, DecoderSettings] = {
    "exact": DecoderSettings(gemm="float32", embeddings="frequent", attention="precomputed", merge=True),
    "fast": DecoderSettings(gemm="int16", embeddings="frequent", attention="precomputed", activations="polynomial", merge=True),
}
"""`exact`: the techniques of the paper that change no output; `fast`: all techniques, of which two add noise (SHARP-10)."""


@dataclass(frozen=True, slots=True)
class SharpTextTranslator(TextTranslator):
    """Attentional models with their subwords, which translate one line after another on one thread."""

    translator: SharpTranslator
    lines: LineCoder
    lists: CandidateLists | None = None
    """The candidates of each sentence (SHARP-02); None for all words."""

    @classmethod
    def load(
        cls,
        folders: Sequence[Path],
        *,
        technique: str = "exact",
        beam: int = 1,
        fused: bool = False,
        max_len: int | None = None,
        candidates: Path | None = None,
    ) -> SharpTextTranslator:
        """Load folders that `simnmt nmt train` wrote; several are an ensemble.

        `technique`: one of `TECHNIQUES`; `candidates`: a bundle of candidate lists that `simnmt vocab build` made of the model.
        Raises `NmtError` for options out of range, for a folder without an attentional model, and for models that do not share
        their subwords.
        """
        if technique not in TECHNIQUES:
            raise NmtError(f"no sharp decoder {technique}", remedy=f"take {' or '.join(TECHNIQUES)}")
        if len(folders) > MOST_MEMBERS:
            raise NmtError(f"an ensemble of {len(folders)} models", remedy=f"give at most {MOST_MEMBERS}")
        models: list[AttentionalModel] = []
        _, source, target = members = load_folder(folders[0])
        for number, folder in enumerate(folders):
            loaded, *sides = load_folder(folder) if number else members
            if not isinstance(loaded.model, AttentionalModel):
                what = f"the sharp decoder runs no {loaded.architecture.kind} model"
                raise NmtError(what, path=folder, remedy="give models that were trained with --model sharp")
            models.append(loaded.model)
            if [side.model for side in sides] != [source.model, target.model]:
                what = f"its subwords are not those of {folders[0]}"
                raise NmtError(what, path=folder, remedy="train an ensemble on one text, with other seeds")
        lists = None
        if candidates is not None:
            if len(models) > 1:
                raise NmtError("candidate lists are of one model, not of an ensemble", remedy="leave --vocabulary out")
            lists = CandidateLists.load(candidates, models[0])
        settings = TECHNIQUES[technique].model_copy(update={"beam": beam, "fused": fused})
        most = 2 * LONGEST_SOURCE + 10 if max_len is None else max_len
        translator = SharpTranslator(models, settings, max_len=most, most_src_len=LONGEST_SOURCE)
        return cls(translator, LineCoder(source, target, models[0].unk_token, max_len=max_len), lists)

    def clipping(self) -> Clipping | None:
        """Return how many weights the 16-bit products of `fast` clip; None for `exact`."""
        return self.translator.clipping()

    def coder(self) -> LineCoder:
        """See `TextTranslator`."""
        return self.lines

    def decoder(self) -> WholeBatchDecoder:
        """See `TextTranslator`."""

        def decode(requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
            return [self.translator.hypothesis(request, candidates_of(self.lists, request.source)) for request in requests]

        return WholeBatchDecoder(decode, mini(1))

    def attended(self, line: SourceLine, hypothesis: Hypothesis) -> Callable[[], Sequence[int]]:
        """See `TextTranslator`."""
        return lambda: hypothesis.attended
