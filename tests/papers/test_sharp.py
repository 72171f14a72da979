"""The claims on the sharp decoder hold on the paper's own figures and fail if one is changed; `simnmt reproduce sharp`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from simnmt.calibrate.sharp_agreement import RungAgreement
from simnmt.calibrate.sharp_speeds import SharpSpeeds, rung_settings
from simnmt.papers.kit.claims import ClaimRecord, judge
from simnmt.papers.sharp.claims import (
    BOX_CLAIMS,
    LADDER,
    MODEL_CLAIMS,
    PAPER,
    RUNGS,
    SYSTEMS,
    Trained,
    all_claims,
    amdahl,
    implied_baselines,
    predictions,
    printed_over,
)
from simnmt.papers.sharp.reproduction import report
from simnmt.profile.decoder_settings import DecoderSettings
from tests.papers.sharp_stand_ins import PRODUCTS, as_published

MEASURED = {claim.identifier for claim in BOX_CLAIMS}


def verdicts(speeds: SharpSpeeds, *, quick: bool = False) -> dict[str, str]:
    return {identifier: record.verdict for identifier, record in by_identifier(all_claims(speeds, quick=quick)).items()}


def by_identifier(records: list[ClaimRecord]) -> dict[str, ClaimRecord]:
    assert len({record.id for record in records}) == len(records)
    return {record.identifier: record for record in records}


@pytest.mark.parametrize(
    ("bare", "changed"),
    [
        ("SHARP-11 (a)", {"rungs": {"merge": 370.0}}),
        ("SHARP-11 (b)", {"rungs": {"merge": 379.0}}),  # 3.99 times with the source side
        ("SHARP-08", {"table": {"activations": 340.0}}),
        ("SHARP-18", {"int16_us": 60.0}),
        ("SHARP-15 (a)", {"systems": {"S3": 225.0}}),
        ("SHARP-15 (b)", {"systems": {"S7": 60.0}}),
        ("SHARP-17", {"systems": {"S4": 190.0}}),
        ("SHARP-13", {"systems": {"S4": 190.0}}),
        ("SHARP-14", {"systems": {"E1": 80.0}}),
        ("SHARP-14", {"systems": {"E1": 115.5}}),  # 1.98 times one
    ],
)
def test_a_claim_fails_if_its_figure_is_changed(bare: str, changed: dict[str, Any]) -> None:
    assert verdicts(as_published(**changed))[bare] == "does not hold"


def test_the_ladder_holds_only_if_a_trained_model_keeps_its_words() -> None:
    """SHARP-11 with SHARP-10: all rungs keep 99.9 % of a trained model's words; without a model it may fail, but not hold."""
    assert verdicts(as_published())["SHARP-11 (b)"] == "not measurable here"
    for same, verdict in ((9_995, "holds"), (9_980, "does not hold")):
        agreements = [agreement("baseline", 10_000), agreement("merge", same, gemm="int16")]
        assert by_identifier(all_claims(as_published(), agreements))["SHARP-11 (b)"].verdict == verdict


def test_a_quick_look_decides_nothing() -> None:
    """Its figures are in the reason, and not beside the verdict."""
    records = by_identifier(all_claims(as_published(), quick=True))
    assert {(records[bare].verdict, records[bare].ours) for bare in MEASURED} == {("not measurable here", "")}
    assert "2.611" in records["SHARP-11 (a)"].why


@pytest.mark.parametrize(
    ("gru_s", "verdict"),
    [
        ((6.0, 6.0, 6.0), "holds"),
        ((6.0, 1.0, 1.0), "not distinguishable"),
        ((1.0, 1.0, 1.0), "does not hold"),
        ((6.0, -1.0, -1.0), "not measurable here"),
    ],
)
def test_a_layer_is_judged_round_by_round(gru_s: tuple[float, ...], verdict: str) -> None:
    """SHARP-13: medians alone would hide that rounds differ; a round in which noise leaves a layer no time does not count."""
    fc_s, speeds = (768 / 1024) ** 2, as_published()
    beyond = pd.DataFrame({"S1": [0.0] * 3, "S2": gru_s, "S3": [0.0] * 3, "S4": [4 * fc_s] * 3})
    sentences = speeds.sentences.assign(**(100.0 + beyond))
    assert verdicts(replace(speeds, sentences=sentences))["SHARP-13"] == verdict


def test_predictions_count_products_attention_and_activations() -> None:
    """A word of the baseline: 10 M multiply-adds at 80 us for 6 x 1024 x 1024, 0.2 M at 80 us for one row, 0.1 M of attention,
    1000 activations."""
    speeds = as_published()
    rate_s = 80e-6 / (6 * 1024**2)
    row_s = 2e5 * 6 * rate_s
    counted_s = 10e6 * rate_s + row_s + 1e5 * rate_s + 1_000 * 10e-9
    rest_s = 1 / 95 - counted_s
    last_s = (4e6 * rate_s + row_s) / 2 + 1e5 * rate_s + 1_000 * 0.5e-9
    predicted = predictions(speeds)["factor"]
    assert predicted["baseline"] == 1.0
    assert predicted["merge"] == pytest.approx((1 / 95) / (rest_s + last_s), rel=1e-3)
    second = amdahl(speeds)
    assert second["share"] == pytest.approx((1e6 * PRODUCTS["baseline"] * rate_s + row_s) * 95, rel=0.02)
    assert 1.0 < (second["predicted"] or 0.0) < 2.0
    slow_alone = amdahl(as_published(rungs={"baseline": 9_000.0}))
    assert (slow_alone["share"] or 0.0) > 1.0, "products that alone take longer than a word predict nothing (XP-07)"
    assert slow_alone["predicted"] is None


def agreement(key: str, same: int, distinct_share: float = 0.7, bleu: float | None = None, **settings: Any) -> RungAgreement:
    return RungAgreement(key, DecoderSettings(beam=6, **settings), 10_000, same, 100, 100, distinct_share, bleu)


@pytest.mark.parametrize(
    ("changed", "verdict"), [((10_000, 9_995), "holds"), ((9_999, 9_995), "does not hold"), ((10_000, 9_989), "does not hold")]
)
def test_claims_on_noise_are_judged_on_a_trained_model(changed: tuple[int, int], verdict: str) -> None:
    """SHARP-10."""
    exact, noisy = changed
    agreements = [
        agreement("baseline", 10_000),
        agreement("identities", exact, merge=True),
        agreement("merge", noisy, gemm="int16"),
    ]
    outcomes = {record.identifier: record.verdict for record in judge(MODEL_CLAIMS, [Trained(agreements)])}
    assert outcomes == {"SHARP-10 (a)": verdict, "SHARP-10 (b)": "not measurable here", "SHARP-09": "holds"}
    few_states = [*agreements, agreement("merge", 10_000, 0.55, gemm="int16")]
    assert by_identifier(judge(MODEL_CLAIMS, [Trained(few_states)]))["SHARP-09"].verdict == "does not hold"


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [((30.0, 30.0, 30.019), "holds"), ((30.0, 30.0, 29.97), "does not hold"), ((30.0, 30.07, 30.0), "does not hold")],
)
def test_the_claim_on_bleu_is_judged_by_references(scores: tuple[float, ...], verdict: str) -> None:
    """SHARP-10."""
    settings = ({}, {"gemm": "int16"}, {"gemm": "int16", "activations": "table"})
    agreements = [agreement("rung", 10_000, bleu=bleu, **rung) for bleu, rung in zip(scores, settings, strict=True)]
    record = by_identifier(judge(MODEL_CLAIMS, [Trained(agreements)]))["SHARP-10 (b)"]
    assert record.verdict == verdict and f"{scores[-1] - scores[0]:+.4f}" in record.ours


def test_factors_and_steps_of_the_ladder_follow_from_its_speeds() -> None:
    """SHARP-11."""
    assert [round(printed_over(rung, "baseline", LADDER), 3) for rung in RUNGS] == [1.0, 2.611, 3.274, 3.6, 4.063, 4.4]
    steps = [round(printed_over(rung, before, LADDER), 3) for before, rung in pairwise(RUNGS)]
    assert steps == [2.611, 1.254, 1.1, 1.129, 1.083]
    assert [round(1e3 / speed, 2) for speed in LADDER.column("words_per_s")] == [10.53, 4.03, 3.22, 2.92, 2.59, 2.39]
    assert round(printed_over("merge", "baseline", LADDER), 1) == PAPER["speed_up"]


def test_no_baseline_gives_all_printed_factors() -> None:
    """SHARP-11, SHARP-19."""
    (low, high), (odd_low, odd_high) = implied_baselines()
    assert (round(low, 2), round(high, 2)) == (95.52, 95.88)
    assert (round(odd_low, 2), round(odd_high, 2)) == (94.83, 95.31)
    assert odd_high < low and round(low) == 96


def test_costs_of_layers_and_ensembles_follow_from_table_2() -> None:
    """SHARP-13, SHARP-14, SHARP-15: what the published texts of these claims say."""
    word_ms = {row["key"]: 1e3 / row["words_per_s"] for row in SYSTEMS.rows}
    fc_ms = ((word_ms["S4"] - word_ms["S3"]) / 4, (word_ms["S6"] - word_ms["S4"]) / 8)
    layers = [(word_ms["S2"] - word_ms["S1"]) / (ms * (1024 / 768) ** 2) for ms in fc_ms]
    assert [round(value, 2) for value in (*fc_ms, *layers)] == [0.17, 0.22, 5.78, 4.43]
    pairs = (("S4", "E1"), ("S4", "E2"), ("E1", "S7"), ("S4", "S2"))
    assert [round(printed_over(*pair), 2) for pair in pairs] == [2.25, 3.52, 3.64, 0.95]


def test_a_rung_shows_its_agreement_on_a_trained_model() -> None:
    """XP-03: exact, or how many words stay the same with all rungs so far."""
    agreements = [RungAgreement("merge", rung_settings(6, None, "polynomial")["merge"], 1_000, 999, 10, 9, 0.7)]
    table = report(as_published(), agreements).document()["tables"][1]
    rows = {(row["rung"], row["activations"]): row["agreement"] for row in table["rows"]}
    assert rows["merge", "polynomial"] == 0.999 and rows["merge", "table"] is None
