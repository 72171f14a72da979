"""Translate with the sharp decoder: one attentional model or an ensemble, one sentence at a time (SHARP-01, SHARP-14).

The module converts the weights of trained models to the arrays of the kernels, and translates token ids and text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from simnmt.batching import Batching, mini
from simnmt.kernels import sharp_model as sharp
from simnmt.kernels.beam_search import Ints, SharpTranslation
from simnmt.kernels.native_library import native
from simnmt.kernels.packed_products import Clipping, clipping_of
from simnmt.kernels.sharp_decoder import MOST_MEMBERS, SharpDecoder, SourceEncoder, decode_ensemble
from simnmt.kernels.sharp_model import Float32
from simnmt.nmt.attentional_model import AttentionalModel, DenseBlock, RecurrentLayer
from simnmt.nmt.errors import NmtError, within_memory
from simnmt.nmt.sentence_decoder import MOST_TARGET_TOKENS, DecodeRequest, Hypothesis, WholeBatchDecoder
from simnmt.nmt.sharp_reference import ReferenceMember, reference_decode, reference_forced
from simnmt.nmt.source_lines import LONGEST_SOURCE, LineCoder, Translation
from simnmt.nmt.translation import check_search, load_folder, translate_lines
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
from simnmt.profile.decoder_settings import DecoderSettings


def sharp_weights(model: AttentionalModel) -> sharp.SharpWeights:
    """Return the target side of a float32 model on the CPU; arrays share its memory if their layout allows."""
    bottom = model.bottom
    return sharp.SharpWeights(
        cell=model.architecture.cell,
        embedding=_array(model.tgt_embedding.weight),
        state=np.roll(_array(bottom.recur.weight), -bottom.compared, axis=0),
        word=np.roll(_array(bottom.feed.weight), -bottom.compared, axis=0),
        context=_array(bottom.read.weight),
        key=_array(bottom.keys.weight),
        bias=_array(bottom.read.bias),
        score=None if bottom.score is None else _array(bottom.score.weight[0]),
        stack=tuple(layer for part in model.stack for layer in _stack_layers(part)),
        output=_array(model.projection.weight),
        output_bias=_array(model.projection.bias),
        tokens=sharp.SharpTokens(model.start_token, model.eos_token, model.pad_token),
    )


def _stack_layers(part: nn.Module) -> list[sharp.Layer]:
    if isinstance(part, RecurrentLayer):
        return [sharp.Layer(part.kind, _array(part.feed.weight), _array(part.recur.weight), _array(part.feed.bias))]
    assert isinstance(part, DenseBlock)
    return [sharp.Layer(part.kind, _array(weight)) for weight in part.weights]


def source_weights(model: AttentionalModel) -> sharp.SourceWeights:
    """Return the source side of a float32 model on the CPU, with gates in the order of the sharp kernels."""
    numbers = range(model.architecture.source_layers)
    layers = tuple((_direction(model, f"l{number}"), _direction(model, f"l{number}_reverse")) for number in numbers)
    return sharp.SourceWeights(_array(model.src_embedding.weight), layers)


def _direction(model: AttentionalModel, suffix: str) -> sharp.Layer:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    fed, carried, fed_bias, carried_bias = (_array(getattr(model.encoder, f"{name}_{suffix}")) for name in names)
    if model.architecture.source_cell == "lstm":
        return sharp.Layer("lstm", fed, carried, fed_bias + carried_bias)
    width = model.architecture.source_hidden
    # Torch's order is reset, update, candidate; its reset gate also multiplies the candidate's carried bias.
    order = np.r_[width : 2 * width, 0:width, 2 * width : 3 * width]
    bias = fed_bias[order]
    bias[: 2 * width] += carried_bias[order][: 2 * width]
    return sharp.Layer("gru", fed[order], carried[order], bias, carried_bias[2 * width :].copy())


def _array(weight: Tensor) -> Float32:
    return np.ascontiguousarray(weight.detach().numpy(), dtype=np.float32)


def model_clipping(models: Iterable[AttentionalModel]) -> Clipping:
    """Return how many weights of both sides of the models 16-bit products clip (SHARP-05)."""
    return clipping_of(
        matrix for model in models for side in (source_weights(model), sharp_weights(model)) for matrix in side.matrices()
    )


def candidates_of(lists: CandidateLists | None, source: Sequence[int]) -> Ints | None:
    """Return a sentence's candidates as the sharp decoder takes them; without lists None, which means all words."""
    return None if lists is None else lists.of(source).astype(np.int64)


class SharpTranslator:
    """A translator of token ids with the sharp kernels, one sentence at a time on one thread.

    The models are float32, on the CPU, and have the same target vocabulary; the distributions of an ensemble are averaged.
    """

    def __init__(self, models: Sequence[AttentionalModel], settings: DecoderSettings, *, max_len: int = 200) -> None:
        """`max_len`: most tokens of a translation.

        Raises `NmtError` for too many models, models of different vocabularies, and a beam wider than the vocabulary.
        """
        if len(models) > MOST_MEMBERS:
            raise NmtError(f"an ensemble of {len(models)} models", remedy=f"give at most {MOST_MEMBERS}")
        if len({(model.vocab, model.start_token, model.eos_token, model.pad_token) for model in models}) > 1:
            raise NmtError("the models of an ensemble speak different vocabularies", remedy="train them on the same subwords")
        check_search(settings.beam, max_len, models[0].vocab)
        self.models, self.settings = list(models), settings
        self._max_len, self._reference = max_len, native() is None
        self._encoders: list[Callable[[Sequence[int] | Ints], Float32]]
        if self._reference:
            self._members = [ReferenceMember(model) for model in models]
            self._encoders = [member.encode for member in self._members]
        else:
            self._encoders = [SourceEncoder(source_weights(model), settings).encode for model in models]
            self._decoders = [SharpDecoder(sharp_weights(model), settings, max_len=max_len) for model in models]

    def encode(self, source: Sequence[int] | Ints) -> list[Float32]:
        """Return the encodings of one sentence by each model, [src_len, width]."""
        return [encode(source) for encode in self._encoders]

    def decode(
        self,
        states: Sequence[Float32],
        *,
        candidates: Ints | None = None,
        forced_len: int | None = None,
        max_len: int | None = None,
        clock: bool = False,
    ) -> SharpTranslation:
        """Return the best translation of a sentence; arguments as in `decode_ensemble`.

        Without compiled kernels there is no clock.
        """
        max_len = self._max_len if max_len is None else max_len
        if self._reference:
            steps, beam = max_len if forced_len is None else forced_len, self.settings.beam
            return reference_decode(self._members, states, beam, steps, candidates, forced=forced_len is not None)
        return decode_ensemble(self._decoders, states, candidates, forced_len, max_len=max_len, clock=clock)

    def translate(self, sources: Sequence[Sequence[int]], lists: CandidateLists | None = None) -> list[SharpTranslation]:
        """Return the best translation of each sentence, with `lists` of its candidates only (SHARP-02)."""
        return [self.decode(self.encode(source), candidates=candidates_of(lists, source)) for source in sources]

    def forced(self, states: Sequence[Float32], tokens: Sequence[int]) -> sharp.ForcedSteps:
        """Return the steps of the first model along a given translation, which may have its end token (SHARP-10)."""
        if self._reference:
            return reference_forced(self._members[0], states[0], tokens)
        return self._decoders[0].forced(states[0], tokens)

    def clipping(self) -> Clipping | None:
        """Return how many weights of all models the 16-bit products clip; None for other products."""
        return None if self._reference or self.settings.gemm != "int16" else model_clipping(self.models)

    def sentence_decoder(self, batching: Batching, candidates: Callable[[Sequence[int]], Ints | None]) -> WholeBatchDecoder:
        """Return a decoder of the sentences of a batch one after another, with the candidates of each source."""

        def decode_one(request: DecodeRequest) -> Hypothesis:
            if request.forced_len == 0:
                return Hypothesis((), None)
            most, states = request.forced_len or request.max_len or MOST_TARGET_TOKENS, self.encode(request.source)
            best = self.decode(states, candidates=candidates(request.source), forced_len=request.forced_len, max_len=most)
            counted = len(best.tokens) + (len(best.tokens) < most)
            return Hypothesis(best.tokens, best.log_prob / counted, best.steps, best.attended)

        return WholeBatchDecoder(lambda requests: within_memory("cpu", lambda: [*map(decode_one, requests)]), batching)


TECHNIQUES: Mapping[str, DecoderSettings] = {
    "exact": DecoderSettings(gemm="float32", embeddings="frequent", attention="precomputed", merge=True),
    "fast": DecoderSettings(gemm="int16", embeddings="frequent", attention="precomputed", activations="polynomial", merge=True),
}
"""`exact`: the techniques of the paper that change no output; `fast`: all techniques, of which two add noise (SHARP-10)."""


def load_sharp(
    folders: Sequence[Path],
    *,
    technique: str = "exact",
    beam: int = 1,
    fused: bool = False,
    max_len: int | None = None,
    candidates: Path | None = None,
) -> tuple[SharpTranslator, Callable[[Iterable[str]], Iterator[Translation]]]:
    """Load folders that `simnmt nmt train` wrote; several are an ensemble. Return it, and a function that translates lines.

    `technique`: one of `TECHNIQUES`; `candidates`: a bundle of candidate lists that `simnmt vocab build` made of the model.
    Raises `NmtError` for options out of range, for a folder without an attentional model, and for models that do not share
    their subwords.
    """
    if technique not in TECHNIQUES:
        raise NmtError(f"no sharp decoder {technique}", remedy=f"take {' or '.join(TECHNIQUES)}")
    if candidates is not None and len(folders) > 1:
        raise NmtError("candidate lists are of one model, not of an ensemble", remedy="leave --vocabulary out")
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
    lists = None if candidates is None else CandidateLists.load(candidates, models[0])
    settings = TECHNIQUES[technique].model_copy(update={"beam": beam, "fused": fused})
    translator = SharpTranslator(models, settings, max_len=2 * LONGEST_SOURCE + 10 if max_len is None else max_len)
    coder, listed = LineCoder(source, target, models[0].unk_token, max_len=max_len), partial(candidates_of, lists)
    return translator, lambda lines: translate_lines(lines, coder, translator.sentence_decoder(mini(1), listed))
