"""The paper's claims, judged by this box's timings and by a trained model (SHARP-05, 08 to 11, 13 to 18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from simnmt.papers.kit.claim import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    Claim,
    ClaimRecord,
    Judgement,
    Undecided,
    holds_if,
    printed_claim,
    verdict_over_cases,
    worst_verdict,
)
from simnmt.papers.sharp import published
from simnmt.papers.sharp.prediction import predicted_over
from simnmt.papers.sharp.published import LADDER

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import DecoderTime, ProductTime, SharpSpeeds

LEAST_SAME = 0.999
"""Least share of the words that all rungs together leave the same (SHARP-10)."""
MOST_BLEU_CHANGE = 0.02
"""Bound of a change of BLEU, in points (SHARP-10)."""
NEAR_UNIQUE = 0.10
"""Largest difference between our share of distinct states and the paper's."""
LEAST_STEP = 0.98
"""Least speed of a rung over the rung before it (SHARP-11's accept)."""
LEAST_TOTAL = 4.0
"""Least speed-up of the whole ladder that supports the paper's 4.4, whose baseline packs no weights."""
LEAST_LAYER_RATIO = 3.0
"""Least time of a GRU layer over a fully connected one of the same width (SHARP-13's accept)."""
MOST_PER_MEMBER = 1.3
"""Greatest cost of an ensemble over its number of members (SHARP-14's accept)."""
ABOUT = 0.15
"""Largest relative difference between two systems of similar cost (SHARP-15's accept)."""
ORDER = (("S1",), ("S3",), ("S2", "S4"), ("S5", "S6"), ("S7",))
"""Systems by speed, in groups of about the same speed (SHARP-15's accept)."""
BOX, MODEL = "this box", "a trained model"
"""Devices of the records."""


def all_claims(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> list[ClaimRecord]:
    """Return the record of every claim.

    A `quick` look, or one without compiled kernels, decides no claim on speed. `agreements`: of each rung on a trained model.
    """
    measured = [*_ladder(speeds, agreements), _products(speeds), *_systems({time.key: time for time in speeds.systems})]
    why = "a quick look" if quick else "" if speeds.level else "without compiled kernels"
    if why:
        measured = [replace(record, verdict=UNKNOWN, why=f"{why}, which decides nothing") for record in measured]
    return [
        *measured,
        _printed_factors(),
        *agreement_claims(agreements, speeds.ladder["polynomial"][-1].distinct_share),
        *(
            ClaimRecord(f"SHARP-17 ({letter})", claim, "so in the text", "", UNKNOWN, why, basis="published")
            for letter, (claim, why) in zip("abcd", published.UNMEASURED, strict=True)
        ),
    ]


def agreement_claims(agreements: Sequence[RungAgreement], random_share: float) -> list[ClaimRecord]:
    """Return the three claims on a trained model, undecided without one.

    `random_share`: share of distinct states with random weights.
    """
    device = MODEL if agreements else ""
    return [claim.record(agreements, random_share, device=device) for claim in _AGREEMENT_CLAIMS]


def _words_kept(agreements: Sequence[RungAgreement], _: float) -> Judgement:
    if not agreements:
        raise Undecided("needs a trained model: give --model and --text", "needs --model")
    exact = all(rung.tokens_same == rung.tokens for rung in agreements if rung.settings.exact)
    return Judgement(
        "; ".join(
            f"{rung.settings.describe()} {100 * rung.share:.2f} % of {rung.tokens:,} words, "
            f"{rung.sentences_same} of {rung.sentences} sentences"
            for rung in agreements[1:]
        ),
        holds_if(exact and all(rung.share >= LEAST_SAME for rung in agreements)),
        "likeliest words along the baseline's translations; sentences are translated by themselves",
    )


def _bleu_kept(agreements: Sequence[RungAgreement], _: float) -> Judgement:
    baseline = agreements[0].bleu if agreements else None
    others = [(rung.settings.describe(), rung.bleu) for rung in agreements[1:] if rung.bleu is not None]
    if baseline is None or not others:
        reason = "needs a trained model and references: give --model, --text and --references"
        raise Undecided(reason, "needs --references")
    return Judgement(
        "; ".join(f"{settings} {bleu - baseline:+.4f}" for settings, bleu in others),
        holds_if(all(abs(bleu - baseline) < MOST_BLEU_CHANGE for _, bleu in others)),
        f"of {baseline:.2f} over {agreements[0].sentences} sentences, rungs as they add up",
    )


def _distinct_states(agreements: Sequence[RungAgreement], random_share: float) -> Judgement:
    random = f"with random weights {100 * random_share:.0f} %"
    if not agreements:
        reason = f"needs a trained model: give --model and --text; {random}, which decides the gain of merging here"
        raise Undecided(reason, "needs --model")
    share = agreements[-1].distinct_share
    holds = abs(share - published.UNIQUE_SHARE) <= NEAR_UNIQUE
    return Judgement(f"{100 * share:.1f} %", holds_if(holds), f"mean over sentences, 10 points allowed; {random}")


_AGREEMENT_CLAIMS = (
    Claim(
        "SHARP-10 (a)",
        f"With all rungs {100 * LEAST_SAME:.1f} % of the words stay the same, and with exact rungs all of them",
        "99.9 % and more",
        _words_kept,
    ),
    Claim("SHARP-10 (b)", f"No rung changes BLEU by {MOST_BLEU_CHANGE} or more", f"below {MOST_BLEU_CHANGE}", _bleu_kept),
    Claim(
        "SHARP-09",
        f"Of a beam of {published.BEAM} hypotheses' previous states {100 * published.UNIQUE_SHARE:.0f} % differ",
        f"{100 * published.UNIQUE_SHARE:.0f} %",
        _distinct_states,
    ),
)


def ratio_verdict(ratios: Sequence[float], holds: Callable[[float], bool]) -> str:
    """Return the verdict on a ratio measured by round: clear if its quartiles and its median agree."""
    return verdict_over_cases([[holds(float(quantile)) for quantile in np.quantile(ratios, (0.25, 0.5, 0.75))]])


def _on_box(identifier: str, claim: str, theirs: str, ours: str, verdict: str, why: str = "") -> ClaimRecord:
    return ClaimRecord(identifier, claim, theirs, ours, verdict, why, device=BOX, basis="measured")


def _ladder(speeds: SharpSpeeds, agreements: Sequence[RungAgreement]) -> list[ClaimRecord]:
    rungs, table = speeds.ladder["polynomial"], speeds.ladder["table"]
    steps = list(pairwise(rungs))
    kept = {rung.key: ratio_verdict(rung.ratios(before), lambda ratio: ratio >= LEAST_STEP) for before, rung in steps}
    total = ratio_verdict(rungs[-1].ratios(rungs[0]), lambda ratio: ratio >= LEAST_TOTAL)
    verdict, words_kept = _with_words_kept(total, agreements)
    place = next(number for number, rung in enumerate(LADDER) if rung.key == "activations")
    before, by_table, by_polynomial = table[place - 1], table[place], rungs[place]
    activations = ", ".join(f"{activation} {1e9 * seconds:.2f}" for activation, seconds in speeds.activation_s.items())
    return [
        _on_box(
            "SHARP-11 (a)",
            f"Every rung is at least {LEAST_STEP} times as fast as the one before it, source side included",
            "; ".join(f"{rung.name} {rung.step:.3f}" for rung in LADDER if rung.step is not None),
            "; ".join(f"{rung.name} {time.over(before):.3f}" for rung, (before, time) in zip(LADDER[1:], steps, strict=True)),
            worst_verdict(kept.values()),
            _exceptions(kept),
        ),
        _on_box(
            "SHARP-11 (b)",
            f"The whole ladder gains {published.SPEED_UP} times, source side included (at least {LEAST_TOTAL} asked)",
            f"{LADDER[-1].factor:.2f} from the speeds, {published.SPEED_UP} in the text",
            f"{rungs[-1].over(rungs[0]):.2f}; with the paper's table {table[-1].over(table[0]):.2f}. Without the source side "
            f"{rungs[-1].decoder_over(rungs[0]):.2f} and {table[-1].decoder_over(table[0]):.2f}",
            verdict,
            f"over float32 products packed the same way, which a library's are not; {words_kept}",
        ),
        _on_box(
            "SHARP-08",
            "Lookup tables for sigmoid and tanh make it faster",
            f"{LADDER[place].step:.3f}, with vector instructions for the rest",
            f"table {by_table.over(before):.3f}; beside the paper a polynomial {by_polynomial.over(rungs[place - 1]):.3f}, "
            f"which is {by_polynomial.over(by_table):.3f} over the table; alone, ns an element: {activations}",
            ratio_verdict(by_table.ratios(before), lambda ratio: ratio > 1.0),
            "over the library's functions, one element at a time; the table alone is judged",
        ),
    ]


def _with_words_kept(speed: str, agreements: Sequence[RungAgreement]) -> tuple[str, str]:
    """Return the verdict on the ladder, which holds only if a trained model keeps its words (SHARP-10), and the reason."""
    if not agreements:
        reason = "speed alone: that the rungs keep a trained model's words needs --model and --text (SHARP-10)"
        return UNKNOWN if speed == HOLDS else speed, reason
    least = min(rung.share for rung in agreements)
    asked = f"{100 * LEAST_SAME:.1f} % asked (SHARP-10)"
    return (
        worst_verdict([speed, holds_if(least >= LEAST_SAME)]),
        f"every rung keeps at least {100 * least:.2f} % of a trained model's words, {asked}",
    )


def _products(speeds: SharpSpeeds) -> ClaimRecord:
    low, high = published.PRODUCT_BATCHES
    least, most = published.PRODUCT_RATIO
    judged = [product_time for product_time in speeds.products if low <= product_time.batch <= high]
    hot = [product_time for product_time in judged if not product_time.cold]

    def format_ratios(name: str) -> str:
        def listed(products: Sequence[ProductTime]) -> str:
            return ", ".join(f"{product_time.ratio(name):.2f} at {product_time.batch}" for product_time in products)

        return f"{listed(hot)}; weights from memory {listed([item for item in judged if item.cold])}"

    return _on_box(
        "SHARP-18",
        f"16-bit products are {least:.0f} to {most:.0f} times as fast as 32-bit ones at batches of {low} to {high}",
        f"{least:.0f} to {most:.0f}, curve not in the text",
        f"over the library {format_ratios('library')}",
        worst_verdict(ratio_verdict(item.ratios("library"), lambda ratio: ratio >= least) for item in hot),
        f"the library: {' or '.join(sorted({item.best_library for item in hot}))}, whichever is faster; {least:.0f} is asked. "
        "Over float32 packed the same way, where half the bytes can give 2, nothing is asked: "
        f"{format_ratios('float32')}",
    )


def _systems(known: Mapping[str, DecoderTime]) -> list[ClaimRecord]:
    """Return the claims on Table 2 that the timed systems can decide."""
    pairs = [pair for above, below in pairwise(ORDER) for pair in product(above, below) if known.keys() >= set(pair)]
    order = {f"{a} before {b}": ratio_verdict(known[a].ratios(known[b]), lambda ratio: ratio > 1.0) for a, b in pairs}
    records = [
        _on_box(
            "SHARP-15 (a)",
            "Speed: S1 before S3, S2 and S4, S5 and S6, and S7 last",
            ", ".join(f"{system.key} {system.words_per_s}" for system in published.SYSTEMS if system.key in known),
            ", ".join(f"{system.key} {system.words_per_s:.0f}" for system in known.values()),
            worst_verdict(order.values()),
            _exceptions(order),
        )
    ]
    if known.keys() >= {"S1", "S2", "S3", "S4"}:
        s2, s4 = known["S2"], known["S4"]
        records += [
            _on_box(
                "SHARP-17",
                f"S4 costs about as much as S2 ({100 * ABOUT:.0f} % allowed)",
                f"{published.speed_over('S4', 'S2'):.2f} of its speed",
                f"{s4.over(s2):.2f}; by multiply-adds {predicted_over(s4, s2):.2f}",
                ratio_verdict(s4.ratios(s2), lambda ratio: abs(ratio - 1.0) <= ABOUT),
            ),
            _layer(known),
        ]
    if known.keys() >= {"E1", "S7"}:
        e1, s7 = known["E1"], known["S7"]
        records.append(
            _on_box(
                "SHARP-15 (b)",
                f"An ensemble of two S4 is at least {published.CLEARLY_FASTER:.0f} times as fast as S7",
                f"{published.speed_over('E1', 'S7'):.2f}",
                f"{e1.over(s7):.2f}",
                ratio_verdict(e1.ratios(s7), lambda ratio: ratio >= published.CLEARLY_FASTER),
            )
        )
    if known.keys() >= {"E1", "E2", "S4"}:
        records.append(_ensembles(known))
    return records


def layer_ratios(known: Mapping[str, DecoderTime]) -> list[float]:
    """Return the time of a 1024-GRU layer over a 1024-FC layer by round: S2 - S1 over (S4 - S3) / 4, scaled to the width.

    Uses decoder times alone, since the source side of all four systems is the same. A round is NaN if noise leaves one of
    the two layers no time.
    """
    s1, s2, s3, s4 = (np.array(known[key].decoder_s) for key in ("S1", "S2", "S3", "S4"))
    gru_s, fc_s = s2 - s1, (s4 - s3) / 4 * (1024 / 768) ** 2
    ratios: list[float] = np.divide(gru_s, fc_s, out=np.full(len(s1), np.nan), where=(gru_s > 0) & (fc_s > 0)).tolist()
    return ratios


def _layer(known: Mapping[str, DecoderTime]) -> ClaimRecord:
    rounds = layer_ratios(known)
    ratios = [ratio for ratio in rounds if not np.isnan(ratio)]
    enough = 2 * len(ratios) > len(rounds)
    noisy = f", of which {len(rounds) - len(ratios)} of {len(rounds)} are too noisy" if len(ratios) < len(rounds) else ""
    return _on_box(
        "SHARP-13",
        f"A fully connected layer costs 1/{published.FC_OVER_GRU} of a GRU layer (below 1/{LEAST_LAYER_RATIO:.0f} asked)",
        "1/6 by matrices; 1/4.4 to 1/5.8 by Table 2",
        f"1/{np.median(ratios):.2f}" if enough else "lost in noise",
        ratio_verdict(ratios, lambda ratio: ratio > LEAST_LAYER_RATIO) if enough else UNKNOWN,
        f"from S2 beyond S1 and S4 beyond S3, round by round{noisy}",
    )


def _ensembles(known: Mapping[str, DecoderTime]) -> ClaimRecord:
    ensembles = [known[key] for key in ("E1", "E2")]
    per_member = [[cost / item.members for cost in known["S4"].ratios(item)] for item in ensembles]
    return _on_box(
        "SHARP-14",
        f"An ensemble of n models costs n to {MOST_PER_MEMBER} n times one",
        "; ".join(f"{item.key} {published.speed_over('S4', item.key):.2f} times S4" for item in ensembles),
        "; ".join(f"{item.key} {known['S4'].over(item):.2f} times S4" for item in ensembles),
        worst_verdict(ratio_verdict(costs, lambda cost: 1.0 <= cost <= MOST_PER_MEMBER) for costs in per_member),
    )


def _printed_factors() -> ClaimRecord:
    (low, high), odd = published.implied_baselines()
    return printed_claim(
        "SHARP-11 (c)",
        "The printed factors of Table 1 follow from its speeds",
        ", ".join(f"{rung.printed_factor:.2f}" for rung in LADDER),
        ", ".join(f"{rung.factor:.3f}" for rung in LADDER),
        low <= odd[1] and odd[0] <= high,
        f"an unrounded baseline of {low:.2f} to {high:.2f}, which prints as 96, gives all but one, which needs "
        f"{odd[0]:.2f} to {odd[1]:.2f}",
    )


def _exceptions(verdicts: Mapping[str, str]) -> str:
    """Return the cases in which a claim does not hold or is not clear."""
    exceptions = []
    for verdict, text in ((FAILS, "not with"), (UNCLEAR, "rounds differ with")):
        if cases := [case for case, outcome in verdicts.items() if outcome == verdict]:
            exceptions.append(f"{text} {', '.join(cases)}")
    return "; ".join(exceptions) or "in every case looked at"
