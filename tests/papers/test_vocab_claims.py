"""The claims on a part of the vocabulary hold on a study that has them hold, and flip where a number is tampered with."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.calibrate.projection_bench import ProjectionBench
from simnmt.papers.fvp.study import Study
from simnmt.papers.fvp.study_claims import bench_claims, study_claims
from tests.papers.vocab_stand_ins import CLUSTERS, TOPS, bench, cell, decoded, speed, step, study


def verdicts(judged: Study | None) -> dict[str, str]:
    return {record.identifier: record.verdict for record in study_claims([] if judged is None else [judged])}


def test_without_a_study_no_measured_claim_is_judged() -> None:
    judged = verdicts(None)
    assert set(judged.values()) == {"not measurable here"} and set(judged) == set(verdicts(study()))


def speeds(best: int, clusters: int = 1_300) -> tuple[Any, ...]:
    return tuple(
        speed("fr-en", count, top, 0.4 if (count, top) == (clusters, best) else 0.2) for count in CLUSTERS for top in TOPS
    )


def shares(*means: float) -> tuple[Any, ...]:
    """Return a sweep over ever more clusters with these shares."""
    return tuple(cell(clusters=100 * place, share_mean=share) for place, share in enumerate(means, 1))


@pytest.mark.parametrize(
    ("bare", "changed", "verdict"),
    [
        ("FVP-08 (a)", {"chosen": (decoded(identical=0.89),)}, "does not hold"),
        ("FVP-08 (b)", {"chosen": (decoded(bleu_part=29.7),)}, "does not hold"),
        ("FVP-08 (b)", {"chosen": (decoded(bleu_part=None),)}, "not measurable here"),
        ("FVP-20 (d)", {"chosen": (decoded(share_most=0.16),)}, "does not hold"),
        ("FVP-20 (e)", {"chosen": (decoded(layer_ratio=2.5),)}, "does not hold"),
        ("FVP-20 (e)", {"chosen": (decoded(layer_ratios=(2.5, 2.7)),)}, "not distinguishable"),
        ("FVP-20 (f)", {"chosen": (decoded(ratio=1.1),)}, "does not hold"),
        ("FVP-20 (f)", {"chosen": (decoded(gains=(1.43, 1.44, 1.1)),)}, "not distinguishable"),
        ("FVP-20 (g)", {"chosen": (decoded(predicted=1.7),)}, "does not hold"),
        ("FVP-20 (g)", {"chosen": (decoded(gains=(1.47, 1.48, 1.1)),)}, "not distinguishable"),
        ("FVP-20 (h)", {"chosen": (decoded(ratio=1.2), decoded(beam=2, ratio=1.3))}, "does not hold"),
        # The slowest round at batch 1 overlaps the fastest at batch 20: the searches did not alternate.
        ("FVP-20 (h)", {"chosen": (decoded(gains=(1.43, 1.44, 1.1)), decoded(beam=2, ratio=1.2))}, "not distinguishable"),
        # A prediction that no gain would also pass is no test.
        ("FVP-20 (g)", {"chosen": (decoded(ratio=1.05, predicted=1.06),)}, "not distinguishable"),
        ("FVP-11 (d)", {"speeds": speeds(3)}, "does not hold"),
        ("FVP-11 (a)", {"sweep": (cell(clusters=100), cell(clusters=500, share_mean=0.2))}, "does not hold"),
        ("FVP-11 (a)", {"sweep": (cell(),)}, "not measurable here"),
        # Extra cells, tried with one number of clusters alone, neither make nor spoil a trend.
        ("FVP-11 (a)", {"sweep": (cell(clusters=100), cell(clusters=500), cell(clusters=500, top=10))}, "holds"),
        ("FVP-11 (a)", {"sweep": shares(0.05, 0.049)}, "not distinguishable"),
        # k-means is seeded anew at each number of clusters: a trend allows noise, and no more.
        ("FVP-11 (a)", {"sweep": shares(0.05, 0.04, 0.0415, 0.03)}, "holds"),
        ("FVP-11 (b)", {"sweep": (cell(top=1), cell(top=3, share_mean=0.001))}, "does not hold"),
        ("FVP-08 (c)", {"sweep": (cell(top=1), cell(top=3, miss_rate=0.5))}, "does not hold"),
        # Where nothing is missed, a larger K cannot miss less.
        ("FVP-08 (c)", {"sweep": (cell(top=1), *(cell(top=top, miss_rate=0.0) for top in (3, 5)))}, "holds"),
        (
            "FVP-08 (d)",
            {"volume": (cell(training_sentences=8_000), cell(training_sentences=16_000, miss_rate=0.9))},
            "does not hold",
        ),
        ("FVP-10", {"by_language": (cell(set_most=0.9), cell(knowledge="target"))}, "does not hold"),
        (
            "FVP-10",
            {
                "by_language": (
                    *(cell(top=3, knowledge=what) for what in ("both", "target")),
                    *(cell(set_most=share, knowledge=what) for share, what in ((0.9, "both"), (0.8, "target"))),
                )
            },
            "not distinguishable",
        ),
    ],
)
def test_a_claim_flips_when_its_number_is_tampered_with(bare: str, changed: dict[str, Any], verdict: str) -> None:
    assert verdicts(study(**changed))[bare] == verdict


def missed(*rates: float) -> tuple[Any, ...]:
    """Of 9,000 tokens each."""
    return tuple(cell(training_sentences=8_000 * 2**place, miss_rate=rate) for place, rate in enumerate(rates))


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((0.02, 0.01), "holds"),
        ((0.02, 0.0205, 0.01), "holds"),
        ((0.02, 0.019), "not distinguishable"),
        ((0.02, 0.0205), "not distinguishable"),
        ((0.02, 0.01, 0.02, 0.01), "does not hold"),
        ((0.02, 0.03), "does not hold"),
        ((0.0, 0.0), "holds"),
        ((0.02,), "not measurable here"),
    ],
)
def test_misses_are_judged_by_the_standard_error_of_the_held_out_tokens(rates: tuple[float, ...], verdict: str) -> None:
    """FVP-08: 2 % of 9,000 tokens have a standard error of 0.15 points."""
    assert verdicts(study(volume=missed(*rates)))["FVP-08 (d)"] == verdict


def test_the_best_speed_for_a_claim_is_compared_with_the_best_against_it() -> None:
    """FVP-11: not against one that keeps it as well."""
    rows = (speed("fr-en", 2_000, 1, 0.40), speed("fr-en", 1_300, 1, 0.39), speed("fr-en", 1_300, 3, 0.20))
    judged = study(speeds=rows)
    (record,) = (record for record in study_claims([judged]) if record.identifier == "FVP-11 (d)")
    assert record.verdict == "holds"
    assert "2,000 clusters, K = 1 (+40.0 %) against 1,300 clusters, K = 3 (+20.0 %)" in record.why
    low = (speed("fr-en", 100, 1, 0.41), *rows)
    assert verdicts(study(speeds=low))["FVP-11 (d)"] == "does not hold", "K = 1, but few clusters"
    assert verdicts(study(speeds=rows[:2]))["FVP-11 (d)"] == "not measurable here"


def test_times_of_disturbed_rounds_decide_nothing_and_quality_stays_judged() -> None:
    disturbed = study(
        chosen=tuple(decoded(beam=beam, conclusive=False) for beam in (1, 2)),
        speeds=tuple(speed("fr-en", 500, top, 0.3, conclusive=False) for top in TOPS),
    )
    records = {record.identifier: record for record in study_claims([disturbed])}
    timed = ("FVP-20 (e)", "FVP-20 (f)", "FVP-20 (g)", "FVP-20 (h)", "FVP-11 (d)")
    assert all(records[claim].verdict == "not measurable here" for claim in timed)
    assert all("quiet box" in records[claim].why for claim in timed)
    assert records["FVP-08 (a)"].verdict == "holds"


def verdicts_of_bench(*benches: ProjectionBench) -> dict[str, str]:
    return {record.identifier: record.verdict for record in bench_claims(benches)}


@pytest.mark.parametrize(
    ("measured", "bare", "verdict"),
    [
        (bench(), "FVP-09", "holds"),
        (bench(), "FVP-15 (b)", "holds"),
        (bench(), "FVP-15 (a)", "not measurable here"),
        (bench(step(fitted=False, predicted_s=1.0)), "FVP-09", "does not hold"),
        (bench(step(0.06, 9.9), step(0.12, 6.0)), "FVP-15 (b)", "does not hold"),
        (bench(step(), step(0.12, 4.9)), "FVP-15 (b)", "does not hold"),
        (bench(threads=2), "FVP-15 (b)", "not measurable here"),
        (bench(step(0.06, 2.0, 40), step(0.15, 1.6, 40), device="cuda"), "FVP-15 (a)", "holds"),
        (bench(step(0.06, 2.0, 40), step(0.15, 1.4, 40), device="cuda"), "FVP-15 (a)", "does not hold"),
    ],
)
def test_a_claim_is_decided_by_what_was_measured(measured: ProjectionBench, bare: str, verdict: str) -> None:
    assert verdicts_of_bench(measured)[bare] == verdict
