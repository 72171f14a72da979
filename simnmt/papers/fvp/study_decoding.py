"""Decode real text with all of the vocabulary and with a part of it: quality, active shares, speed (FVP-08, FVP-16).

The text is decoded stretch by stretch: a fraction of a second in which the methods alternate, in rounds of the harness. After a
disturbance of the machine only that round of the stretch is measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import ceil
from statistics import median
from time import perf_counter
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pandas as pd

from simnmt.batching import Batching, maxi, mini
from simnmt.calibrate import harness
from simnmt.calibrate.decoder_speeds import watched
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
    reference: harness.Run | harness.Case = field(default_factory=harness.matrix_reference)
    """Work that is timed beside each round."""


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

    def timed(self, method: Method, sentences: Sentences) -> tuple[BatchedRun, dict[str, float]]:
        """Decode sentences without a clock around the parts of a step."""
        return self.run(method, sentences), {}

    def watched(self, method: Method, sentences: Sentences | None = None) -> tuple[BatchedRun, dict[str, float]]:
        """Decode these sentences or others, with a clock around body and output layer of each step; return their seconds."""
        account = SubsetAccount(clock=perf_counter)
        with watched(cast("TranslationModel", self._model)) as seconds:
            run = self.run(method, account=account, sentences=sentences)
        body_s, layer_s = seconds["body"], sum(seconds.values()) - seconds["body"]
        if method == "part":
            layer_s = sum(account.assign_s) + sum(account.product_s) + sum(account.search_s)
        return run, {"body_s": body_s, "layer_s": layer_s}

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


Decode = Callable[[Sentences], tuple[BatchedRun, Mapping[str, float]]]
"""Decodes a stretch; returns the run, and further seconds."""


@dataclass(frozen=True, slots=True)
class TimedRounds:
    """Rounds over the stretches of a text."""

    sums: dict[Any, pd.DataFrame]
    """By method: `seconds`, `tokens`, `steps` and further seconds of each round, summed over the stretches that count."""
    whole: dict[Any, BatchedRun]
    """Each method's translations of the whole text, counted or not."""
    kept: RoundsKept

    def over(self, one: Hashable, other: Hashable, value: Callable[[pd.DataFrame], pd.Series[float]]) -> tuple[float, ...]:
        """Return the value of one method over that of another, by round."""
        return tuple((value(self.sums[one]) / value(self.sums[other])).tolist())


def time_rounds(sentences: Sentences, stretch_size: int, search: TimedSearch, jobs: Mapping[Any, Decode]) -> TimedRounds:
    """Time all jobs on a text, stretch by stretch, in rounds of the harness.

    Only undisturbed rounds of a stretch count, and rounds of which `LEAST_SHARE` of the stretches count; if these are too few
    for a conclusion, the last measurement of each does.
    """
    stretches = sentences.stretches(stretch_size)
    runs: dict[Any, list[BatchedRun]] = {name: [] for name in jobs}

    def timed(name: Any, place: int) -> dict[str, float]:
        run, seconds = jobs[name](stretches[place])
        if len(runs[name]) == place:
            runs[name].append(run)
        tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in run.hypotheses)
        return {"seconds": run.total_s, "tokens": tokens, "steps": len(run.active), **seconds}

    frames = []
    for place in range(len(stretches)):
        cases = {name: harness.Case(partial(timed, name, place), prepare=harness.nothing) for name in jobs}
        frames.append(harness.rounds(cases, search.rounds, reference=search.reference).assign(place=place))
    frame = pd.concat(frames, ignore_index=True)
    attempts = frame.drop_duplicates(["place", "round", "attempt"])
    wanted, rejected = search.rounds * len(stretches), int(attempts["disturbed"].sum())
    others_cpus = attempts["others_cpus"].max()
    kept = RoundsKept(
        wanted=wanted,
        measured=len(attempts),
        rejected=rejected,
        conclusive=len(attempts) - rejected >= ceil(LEAST_SHARE * wanted),
        worst_others_cpus=None if np.isnan(others_cpus) else float(others_cpus),
        worst_reference_spread=max(max(pair) / min(pair) - 1.0 for pair in attempts["reference_s"]),
    )
    rows = frame[~frame["disturbed"]] if kept.conclusive else frame
    rows = rows.drop_duplicates(["place", "round", "case"], keep="last")
    rows = rows[rows.groupby("round")["place"].transform("nunique") >= LEAST_SHARE * len(stretches)]
    columns = [name for name in ("seconds", "tokens", "steps", "body_s", "layer_s") if name in rows]
    sums = {name: rows[[case == name for case in rows["case"]]].groupby("round")[columns].sum() for name in jobs}
    return TimedRounds(sums, {name: concatenate_runs(runs[name]) for name in jobs}, kept)


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
        search: beam, batch, rounds and reference work.
        emitted: distinct tokens that dense decoding of the direction's text writes.
        active_mass: see `Decoded`.
        stretch_size: sentences of a stretch, by default `LEAST_STRETCH_SIZE` or a batch.
    """
    beam, ordered = search.beam, sentences.in_batch_order(search.batch)
    runner = Runner(translator, ordered, beam, search.batch, make_vocabulary)
    runner.warm()
    jobs: dict[Any, Decode] = {method: partial(runner.watched, method) for method in METHODS}
    timed = time_rounds(ordered, stretch_size or runner.stretch_size(LEAST_STRETCH_SIZE), search, jobs)
    whole = timed.whole
    dense, fused, restricted = (_decoding_result(runner, timed, method) for method in METHODS)
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
        layer_share=median(timed.sums["dense"]["layer_s"] / timed.sums["dense"]["seconds"]),
        step_ratio=median(timed.over("dense", "part", step_s)),
        gains=timed.over("part", "dense", tokens_per_s),
        gains_over_fused=timed.over("part", "fused", tokens_per_s),
        layer_ratios=timed.over("dense", "part", step_layer_s),
        layer_ratios_over_fused=timed.over("fused", "part", step_layer_s),
        active_mass=active_mass,
        rounds=timed.kept,
    )


def _decoding_result(runner: Runner, timed: TimedRounds, method: Method) -> DecodingResult:
    sums, whole = timed.sums[method], timed.whole[method]
    steps = len(whole.active)
    return DecodingResult(
        bleu=runner.bleu(whole),
        tokens_per_s=median(tokens_per_s(sums)),
        rounds_s=tuple(sums["seconds"].tolist()),
        steps=steps,
        layer_s=steps * median(step_layer_s(sums)),
        body_s=steps * median(sums["body_s"] / sums["steps"]),
        layer_rounds_s=tuple(sums["layer_s"].tolist()),
        body_rounds_s=tuple(sums["body_s"].tolist()),
    )


def tokens_per_s(sums: pd.DataFrame) -> pd.Series[float]:
    """Return the tokens that were written per second, end tokens included."""
    return sums["tokens"] / sums["seconds"]


def step_layer_s(sums: pd.DataFrame) -> pd.Series[float]:
    """Return the seconds of the output layer in a step."""
    return sums["layer_s"] / sums["steps"]


def step_s(sums: pd.DataFrame) -> pd.Series[float]:
    """Return the seconds of a step."""
    return (sums["layer_s"] + sums["body_s"]) / sums["steps"]


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
    jobs: dict[Any, Decode] = {}
    for cell, maker in ((None, None), *makers.items()):
        method: Method = "dense" if cell is None else "part"
        runner = Runner(translator, sentences, search.beam, search.batch, maker)
        runner.warm((method,))
        jobs["dense" if cell is None else cell] = partial(runner.timed, method)
    timed = time_rounds(sentences, runner.stretch_size(LEAST_STRETCH_SIZE), search, jobs)
    return [
        Speed(
            label=search.label,
            clusters=clusters,
            top=top,
            beam=search.beam,
            batch=search.batch,
            sentences=len(sentences.sources),
            ratios=timed.over((clusters, top), "dense", tokens_per_s),
            **similarity(timed.whole["dense"], timed.whole[clusters, top])._asdict(),
            rounds=timed.kept,
        )
        for clusters, top in makers
    ]
