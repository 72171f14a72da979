"""Benchmark cases of the sharp decoder: the paper's ladder, technique upon technique (SHARP-11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.beam_search import SharpTranslation
from simnmt.kernels.cases import Case, Comparison, Kernel, Number, Work, target_at
from simnmt.kernels.native_library import native
from simnmt.kernels.sharp.decoder import SharpDecoder
from simnmt.kernels.sharp.model import Float32, SearchRequest, SharpWeights, candidate_positions
from simnmt.kernels.sharp.model_shapes import DecoderShape, RandomModels, operations, random_sentence
from simnmt.kernels.sharp.reference import Arithmetic, ReferenceMember, reference_forced
from simnmt.profile.decoder_settings import IDENTITIES, RUNGS, DecoderSettings, ladder, techniques

NAMES = {
    "baseline": "packed float32",
    "int16": "+ int16",
    "embeddings": "+ embeddings",
    "attention": "+ attention",
    "activations": "+ polynomial activations",
    "merge": "+ merge",
}
"""Names of the rungs."""
BASELINE, LAST, TABLE = NAMES[RUNGS[0]], NAMES[RUNGS[-1]], "+ table activations"
BEFORE = "the rung before"
TOTAL_TARGET, RUNG_TARGET = 4.4, 0.98
LOG_PROB_BOUND = 0.05
"""Error of a word's log-probability along a given translation, against float64. Weights and values in 16 bits change it by
0.01, a table by 0.03, because logits are as wide as they are here. Identities change it only by rounding (SHARP-10)."""
OTHER_WORDS = 1.0
"""Error of a rung that should find the same words as the rung before and does not."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Sizes of the paper (SHARP-16), and those that it does not state."""

    width: int = 1024
    """Width of states, source states and attention keys."""
    embedding: int = 512
    """Not stated in the paper."""
    vocab: int = 8_000
    """Embeddings kept; 80,000 would take a gigabyte, of which a step reads only one row per hypothesis."""
    beam: int = 6
    src_len: int = 25
    tgt_len: int = 28
    candidates: int = 500

    @property
    def shape(self) -> DecoderShape:
        """The decoder's sizes."""
        return DecoderShape("attgru", self.width, self.embedding, self.width, self.width, (), self.candidates)

    def rungs(self) -> dict[str, DecoderSettings]:
        """Return settings by name, in order; the table and the polynomial belong to the same rung."""
        base = DecoderSettings(beam=self.beam, gemm="float32", candidates=self.candidates)
        by_key = ladder(base, techniques("precomputed", "polynomial"))
        table = ladder(base, techniques("precomputed", "table"))["activations"]
        return {NAMES[key]: settings for key, settings in by_key.items()} | {TABLE: table}

    def work(self, settings: DecoderSettings, distinct: float) -> Work:
        """Return the work of reading every matrix once per step and multiplying it with every hypothesis.

        `distinct`: share of the hypotheses' states that differ.
        """
        counts = operations(self.shape, settings, self.src_len, distinct_share=distinct)
        whole = operations(self.shape, settings.model_copy(update={"merge": False}), self.src_len)
        matrices = whole.recurrent + whole.embedding + whole.context + whole.output
        number: Number = "int16" if settings.gemm == "int16" else "float32"
        size_bytes = (2 if number == "int16" else 4) * matrices + 4 * whole.attention
        return Work(round(size_bytes), round(self.beam * counts.step), number, self.tgt_len)

    def drawn(self) -> tuple[SharpWeights, Float32, NDArray[np.int64]]:
        """Draw a model, and the source states and candidates of a sentence."""
        weights = RandomModels().of(self.shape, self.vocab)
        return weights, *random_sentence(weights, self.src_len, self.candidates, 1.0, self.vocab)


def ladder_cases(threads: int, ladder: Ladder | None = None) -> Iterator[Case]:
    """Yield one case of all rungs; none without compiled kernels, because it would measure only numpy."""
    if native() is not None:
        yield _ladder_case(ladder or Ladder())


def _ladder_case(ladder: Ladder) -> Case:
    weights, states, candidates = ladder.drawn()
    settings = ladder.rungs()
    decoders = {name: SharpDecoder(weights, rung, max_len=ladder.tgt_len) for name, rung in settings.items()}
    runs = {name: partial(decoder.decode, states, candidates, ladder.tgt_len) for name, decoder in decoders.items()}
    translations = {name: run() for name, run in runs.items()}
    words = np.array(translations[BASELINE].tokens)
    places = candidate_positions(words, candidates, weights.vocab)
    oracle = ReferenceMember(weights, Arithmetic(np.float64))
    request = SearchRequest(weights.tokens, 1, len(words), False, candidates, 3.0)
    exact = reference_forced(oracle, states, request, words, places).log_probs
    errors = {
        name: float(np.abs(decoder.forced(states, words, candidates).log_probs - exact).max())
        for name, decoder in decoders.items()
    } | dict.fromkeys(other_words(translations), OTHER_WORDS)

    def against(ours: str, baseline: str, baseline_run: str, target: float | None, what: str | None = None) -> Comparison:
        share = translations[ours].distinct_share
        return Comparison(
            ours,
            baseline,
            ladder.work(settings[ours], share),
            (baseline_run,),
            target,
            what or ours,
            f"{100 * share:.0f} % of states distinct",
            errors[ours],
            LOG_PROB_BOUND,
        )

    polynomial, before = NAMES["activations"], NAMES["attention"]
    rung, total = (target_at(avx512=target, avx2=target) for target in (RUNG_TARGET, TOTAL_TARGET))
    comparisons = [against(upper, BEFORE, lower, rung) for lower, upper in pairwise(NAMES.values())]
    comparisons += [against(TABLE, BEFORE, before, rung), against(TABLE, polynomial, polynomial, None)]
    comparisons += [against(LAST, BASELINE, BASELINE, total, "the whole ladder")]
    lengths = f"{ladder.src_len} to {ladder.tgt_len} words"
    text = f"GRU {ladder.width}, beam {ladder.beam}, {lengths}, {ladder.candidates} candidates"
    return Case(text, "hot", runs, tuple(comparisons))


def other_words(translations: Mapping[str, SharpTranslation]) -> list[str]:
    """Return the rungs that are identities but whose translation differs from the translation of the rung before."""
    words = {key: translations[name].tokens for key, name in NAMES.items()}
    return [NAMES[upper] for lower, upper in pairwise(RUNGS) if upper in IDENTITIES and words[upper] != words[lower]]


KERNELS = [
    Kernel(
        name="sharp_decoder",
        meaning="a sentence's whole beam search, technique upon technique",
        source="SHARP-01, SHARP-11",
        reference="kernels.sharp.reference, in numpy and float64",
        bound="0.05 of a word's log-probability along a given translation; identities find the same words as the rung before",
        cost="every matrix once a step, beam x matrix multiply-adds (SHARP-13)",
        baselines=(BASELINE, BEFORE),
        cases=ladder_cases,
        compiled_only=True,
    )
]
