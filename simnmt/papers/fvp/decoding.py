"""Decode real text with all of the vocabulary and with a part of it: quality, active shares, speed (FVP-08, FVP-16).

The harness times the text stretch by stretch, a fraction of a second in which the methods take turns, so that a disturbance
of the box costs a stretch and not a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import ceil
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simnmt.batching import maxi, mini
from simnmt.calibrate.decoder_speeds import watched
from simnmt.calibrate.harness import Case, counted, matrix_reference, nothing, rounds
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.agreement import agreement
from simnmt.nmt.decoder import BatchedRun
from simnmt.nmt.decoder import decode as decode_sentences
from simnmt.nmt.errors import need
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.output_layer import Output
from simnmt.nmt.search import Search
from simnmt.nmt.source_lines import LONGEST_SOURCE
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount
from simnmt.papers.fvp.study import Decoded
from simnmt.papers.fvp.texts import Sample

COLLECT = 10
"""Batches whose sentences are sorted by length before they are cut."""
WARMING = 20
"""Sentences decoded with each method before timing starts."""
LEAST_STRETCH = 10
"""Sentences of a stretch at least, less than half a second of a small decoder: shared cores change their speed after that."""
PLAIN = Output()
"""All of the vocabulary: projection, softmax and search one after the other."""
LEAST_CALM = 2 / 3
"""Share of the stretches of all rounds that must be undisturbed for times to decide anything."""


class Sentences(NamedTuple):
    """Encoded sources as the model reads them, and their translations."""

    sources: Sequence[Sequence[int]]
    references: Sequence[str] | None

    @classmethod
    def of(cls, translator: Translator, sample: Sample) -> Sentences:
        """Encode the lines; leave out empty and too long sources. Raises `CalibrationError` if none is left."""
        longest, encoded = translator.model.max_positions or LONGEST_SOURCE, translator.source.encode(sample.sources)
        kept = [at for at, ids in enumerate(encoded) if 1 < len(ids) <= longest]
        if not kept:
            raise CalibrationError("the text has no sentence that the model reads", remedy="give a text, one sentence a line")
        return cls(encoded, sample.references).at(kept)

    @property
    def max_len(self) -> list[int]:
        """Return the most tokens of each translation."""
        return [2 * len(source) + 10 for source in self.sources]

    def at(self, places: Iterable[int]) -> Sentences:
        """Return the sentences at these places."""
        places, references = list(places), self.references
        return Sentences([self.sources[at] for at in places], references and [references[at] for at in places])

    def pieces(self, size: int) -> list[Sentences]:
        """Return consecutive pieces of `size` sentences, the last one with the rest."""
        return [self.at(range(len(self.sources))[begin : begin + size]) for begin in range(0, len(self.sources), size)]

    def in_batch_order(self, batch: int) -> Sentences:
        """Return the sentences in the order in which batches of this size are cut from them."""
        if batch == 1:
            return self
        every = range(len(self.sources))
        collected = (every[begin : begin + COLLECT * batch] for begin in every[:: COLLECT * batch])
        return self.at(chain.from_iterable(sorted(piece, key=lambda at: len(self.sources[at])) for piece in collected))


def decode(translator: Translator, sentences: Sentences, beam: int, batch: int, output: Output = PLAIN) -> BatchedRun:
    """Decode sentences once."""
    return decode_sentences(
        translator.model,
        sentences.sources,
        mini(1) if batch == 1 else maxi(batch, COLLECT * batch),
        search=Search(beam),
        output=output,
        max_len=sentences.max_len,
    )


def bleu_of(translator: Translator, sentences: Sentences, tokens: Sequence[Sequence[int]]) -> float | None:
    """Return the BLEU of translations; None without references. Raises `NmtError` without sacrebleu."""
    if sentences.references is None:
        return None
    texts = translator.target.decode([list(hypothesis) for hypothesis in tokens])
    return float(need("sacrebleu.metrics").BLEU().corpus_score(texts, [list(sentences.references)]).score)


def identical_share(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> float:
    """Return the share of sentences that are the same; ties and rounding differ too."""
    return sum(tuple(first) == tuple(second) for first, second in zip(one, other, strict=True)) / len(one)


@dataclass(frozen=True, slots=True)
class TimedText:
    """A text decoded in rounds by several methods, in turn, stretch by stretch."""

    frame: pd.DataFrame
    """By round and method the sums over the stretches that count: `total_s`, `body_s`, `layer_s`, `steps`, `tokens`."""
    hypotheses: Mapping[str, list[Any]]
    """By method, of the whole text."""
    conclusive: bool
    """Enough stretches were undisturbed in all methods; else all of them count."""

    def by_round(self, value: Callable[[pd.DataFrame], Any], method: str) -> NDArray[np.float64]:
        """Return a value of a method in each round."""
        rows: Any = self.frame.xs(method, level="method")
        return np.asarray(value(rows), np.float64)

    def ratios(self, value: Callable[[pd.DataFrame], Any], above: str, below: str) -> tuple[float, ...]:
        """Return the value of one method over that of another, by round."""
        return tuple((self.by_round(value, above) / self.by_round(value, below)).tolist())

    def tokens(self, method: str) -> list[tuple[int, ...]]:
        """Return the tokens that a method wrote, by sentence."""
        return [hypothesis.tokens for hypothesis in self.hypotheses[method]]


def tokens_per_s(sums: pd.DataFrame) -> Any:
    """Return the written tokens per second, end tokens included."""
    return sums.tokens / sums.total_s


def step_layer_s(sums: pd.DataFrame) -> Any:
    """Return the seconds of the output layer in a step."""
    return sums.layer_s / sums.steps


def time_methods(
    translator: Translator,
    sentences: Sentences,
    beam: int,
    batch: int,
    methods: Mapping[str, Output],
    count: int,
    stretch: int = LEAST_STRETCH,
    **harness: Any,
) -> TimedText:
    """Decode a text in rounds, each stretch of it by all methods in turn, beside reference work.

    Args:
        translator: the model.
        sentences: the text, in batch order.
        beam: hypotheses per sentence.
        batch: sentences decoded together.
        methods: by name.
        count: number of rounds.
        stretch: sentences of a stretch at least; whole batches are taken, so that they are those of the whole text.
        harness: further arguments of `rounds`.
    """
    pieces = sentences.pieces(batch * ceil(stretch / batch))
    written: dict[tuple[int, str], Sequence[Any]] = {}

    def run(place: int, name: str) -> dict[str, float]:
        output, account = methods[name], SubsetAccount(clock=perf_counter)
        if output.vocabulary is not None:
            output = replace(output, vocabulary=replace(output.vocabulary, account=account))
        with watched(cast("TranslationModel", translator.model)) as seconds:
            done = decode(translator, pieces[place], beam, batch, output)
        written[place, name] = done.hypotheses
        layer_s = sum(seconds.values()) - seconds["body"]
        if output.vocabulary is not None:
            layer_s = sum(account.assign_s) + sum(account.product_s) + sum(account.search_s)
        tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in done.hypotheses)
        numbers = {"total_s": done.total_s, "body_s": seconds["body"], "layer_s": layer_s}
        return numbers | {"steps": len(done.active), "tokens": tokens}

    for output in methods.values():
        decode(translator, sentences.at(range(min(WARMING, len(sentences.sources)))), beam, batch, output)
    cases = {
        (place, name): Case(partial(run, place, name), prepare=nothing, about={"piece": place, "method": name})
        for place in range(len(pieces))
        for name in methods
    }
    rows = counted(rounds(cases, count, reference=matrix_reference(), name="stretches", **harness), every=True)
    disturbed = rows.groupby(["round", "piece"])["disturbed"].transform("any")
    calm = 1.0 - float(disturbed.mean()) >= LEAST_CALM
    columns = ["total_s", "body_s", "layer_s", "steps", "tokens"]
    sums = (rows[~disturbed] if calm else rows).groupby(["round", "method"])[columns].sum()
    hypotheses = {name: list(chain.from_iterable(written[place, name] for place in range(len(pieces)))) for name in methods}
    return TimedText(sums, hypotheses, calm)


def timed_decoding(
    translator: Translator,
    sample: Sentences,
    beam: int,
    batch: int,
    part: RestrictedVocabulary,
    count: int,
    *,
    stretch: int = LEAST_STRETCH,
    watch: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Decoded:
    """Decode a text with one search, by all methods in turn; `settings`: further fields of the result."""
    sentences = sample.in_batch_order(batch)
    methods = {"dense": PLAIN, "fused": Output(fused=True), "part": Output(vocabulary=part)}
    timed = time_methods(translator, sentences, beam, batch, methods, count, stretch, **(watch or {}))
    account = SubsetAccount()
    audited = decode(translator, sentences, beam, batch, Output(vocabulary=replace(part, audit=True, account=account)))
    dense, max_len = timed.hypotheses["dense"], sentences.max_len
    compared = agreement(translator.model, sentences.sources, dense, audited.hypotheses, beam=beam, max_len=max_len)
    shares = np.asarray(account.columns) / translator.model.vocab
    speeds = {name: median(timed.by_round(tokens_per_s, name).tolist()) for name in methods}
    bodies = {name: median(timed.by_round(lambda sums: sums.body_s / sums.steps, name).tolist()) for name in methods}
    return Decoded(
        beam=beam,
        batch=batch,
        sentences=len(sentences.sources),
        identical=compared.equal / len(sentences.sources),
        token_agreement=compared.equal_tokens,
        conclusive=timed.conclusive,
        bleu=bleu_of(translator, sentences, timed.tokens("dense")),
        bleu_part=bleu_of(translator, sentences, timed.tokens("part")),
        tokens_per_s=speeds["dense"],
        tokens_per_s_fused=speeds["fused"],
        tokens_per_s_part=speeds["part"],
        layer_share=median(timed.by_round(lambda sums: sums.layer_s / sums.total_s, "dense").tolist()),
        layer_us=1e6 * median(timed.by_round(step_layer_s, "part").tolist()),
        body_ratio=bodies["dense"] / bodies["part"],
        near_ties=len(compared.near_ties),
        miss_rate=account.miss_rate,
        share_mean=float(shares.mean()),
        share_most=float(shares.max()),
        gains=timed.ratios(tokens_per_s, "part", "dense"),
        gains_over_fused=timed.ratios(tokens_per_s, "part", "fused"),
        layer_ratios=timed.ratios(step_layer_s, "dense", "part"),
        layer_ratios_over_fused=timed.ratios(step_layer_s, "fused", "part"),
        **settings,
    )
