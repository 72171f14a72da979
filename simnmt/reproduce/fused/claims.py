"""What the paper's printed figures say of one another, and what a real decoder says of fusing (FNI-11, 15, 16, 17)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simnmt.reproduce.amdahl import end_to_end
from simnmt.reproduce.fused.published import (
    BOTH_GAIN,
    FUSED_GAIN,
    NEAR_PREDICTED,
    NEAR_PRODUCT,
    OUTPUT_SHARE,
    TABLES,
    TOPUP_GAIN,
    derived,
)
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.verdicts import HOLDS, UNCLEAR, UNKNOWN, Records, record_of, together

if TYPE_CHECKING:
    from simnmt.calibrate.fused_speeds import RealSpeed


def paper_claims() -> Records:
    """What follows from the printed figures alone, no device needed."""
    figures = {each.what: each.value for each in derived()}
    both = figures["opensubtitles: fused times topped up"]
    implied = {beam: figures[f"europarl, beam {beam}: gain if the output layer has 70 %"] for beam in (5, 1)}
    off = [each for each in TABLES if abs(each.printed_product_percent - each.product_percent) > 0.06]
    return [
        record_of(
            "FNI-15 (d)",
            "The percentages of Tables 2 and 3 follow from their seconds",
            "; ".join(f"{each.printed_product_percent:+.1f} %" for each in off),
            "; ".join(f"{each.product_percent:+.2f} %, {SETS[each.test_set].name}, beam {each.beam}" for each in off),
            not off,
            "seven of the eight do; a decimal point slipped",
            basis="published",
        ),
        record_of(
            "FNI-16 (m)",
            "Fusing and topping up together gain as much as both in turn (OpenSubtitles)",
            f"{100 * BOTH_GAIN['opensubtitles']:.0f} %",
            f"{both:.1f} % from 1.41 times 1.12",
            abs(both / 100.0 - BOTH_GAIN["opensubtitles"]) <= NEAR_PRODUCT,
            f"of {100 * FUSED_GAIN['opensubtitles']:.0f} % and {100 * TOPUP_GAIN:.0f} %, each `up to`",
            basis="published",
        ),
        record_of(
            "FNI-17 (d)",
            "The share of the output layer, Table 2 and the gain of translating Europarl agree",
            f"at most {100 * FUSED_GAIN['europarl']:.0f} % faster, with nearly {100 * OUTPUT_SHARE:.0f} % of the time",
            "; ".join(f"{value:.1f} % at beam {beam}" for beam, value in implied.items()),
            max(implied.values()) <= 100 * FUSED_GAIN["europarl"] + 1.0,
            "Amdahl's prediction of the printed share and seconds is beyond what is claimed",
            basis="published",
        ),
    ]


def predicted(each: RealSpeed) -> float:
    """Amdahl, from the stages' seconds: how many times as fast a real decoder should be, fused (XP-07)."""
    return end_to_end(output_share(each), each.layer_s / each.fused_layer_s)


def output_share(each: RealSpeed) -> float:
    """Of the output layer in a real decoder's time without the fused kernel."""
    return each.layer_s / statistics.median(each.plain_s)


def real_claims(found: Sequence[RealSpeed]) -> Records:
    """What a real decoder on this box says; without one, that it was not asked."""
    device = "this box, real decoder" if found else ""
    basis = "measured" if found else "not at hand"
    differing = sum(each.differing for each in found)
    near = [[abs(predicted(each) / ratio - 1.0) <= NEAR_PREDICTED for ratio in each.ratios] for each in found]
    same = UNKNOWN if not found else UNCLEAR if differing else HOLDS
    asked = "" if found else "give --measure to ask a real decoder"
    return [
        record_of(
            "FNI-11",
            "Fusing changes no translation",
            "without affecting model quality",
            "; ".join(f"{_cell(each)} {each.sentences - each.differing} of {each.sentences} the same" for each in found),
            same,
            asked or ("a random model's best words lie within rounding of each other" if differing else "token by token"),
            device=device,
            basis=basis,
        ),
        record_of(
            "FNI-17 (c)",
            f"Amdahl's prediction from the stages' seconds is within {100 * NEAR_PREDICTED:.0f} % of the speed-up end to end",
            "",
            "; ".join(f"{_cell(each)} {each.ratio:.3f}, predicted {predicted(each):.3f}" for each in found),
            together(near),
            asked or "each round's ratio against the prediction",
            device=device,
            basis=basis,
        ),
    ]


def _cell(each: RealSpeed) -> str:
    return f"{SETS[each.test_set].name}, beam {each.beam}:"
