"""The sharp decoder's case: the paper's ladder on a 1024 GRU, each rung upon the one before (SHARP-11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.cases_output import level_name
from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.interleaved import Run
from simnmt.kernels.roofline import Number
from simnmt.kernels.sharp import Attention, BottomCell, SharpDecoder, SharpTokens, SharpWeights
from simnmt.kernels.sharp.operations import DecoderShape, operations

BASELINE, LAST, TABLE, POLYNOMIAL = "packed float32", "+ merge", "+ table activations", "+ polynomial activations"
BEFORE = "the rung before"
TOTAL_TARGET, RUNG_TARGET = 4.4, 0.98
LOG_PROB_BOUND = 0.02
"""Of a word's log-probability along a given translation, against the baseline: weights and values in 16 bits move it; so does a
table. The identities move it by rounding alone (SHARP-10)."""


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

    def rungs(self) -> dict[str, DecoderSettings]:
        """By name, in order; the table stands beside the polynomial, upon the same rung."""
        settings: dict[str, Any] = {"beam": self.beam, "gemm": "float32", "candidates": self.candidates}
        found = {BASELINE: DecoderSettings(**settings)}
        for name, change in (
            ("+ int16", {"gemm": "int16"}),
            ("+ embeddings", {"embeddings": "precomputed"}),
            ("+ attention", {"attention": "precomputed"}),
            (TABLE, {"activations": "table"}),
            (POLYNOMIAL, {"activations": "polynomial"}),
            (LAST, {"merge": True}),
        ):
            settings |= change
            found[name] = DecoderSettings(**settings)
        return found

    def work(self, settings: DecoderSettings, distinct: float) -> Work:
        """Every matrix read once a step and multiplied with every hypothesis; `distinct`: share of their states that differ."""
        shape = DecoderShape("attgru", self.width, self.embedding, self.width, self.width, (), self.candidates)
        each = operations(shape, settings, self.src_len, distinct_share=distinct)
        whole = operations(shape, settings.model_copy(update={"merge": False}), self.src_len)
        matrices = whole.recurrent + whole.embedding + whole.context + whole.output
        number: Number = "int16" if settings.gemm == "int16" else "float32"
        size_bytes = (2 if number == "int16" else 4) * matrices + 4 * whole.attention
        return Work(round(size_bytes), round(self.beam * each.step), number, self.tgt_len)


def ladder_cases(threads: int, ladder: Ladder | None = None) -> Iterator[Case]:
    """One contest of all rungs; none without compiled kernels, where only numpy would be measured."""
    ladder = ladder or Ladder()
    if level_name() == "fallback":
        return
    text = f"GRU {ladder.width}, beam {ladder.beam}, {ladder.src_len} to {ladder.tgt_len} words, {ladder.candidates} candidates"
    yield Case(text, False, level_name(), lambda: _contest(ladder))


def _contest(ladder: Ladder) -> Contest:
    weights, states = _weights(ladder), np.tanh(_drawn(2, ladder.src_len, ladder.width, reach=1.0))
    candidates = np.sort(np.random.default_rng(3).choice(np.arange(4, ladder.vocab), ladder.candidates - 1, replace=False))
    candidates = np.concatenate([[weights.tokens.eos], candidates])
    settings = ladder.rungs()
    decoders = {
        name: SharpDecoder(weights, each, max_len=ladder.tgt_len, most_src_len=ladder.src_len)
        for name, each in settings.items()
    }

    def decoded(name: str) -> Run:
        return lambda: decoders[name].decode(states, candidates, ladder.tgt_len)

    plain = decoders[BASELINE].decode(states, candidates, ladder.tgt_len)
    tokens, distinct = plain.tokens, plain.distinct_share
    along = {name: decoder.forced(states, tokens, candidates).log_probs for name, decoder in decoders.items()}

    def against(ours: str, baseline: str, way: str, target: float | None, what: str | None = None) -> Comparison:
        error = float(np.abs(along[ours] - along[BASELINE]).max())
        return Comparison(
            ours, baseline, (way,), ladder.work(settings[ours], distinct), target, what or ours, error, LOG_PROB_BOUND
        )

    main = [name for name in settings if name != TABLE]
    comparisons = [against(upper, BEFORE, lower, RUNG_TARGET) for lower, upper in pairwise(main)]
    comparisons += [against(TABLE, BEFORE, "+ attention", None), against(TABLE, POLYNOMIAL, POLYNOMIAL, None)]
    comparisons += [against(LAST, BASELINE, BASELINE, TOTAL_TARGET, "the whole ladder")]
    return Contest({name: decoded(name) for name in settings}, tuple(comparisons))


def _weights(ladder: Ladder) -> SharpWeights:
    r, e = ladder.width, ladder.embedding
    attention = Attention("dot_of_tanh", *(_drawn(seed, r, size) for seed, size in ((11, r), (12, e), (13, r))))
    shapes = ((3 * r, r), (3 * r, e), (3 * r, r))
    state, word, context = (_drawn(seed, *shape) for seed, shape in zip((14, 15, 16), shapes, strict=True))
    return SharpWeights(
        embedding=_drawn(17, ladder.vocab, e, reach=1.0),
        bottom=BottomCell("attgru", state, word, context, np.zeros(3 * r, np.float32), attention),
        stack=(),
        output=_drawn(18, ladder.vocab, r),
        output_bias=np.zeros(ladder.vocab, np.float32),
        tokens=SharpTokens(start=2, eos=3, unk=1, pad=0),
    )


def _drawn(seed: int, rows: int, columns: int, reach: float | None = None) -> NDArray[np.float32]:
    """Uniform; so spread by default that a product with values about 1 is about 1."""
    reach = min((3.0 / columns) ** 0.5, 1.0) if reach is None else reach
    return np.random.default_rng(seed).uniform(-reach, reach, (rows, columns)).astype(np.float32)
