"""Real decoding with all of the vocabulary and with a part of it, in turn: quality, shares, speed (FVP-08, FVP-16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Literal, NamedTuple, cast
from unittest.mock import patch

import numpy as np

from simnmt.batching import Batching, maxi, mini
from simnmt.calibrate.decoder_watch import watched
from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.vocabulary.study.document import Decoded, Told
from simnmt.calibrate.vocabulary.study.held_cells import spread
from simnmt.nmt.agreement import agreement
from simnmt.nmt.batched import BatchedRun, decode_batched
from simnmt.nmt.errors import need
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.translation import LONGEST_SOURCE, Translator
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary
from simnmt.nmt.vocabulary.subset_account import SubsetAccount
from simnmt.nmt.vocabulary.subset_output import SubsetOutput

Way = Literal["dense", "fused", "part"]
WAYS: tuple[Way, ...] = ("dense", "fused", "part")
COLLECT = 10
"""Batches whose sentences are sorted by length before they are cut."""
WARMING = 20
"""Sentences decoded each way before a clock runs."""

WayOf = Callable[[bool, SubsetAccount], RestrictedVocabulary]
"""A part of the vocabulary, audited or not, that tells an account."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """What is decoded: tokens as the model reads them, and what they should become."""

    sources: tuple[tuple[int, ...], ...]
    references: tuple[str, ...] | None

    @classmethod
    def of(cls, translator: Translator, lines: Sequence[str], references: Sequence[str] | None = None) -> Sentences:
        """Sources without a word or too long for the model are left out. Raises `CalibrationError` where none is left."""
        longest = translator.model.max_positions or LONGEST_SOURCE
        encoded = [tuple(ids) for ids in translator.source.encode(lines)]
        kept = [at for at, ids in enumerate(encoded) if 1 < len(ids) <= longest]
        if not kept:
            raise CalibrationError("no sentence that the model can read", remedy="give a text, one sentence a line")
        told = None if references is None else tuple(references[at] for at in kept)
        return cls(tuple(encoded[at] for at in kept), told)

    @property
    def most(self) -> list[int]:
        """Tokens that each may become."""
        return [2 * len(source) + 10 for source in self.sources]

    def first(self, count: int) -> Sentences:
        """The first so many."""
        return Sentences(self.sources[:count], None if self.references is None else self.references[:count])


class Cut(NamedTuple):
    """What is known of a part of the vocabulary, as `Decoded` tells it."""

    way: Literal["clustered", "ibm1", "attention"]
    clusters: int | None = None
    top: int | None = None
    candidates: int | None = None
    always: int | None = None


def batching_of(batch: int) -> Batching:
    """Batches of one as they come, larger ones sorted by length."""
    return mini(1) if batch == 1 else maxi(batch, COLLECT * batch)


def decoded(
    translator: Translator,
    sentences: Sentences,
    part: WayOf,
    cut: Cut,
    *,
    label: str,
    beam: int,
    batch: int,
    rounds: int,
    emitted: int,
) -> Decoded:
    """Decode in `rounds` all three ways in turn, body and output layer watched, then once more with an audit.

    `emitted`: distinct tokens that dense decoding of the direction's text writes. Raises what decoding raises.
    """
    model, sources = translator.model, sentences.sources
    runner = _Runner(translator, sentences, part, beam, batch)
    runs = runner.rounds(rounds)
    seconds = {way: [each.run.total_s for each in runs[way]] for way in WAYS}
    last = {way: runs[way][-1].run for way in WAYS}
    tokens = {way: _written(last[way]) for way in WAYS}
    told = {
        way: Told(
            bleu=_bleu(translator, sentences, last[way]),
            tokens_per_s=tokens[way] / median(seconds[way]),
            rounds_s=tuple(seconds[way]),
            steps=len(last[way].active),
            layer_s=median(each.layer_s for each in runs[way]),
            body_s=median(each.body_s for each in runs[way]),
        )
        for way in WAYS
    }
    account = SubsetAccount()
    audited = runner.run("part", part(True, account))
    compared = agreement(model, sources, last["dense"].hypotheses, audited.hypotheses, beam=beam, max_len=sentences.most)
    shares = spread(np.asarray(account.columns), model.vocab)
    dense, fused, own = (told[way] for way in WAYS)
    share = median(each.layer_s / each.run.total_s for each in runs["dense"])
    ratio = median(_a_step(runs["dense"], runs["part"], lambda each: each.layer_s))
    return Decoded(
        label=label,
        **cut._asdict(),
        beam=beam,
        batch=batch,
        sentences=len(sources),
        dense=dense,
        fused=fused,
        part=own,
        identical=compared.equal / len(sources),
        near_ties=len(compared.near_ties),
        token_agreement=compared.equal_tokens,
        miss_rate=account.miss_rate,
        share=shares,
        share_of_emitted=shares.mean * model.vocab / emitted,
        emitted=emitted,
        layer_share=share,
        layer_ratio=ratio,
        step_ratio=median(_a_step(runs["dense"], runs["part"], lambda each: each.layer_s + each.body_s)),
        predicted=1.0 / (1.0 - share + share / ratio),
        measured=median(_gains(seconds["dense"], seconds["part"], tokens["dense"], tokens["part"])),
        measured_over_fused=median(_gains(seconds["fused"], seconds["part"], tokens["fused"], tokens["part"])),
        layer_ratio_over_fused=median(_a_step(runs["fused"], runs["part"], lambda each: each.layer_s)),
    )


def speed_ratios(
    translator: Translator, sentences: Sentences, parts: Sequence[WayOf], *, beam: int, batch: int, rounds: int
) -> list[tuple[float, ...]]:
    """Of each part, tokens a second over plain dense decoding's, round by round, all in turn (figure 3)."""
    runners = [_Runner(translator, sentences, part, beam, batch) for part in parts]
    found: list[list[float]] = [[] for _ in parts]
    for runner in runners:
        runner.warm(("part",))
    runners[0].warm(("dense",))
    for number in range(rounds):
        dense = runners[0].run("dense")
        order = list(enumerate(runners))
        for at, runner in order if number % 2 == 0 else reversed(order):
            own = runner.run("part")
            found[at] += _gains([dense.total_s], [own.total_s], _written(dense), _written(own))
    return [tuple(each) for each in found]


class _Watched(NamedTuple):
    """A decoding, and where its time went."""

    run: BatchedRun
    body_s: float
    layer_s: float


class _Runner:
    """The same sentences, decoded one way or another."""

    def __init__(self, translator: Translator, sentences: Sentences, part: WayOf, beam: int, batch: int) -> None:
        self._model, self._sentences, self._part = translator.model, sentences, part
        self._beam, self._batch = beam, batch

    def run(self, way: Way, vocabulary: RestrictedVocabulary | None = None, sentences: Sentences | None = None) -> BatchedRun:
        given = sentences or self._sentences
        if way == "part" and vocabulary is None:
            vocabulary = self._part(False, SubsetAccount())
        return decode_batched(
            self._model,
            given.sources,
            batching_of(self._batch),
            beam=self._beam,
            max_len=given.most,
            fused=way == "fused",
            vocabulary=vocabulary,
        )

    def warm(self, ways: Sequence[Way] = WAYS) -> None:
        """A few sentences that nobody times."""
        for way in ways:
            self.run(way, sentences=self._sentences.first(WARMING))

    def rounds(self, rounds: int) -> dict[Way, list[_Watched]]:
        """All ways in turn, each round in another order."""
        self.warm()
        found: dict[Way, list[_Watched]] = {way: [] for way in WAYS}
        for number in range(rounds):
            first = number % len(WAYS)
            for way in WAYS[first:] + WAYS[:first]:
                found[way].append(self._watched(way))
        return found

    def _watched(self, way: Way) -> _Watched:
        """With a clock around body and output layer of each step."""
        with watched(cast("TranslationModel", self._model)) as seconds, _part_watched() as part_s:
            run = self.run(way)
        body_s = seconds["body"]
        # What the part shares with the fused layer lies within its own clock.
        return _Watched(run, body_s, part_s[0] if way == "part" else sum(seconds.values()) - body_s)


@contextmanager
def _part_watched() -> Iterator[list[float]]:
    """Seconds in the output layer over a part of the vocabulary, the choice of columns and among a beam's rows included."""
    spent = [0.0]

    def timed(do: Any) -> Any:
        def run(*given: Any) -> Any:
            before = perf_counter()
            found = do(*given)
            spent[0] += perf_counter() - before
            return found

        return run

    names = ("project", "likeliest", "largest_sums")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patch.object(SubsetOutput, name, timed(getattr(SubsetOutput, name))))
        yield spent


def _a_step(before: Sequence[_Watched], after: Sequence[_Watched], of: Callable[[_Watched], float]) -> list[float]:
    """How many times a step took what it takes now, by round."""
    return [
        (of(other) / len(other.run.active)) / (of(own) / len(own.run.active)) for other, own in zip(before, after, strict=True)
    ]


def _written(run: BatchedRun) -> int:
    """Tokens, end tokens included."""
    return sum(len(each.tokens) + 1 for each in run.hypotheses)


def _gains(before_s: Sequence[float], after_s: Sequence[float], before: int, after: int) -> list[float]:
    """Tokens a second over what they were, by round."""
    return [(after / own) / (before / other) for own, other in zip(after_s, before_s, strict=True)]


def _bleu(translator: Translator, sentences: Sentences, run: BatchedRun) -> float | None:
    if sentences.references is None:
        return None
    texts = translator.target.decode([list(each.tokens) for each in run.hypotheses])
    metric = need("sacrebleu.metrics").BLEU()
    return float(metric.corpus_score(texts, [list(sentences.references)]).score)
