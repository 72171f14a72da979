"""Real decoding with all of the vocabulary and with a part of it, in turn: quality, shares, speed (FVP-08, FVP-16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from simnmt.calibrate.round_guard import Checkpoint, GuardedRounds, RoundGuard
from simnmt.calibrate.vocabulary.study.document import Decoded, RoundsKept, Told
from simnmt.calibrate.vocabulary.study.held_cells import spread
from simnmt.calibrate.vocabulary.study.runners import WAYS, Alike, Runner, Sentences, Watched, Way, WayOf, alike, written
from simnmt.nmt.agreement import agreement
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.subset_account import SubsetAccount

__all__ = ["Cut", "Sentences", "SpeedFound", "decoded", "decoded_in_turn", "speeds"]


class Cut(NamedTuple):
    """What is known of a part of the vocabulary, as `Decoded` tells it."""

    way: Literal["clustered", "ibm1", "attention"]
    clusters: int | None = None
    top: int | None = None
    candidates: int | None = None
    always: int | None = None


class SpeedFound(NamedTuple):
    """Of one part of the vocabulary."""

    ratios: tuple[float, ...]
    """Tokens a second over plain dense decoding's, one a round."""
    alike: Alike
    """To dense decoding with the same search."""
    kept: RoundsKept
    """Which rounds count; the same for all parts, which are measured in the same rounds."""


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
    active_mass: float | None = None,
    guard: RoundGuard | None = None,
) -> Decoded:
    """With one search, see `decoded_in_turn`."""
    searches = [(beam, batch)]
    (found,) = decoded_in_turn(
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
    return found


def decoded_in_turn(
    translator: Translator,
    sentences: Sentences,
    part: WayOf,
    cut: Cut,
    *,
    label: str,
    searches: Sequence[tuple[int, int]],
    rounds: int,
    emitted: int,
    active_mass: float | None = None,
    guard: RoundGuard | None = None,
) -> list[Decoded]:
    """Decode with each search (beam, batch) in guarded rounds, in each round all three ways in turn; then once with an audit.

    Body and output layer are watched, and each round begins with another way. `emitted`: distinct tokens that dense decoding of
    the direction's text writes; `active_mass`: see `Decoded`; `guard`: rejects disturbed rounds and has them measured again.
    Raises what decoding raises.
    """
    guard = guard or RoundGuard()
    results = []
    for beam, batch in searches:
        runner = Runner(translator, sentences, beam, batch, part)
        runner.warm()
        measured = guard.measure(rounds, _round_of(runner))
        results.append(_judged(translator, sentences, runner, measured, cut, label, emitted, active_mass))
    return results


def _round_of(runner: Runner) -> Callable[[int, Checkpoint], dict[Way, Watched]]:
    def decode_round(number: int, checkpoint: Checkpoint) -> dict[Way, Watched]:
        first = number % len(WAYS)
        watched: dict[Way, Watched] = {}
        for way in WAYS[first:] + WAYS[:first]:
            checkpoint()
            watched[way] = runner.watched(way)
        return watched

    return decode_round


def speeds(
    translator: Translator,
    sentences: Sentences,
    parts: Sequence[WayOf],
    *,
    beam: int,
    batch: int,
    rounds: int,
    guard: RoundGuard | None = None,
) -> list[SpeedFound]:
    """Of each part, tokens a second over plain dense decoding's, round by round, all in turn (figure 3)."""
    dense = Runner(translator, sentences, beam, batch)
    runners = [Runner(translator, sentences, beam, batch, part) for part in parts]
    same: list[Alike] = [Alike(1.0, 1.0) for _ in parts]
    dense.warm(("dense",))
    for runner in runners:
        runner.warm(("part",))

    def decode_round(number: int, checkpoint: Checkpoint) -> list[float]:
        ratios = [0.0] * len(parts)
        baseline = dense.run("dense")
        order = list(enumerate(runners))
        for place, runner in order if number % 2 == 0 else reversed(order):
            checkpoint()
            run = runner.run("part")
            ratios[place] = (written(run) / run.total_s) / (written(baseline) / baseline.total_s)
            same[place] = alike(baseline, run)
        return ratios

    measured = (guard or RoundGuard()).measure(rounds, decode_round)
    kept, by_part = RoundsKept.of(measured), zip(*measured.counted, strict=True)
    return [SpeedFound(ratios, agreement, kept) for ratios, agreement in zip(by_part, same, strict=True)]


def _judged(
    translator: Translator,
    sentences: Sentences,
    runner: Runner,
    measured: GuardedRounds[dict[Way, Watched]],
    cut: Cut,
    label: str,
    emitted: int,
    active_mass: float | None,
) -> Decoded:
    model, sources = translator.model, sentences.sources
    runs: dict[Way, list[Watched]] = {way: [one_round[way] for one_round in measured.counted] for way in WAYS}
    dense, fused, own = (_told(runner, runs[way]) for way in WAYS)
    account = SubsetAccount()
    audited = runner.run("part", audit=True, account=account)
    before = runs["dense"][-1].run
    compared = agreement(model, sources, before.hypotheses, audited.hypotheses, beam=runner.beam, max_len=sentences.most)
    shares = spread(np.asarray(account.columns), model.vocab)
    gains, over_fused = (_gains(runs[way], runs["part"]) for way in ("dense", "fused"))
    layer, layer_over_fused = (_a_step(runs[way], runs["part"], _layer_s) for way in ("dense", "fused"))
    share, ratio = median(each.layer_s / each.run.total_s for each in runs["dense"]), median(layer)
    return Decoded(
        label=label,
        **cut._asdict(),
        beam=runner.beam,
        batch=runner.batch,
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
        measured=median(gains),
        measured_over_fused=median(over_fused),
        layer_ratio_over_fused=median(layer_over_fused),
        gains=gains,
        gains_over_fused=over_fused,
        layer_ratios=layer,
        layer_ratios_over_fused=layer_over_fused,
        active_mass=active_mass,
        rounds=RoundsKept.of(measured),
    )


def _told(runner: Runner, runs: Sequence[Watched]) -> Told:
    last = runs[-1].run
    return Told(
        bleu=runner.bleu(last),
        tokens_per_s=median(written(each.run) / each.run.total_s for each in runs),
        rounds_s=tuple(each.run.total_s for each in runs),
        steps=len(last.active),
        layer_s=median(each.layer_s for each in runs),
        body_s=median(each.body_s for each in runs),
        layer_rounds_s=tuple(each.layer_s for each in runs),
        body_rounds_s=tuple(each.body_s for each in runs),
    )


def _layer_s(each: Watched) -> float:
    return each.layer_s


def _a_step(before: Sequence[Watched], after: Sequence[Watched], of: Callable[[Watched], float]) -> tuple[float, ...]:
    """How many times a step took what it takes now, by round."""
    return tuple(
        (of(other) / len(other.run.active)) / (of(own) / len(own.run.active)) for other, own in zip(before, after, strict=True)
    )


def _gains(before: Sequence[Watched], after: Sequence[Watched]) -> tuple[float, ...]:
    """Tokens a second over what they were, by round."""
    return tuple(
        (written(own.run) / own.run.total_s) / (written(other.run) / other.run.total_s)
        for other, own in zip(before, after, strict=True)
    )
