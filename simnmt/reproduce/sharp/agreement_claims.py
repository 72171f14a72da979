"""What a trained model says of the ladder: how much noise it adds, and how many states differ (SHARP-09, SHARP-10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simnmt.reproduce.sharp import published
from simnmt.reproduce.verdicts import UNKNOWN, Records, record_of

if TYPE_CHECKING:
    from simnmt.calibrate.sharp_agreement import RungAgreement

LEAST_SAME = 0.999
"""Of the words, with all rungs (SHARP-10)."""
MOST_BLEU_CHANGE = 0.02
"""In points, below which a change is to stay (SHARP-10)."""
NEAR_UNIQUE = 0.10
"""By how much the share of distinct states may differ from the paper's."""
DEVICE = "a trained model"


def agreement_claims(agreements: Sequence[RungAgreement], random_share: float) -> Records:
    """All three; without a trained model that nothing decides them. `random_share`: of distinct states, with random weights."""
    theirs, text = (
        "99.9 % and more",
        f"With all rungs {100 * LEAST_SAME:.1f} % of the words stay the same, and with exact ones all do",
    )
    unique = f"Of a beam of {published.BEAM} hypotheses' previous states {100 * published.UNIQUE_SHARE:.0f} % differ"
    printed = f"{100 * published.UNIQUE_SHARE:.0f} %"
    if not agreements:
        asked = "needs a trained model: give --model and --text"
        told = f"{asked}; with random weights {100 * random_share:.0f} %, which the gain of merging here goes with"
        return [
            record_of("SHARP-10 (a)", text, theirs, "", UNKNOWN, asked, basis="needs --model"),
            _bleu(()),
            record_of("SHARP-09", unique, printed, "", UNKNOWN, told, basis="needs --model"),
        ]
    ours = "; ".join(
        f"{each.settings.words()} {100 * each.share:.2f} % of {each.tokens:,} words, {each.sentences_same} of {each.sentences} "
        "sentences"
        for each in agreements[1:]
    )
    exact = all(each.tokens_same == each.tokens for each in agreements if each.settings.exact)
    share = agreements[-1].distinct_share
    return [
        record_of(
            "SHARP-10 (a)",
            text,
            theirs,
            ours,
            exact and all(each.share >= LEAST_SAME for each in agreements),
            "likeliest words along the baseline's translations; sentences are translated by themselves",
            device=DEVICE,
            basis="measured",
        ),
        _bleu(agreements),
        record_of(
            "SHARP-09",
            unique,
            printed,
            f"{100 * share:.1f} %",
            abs(share - published.UNIQUE_SHARE) <= NEAR_UNIQUE,
            f"mean over sentences, 10 points allowed; with random weights {100 * random_share:.0f} %",
            device=DEVICE,
            basis="measured",
        ),
    ]


def _bleu(agreements: Sequence[RungAgreement]) -> dict[str, Any]:
    """The change by each rung so far, whose largest counts."""
    text, theirs = f"No rung changes BLEU by {MOST_BLEU_CHANGE} or more", f"below {MOST_BLEU_CHANGE}"
    changes = [
        (each.settings.words(), each.bleu - agreements[0].bleu)
        for each in agreements[1:]
        if each.bleu is not None and agreements[0].bleu is not None
    ]
    if not changes:
        asked = "needs a trained model and references: give --model, --text and --references"
        return record_of("SHARP-10 (b)", text, theirs, "", UNKNOWN, asked, basis="needs --references")
    return record_of(
        "SHARP-10 (b)",
        text,
        theirs,
        "; ".join(f"{settings} {change:+.4f}" for settings, change in changes),
        all(abs(change) < MOST_BLEU_CHANGE for _, change in changes),
        f"of {agreements[0].bleu:.2f} over {agreements[0].sentences} sentences, rungs as they add up",
        device=DEVICE,
        basis="measured",
    )
