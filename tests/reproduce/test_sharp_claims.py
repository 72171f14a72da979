"""The claims on the sharp decoder hold on what the paper prints, and flip where a number is tampered with."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.calibrate.sharp_agreement import Agreement
from simnmt.calibrate.sharp_speeds import SharpSpeeds
from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.reproduce.sharp.agreement_claims import agreement_claims
from simnmt.reproduce.sharp.claims import all_claims, judged, layer_ratio
from simnmt.reproduce.sharp.predicted import predicted_int16, predicted_ladder, product_share
from tests.reproduce.sharp_stand_ins import PRODUCTS, as_published

MEASURED = ("SHARP-11 (a)", "SHARP-11 (b)", "SHARP-08 (a)", "SHARP-18 (a)", "SHARP-15 (a)", "SHARP-15 (b)", "SHARP-17", "SHARP-13", "SHARP-14")  # fmt: skip  # noqa: E501


def verdicts(speeds: SharpSpeeds, *, quick: bool = False) -> dict[str, str]:
    records: list[dict[str, Any]] = all_claims(speeds, quick=quick)
    assert len({record["id"] for record in records}) == len(records)
    return {record["bare"]: record["verdict"] for record in records}


def test_what_can_be_measured_holds_on_what_the_paper_prints() -> None:
    found = verdicts(as_published())
    assert {found[bare] for bare in MEASURED} == {"holds"}
    assert found["SHARP-11 (c)"] == "does not hold", "its printed factors do not follow from its speeds"
    assert {found[f"SHARP-17 ({letter})"] for letter in "abcd"} | {found["SHARP-09"], found["SHARP-10"]} == {
        "not measurable here"
    }


@pytest.mark.parametrize(
    ("bare", "changed"),
    [
        ("SHARP-11 (a)", {"rungs": {"merge": 370.0}}),
        ("SHARP-11 (b)", {"rungs": {"merge": 400.0}}),
        ("SHARP-08 (a)", {"table": {"activations": 340.0}}),
        ("SHARP-08 (b)", {"rungs": {"activations": 400.0}}),
        ("SHARP-18 (a)", {"int16_us": 60.0}),
        ("SHARP-18 (b)", {"int16_us": 50.0}),
        ("SHARP-15 (a)", {"systems": {"S3": 225.0}}),
        ("SHARP-15 (b)", {"systems": {"S7": 60.0}}),
        ("SHARP-17", {"systems": {"S4": 190.0}}),
        ("SHARP-13", {"systems": {"S4": 190.0}}),
        ("SHARP-14", {"systems": {"E1": 80.0}}),
    ],
)
def test_a_claim_flips_when_its_number_is_tampered_with(bare: str, changed: dict[str, Any]) -> None:
    assert verdicts(as_published(**changed))[bare] == "does not hold"


@pytest.mark.parametrize("quick", [True, False])
def test_a_quick_look_and_the_fallback_decide_nothing(quick: bool) -> None:
    found = verdicts(as_published(level="avx512" if quick else None), quick=quick)
    assert {found[bare] for bare in MEASURED} == {"not measurable here"}


def test_a_ratio_is_judged_by_its_quartiles() -> None:
    assert judged([2.0, 2.1, 1.9, 0.5, 2.2], lambda ratio: ratio > 1.0) == "holds", "one disturbed round decides nothing"
    assert judged([0.9, 1.1, 0.8, 1.2], lambda ratio: ratio > 1.0) == "not distinguishable"
    assert judged([0.9, 0.8, 0.7], lambda ratio: ratio > 1.0) == "does not hold"


def test_a_gru_layer_over_a_fully_connected_one_as_table_2_implies() -> None:
    """SHARP-13: 1/242 - 1/418 over a fourth of 1/229 - 1/271, scaled from 768 to 1024."""
    assert layer_ratio({each.key: each for each in as_published().systems}) == pytest.approx(5.78, abs=0.01)


def test_predictions_count_products_attention_and_activations() -> None:
    """A word of the baseline: 10 M multiply-adds at 80 us for 6 x 1024 x 1024, 0.1 M of attention, 1000 activations."""
    speeds = as_published()
    rate_s = 80e-6 / (6 * 1024**2)
    counted_s = 10e6 * rate_s + 1e5 * rate_s + 1_000 * 10e-9
    rest_s = 1 / 95 - counted_s
    last_s = 4e6 * rate_s / 2 + 1e5 * rate_s + 1_000 * 0.5e-9
    found = predicted_ladder(speeds, speeds.ladder["polynomial"])
    assert found[0] == 1.0
    assert found[-1] == pytest.approx((1 / 95) / (rest_s + last_s), rel=1e-3)
    assert product_share(speeds) == pytest.approx(1e6 * PRODUCTS["baseline"] * rate_s * 95, rel=0.02)
    assert 1.0 < predicted_int16(speeds) < 2.0


def agreement(key: str, same: int, distinct_share: float = 0.7, **settings: Any) -> Agreement:
    return Agreement(key, DecoderSettings(beam=6, **settings), 10_000, same, 100, 100, distinct_share)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [((10_000, 9_995), "holds"), ((9_999, 9_995), "does not hold"), ((10_000, 9_989), "does not hold")],
    ids=["as published", "an exact rung changes a word", "noise changes too many"],
)
def test_a_trained_model_decides_on_noise(changed: tuple[int, int], verdict: str) -> None:
    """SHARP-10."""
    exact, noisy = changed
    own = [agreement("baseline", 10_000), agreement("identities", exact, merge=True), agreement("merge", noisy, gemm="int16")]
    records = {record["bare"]: record["verdict"] for record in agreement_claims(own, 0.6)}
    assert records == {"SHARP-10": verdict, "SHARP-09": "holds"}
    few = [*own, agreement("merge", 10_000, 0.55, gemm="int16")]
    assert {record["bare"]: record["verdict"] for record in agreement_claims(few, 0.6)}["SHARP-09"] == "does not hold"
