"""Translate with the sharp decoder: one attentional model or an ensemble, one sentence at a time (SHARP-01, SHARP-14).

From the weights of a trained model to the arrays of the kernels, from token ids to token ids, and from text to text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from simnmt.kernels.packed_products import Clipping, clipping_of
from simnmt.kernels.sharp.decoder import SharpDecoder, SourceEncoder, decode_ensemble
from simnmt.kernels.sharp.model import (
    Attention,
    BottomCell,
    ForcedSteps,
    SharpTokens,
    SharpTranslation,
    SharpWeights,
    SourceDirection,
    SourceLayer,
    SourceWeights,
    StackLayer,
)
from simnmt.kernels.sharp.native_search import MOST_MEMBERS
from simnmt.nmt.attentional_model import AttentionalModel, DenseBlock, RecurrentLayer
from simnmt.nmt.errors import NmtError
from simnmt.nmt.subwords import LONGEST_SOURCE, Subwords, TextWriter, read_dictionary
from simnmt.nmt.translation import Translation, load_folder
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
from simnmt.profile.decoder_settings import DecoderSettings


def sharp_weights(model: AttentionalModel) -> SharpWeights:
    """The target side of a float32 model on the CPU; its memory is shared where it lies as the decoder wants it."""
    architecture, bottom = model.architecture, model.bottom
    compared = bottom.compared
    recur, feed = bottom.recur.weight, bottom.feed.weight
    return SharpWeights(
        embedding=_as_array(model.tgt_embedding.weight),
        bottom=BottomCell(
            kind="attgru" if architecture.cell == "gru" else "attlstm",
            state=_as_array(recur[compared:]),
            word=_as_array(feed[compared:]),
            context=_as_array(bottom.read.weight),
            bias=_as_array(bottom.read.bias),
            attention=Attention(
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
        tokens=SharpTokens(
            start=architecture.start_token,
            eos=architecture.eos_token,
            unk=architecture.unk_token,
            pad=architecture.pad_token,
        ),
    )


def source_weights(model: AttentionalModel) -> SourceWeights:
    """The source side of a float32 model on the CPU, its gates in the order of the sharp kernels."""
    layers = tuple(
        SourceLayer(model.architecture.source_cell, _direction(model, layer, ""), _direction(model, layer, "_reverse"))
        for layer in range(model.architecture.source_layers)
    )
    return SourceWeights(_as_array(model.src_embedding.weight), layers)


def model_clipping(models: Iterable[AttentionalModel]) -> Clipping:
    """Return how many weights of both sides of the models 16-bit products clip (SHARP-05)."""
    return clipping_of(
        matrix for model in models for side in (source_weights(model), sharp_weights(model)) for matrix in side.matrices()
    )


def _direction(model: AttentionalModel, layer: int, side: str) -> SourceDirection:
    fed, carried, fed_bias, carried_bias = (
        _as_array(getattr(model.encoder, f"{name}_l{layer}{side}")) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    if model.architecture.source_cell == "lstm":
        return SourceDirection(fed, carried, fed_bias + carried_bias)
    width = model.architecture.source_hidden
    # torch stacks reset, update, candidate; and the reset gate multiplies the candidate's carried bias as well.
    order = np.r_[width : 2 * width, 0:width, 2 * width : 3 * width]
    bias = fed_bias[order]
    bias[: 2 * width] += carried_bias[order][: 2 * width]
    return SourceDirection(fed[order], carried[order], bias, carried_bias[2 * width :].copy())


def _stack_layers(part: nn.Module) -> list[StackLayer]:
    if isinstance(part, RecurrentLayer):
        return [StackLayer(part.kind, _as_array(part.feed.weight), _as_array(part.recur.weight), _as_array(part.feed.bias))]
    assert isinstance(part, DenseBlock)
    return [StackLayer(part.kind, _as_array(weight)) for weight in part.weights]


def _as_array(weight: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = np.ascontiguousarray(weight.detach().numpy(), dtype=np.float32)
    return array


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
            SharpDecoder(decoder_weights, settings, max_len=max_len, most_src_len=most_src_len)
            for decoder_weights in weights or map(sharp_weights, models)
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


TECHNIQUES: Mapping[str, DecoderSettings] = {
    "exact": DecoderSettings(gemm="float32", embeddings="frequent", attention="precomputed", merge=True),
    "fast": DecoderSettings(gemm="int16", embeddings="frequent", attention="precomputed", activations="polynomial", merge=True),
}
"""`exact`: the identities of the paper; `fast`: all of its techniques, of which two add noise (SHARP-10)."""
MOST_TARGET_TOKENS = 2 * LONGEST_SOURCE + 10
"""Tokens of a translation, where no limit is given."""


class SharpTextTranslator:
    """Attentional models with their two vocabularies, ready to translate one line after another on one thread."""

    def __init__(
        self,
        models: Sequence[AttentionalModel],
        source: Subwords,
        target: Subwords,
        settings: DecoderSettings,
        *,
        max_len: int | None = None,
        lists: CandidateLists | None = None,
        dictionary: Mapping[str, str] | None = None,
        keep_unknown: bool = False,
    ) -> None:
        """`max_len`: most tokens written, by default twice the source's and 10; `lists`: a sentence's candidates (SHARP-02);
        `dictionary`: translations of words that are unknown, which are copied otherwise; `keep_unknown`: the mark of an unknown
        word is written instead. Raises `NmtError`.
        """
        if max_len is not None and max_len < 1:
            raise NmtError(f"max_len is {max_len}", remedy="give 1 or more")
        self.source, self.target, self.max_len = source, target, max_len
        self._lists = lists
        self._writer = TextWriter(source, target, models[0].unk_token, dictionary or {}, keep_unknown)
        self._translator = SharpTranslator(models, settings, max_len=max_len or MOST_TARGET_TOKENS, most_src_len=LONGEST_SOURCE)

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
        dictionary: Path | None = None,
        keep_unknown: bool = False,
    ) -> SharpTextTranslator:
        """Load folders that `simnmt nmt train` wrote; several are an ensemble.

        `candidates`: a bundle of candidate lists that `simnmt vocab build` made of the model. Raises `NmtError` for a folder
        that holds no attentional model, and for models that do not share their subwords.
        """
        if technique not in TECHNIQUES:
            raise NmtError(f"no sharp decoder {technique}", remedy=f"take {' or '.join(TECHNIQUES)}")
        if beam < 1:
            raise NmtError(f"beam is {beam}", remedy="give 1 or more")
        if len(folders) > MOST_MEMBERS:
            raise NmtError(f"an ensemble of {len(folders)} models", remedy=f"give at most {MOST_MEMBERS}")
        entries = {} if dictionary is None else read_dictionary(dictionary)
        models, vocabularies = list[AttentionalModel](), list[tuple[Subwords, Subwords]]()
        for folder in folders:
            loaded, source, target = load_folder(folder)
            if not isinstance(loaded.model, AttentionalModel):
                what = f"the sharp decoder runs no {loaded.architecture.kind} model"
                raise NmtError(what, path=folder, remedy="give models that were trained with --model sharp")
            models.append(loaded.model)
            vocabularies.append((source, target))
            if [side.model for side in vocabularies[0]] != [source.model, target.model]:
                what = f"its subwords are not those of {folders[0]}"
                raise NmtError(what, path=folder, remedy="train an ensemble on one text, with other seeds")
        lists = None
        if candidates is not None:
            if len(models) > 1:
                raise NmtError("candidate lists are of one model, not of an ensemble", remedy="leave --vocabulary out")
            lists = CandidateLists.load(candidates, models[0])
        settings = TECHNIQUES[technique].model_copy(update={"beam": beam, "fused": fused})
        return cls(
            models,
            *vocabularies[0],
            settings,
            max_len=max_len,
            lists=lists,
            dictionary=entries,
            keep_unknown=keep_unknown,
        )

    def clipping(self) -> Clipping | None:
        """Return how many weights the 16-bit products of `fast` clip; None for `exact`."""
        return self._translator.clipping()

    def stream(self, lines: Iterable[str]) -> Iterator[Translation]:
        """One translation per line, in order, each as soon as its line is there."""
        return map(self._line, lines)

    def translate(self, lines: Sequence[str]) -> list[Translation]:
        """One translation per line, in order."""
        return list(self.stream(lines))

    def _line(self, line: str) -> Translation:
        (ids,) = self.source.encode([line])
        if len(ids) <= 1:
            return Translation("", 0, 0, None, False, True, 0)
        kept = ids if len(ids) <= LONGEST_SOURCE else [*ids[: LONGEST_SOURCE - 1], self.source.eos]
        most = self.max_len or 2 * len(kept) + 10
        states = self._translator.encode(kept)
        translation = self._translator.decode(states, candidates=candidates_of(self._lists, kept), max_len=most)
        written = self._writer.write(line, len(kept), translation.tokens, lambda: translation.attended)
        length = len(translation.tokens)
        ended = length < most
        return Translation(
            written.text,
            len(kept),
            length,
            translation.log_prob / (length + ended),
            len(ids) > len(kept),
            ended,
            translation.steps,
            written.replaced,
            written.unknown,
        )
