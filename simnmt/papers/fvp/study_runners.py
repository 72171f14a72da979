"""Decode the same sentences with all of the vocabulary, fused, or with a part of it: what a study compares and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from time import perf_counter
from typing import Literal, NamedTuple, cast

import numpy as np

from simnmt.batching import Batching, maxi, mini
from simnmt.calibrate.decoder_speeds import watched
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.batch_decoder import BatchedRun, decode_batched
from simnmt.nmt.errors import need
from simnmt.nmt.models import TranslationModel
from simnmt.nmt.subwords import LONGEST_SOURCE
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount

Method = Literal["dense", "fused", "part"]
METHODS: tuple[Method, ...] = ("dense", "fused", "part")
COLLECT = 10
"""Batches whose sentences are sorted by length before they are cut."""
WARMING = 20
"""Sentences decoded with each method before timing starts."""

MakeVocabulary = Callable[[bool, SubsetAccount], RestrictedVocabulary]
"""Makes a part of the vocabulary, audited or not, that records its work in an account."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """What is decoded: tokens as the model reads them, and what they should become."""

    sources: tuple[tuple[int, ...], ...]
    references: tuple[str, ...] | None

    @classmethod
    def of(cls, translator: Translator, lines: Sequence[str], references: Sequence[str] | None = None) -> Sentences:
        """Encode the lines; leave out empty and too long sources. Raises `CalibrationError` if none is left."""
        longest = translator.model.max_positions or LONGEST_SOURCE
        encoded = [tuple(ids) for ids in translator.source.encode(lines)]
        kept = [at for at, ids in enumerate(encoded) if 1 < len(ids) <= longest]
        if not kept:
            raise CalibrationError("no sentence that the model can read", remedy="give a text, one sentence a line")
        kept_references = None if references is None else tuple(references[at] for at in kept)
        return cls(tuple(encoded[at] for at in kept), kept_references)

    @property
    def most(self) -> list[int]:
        """Tokens that each may become."""
        return [2 * len(source) + 10 for source in self.sources]

    def first(self, count: int) -> Sentences:
        """The first so many."""
        return self._at(range(len(self.sources))[:count])

    def in_batch_order(self, batch: int) -> Sentences:
        """Return the sentences in the order in which batches of this size are cut from them, see `batching_of`."""
        if batch == 1:
            return self
        collection = COLLECT * batch
        return self._at(
            at
            for begin in range(0, len(self.sources), collection)
            for at in sorted(range(len(self.sources))[begin : begin + collection], key=lambda at: len(self.sources[at]))
        )

    def stretches(self, count: int) -> list[Sentences]:
        """Return the text in consecutive stretches of `count` sentences, the last one with those that are left."""
        return [self._at(range(len(self.sources))[begin : begin + count]) for begin in range(0, len(self.sources), count)]

    def _at(self, places: Iterable[int]) -> Sentences:
        places, references = tuple(places), self.references
        return Sentences(
            tuple(self.sources[at] for at in places), None if references is None else tuple(references[at] for at in places)
        )


class Watched(NamedTuple):
    """A decoding, and where its time went."""

    run: BatchedRun
    body_s: float
    layer_s: float

    @staticmethod
    def concatenate(parts: Sequence[Watched]) -> Watched:
        """Return decodings of consecutive stretches as one."""
        return Watched(
            concatenate_runs([part.run for part in parts]),
            sum(part.body_s for part in parts),
            sum(part.layer_s for part in parts),
        )


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
        """`part`: what is decoded with where a part of the vocabulary is asked for."""
        self._translator, self._model, self._sentences, self._part = translator, translator.model, sentences, part
        self.beam, self.batch = beam, batch

    def run(
        self, method: Method, *, audit: bool = False, account: SubsetAccount | None = None, sentences: Sentences | None = None
    ) -> BatchedRun:
        """Decode these sentences or others once; `account` records the work of a part."""
        given = sentences or self._sentences
        vocabulary = None
        if method == "part":
            if self._part is None:
                raise ValueError("no part of the vocabulary to decode with")
            vocabulary = self._part(audit, account or SubsetAccount())
        return decode_batched(
            self._model,
            given.sources,
            batching_of(self.batch),
            beam=self.beam,
            max_len=given.most,
            fused=method == "fused",
            vocabulary=vocabulary,
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


def batching_of(batch: int) -> Batching:
    """Return the batching: batches of one as they come, larger ones sorted by length."""
    return mini(1) if batch == 1 else maxi(batch, COLLECT * batch)


def written_tokens(run: BatchedRun) -> int:
    """Return the tokens written, end tokens included."""
    return sum(len(hypothesis.tokens) + 1 for hypothesis in run.hypotheses)


class Similarity(NamedTuple):
    """How far two decodings agree."""

    identical: float
    """Of the sentences."""
    token_agreement: float
    """Of the longer of both, tokens that are the same at the same place; 1 where there is none."""


def alike(one: BatchedRun, other: BatchedRun) -> Similarity:
    """Compare two runs token by token; ties and rounding count as differences too."""
    pairs = [(first.tokens, second.tokens) for first, second in zip(one.hypotheses, other.hypotheses, strict=True)]
    tokens = sum(max(map(len, pair)) for pair in pairs)
    same = sum(first == second for pair in pairs for first, second in zip(*pair, strict=False))
    return Similarity(sum(first == second for first, second in pairs) / len(pairs), same / tokens if tokens else 1.0)
