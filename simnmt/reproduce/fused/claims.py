"""What the paper's printed figures say of one another, and what a real decoder says of fusing (FNI-11, 15, 16, 17)."""

from __future__ import annotations

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
from simnmt.reproduce.verdicts import FAILS, HOLDS, UNKNOWN, Records, record_of, together

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
            f"of {100 * FUSED_GAIN['opensubtitles']:.0f} % and {100 * TOPUP_GAIN:.0f} %, each 'up to'",
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
    """Amdahl: how many times as fast a real decoder should be, fused (XP-07).

    From the share of the output layer, watched while it decoded, and from how much faster it is, timed by itself.
    """
    return end_to_end(each.layer_share, each.layer_s / each.fused_layer_s)


def predicted_product_left_alone(each: RealSpeed) -> float:
    """The same were the product what it is without the fused kernel, as in the paper: what fusing alone gains."""
    return end_to_end(each.three_share, each.three_s / each.stages_s["fused"])


def real_claims(found: Sequence[RealSpeed]) -> Records:
    """What a real decoder on this box says; without one, that it was not asked."""
    device = "this box, real decoder" if found else ""
    basis = "measured" if found else "needs --measure"
    asked = "" if found else "give --measure to ask a real decoder"
    same = UNKNOWN if not found else FAILS if any(each.disagreements for each in found) else HOLDS
    near = [[_is_near(predicted(each), ratio) for ratio in each.ratios] for each in found]
    return [
        record_of(
            "FNI-11",
            "Fusing changes no translation",
            "without affecting model quality",
            "; ".join(f"{_cell(each)} {_sameness(each)}" for each in found),
            same,
            asked or "of sentences that end by themselves; a near tie, closer than 1e-4, may fall either way and is allowed",
            device=device,
            basis=basis,
        ),
        record_of(
            "FNI-17 (c)",
            f"Amdahl's prediction of the output layer is within {100 * NEAR_PREDICTED:.0f} % of the speed-up end to end",
            "",
            "; ".join(f"{_cell(each)} {_percent(each.ratio)}, foretold {_percent(predicted(each))}" for each in found),
            together(near),
            asked or "; ".join(["each round's ratio against the prediction", *_no_test(found)]),
            device=device,
            basis=basis,
        ),
    ]


def _sameness(each: RealSpeed) -> str:
    told = [f"{each.equal} of {each.sentences} the same"]
    told += [f"{each.near_ties} near ties"] if each.near_ties else []
    told += [f"{each.disagreements} differ without one"] if each.disagreements else []
    return ", ".join(told)


def _no_test(found: Sequence[RealSpeed]) -> list[str]:
    """Where so little is gained that foretelling no gain at all would have passed."""
    cells = [_cell(each).rstrip(":") for each in found if all(_is_near(1.0, ratio) for ratio in each.ratios)]
    return [f"no test of it where a prediction of no gain passes too: {'; '.join(cells)}"] if cells else []


def _is_near(foretold: float, ratio: float) -> bool:
    return abs(foretold / ratio - 1.0) <= NEAR_PREDICTED


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1.0):+.1f} %"


def _cell(each: RealSpeed) -> str:
    return f"{SETS[each.test_set].name}, beam {each.beam}:"
