"""The sharp decoder's case: the paper's ladder on a 1024 GRU, each rung upon the one before (SHARP-11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.costs.sharp_ladder import IDENTITIES, RUNGS, ladder, techniques
from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.interleaved import Run
from simnmt.kernels.levels import NONE
from simnmt.kernels.native_at import level_name
from simnmt.kernels.roofline import Number
from simnmt.kernels.sharp import SharpDecoder, SharpTranslation, SharpWeights
from simnmt.kernels.sharp.arithmetic import plain
from simnmt.kernels.sharp.asked import places_of
from simnmt.kernels.sharp.operations import DecoderShape, operations
from simnmt.kernels.sharp.random_models import RandomModels, random_sentence
from simnmt.kernels.sharp.reference import reference_forced
from simnmt.kernels.sharp.reference_member import ReferenceMember

NAMES = {
    "baseline": "packed float32",
    "int16": "+ int16",
    "embeddings": "+ embeddings",
    "attention": "+ attention",
    "activations": "+ polynomial activations",
    "merge": "+ merge",
}
"""Of the rungs."""
BASELINE, LAST, TABLE = NAMES[RUNGS[0]], NAMES[RUNGS[-1]], "+ table activations"
BEFORE = "the rung before"
TOTAL_TARGET, RUNG_TARGET = 4.4, 0.98
LOG_PROB_BOUND = 0.05
"""Of a word's log-probability along a given translation, against float64: weights and values in 16 bits move it by 0.01, a
table by 0.03, logits being as wide as they are here. The identities move it by rounding alone (SHARP-10)."""
OTHER_WORDS = 1.0
"""The error of a rung that should find the same words as the one before, and does not."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Sizes of the paper (SHARP-16); what it leaves open is here."""

    width: int = 1024
    """Of states, source states and attention keys."""
    embedding: int = 512
    """Not stated."""
    vocab: int = 8_000
    """Of the embeddings kept; 80,000 would take a gigabyte, and a step reads but a beam's rows of it."""
    beam: int = 6
    src_len: int = 25
    tgt_len: int = 28
    candidates: int = 500

    @property
    def shape(self) -> DecoderShape:
        """Of the decoder."""
        return DecoderShape("attgru", self.width, self.embedding, self.width, self.width, (), self.candidates)

    def rungs(self) -> dict[str, DecoderSettings]:
        """By name, in order; the table stands beside the polynomial, upon the same rung."""
        base = DecoderSettings(beam=self.beam, gemm="float32", candidates=self.candidates)
        found = {NAMES[key]: each for key, each in ladder(base, techniques("precomputed", "polynomial")).items()}
        return found | {TABLE: ladder(base, techniques("precomputed", "table"))["activations"]}

    def work(self, settings: DecoderSettings, distinct: float) -> Work:
        """Every matrix read once a step and multiplied with every hypothesis; `distinct`: share of their states that differ."""
        each = operations(self.shape, settings, self.src_len, distinct_share=distinct)
        whole = operations(self.shape, settings.model_copy(update={"merge": False}), self.src_len)
        matrices = whole.recurrent + whole.embedding + whole.context + whole.output
        number: Number = "int16" if settings.gemm == "int16" else "float32"
        size_bytes = (2 if number == "int16" else 4) * matrices + 4 * whole.attention
        return Work(round(size_bytes), round(self.beam * each.step), number, self.tgt_len)

    def drawn(self) -> tuple[SharpWeights, NDArray[np.float32], NDArray[np.int64]]:
        """A model, and a sentence of source states and candidates."""
        weights = RandomModels().of(self.shape, self.vocab)
        return weights, *random_sentence(weights, self.src_len, self.candidates, 1.0, self.vocab)


def ladder_cases(threads: int, ladder: Ladder | None = None) -> Iterator[Case]:
    """One contest of all rungs; none without compiled kernels, where only numpy would be measured."""
    ladder = ladder or Ladder()
    if level_name() == NONE:
        return
    text = f"GRU {ladder.width}, beam {ladder.beam}, {ladder.src_len} to {ladder.tgt_len} words, {ladder.candidates} candidates"
    yield Case(text, "hot", level_name(), lambda: _contest(ladder))


def _contest(ladder: Ladder) -> Contest:
    weights, states, candidates = ladder.drawn()
    settings = ladder.rungs()
    decoders = {
        name: SharpDecoder(weights, each, max_len=ladder.tgt_len, most_src_len=ladder.src_len)
        for name, each in settings.items()
    }

    def decoded(name: str) -> Run:
        return lambda: decoders[name].decode(states, candidates, ladder.tgt_len)

    found = {name: decoder.decode(states, candidates, ladder.tgt_len) for name, decoder in decoders.items()}
    words = np.array(found[BASELINE].tokens)
    places = places_of(words, candidates, weights.vocab)
    oracle = ReferenceMember(weights, plain(np.float64))
    exact = reference_forced(oracle, states, weights.tokens, words, places, candidates).log_probs
    errors = {
        name: float(np.abs(decoder.forced(states, words, candidates).log_probs - exact).max())
        for name, decoder in decoders.items()
    } | dict.fromkeys(other_words(found), OTHER_WORDS)

    def against(ours: str, baseline: str, way: str, target: float | None, what: str | None = None) -> Comparison:
        share = found[ours].distinct_share
        return Comparison(
            ours,
            baseline,
            (way,),
            ladder.work(settings[ours], share),
            target,
            what or ours,
            f"{100 * share:.0f} % of states distinct",
            errors[ours],
            LOG_PROB_BOUND,
        )

    polynomial, before = NAMES["activations"], NAMES["attention"]
    comparisons = [against(upper, BEFORE, lower, RUNG_TARGET) for lower, upper in pairwise(NAMES.values())]
    comparisons += [against(TABLE, BEFORE, before, RUNG_TARGET), against(TABLE, polynomial, polynomial, None)]
    comparisons += [against(LAST, BASELINE, BASELINE, TOTAL_TARGET, "the whole ladder")]
    return Contest({name: decoded(name) for name in settings}, tuple(comparisons))


def other_words(found: Mapping[str, SharpTranslation]) -> list[str]:
    """Of translations by rung's name, the rungs that are identities and yet say something else than the rung before."""
    words = {key: found[name].tokens for key, name in NAMES.items()}
    return [NAMES[upper] for lower, upper in pairwise(RUNGS) if upper in IDENTITIES and words[upper] != words[lower]]
