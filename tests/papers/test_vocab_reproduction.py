"""Parts of the vocabulary: what follows from Tables 1 to 6 (FVP-09, 13 to 21), and the reproduction as documents."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from simnmt.base import shipped_files
from simnmt.papers.fvp.published import CELLS, PAPER, PRESETS, PROJECTION, QUALITY, means, memory, parameters, printed_claims
from simnmt.papers.fvp.reproduction import judge, reproduce
from simnmt.papers.fvp.study import Study
from simnmt.papers.kit.study import write_study
from tests.papers.vocab_stand_ins import study


def test_the_ratios_and_means_of_table_2() -> None:
    """FVP-15."""
    ratios = [round(row.ratio, 2) for rows, _ in PROJECTION.values() for row in rows]
    assert ratios == [3.13, 3.15, 3.11, 2.07, 2.62, 2.40, 2.78, 2.75, 2.63, 2.60, 2.76, 2.81]
    by_model = {
        model: [[getattr(row, name) for row in rows] for name in ("active_percent", "us", "ratio")]
        for model, (rows, _) in PROJECTION.items()
    }
    assert [f"{fmean(values):.2f}" for values in by_model["dense"]] == ["9.86", "269.03", "2.74"]
    assert [f"{fmean(values):.2f}" for values in by_model["m3"]] == ["13.78", "220.51", "2.72"]


@pytest.mark.parametrize(("model", "fixed", "slope", "r2"), [("dense", 150.3, 12.05, 0.992), ("m3", 165.2, 4.02, 0.85)])
def test_the_line_through_table_2(model: str, fixed: float, slope: float, r2: float) -> None:
    """FVP-09, and its break-even: Dense loses beyond 47 % active, M3 nowhere by its line."""
    _, line = PROJECTION[model]
    assert (round(line.fixed_us, 1), round(line.us_per_percent, 2)) == (fixed, slope)
    assert line.r_squared == pytest.approx(r2, abs=0.005)
    assert line.fixed_us + line.us_per_percent * line.break_even == pytest.approx({"dense": 720.0, "m3": 600.0}[model])
    assert (line.break_even > 100.0) == (model == "m3")


def test_limits_by_counting() -> None:
    """FVP-09: 5.8 to 14.0 times (Dense), 5.8 to 7.3 (M3), with 2,000 clusters."""
    spans = {model: [round(row.operation_limit, 1) for row in rows] for model, (rows, _) in PROJECTION.items()}
    assert (min(spans["dense"]), max(spans["dense"])) == (5.8, 14.0) and (min(spans["m3"]), max(spans["m3"])) == (5.8, 7.3)


def test_the_share_of_the_projection_that_gains_imply() -> None:
    """FVP-20: 14 to 26 %, mean 19 (Dense); 8 to 13, mean 11 (M3)."""
    shares = {model: sorted(100 * row.implied_share for row in rows) for model, (rows, _) in PROJECTION.items()}
    assert [round(share) for share in (shares["dense"][0], shares["dense"][-1], sum(shares["dense"]) / 6)] == [14, 26, 19]
    assert [round(share) for share in (shares["m3"][0], shares["m3"][-1], sum(shares["m3"]) / 6)] == [8, 13, 11]


def test_parameters_by_the_printed_shapes() -> None:
    """FVP-13."""
    assert [round(parameters(preset) / 1e9, 2) for preset in PRESETS.values()] == [0.76, 5.32]


def test_1300_clusters_stay_below_two_percent() -> None:
    """FVP-12, FVP-18: 26 MB of indices, 1300 x 250,000 x 2 % x 4 bytes, and 2.66 MB of centroids; below 2 % of the weights."""
    first, typical, more = [row for row in memory() if row.kind == "inferred"][:3]
    assert (first.model, first.clusters) == ("dense", 1_300) and "sets of 2 %" in first.name
    assert 26.0 + 1_300 * 1_024 * 2e-6 < first.more_mb < 29.0 and 1.8 < first.more_percent < 2.0
    assert typical.clusters == 2_000 and f"{typical.more_percent:.2f}" == "2.92"
    assert more.top == 3 and more.more_percent > 4.0, "K = 3 would exceed it"
    claims = {record.identifier: record.verdict for record in printed_claims()}
    assert [claims[f"FVP-18 ({letter})"] for letter in "ab"] == ["holds", "does not hold"]


def test_which_printed_averages_follow_from_their_rows() -> None:
    """FVP-16, FVP-17: Dense EX of Table 3 mixes methods, and three averages are neither mean."""
    averages = {(average.model, average.row, average.set, average.beam, average.key): average for average in means()}
    assert len(averages) == 36
    neither = {key for key, average in averages.items() if average.follows == "neither"}
    assert neither == {("dense", "XE", 1, 1, "bleu"), *(("m3", "XE", number, 2, "bleu_part") for number in (1, 2))}
    weighted = {key for key, average in averages.items() if average.follows == "by sentences"}
    assert {key[:3] for key in weighted} == {("dense", "EX", 1)} and len(weighted) == 5
    assert averages["dense", "EX", 1, 1, "gain_percent"].follows == "simple"
    meant = averages["m3", "XE", 2, 2, "bleu_part"]
    assert (meant.printed, round(meant.simple, 2)) == (47.81, 48.14)
    odd = averages["dense", "XE", 1, 1, "bleu"]
    assert (round(odd.simple, 2), round(odd.by_sentences, 2)) == (44.89, 44.82)
    repeated = averages["m3", "XE", 1, 2, "bleu_part"]
    assert (repeated.printed, f"{repeated.simple:.2f}", f"{repeated.by_sentences:.2f}") == (49.90, "50.00", "50.05")


def test_tables_are_whole() -> None:
    assert len(CELLS) == 36 and len(QUALITY) == 48 and len(PAPER.slips) == 11
    assert sum(PAPER.table("table-1").column("set_1")) == 70_582
    more_percent = [round(row.more_percent, 2) for row in memory() if (row.model, row.kind) == ("m3", "published")]
    assert more_percent == [1.18, 1.57, 0.98, 1.57, 0.88, 1.77]


def test_amdahls_prediction_is_shown_with_the_measurement() -> None:
    """XP-07: 40 % of the time, 5 times as fast."""
    (row, *_) = next(table["rows"] for table in judge([study()]).document()["tables"] if table["id"] == "amdahl")
    assert row["predicted"] == pytest.approx(1 / (0.6 + 0.4 / 5)) and row["measured"] == pytest.approx(1 / 0.68)
    assert row["body_ratio"] == 1.0, "as the law takes it"


def test_a_study_without_parts_is_reported_with_its_missing_parts() -> None:
    whole = study()
    report = judge([Study(tool="simnmt test", model=whole.model, texts=whole.texts)])
    assert report.document()["tables"] and report.text()
    measured = [record for record in report.claims if record.device]
    assert measured and all("has no part" in record.why for record in measured)


def test_shipped_studies_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def studied(**options: Any) -> set[str]:
        return {record.device for record in reproduce(**options).claims} - {""}

    assert "gru-xx-en" in studied(benches=[])
    monkeypatch.setattr(shipped_files, "folder", lambda kind: tmp_path / kind)
    assert not studied() and "Published figures alone" in " ".join(reproduce().all_notes)
    (tmp_path / "calibration/vocabulary").mkdir(parents=True)
    write_study(tmp_path / "calibration/vocabulary/study-gru-xx-en.json", study())
    assert studied() == {"gru-xx-en"} and not studied(studies=[])
