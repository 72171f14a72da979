"""The claims on a part of the vocabulary hold on a study that has them hold, and flip where a number is tampered with."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.calibrate.vocabulary.study.document import ClusterSizes, Study
from simnmt.reproduce.vocab.cluster_claims import cluster_claims
from simnmt.reproduce.vocab.decoding_claims import decoding_claims
from simnmt.reproduce.vocab.reproduction import judged
from tests.reproduce.vocab_stand_ins import CLUSTERS, TOPS, cell, decoded, speed, spread, study


def verdicts(own: Study | None) -> dict[str, str]:
    return {each["bare"]: each["verdict"] for each in (*decoding_claims(own), *cluster_claims(own))}


def test_everything_holds_on_a_study_made_to() -> None:
    assert set(verdicts(study()).values()) == {"holds"}


def test_without_a_study_nothing_measured_is_judged() -> None:
    found = verdicts(None)
    assert set(found.values()) == {"not measurable here"} and set(found) == set(verdicts(study()))


def speeds(best: int, clusters: int = 1_300) -> tuple[Any, ...]:
    return tuple(speed("fr-en", own, top, 0.4 if (own, top) == (clusters, best) else 0.2) for own in CLUSTERS for top in TOPS)


@pytest.mark.parametrize(
    ("bare", "changed", "verdict"),
    [
        ("FVP-08 (a)", {"chosen": (decoded(identical=0.89),)}, "does not hold"),
        ("FVP-08 (b)", {"chosen": (decoded(bleu=29.7),)}, "does not hold"),
        ("FVP-08 (b)", {"chosen": (decoded(bleu=30.3),)}, "does not hold"),
        ("FVP-08 (b)", {"chosen": (decoded(bleu=None),)}, "not measurable here"),
        ("FVP-20 (d)", {"chosen": (decoded(share=spread(0.1, 0.16)),)}, "does not hold"),
        ("FVP-20 (d)", {"chosen": (decoded(beam=2),)}, "not measurable here"),
        ("FVP-20 (e)", {"chosen": (decoded(layer_ratio=2.5),)}, "does not hold"),
        ("FVP-20 (f)", {"chosen": (decoded(ratio=1.1),)}, "does not hold"),
        ("FVP-20 (f)", {"chosen": (decoded(part_rounds=(7.0, 7.0, 9.0)),)}, "not distinguishable"),
        ("FVP-20 (g)", {"chosen": (decoded(predicted=1.7),)}, "does not hold"),
        ("FVP-20 (g)", {"chosen": (decoded(part_rounds=(6.8, 6.8, 9.0)),)}, "not distinguishable"),
        ("FVP-20 (h)", {"chosen": (decoded(ratio=1.2), decoded(beam=2, ratio=1.3))}, "does not hold"),
        ("FVP-20 (h)", {"chosen": (decoded(ratio=1.2),)}, "not measurable here"),
        ("FVP-11 (d)", {"speeds": speeds(3)}, "does not hold"),
        ("FVP-11 (d)", {"speeds": speeds(1, 100)}, "does not hold"),
        ("SHARP-02", {"candidates": (decoded(way="ibm1", candidates=20, layer_ratio=1.8),)}, "does not hold"),
        ("SHARP-02 (b)", {"candidates": (decoded(way="ibm1", candidates=20, bleu=29.0),)}, "does not hold"),
        ("SHARP-02", {"candidates": ()}, "not measurable here"),
        ("FVP-11 (a)", {"sweep": (cell(clusters=100), cell(clusters=500, share=spread(0.2)))}, "does not hold"),
        ("FVP-11 (b)", {"sweep": (cell(top=1), cell(top=3, share=spread(0.001)))}, "does not hold"),
        ("FVP-08 (c)", {"sweep": (cell(top=1), cell(top=3, miss_rate=0.5))}, "does not hold"),
        (
            "FVP-08 (d)",
            {"volume": (cell(training_sentences=8_000), cell(training_sentences=16_000, miss_rate=0.9))},
            "does not hold",
        ),
        ("FVP-10", {"by_language": (cell(sets=spread(0.1, 0.9)), cell(knowledge="target"))}, "does not hold"),
        ("FVP-10", {"by_language": (cell(),)}, "not measurable here"),
        (
            "FVP-10",
            {
                "by_language": (
                    *(cell(top=3, knowledge=what) for what in ("both", "target")),
                    *(cell(sets=spread(0.1, share), knowledge=what) for share, what in ((0.9, "both"), (0.8, "target"))),
                )
            },
            "not distinguishable",
        ),
        (
            "FVP-11 (c)",
            {
                "per_cluster": tuple(
                    ClusterSizes(label="fr-en", clusters=2, top=top, columns=(9, 9 - top), first=9) for top in (1, 3)
                )
            },
            "does not hold",
        ),
    ],
)
def test_a_claim_flips_when_its_number_is_tampered_with(bare: str, changed: dict[str, Any], verdict: str) -> None:
    assert verdicts(study(**changed))[bare] == verdict


def test_a_trend_allows_noise_and_no_more() -> None:
    """FVP-11: k-means is seeded anew at each r."""
    shares = (0.05, 0.04, 0.0415, 0.03)
    noisy = tuple(cell(clusters=100 * place, share=spread(share)) for place, share in enumerate(shares, 1))
    assert verdicts(study(sweep=noisy))["FVP-11 (a)"] == "holds"


def test_where_nothing_is_missed_a_larger_k_cannot_miss_less() -> None:
    """FVP-08."""
    own = study(sweep=(cell(top=1), cell(top=3, miss_rate=0.0), cell(top=5, miss_rate=0.0)))
    assert verdicts(own)["FVP-08 (c)"] == "holds"
    assert verdicts(study(sweep=(cell(top=1), cell(top=3, miss_rate=0.02))))["FVP-08 (c)"] == "does not hold", "as many"


def test_a_prediction_that_no_gain_would_pass_as_well_is_told_to_be_no_test() -> None:
    """FVP-20, as with the fused output layer."""
    own = study(chosen=(decoded(ratio=1.05, predicted=1.06),))
    (record,) = (each for each in decoding_claims(own) if each["bare"] == "FVP-20 (g)")
    assert record["verdict"] == "holds" and "no test of it" in record["why"]


def test_each_study_is_a_device_of_its_own_and_says_its_vocabulary() -> None:
    """A share of V means nothing without V."""
    other = study().model_copy(update={"model": study().model.model_copy(update={"name": "other", "vocab": 50_000})})
    records = judged([study(), other]).claims
    assert len({record["id"] for record in records}) == len(records)
    assert {record["device"] for record in records} == {"", "gru-xx-en", "other"}
    assert all("V 50,000" in record["why"] for record in records if record["device"] == "other")
    assert all("V 10,000" in record["why"] for record in records if record["device"] == "gru-xx-en")
