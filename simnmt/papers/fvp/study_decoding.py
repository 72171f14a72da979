"""Decode real text with all of the vocabulary and with a part of it: quality, active shares, speed (FVP-08, FVP-16).

A round decodes the whole text with every method, stretch by stretch: a fraction of a second in which the methods alternate.
After a disturbance of the machine only the disturbed stretches are measured again, not the whole round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import ceil
from statistics import median
from time import perf_counter
from typing import Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np

from simnmt.batching import Batching, maxi, mini
from simnmt.calibrate.decoder_speeds import watched
from simnmt.calibrate.round_guard import Checkpoint, GuardedRound, RoundGuard
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.agreement import agreement
from simnmt.nmt.decoder import BatchedRun, decode
from simnmt.nmt.errors import need
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.output_layer import Output
from simnmt.nmt.search import Search
from simnmt.nmt.subwords import LONGEST_SOURCE
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount
from simnmt.papers.fvp.study import Decoded, DecodingResult, RoundsKept, Selection, Speed
from simnmt.papers.fvp.study_clusters import spread
from simnmt.papers.fvp.study_texts import Sample

Method = Literal["dense", "fused", "part"]
METHODS: tuple[Method, ...] = ("dense", "fused", "part")
COLLECT = 10
"""Batches whose sentences are sorted by length before they are cut."""
WARMING = 20
"""Sentences decoded with each method before timing starts."""
LEAST_SHARE = 2 / 3
"""Share of the stretches of a round, and of all rounds, that must be undisturbed to count."""
LEAST_STRETCH_SIZE = 10
"""Sentences of a stretch at least, less than half a second of a small decoder: shared cores change their speed after that."""

MakeVocabulary = Callable[[bool, SubsetAccount], RestrictedVocabulary]
"""Makes a part of the vocabulary, audited or not, that records its work in an account."""
T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


class VocabularyPart(NamedTuple):
    """The settings of a part of the vocabulary, as in `Decoded`."""

    selection: Selection
    clusters: int | None = None
    top: int | None = None
    candidates: int | None = None
    always: int | None = None


@dataclass(frozen=True, slots=True)
class TimedSearch:
    """A search whose speed is measured on one direction's text."""

    label: str
    """Direction."""
    beam: int
    batch: int
    rounds: int
    """Number of times that the text is decoded."""
    guard: RoundGuard = field(default_factory=RoundGuard)
    """Rejects disturbed stretches and measures them again."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """Encoded sources as the model reads them, and their translations."""

    sources: tuple[tuple[int, ...], ...]
    references: tuple[str, ...] | None

    @classmethod
    def of(cls, translator: Translator, sample: Sample) -> Sentences:
        """Encode the lines; leave out empty and too long sources. Raises `CalibrationError` if none is left."""
        longest = translator.model.max_positions or LONGEST_SOURCE
        references = None if sample.references is None else tuple(sample.references)
        encoded = cls(tuple(tuple(ids) for ids in translator.source.encode(sample.sources)), references)
        kept = [at for at, ids in enumerate(encoded.sources) if 1 < len(ids) <= longest]
        if not kept:
            raise CalibrationError("the text has no sentence that the model reads", remedy="give a text, one sentence a line")
        return encoded._at(kept)

    @property
    def max_len(self) -> list[int]:
        """Return the most tokens of each translation."""
        return [2 * len(source) + 10 for source in self.sources]

    def first(self, count: int) -> Sentences:
        """Return the first `count` sentences."""
        return self._at(range(len(self.sources))[:count])

    def in_batch_order(self, batch: int) -> Sentences:
        """Return the sentences in the order in which batches of this size are cut from them, see `batching_of`."""
        if batch == 1:
            return self
        collections = _pieces(len(self.sources), COLLECT * batch)
        return self._at(chain.from_iterable(sorted(piece, key=lambda at: len(self.sources[at])) for piece in collections))

    def stretches(self, count: int) -> list[Sentences]:
        """Return the text in consecutive stretches of `count` sentences, the last one with the rest."""
        return [self._at(piece) for piece in _pieces(len(self.sources), count)]

    def _at(self, places: Iterable[int]) -> Sentences:
        places, references = tuple(places), self.references
        return Sentences(
            tuple(self.sources[at] for at in places), None if references is None else tuple(references[at] for at in places)
        )


def _pieces(count: int, size: int) -> list[range]:
    return [range(count)[begin : begin + size] for begin in range(0, count, size)]


def batching_of(batch: int) -> Batching:
    """Return the batching: batches of one as they come, larger ones sorted by length."""
    return mini(1) if batch == 1 else maxi(batch, COLLECT * batch)


class Watched(NamedTuple):
    """A decoding, and the seconds below and in its output layer."""

    run: BatchedRun
    body_s: float
    layer_s: float

    @staticmethod
    def concatenate(parts: Sequence[Watched]) -> Watched:
        """Return decodings of consecutive stretches as one."""
        runs, body_s, layer_s = zip(*parts, strict=True)
        return Watched(concatenate_runs(runs), sum(body_s), sum(layer_s))

    @property
    def step_layer_s(self) -> float:
        """Return the seconds of the output layer in a step."""
        return self.layer_s / len(self.run.active)

    @property
    def step_body_s(self) -> float:
        """Return the seconds of the rest of a step."""
        return self.body_s / len(self.run.active)


def concatenate_runs(runs: Sequence[BatchedRun]) -> BatchedRun:
    """Return runs over consecutive stretches of a text as one run; without an account of the vocabulary."""
    return BatchedRun(
        hypotheses=tuple(hypothesis for run in runs for hypothesis in run.hypotheses),
        active=np.concatenate([run.active for run in runs]),
        step_s=np.concatenate([run.step_s for run in runs]),
        encode_s=sum(run.encode_s for run in runs),
        refill_s=sum(run.refill_s for run in runs),
        total_s=sum(run.total_s for run in runs),
        encodings=sum(run.encodings for run in runs),
        refills=sum(run.refills for run in runs),
    )


class Runner:
    """Decodes the same sentences with one search and any method."""

    def __init__(
        self, translator: Translator, sentences: Sentences, beam: int, batch: int, part: MakeVocabulary | None = None
    ) -> None:
        """`part`: makes the part of the vocabulary for the method `part`."""
        self._translator, self._model, self._sentences, self._part = translator, translator.model, sentences, part
        self.beam, self.batch = beam, batch

    def run(
        self, method: Method, sentences: Sentences | None = None, *, audit: bool = False, account: SubsetAccount | None = None
    ) -> BatchedRun:
        """Decode these sentences or others once; `account` records the work of a part."""
        decoded = sentences or self._sentences
        vocabulary = None
        if method == "part":
            if self._part is None:
                raise ValueError("no part of the vocabulary to decode with")
            vocabulary = self._part(audit, account or SubsetAccount())
        return decode(
            self._model,
            decoded.sources,
            batching_of(self.batch),
            search=Search(self.beam),
            output=Output(method == "fused", vocabulary),
            max_len=decoded.max_len,
        )

    def warm(self, methods: Sequence[Method] = METHODS) -> None:
        """Decode a few sentences without timing them."""
        for method in methods:
            self.run(method, sentences=self._sentences.first(WARMING))

    def stretch_size(self, least: int) -> int:
        """Return the sentences of a stretch: `least` or more, in whole batches, so that they are those of the whole text.

        The text must be in batch order.
        """
        return self.batch * ceil(least / self.batch)

    def watched(self, method: Method, sentences: Sentences | None = None) -> Watched:
        """Decode these sentences or others, with a clock around body and output layer of each step."""
        account = SubsetAccount(clock=perf_counter)
        with watched(cast("TranslationModel", self._model)) as seconds:
            run = self.run(method, account=account, sentences=sentences)
        body_s = seconds["body"]
        if method == "part":
            return Watched(run, body_s, sum(account.assign_s) + sum(account.product_s) + sum(account.search_s))
        return Watched(run, body_s, sum(seconds.values()) - body_s)

    def bleu(self, run: BatchedRun) -> float | None:
        """Return the BLEU of a run; None without references. Raises `NmtError` without sacrebleu."""
        if self._sentences.references is None:
            return None
        texts = self._translator.target.decode([list(hypothesis.tokens) for hypothesis in run.hypotheses])
        metric = need("sacrebleu.metrics").BLEU()
        return float(metric.corpus_score(texts, [list(self._sentences.references)]).score)


class Similarity(NamedTuple):
    """Agreement of two decodings."""

    identical: float
    """Share of the sentences."""
    token_agreement: float
    """Share of tokens that are the same at the same place, of the longer of both sentences; 1 if there is no token."""


def similarity(one: BatchedRun, other: BatchedRun) -> Similarity:
    """Compare two runs token by token; ties and rounding count as differences too."""
    pairs = [(first.tokens, second.tokens) for first, second in zip(one.hypotheses, other.hypotheses, strict=True)]
    tokens = sum(max(map(len, pair)) for pair in pairs)
    same = sum(first == second for pair in pairs for first, second in zip(*pair, strict=False))
    return Similarity(sum(first == second for first, second in pairs) / len(pairs), same / tokens if tokens else 1.0)


@dataclass(frozen=True, slots=True)
class StretchedRounds(Generic[T]):
    """Rounds over the stretches of a text."""

    rounds: list[list[T]]
    """Per round the results of the stretches that count; a round of which fewer than `LEAST_SHARE` count is left out."""
    whole: list[T]
    """The first round's result of every stretch, counted or not: its translations are of the whole text."""
    kept: RoundsKept


def measure_stretches(
    guard: RoundGuard, sentences: Sentences, rounds: int, stretch_size: int, run: Callable[[int, Sentences, Checkpoint], T]
) -> StretchedRounds[T]:
    """Measure rounds over a text, stretch by stretch, each stretch again while the guard calls it disturbed.

    Args:
        guard: judges each stretch by itself.
        sentences: the text.
        rounds: how often each stretch is wanted.
        stretch_size: sentences of a stretch; the last one may have fewer.
        run: `run(number, stretch, checkpoint)` decodes a stretch with every method, in an order that `number` chooses.

    Returns:
        The rounds. Only undisturbed stretches count; if these are too few for a conclusion, the last measurement of each does.
    """
    stretches = sentences.stretches(stretch_size)

    def measure(number: int, place: int) -> GuardedRound[T]:
        name = f"round {number + 1}, stretch {place + 1}"
        return guard.measure(lambda checkpoint: run(number + place, stretches[place], checkpoint), name)

    measured = [[measure(number, place) for place in range(len(stretches))] for number in range(rounds)]
    checks = [check for one_round in measured for stretch in one_round for check in stretch.checks]
    wanted, rejected = rounds * len(stretches), sum(check.disturbed for check in checks)
    kept = RoundsKept(
        wanted=wanted,
        measured=len(checks),
        rejected=rejected,
        conclusive=len(checks) - rejected >= ceil(LEAST_SHARE * wanted),
        worst_others_cpus=max((check.others_cpus for check in checks if check.others_cpus is not None), default=None),
        worst_reference_spread=max(check.reference_spread for check in checks),
    )
    counted = [[stretch.result for stretch in one_round if stretch.conclusive or not kept.conclusive] for one_round in measured]
    enough = [one_round for one_round in counted if len(one_round) >= LEAST_SHARE * len(stretches)]
    return StretchedRounds(enough, [stretch.result for stretch in measured[0]], kept)


def alternating(jobs: Mapping[Key, Callable[[Sentences], T]]) -> Callable[[int, Sentences, Checkpoint], dict[Key, T]]:
    """Return a function for `measure_stretches` that runs all jobs on a stretch; its number chooses which job is first."""

    def run(number: int, stretch: Sentences, checkpoint: Checkpoint) -> dict[Key, T]:
        order, results = deque(jobs), dict[Key, T]()
        order.rotate(-number)
        for name in order:
            checkpoint()
            results[name] = jobs[name](stretch)
        return results

    return run


def decode_in_rounds(
    translator: Translator,
    sentences: Sentences,
    make_vocabulary: MakeVocabulary,
    part: VocabularyPart,
    search: TimedSearch,
    *,
    emitted: int,
    active_mass: float | None = None,
    stretch_size: int | None = None,
) -> Decoded:
    """Decode with one search in guarded rounds, each stretch with all three methods; then once with an audit.

    Body and output layer are timed, and the method that goes first changes with each stretch. Raises what decoding raises.

    Args:
        translator: the model.
        sentences: the text.
        make_vocabulary: makes the part of the vocabulary.
        part: its settings, for the result.
        search: beam, batch, rounds and guard.
        emitted: distinct tokens that dense decoding of the direction's text writes.
        active_mass: see `Decoded`.
        stretch_size: sentences of a stretch, by default `LEAST_STRETCH_SIZE` or a batch.
    """
    beam, ordered = search.beam, sentences.in_batch_order(search.batch)
    runner = Runner(translator, ordered, beam, search.batch, make_vocabulary)
    runner.warm()
    jobs = {method: partial(runner.watched, method) for method in METHODS}
    size = stretch_size or runner.stretch_size(LEAST_STRETCH_SIZE)
    measured = measure_stretches(search.guard, ordered, search.rounds, size, alternating(jobs))
    runs = {
        method: [Watched.concatenate([stretch[method] for stretch in one_round]) for one_round in measured.rounds]
        for method in METHODS
    }
    whole = {method: concatenate_runs([stretch[method].run for stretch in measured.whole]) for method in METHODS}
    dense, fused, restricted = (_decoding_result(runner, runs[method], whole[method]) for method in METHODS)
    account = SubsetAccount()
    audited = runner.run("part", audit=True, account=account)
    model, vocab = translator.model, translator.model.vocab
    compared = agreement(
        model, ordered.sources, whole["dense"].hypotheses, audited.hypotheses, beam=beam, max_len=ordered.max_len
    )
    shares = spread(np.asarray(account.columns), vocab)
    return Decoded(
        label=search.label,
        **part._asdict(),
        beam=beam,
        batch=search.batch,
        sentences=len(ordered.sources),
        dense=dense,
        fused=fused,
        part=restricted,
        identical=compared.equal / len(ordered.sources),
        near_ties=len(compared.near_ties),
        token_agreement=compared.equal_tokens,
        miss_rate=account.miss_rate,
        share=shares,
        share_of_emitted=shares.mean * vocab / emitted,
        emitted=emitted,
        layer_share=median(dense_round.layer_s / dense_round.run.total_s for dense_round in runs["dense"]),
        step_ratio=median(_ratios(runs["dense"], runs["part"], lambda decoding: decoding.step_layer_s + decoding.step_body_s)),
        gains=_ratios(runs["part"], runs["dense"], lambda decoding: tokens_per_s(decoding.run)),
        gains_over_fused=_ratios(runs["part"], runs["fused"], lambda decoding: tokens_per_s(decoding.run)),
        layer_ratios=_ratios(runs["dense"], runs["part"], lambda decoding: decoding.step_layer_s),
        layer_ratios_over_fused=_ratios(runs["fused"], runs["part"], lambda decoding: decoding.step_layer_s),
        active_mass=active_mass,
        rounds=measured.kept,
    )


def _decoding_result(runner: Runner, runs: Sequence[Watched], whole: BatchedRun) -> DecodingResult:
    steps = len(whole.active)
    return DecodingResult(
        bleu=runner.bleu(whole),
        tokens_per_s=median(tokens_per_s(one_round.run) for one_round in runs),
        rounds_s=tuple(decoding.run.total_s for decoding in runs),
        steps=steps,
        layer_s=steps * median(one_round.step_layer_s for one_round in runs),
        body_s=steps * median(one_round.step_body_s for one_round in runs),
        layer_rounds_s=tuple(decoding.layer_s for decoding in runs),
        body_rounds_s=tuple(decoding.body_s for decoding in runs),
    )


def tokens_per_s(run: BatchedRun) -> float:
    """Return the tokens that a run wrote per second, end tokens included."""
    return sum(len(hypothesis.tokens) + 1 for hypothesis in run.hypotheses) / run.total_s


def _ratios(above: Sequence[Watched], below: Sequence[Watched], value: Callable[[Watched], float]) -> tuple[float, ...]:
    """Return the value of one method over that of another, by round."""
    return tuple(value(one) / value(other) for one, other in zip(above, below, strict=True))


def measure_speeds(
    translator: Translator,
    sentences: Sentences,
    makers: Mapping[tuple[int, int], MakeVocabulary],
    search: TimedSearch,
) -> list[Speed]:
    """Measure the tokens per second of parts of the vocabulary over those of plain dense decoding (figure 3).

    `makers`: by r and K.
    """
    sentences = sentences.in_batch_order(search.batch)
    jobs: dict[tuple[int, int] | None, Callable[[Sentences], BatchedRun]] = {}
    for cell, maker in ((None, None), *makers.items()):
        method: Method = "dense" if cell is None else "part"
        runner = Runner(translator, sentences, search.beam, search.batch, maker)
        runner.warm((method,))
        jobs[cell] = partial(runner.run, method)
    size = runner.stretch_size(LEAST_STRETCH_SIZE)
    measured = measure_stretches(search.guard, sentences, search.rounds, size, alternating(jobs))
    whole = {cell: concatenate_runs([stretch[cell] for stretch in measured.whole]) for cell in jobs}
    speeds = {
        cell: [tokens_per_s(concatenate_runs([stretch[cell] for stretch in one_round])) for one_round in measured.rounds]
        for cell in jobs
    }
    return [
        Speed(
            label=search.label,
            clusters=clusters,
            top=top,
            beam=search.beam,
            batch=search.batch,
            sentences=len(sentences.sources),
            ratios=tuple(part / dense for part, dense in zip(speeds[clusters, top], speeds[None], strict=True)),
            **similarity(whole[None], whole[clusters, top])._asdict(),
            rounds=measured.kept,
        )
        for clusters, top in makers
    ]
