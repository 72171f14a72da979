"""Measurements of the output layer decide the claims on a step, and have separate tables (FVP-09, FVP-15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.calibrate.projection_bench import ProjectionBench
from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.fvp.bench_claims import bench_claims
from simnmt.papers.fvp.reproduction import judge, reproduce
from simnmt.papers.kit.study import shipped_measurements
from tests.papers.vocab_bench_stand_ins import STAGES, bench, step


def verdicts(*benches: ProjectionBench) -> dict[str, str]:
    return {record.identifier: record.verdict for record in bench_claims(benches)}


def test_without_a_measurement_every_claim_names_the_missing_one() -> None:
    records = {record.identifier: record for record in bench_claims(())}
    assert set(records) == {"FVP-09", "FVP-15 (a)", "FVP-15 (b)"}
    assert all(record.verdict == "not measurable here" and "--bench" in record.why for record in records.values())
    assert "--device cuda" in records["FVP-15 (a)"].why and records["FVP-15 (a)"].published == "2.40 to 3.15"


@pytest.mark.parametrize(
    ("measured", "bare", "verdict"),
    [
        (bench(), "FVP-09", "holds"),
        (bench(), "FVP-15 (b)", "holds"),
        (bench(), "FVP-15 (a)", "not measurable here"),
        (bench(step(fitted=False, predicted_s=1.0)), "FVP-09", "does not hold"),
        (bench(step(), step(0.12, 6.0)), "FVP-09", "not measurable here"),
        (bench(step(0.06, 9.9), step(0.12, 6.0)), "FVP-15 (b)", "does not hold"),
        (bench(step(), step(0.12, 4.9)), "FVP-15 (b)", "does not hold"),
        (bench(step()), "FVP-15 (b)", "not measurable here"),
        (bench(step(0.06, 2.0, 40), step(0.15, 1.6, 40), device="cuda"), "FVP-15 (a)", "holds"),
        (bench(step(0.06, 2.0, 40), step(0.15, 1.4, 40), device="cuda"), "FVP-15 (a)", "does not hold"),
        (bench(step(0.06, 2.0, 40), step(0.2, 1.0, 40), device="cuda"), "FVP-15 (a)", "holds"),
        (bench(step(0.06, 2.0, 8), device="cuda"), "FVP-15 (a)", "not measurable here"),
    ],
)
def test_a_claim_is_decided_by_what_was_measured(measured: ProjectionBench, bare: str, verdict: str) -> None:
    assert verdicts(measured)[bare] == verdict


def test_steps_whose_overheads_take_half_of_the_dense_time_show_the_break_even_instead() -> None:
    """FVP-15."""
    slow = step(0.06, 1.2, 40, stages_s=STAGES | {"scatter": 0.05})
    (record,) = (record for record in bench_claims((bench(slow, device="cuda"),)) if record.identifier == "FVP-15 (a)")
    assert record.verdict == "not measurable here" and record.why == "all columns win above 40 %"
    both = bench_claims((bench(slow, step(0.15, 1.6, 40), device="cuda"),))
    (record,) = (record for record in both if record.ours[:1] == "1")
    assert record.verdict == "holds" and "1 steps take more: all columns win above 40 %" in record.why


def test_steps_and_their_break_even_are_in_tables_and_on_the_page() -> None:
    report = judge((), (bench(),)).report()
    tables = {table["id"]: table["rows"] for table in report.document()["tables"]}
    assert [round(row["ratio"], 2) for row in tables["bench"]] == [11.0, 6.0, 15.0]
    assert tables["break-even"][0]["columns"] is None and tables["break-even"][1]["columns"] == 0.4
    page = report.page()
    assert 'id="bench"' in page and "11.00" in page.partition('id="bench"')[2]
    assert 'id="bench"' not in judge().report().page()


def test_shipped_benches_are_the_default_and_are_not_read_as_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "calibration/vocabulary"
    folder.mkdir(parents=True)
    monkeypatch.setattr(shipped_files, "folder", lambda kind: tmp_path / kind)
    (folder / "bench-cpu.json").write_text(bench().model_dump_json(), encoding="utf-8")
    reproduction = reproduce()
    assert [bench.box for bench in reproduction.benches] == ["a processor, 1 thread"] and shipped_measurements(
        "vocabulary", "study"
    ) == []
    assert reproduce(benches=[]).benches == []
    with pytest.raises(InputError, match="two measurements of a processor, 1 thread"):
        (tmp_path / "other.json").write_text(bench().model_dump_json(), encoding="utf-8")
        reproduce(benches=[folder / "bench-cpu.json", tmp_path / "other.json"])
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    with pytest.raises(CalibrationError):
        reproduce(benches=[tmp_path / "other.json"])
