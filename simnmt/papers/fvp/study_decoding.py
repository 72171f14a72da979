"""Decode real text with all of the vocabulary and with a part of it, in turn: quality, active shares, speed (FVP-08, FVP-16).

A round decodes the whole text with every method, stretch by stretch: a fraction of a second in which the methods take turns.
A disturbance of the machine costs the stretches that it falls into, which are measured again, and not the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from simnmt.calibrate.study import LEAST_SHARE, Checkpoint, GuardedRounds, RoundGuard
from simnmt.nmt.agreement import agreement
from simnmt.nmt.batch_decoder import BatchedRun
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.restricted_vocabulary import SubsetAccount
from simnmt.papers.fvp.study import Decoded, DecodingResult, RoundsKept
from simnmt.papers.fvp.study_runners import (
    METHODS,
    MakeVocabulary,
    Method,
    Runner,
    Sentences,
    Similarity,
    Watched,
    alike,
    concatenate_runs,
    written_tokens,
)
from simnmt.papers.fvp.study_sweep import spread

LEAST_STRETCH_SIZE = 10
"""Sentences, less than half a second of a small decoder: a shared core often keeps its speed no longer than that."""

T = TypeVar("T")


class VocabularyPart(NamedTuple):
    """The settings of a part of the vocabulary, as in `Decoded`."""

    way: Literal["clustered", "ibm1", "attention"]
    clusters: int | None = None
    top: int | None = None
    candidates: int | None = None
    always: int | None = None


class SpeedFound(NamedTuple):
    """Of one part of the vocabulary."""

    ratios: tuple[float, ...]
    """Tokens a second over plain dense decoding's, one a round."""
    alike: Similarity
    """To dense decoding with the same search."""
    kept: RoundsKept
    """How many stretches count; the same for all parts, which are measured in the same rounds."""


@dataclass(frozen=True, slots=True)
class StretchedRounds(Generic[T]):
    """Rounds over the stretches of a text."""

    rounds: list[list[T]]
    """Per round the results of the stretches that count; a round of which fewer than `LEAST_SHARE` count is left out."""
    whole: list[T]
    """The first round's result of every stretch, counted or not: its translations are of the whole text."""
    kept: RoundsKept


def measure_stretches(
    guard: RoundGuard,
    sentences: Sentences,
    rounds: int,
    stretch_size: int,
    run: Callable[[int, Sentences, Checkpoint], T],
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

    def measure(number: int, place: int) -> GuardedRounds[T]:
        name = f"round {number + 1}, stretch {place + 1}, attempt"
        return guard.measure(1, lambda _, checkpoint: run(number + place, stretches[place], checkpoint), name)

    measured = [[measure(number, place) for place in range(len(stretches))] for number in range(rounds)]
    attempts = tuple(chain.from_iterable(stretch.rounds for one_round in measured for stretch in one_round))
    everything = GuardedRounds(rounds * len(stretches), attempts)
    counted = [
        [stretch.rounds[-1][0] for stretch in one_round if stretch.conclusive or not everything.conclusive]
        for one_round in measured
    ]
    enough = [one_round for one_round in counted if len(one_round) >= LEAST_SHARE * len(stretches)]
    whole = [stretch.rounds[-1][0] for stretch in measured[0]]
    return StretchedRounds(enough, whole, RoundsKept.of(everything))


def decode_with_search(
    translator: Translator,
    sentences: Sentences,
    part: MakeVocabulary,
    cut: VocabularyPart,
    *,
    label: str,
    beam: int,
    batch: int,
    rounds: int,
    emitted: int,
    active_mass: float | None = None,
    guard: RoundGuard | None = None,
) -> Decoded:
    """Decode with one search, see `decode_with_searches`."""
    searches = [(beam, batch)]
    (decoded,) = decode_with_searches(
        translator,
        sentences,
        part,
        cut,
        label=label,
        searches=searches,
        rounds=rounds,
        emitted=emitted,
        active_mass=active_mass,
        guard=guard,
    )
    return decoded


def decode_with_searches(
    translator: Translator,
    sentences: Sentences,
    part: MakeVocabulary,
    cut: VocabularyPart,
    *,
    label: str,
    searches: Sequence[tuple[int, int]],
    rounds: int,
    emitted: int,
    active_mass: float | None = None,
    guard: RoundGuard | None = None,
    stretch_size: int | None = None,
) -> list[Decoded]:
    """Decode with each search (beam, batch) in guarded rounds, each stretch with all three methods; then once with an audit.

    Body and output layer are timed, and the method that goes first changes with each stretch. `emitted`: distinct tokens that
    dense decoding of the direction's text writes; `active_mass`: see `Decoded`; `guard`: rejects disturbed stretches and has
    them measured again; `stretch_size`: sentences of a stretch, by default `LEAST_STRETCH_SIZE` or a batch. Raises what
    decoding raises.
    """
    guard = guard or RoundGuard()
    results = []
    for beam, batch in searches:
        ordered = sentences.in_batch_order(batch)
        runner = Runner(translator, ordered, beam, batch, part)
        runner.warm()
        size = stretch_size or runner.stretch_size(LEAST_STRETCH_SIZE)
        measured = measure_stretches(guard, ordered, rounds, size, _methods_of(runner))
        results.append(_judged(translator, ordered, runner, measured, cut, label, emitted, active_mass))
    return results


def _methods_of(runner: Runner) -> Callable[[int, Sentences, Checkpoint], dict[Method, Watched]]:
    def decode(number: int, stretch: Sentences, checkpoint: Checkpoint) -> dict[Method, Watched]:
        first = number % len(METHODS)
        watched: dict[Method, Watched] = {}
        for method in METHODS[first:] + METHODS[:first]:
            checkpoint()
            watched[method] = runner.watched(method, stretch)
        return watched

    return decode


def speeds(
    translator: Translator,
    sentences: Sentences,
    parts: Sequence[MakeVocabulary],
    *,
    beam: int,
    batch: int,
    rounds: int,
    guard: RoundGuard | None = None,
) -> list[SpeedFound]:
    """Measure the tokens a second of each part over plain dense decoding's, round by round, all in turn (figure 3)."""
    sentences = sentences.in_batch_order(batch)
    dense = Runner(translator, sentences, beam, batch)
    runners = [Runner(translator, sentences, beam, batch, part) for part in parts]
    dense.warm(("dense",))
    for runner in runners:
        runner.warm(("part",))

    def decode(number: int, stretch: Sentences, checkpoint: Checkpoint) -> list[BatchedRun]:
        runs: dict[int, BatchedRun] = {}
        order = list(enumerate([dense, *runners]))
        for place, runner in order if number % 2 == 0 else reversed(order):
            checkpoint()
            runs[place] = runner.run("part" if place else "dense", sentences=stretch)
        return [runs[place] for place in sorted(runs)]

    size = dense.stretch_size(LEAST_STRETCH_SIZE)
    measured = measure_stretches(guard or RoundGuard(), sentences, rounds, size, decode)
    rows = [[concatenate_runs(runs) for runs in zip(*one_round, strict=True)] for one_round in measured.rounds]
    baseline, *whole = (concatenate_runs(runs) for runs in zip(*measured.whole, strict=True))
    return [
        SpeedFound(tuple(_speed(row[place]) / _speed(row[0]) for row in rows), alike(baseline, run), measured.kept)
        for place, run in enumerate(whole, 1)
    ]


def _speed(run: BatchedRun) -> float:
    """Return the tokens a second that a run wrote."""
    return written_tokens(run) / run.total_s


def _judged(
    translator: Translator,
    sentences: Sentences,
    runner: Runner,
    measured: StretchedRounds[dict[Method, Watched]],
    cut: VocabularyPart,
    label: str,
    emitted: int,
    active_mass: float | None,
) -> Decoded:
    model, sources = translator.model, sentences.sources
    runs: dict[Method, list[Watched]] = {
        method: [Watched.concatenate([stretch[method] for stretch in one_round]) for one_round in measured.rounds]
        for method in METHODS
    }
    whole: dict[Method, BatchedRun] = {
        method: concatenate_runs([stretch[method].run for stretch in measured.whole]) for method in METHODS
    }
    dense, fused, part = (_decoding_result(runner, runs[method], whole[method]) for method in METHODS)
    account = SubsetAccount()
    audited = runner.run("part", audit=True, account=account)
    compared = agreement(
        model, sources, whole["dense"].hypotheses, audited.hypotheses, beam=runner.beam, max_len=sentences.most
    )
    shares = spread(np.asarray(account.columns), model.vocab)
    gains, over_fused = (_gains(runs[method], runs["part"]) for method in ("dense", "fused"))
    layer, layer_over_fused = (_a_step(runs[method], runs["part"], _layer_s) for method in ("dense", "fused"))
    share, ratio = median(dense_round.layer_s / dense_round.run.total_s for dense_round in runs["dense"]), median(layer)
    return Decoded(
        label=label,
        **cut._asdict(),
        beam=runner.beam,
        batch=runner.batch,
        sentences=len(sources),
        dense=dense,
        fused=fused,
        part=part,
        identical=compared.equal / len(sources),
        near_ties=len(compared.near_ties),
        token_agreement=compared.equal_tokens,
        miss_rate=account.miss_rate,
        share=shares,
        share_of_emitted=shares.mean * model.vocab / emitted,
        emitted=emitted,
        layer_share=share,
        layer_ratio=ratio,
        step_ratio=median(_a_step(runs["dense"], runs["part"], lambda decoding: decoding.layer_s + decoding.body_s)),
        predicted=1.0 / (1.0 - share + share / ratio),
        measured=median(gains),
        measured_over_fused=median(over_fused),
        layer_ratio_over_fused=median(layer_over_fused),
        gains=gains,
        gains_over_fused=over_fused,
        layer_ratios=layer,
        layer_ratios_over_fused=layer_over_fused,
        active_mass=active_mass,
        rounds=measured.kept,
    )


def _decoding_result(runner: Runner, runs: Sequence[Watched], whole: BatchedRun) -> DecodingResult:
    steps = len(whole.active)
    return DecodingResult(
        bleu=runner.bleu(whole),
        tokens_per_s=median(_speed(one_round.run) for one_round in runs),
        rounds_s=tuple(decoding.run.total_s for decoding in runs),
        steps=steps,
        layer_s=steps * median(one_round.layer_s / len(one_round.run.active) for one_round in runs),
        body_s=steps * median(one_round.body_s / len(one_round.run.active) for one_round in runs),
        layer_rounds_s=tuple(decoding.layer_s for decoding in runs),
        body_rounds_s=tuple(decoding.body_s for decoding in runs),
    )


def _layer_s(decoding: Watched) -> float:
    return decoding.layer_s


def _a_step(before: Sequence[Watched], after: Sequence[Watched], of: Callable[[Watched], float]) -> tuple[float, ...]:
    """Return the speed-up of a step by round: seconds a step before over seconds a step after."""
    return tuple(
        (of(old) / len(old.run.active)) / (of(new) / len(new.run.active)) for old, new in zip(before, after, strict=True)
    )


def _gains(before: Sequence[Watched], after: Sequence[Watched]) -> tuple[float, ...]:
    """Return the tokens a second after over those before, by round."""
    return tuple(_speed(new.run) / _speed(old.run) for old, new in zip(before, after, strict=True))
