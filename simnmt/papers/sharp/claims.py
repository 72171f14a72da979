"""The paper's claims and the verdicts on them: of this box's timings, and of a trained model (SHARP-05, 08 to 11, 13 to 18)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from simnmt.papers.kit.claim import FAILS, HOLDS, UNKNOWN, ClaimRecord, holds_if, verdict_over_cases, worst_verdict
from simnmt.papers.sharp import published
from simnmt.papers.sharp.published import LADDER

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement
    from simnmt.calibrate.sharp_speeds import DecoderTime, SharpSpeeds

LEAST_SAME = 0.999
"""Of the words, with all rungs (SHARP-10)."""
MOST_BLEU_CHANGE = 0.02
"""In points, below which a change is to stay (SHARP-10)."""
NEAR_UNIQUE = 0.10
"""By how much the share of distinct states may differ from the paper's."""
DEVICE = "a trained model"


def agreement_claims(agreements: Sequence[RungAgreement], random_share: float) -> list[ClaimRecord]:
    """Return all three claims, undecided without a trained model. `random_share`: share of distinct states, random weights."""
    theirs, text = (
        "99.9 % and more",
        f"With all rungs {100 * LEAST_SAME:.1f} % of the words stay the same, and with exact ones all do",
    )
    unique = f"Of a beam of {published.BEAM} hypotheses' previous states {100 * published.UNIQUE_SHARE:.0f} % differ"
    printed = f"{100 * published.UNIQUE_SHARE:.0f} %"
    if not agreements:
        remedy = "needs a trained model: give --model and --text"
        reason = f"{remedy}; with random weights {100 * random_share:.0f} %, which the gain of merging here goes with"
        return [
            ClaimRecord("SHARP-10 (a)", text, theirs, "", UNKNOWN, remedy, basis="needs --model"),
            _bleu(()),
            ClaimRecord("SHARP-09", unique, printed, "", UNKNOWN, reason, basis="needs --model"),
        ]
    ours = "; ".join(
        f"{rung.settings.describe()} {100 * rung.share:.2f} % of {rung.tokens:,} words, "
        f"{rung.sentences_same} of {rung.sentences} sentences"
        for rung in agreements[1:]
    )
    exact = all(rung.tokens_same == rung.tokens for rung in agreements if rung.settings.exact)
    share = agreements[-1].distinct_share
    return [
        ClaimRecord(
            "SHARP-10 (a)",
            text,
            theirs,
            ours,
            holds_if(exact and all(rung.share >= LEAST_SAME for rung in agreements)),
            "likeliest words along the baseline's translations; sentences are translated by themselves",
            device=DEVICE,
            basis="measured",
        ),
        _bleu(agreements),
        ClaimRecord(
            "SHARP-09",
            unique,
            printed,
            f"{100 * share:.1f} %",
            holds_if(abs(share - published.UNIQUE_SHARE) <= NEAR_UNIQUE),
            f"mean over sentences, 10 points allowed; with random weights {100 * random_share:.0f} %",
            device=DEVICE,
            basis="measured",
        ),
    ]


def _bleu(agreements: Sequence[RungAgreement]) -> ClaimRecord:
    """Return the claim about BLEU, judged by the largest change of any rung."""
    text, theirs = f"No rung changes BLEU by {MOST_BLEU_CHANGE} or more", f"below {MOST_BLEU_CHANGE}"
    changes = [
        (rung.settings.describe(), rung.bleu - agreements[0].bleu)
        for rung in agreements[1:]
        if rung.bleu is not None and agreements[0].bleu is not None
    ]
    if not changes:
        remedy = "needs a trained model and references: give --model, --text and --references"
        return ClaimRecord("SHARP-10 (b)", text, theirs, "", UNKNOWN, remedy, basis="needs --references")
    return ClaimRecord(
        "SHARP-10 (b)",
        text,
        theirs,
        "; ".join(f"{settings} {change:+.4f}" for settings, change in changes),
        holds_if(all(abs(change) < MOST_BLEU_CHANGE for _, change in changes)),
        f"of {agreements[0].bleu:.2f} over {agreements[0].sentences} sentences, rungs as they add up",
        device=DEVICE,
        basis="measured",
    )


LEAST_STEP = 0.98
"""Of the speed of the rung before: what a rung must keep (SHARP-11's accept)."""
LEAST_TOTAL = 4.0
"""Times as fast with all rungs, source side included, that support the paper's 4.4, whose baseline packs no weights."""
LEAST_LAYER_RATIO = 3.0
"""A GRU layer over a fully connected one of the same width (SHARP-13's accept)."""
MOST_PER_MEMBER = 1.3
"""An ensemble's cost over its number of members (SHARP-14's accept)."""
ABOUT = 0.15
"""By how much two systems of similar cost may differ (SHARP-15's accept)."""
ORDER = (("S1",), ("S3",), ("S2", "S4"), ("S5", "S6"), ("S7",))
"""By speed, those of about the same together (SHARP-15's accept)."""
BOX = "this box"


def ratio_verdict(ratios: Sequence[float], holds: Callable[[float], bool]) -> str:
    """Return the verdict on a ratio measured by round: clear if its quartiles and its median agree."""
    return verdict_over_cases([[holds(float(quantile)) for quantile in np.quantile(ratios, (0.25, 0.5, 0.75))]])


def all_claims(speeds: SharpSpeeds, agreements: Sequence[RungAgreement] = (), *, quick: bool = False) -> list[ClaimRecord]:
    """Return every claim; claims about printed figures alone, and undecidable ones, need no device.

    A `quick` look, or one without compiled kernels, decides no measured claim.
    """
    measured = [*_ladder(speeds, agreements), *_products(speeds), *_systems(speeds)]
    why = "a quick look" if quick else "" if speeds.level else "without compiled kernels"
    if why:
        measured = [replace(record, verdict=UNKNOWN, why=f"{why}, which decides nothing") for record in measured]
    return [
        *measured,
        *_printed(),
        *agreement_claims(agreements, speeds.ladder["polynomial"][-1].distinct_share),
        *_unmeasured(),
    ]


def _box_record(text: str, theirs: str, ours: str, verdict: str, why: str, identifier: str) -> ClaimRecord:
    return ClaimRecord(identifier, text, theirs, ours, verdict, why, device=BOX, basis="measured")


def _ladder(speeds: SharpSpeeds, agreements: Sequence[RungAgreement]) -> list[ClaimRecord]:
    rungs, table = speeds.ladder["polynomial"], speeds.ladder["table"]
    place = next(number for number, rung in enumerate(LADDER) if rung.key == "activations")
    steps = {rung.key: rung.ratios(before) for before, rung in pairwise(rungs)}
    kept = {key: ratio_verdict(ratios, lambda ratio: ratio >= LEAST_STEP) for key, ratios in steps.items()}
    total = rungs[-1].ratios(rungs[0])
    by_table, by_polynomial = table[place].ratios(table[place - 1]), rungs[place].ratios(rungs[place - 1])
    theirs_step = LADDER[place].step
    return [
        _box_record(
            f"Every rung is at least {LEAST_STEP} times as fast as the one before it, source side included",
            "; ".join(f"{rung.name} {rung.step:.3f}" for rung in LADDER if rung.step is not None),
            "; ".join(f"{rung.name} {_median(steps[rung.key]):.3f}" for rung in LADDER[1:]),
            worst_verdict(kept.values()),
            _which(kept),
            "SHARP-11 (a)",
        ),
        _box_record(
            f"The whole ladder gains {published.SPEED_UP} times, source side included (at least {LEAST_TOTAL} asked)",
            f"{LADDER[-1].factor:.2f} from the speeds, {published.SPEED_UP} in the text",
            f"{_median(total):.2f}; with the paper's table {_median(table[-1].ratios(table[0])):.2f}. Without the source side "
            f"{rungs[-1].decoder_over(rungs[0]):.2f} and {table[-1].decoder_over(table[0]):.2f}",
            _whole_ladder(ratio_verdict(total, lambda ratio: ratio >= LEAST_TOTAL), agreements),
            f"over float32 products packed the same way, which a library's are not; {_kept_words(agreements)}",
            "SHARP-11 (b)",
        ),
        _box_record(
            "Lookup tables for sigmoid and tanh make it faster",
            f"{theirs_step:.3f}, with vector instructions for the rest",
            f"table {_median(by_table):.3f}; beside the paper a polynomial {_median(by_polynomial):.3f}, which is "
            f"{_median(rungs[place].ratios(table[place])):.3f} over the table; alone, ns an element: "
            + ", ".join(f"{activation} {1e9 * seconds:.2f}" for activation, seconds in speeds.activation_s.items()),
            ratio_verdict(by_table, lambda ratio: ratio > 1.0),
            "over the library's functions, one element at a time; the table alone is judged",
            "SHARP-08",
        ),
    ]


def _whole_ladder(speed: str, agreements: Sequence[RungAgreement]) -> str:
    """Return the verdict on the ladder's speed: it holds only where a trained model keeps its words (SHARP-10)."""
    if not agreements:
        return UNKNOWN if speed == HOLDS else speed
    return worst_verdict([speed, HOLDS if all(rung.share >= LEAST_SAME for rung in agreements) else FAILS])


def _kept_words(agreements: Sequence[RungAgreement]) -> str:
    if not agreements:
        return "speed alone: that the rungs keep a trained model's words needs --model and --text (SHARP-10)"
    least = 100 * min(rung.share for rung in agreements)
    return f"every rung keeps at least {least:.2f} % of a trained model's words, {100 * LEAST_SAME:.1f} % asked (SHARP-10)"


def _products(speeds: SharpSpeeds) -> list[ClaimRecord]:
    low, high = published.PRODUCT_BATCHES
    least, most = published.PRODUCT_RATIO
    hot = [product_time for product_time in speeds.products if not product_time.cold and low <= product_time.batch <= high]
    cold = [product_time for product_time in speeds.products if product_time.cold and low <= product_time.batch <= high]
    libraries = sorted({product_time.best_library for product_time in hot})
    verdicts = [ratio_verdict(product_time.ratios("library"), lambda ratio: ratio >= least) for product_time in hot]

    def format_ratios(products: Sequence[Any], name: str) -> str:
        return ", ".join(f"{product_time.ratio(name):.2f} at {product_time.batch}" for product_time in products)

    return [
        _box_record(
            f"16-bit products are {least:.0f} to {most:.0f} times as fast as 32-bit ones at batches of {low} to {high}",
            f"{least:.0f} to {most:.0f}, curve not in the text",
            f"over the library {format_ratios(hot, 'library')}; weights from memory {format_ratios(cold, 'library')}",
            worst_verdict(verdicts),
            f"the library: {' or '.join(libraries)}, whichever is faster; {least:.0f} is asked for. Over float32 packed "
            f"the same way, where half the bytes can give 2, and nothing is asked: {format_ratios(hot, 'float32')}; "
            f"weights from memory {format_ratios(cold, 'float32')}",
            "SHARP-18",
        )
    ]


def _systems(speeds: SharpSpeeds) -> list[ClaimRecord]:
    known = {system.key: system for system in speeds.systems}
    pairs = [pair for above, below in pairwise(ORDER) for pair in product(above, below)]
    asked = {pair: known[pair[0]].ratios(known[pair[1]]) for pair in pairs if set(pair) <= set(known)}
    order = {f"{a} before {b}": ratio_verdict(ratios, lambda ratio: ratio > 1.0) for (a, b), ratios in asked.items()}
    records = [
        _box_record(
            "Speed: S1 before S3, S2 and S4, S5 and S6, and S7 last",
            ", ".join(f"{system.key} {system.words_per_s}" for system in published.SYSTEMS if system.key in known),
            ", ".join(f"{system.key} {system.words_per_s:.0f}" for system in known.values()),
            worst_verdict(order.values()) if order else UNKNOWN,
            _which(order),
            "SHARP-15 (a)",
        )
    ]
    if {"S1", "S2", "S3", "S4"} <= set(known):
        records += [_similar(known), _layer(known)]
    if {"E1", "S7"} <= set(known):
        ratios = known["E1"].ratios(known["S7"])
        records.append(
            _box_record(
                f"An ensemble of two S4 is at least {published.CLEARLY_FASTER:.0f} times as fast as S7",
                f"{published.speed_over('E1', 'S7'):.2f}",
                f"{_median(ratios):.2f}",
                ratio_verdict(ratios, lambda ratio: ratio >= published.CLEARLY_FASTER),
                "",
                "SHARP-15 (b)",
            )
        )
    if {"E1", "E2", "S4"} <= set(known):
        records.append(_ensembles(known))
    return records


def _similar(known: dict[str, DecoderTime]) -> ClaimRecord:
    ratios = known["S4"].ratios(known["S2"])
    return _box_record(
        f"S4 costs about as much as S2 ({100 * ABOUT:.0f} % allowed)",
        f"{published.speed_over('S4', 'S2'):.2f} of its speed",
        f"{_median(ratios):.2f}; by multiply-adds {known['S2'].multiply_adds / known['S4'].multiply_adds:.2f}",
        ratio_verdict(ratios, lambda ratio: abs(ratio - 1.0) <= ABOUT),
        "",
        "SHARP-17",
    )


def layer_ratios(known: dict[str, DecoderTime]) -> list[float]:
    """Return the time of a 1024-GRU layer over a 1024-FC layer by round: S2 - S1 over (S4 - S3) / 4, scaled to the width.

    Uses decoder times alone, since the source side of all four systems is the same. A round is NaN if noise leaves one of
    the two layers no time.
    """
    s1, s2, s3, s4 = (np.array(known[key].decoder_s) for key in ("S1", "S2", "S3", "S4"))
    gru_s, fc_s = s2 - s1, (s4 - s3) / 4 * (1024 / 768) ** 2
    measurable = (gru_s > 0) & (fc_s > 0)
    return [float(ratio) for ratio in np.divide(gru_s, fc_s, out=np.full(len(s1), np.nan), where=measurable)]


def _layer(known: dict[str, DecoderTime]) -> ClaimRecord:
    rounds = layer_ratios(known)
    ratios = [ratio for ratio in rounds if not np.isnan(ratio)]
    enough = 2 * len(ratios) > len(rounds)
    noisy = f", {len(rounds) - len(ratios)} of {len(rounds)} told nothing" if len(ratios) < len(rounds) else ""
    return _box_record(
        f"A fully connected layer costs 1/{published.FC_OVER_GRU} of a GRU layer (below 1/{LEAST_LAYER_RATIO:.0f} asked)",
        "1/6 by matrices; 1/4.4 to 1/5.8 by Table 2",
        f"1/{_median(ratios):.2f}" if enough else "not told: noise",
        ratio_verdict(ratios, lambda ratio: ratio > LEAST_LAYER_RATIO) if enough else UNKNOWN,
        f"from S2 beyond S1 and S4 beyond S3, round by round{noisy}",
        "SHARP-13",
    )


def _ensembles(known: dict[str, DecoderTime]) -> ClaimRecord:
    single = known["S4"]
    costs = {key: (known[key].members, single.ratios(known[key])) for key in ("E1", "E2")}
    verdicts = [
        ratio_verdict(ratios, lambda cost, members=members: members <= cost <= MOST_PER_MEMBER * members)  # type: ignore[misc]
        for members, ratios in costs.values()
    ]
    return _box_record(
        f"An ensemble of n models costs n to {MOST_PER_MEMBER} n times one",
        "; ".join(f"{key} {published.speed_over('S4', key):.2f} times S4" for key in costs),
        "; ".join(f"{key} {_median(ratios):.2f} times S4" for key, (_, ratios) in costs.items()),
        worst_verdict(verdicts),
        "",
        "SHARP-14",
    )


def _printed() -> list[ClaimRecord]:
    (low, high), odd = published.implied_baselines()
    return [
        ClaimRecord(
            "SHARP-11 (c)",
            "The printed factors of Table 1 follow from its speeds",
            ", ".join(f"{rung.printed_factor:.2f}" for rung in LADDER),
            ", ".join(f"{rung.factor:.3f}" for rung in LADDER),
            FAILS,
            f"an unrounded baseline of {low:.2f} to {high:.2f}, which prints as 96, gives all but one, which needs "
            f"{odd[0]:.2f} to {odd[1]:.2f}",
            basis="published",
        )
    ]


def _unmeasured() -> list[ClaimRecord]:
    return [
        ClaimRecord(f"SHARP-17 ({letter})", claim, "so in the text", "", UNKNOWN, why, basis="published")
        for letter, (claim, why) in zip("abcd", published.UNMEASURED, strict=True)
    ]


def _median(ratios: Sequence[float]) -> float:
    return float(np.median(ratios))


def _which(verdicts: dict[str, str]) -> str:
    against = [key for key, verdict in verdicts.items() if verdict == FAILS]
    unclear = [key for key, verdict in verdicts.items() if verdict not in (FAILS, HOLDS)]
    exceptions = [
        *([f"not with {', '.join(against)}"] if against else []),
        *([f"rounds differ with {', '.join(unclear)}"] if unclear else []),
    ]
    return "; ".join(exceptions) or "in every case looked at"
