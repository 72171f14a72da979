"""The reproduction on elastic pipelines as documents, text and command, with studies, a pipeline's measurement, and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simnmt.base.errors import InputError
from simnmt.cli.reproduce import app
from simnmt.papers.kit.claims import FAILS, HOLDS, UNKNOWN
from simnmt.papers.kit.rendering import Report
from simnmt.papers.kit.study import read_studies, write_study
from simnmt.papers.sti import reproduction
from simnmt.papers.sti.claims import all_claims
from simnmt.papers.sti.pipeline import PipelineMeasurement
from simnmt.papers.sti.plans import Studied
from simnmt.papers.sti.study import Study
from tests.papers.sti_stand_ins import begun, studied, study


def pipeline(**changed: Any) -> dict[str, Any]:
    """What the pipeline's benchmark would write: 12 plans at the skew, none off by more than 6 %."""
    plan = {
        "pace_mb": 300.0, "simulated_s": 0.38, "error": -0.05, "simulated_stall_s": 0.0, "stall_share": 0.02, "cold": True,
    }  # fmt: skip
    return {
        "version": 2, "kind": "measured", "date": "2026-01-01", "layers": 12, "heads": 12, "width": 768, "ffn": 3072,
        "faster": [{"pace_mb": 80.0, "ratio": 5.0, "cold": True}],
        "skew": {"pace_mb": 300.0}, "grid": [plan] * 12 + [plan | {"pace_mb": 80.0, "simulated_stall_s": 0.1}],
        "unpack": {"least_ratio": 2.5, "six_over_two": 0.9},
    } | changed  # fmt: skip


@pytest.fixture(scope="module")
def report() -> Report:
    """The reproduction of one study."""
    return reproduction.report([studied()], PipelineMeasurement.model_validate(pipeline()))


@pytest.fixture(scope="module")
def rows(report: Report) -> dict[str, list[dict[str, Any]]]:
    """The rows of the JSON document's tables by their ids, through JSON."""
    document = json.loads(json.dumps(report.document(), allow_nan=False))
    return {table["id"]: table["rows"] for table in document["tables"]}


def test_gains_stand_beside_the_printed_ones_of_the_same_board(rows: dict[str, list[dict[str, Any]]]) -> None:
    # Gains rest on the costs of devices, which are inferred, though the accuracies were measured.
    assert {row["kind"] for row in rows["gains"]} == {"inferred"} and len(rows["gains"]) == 3 * 7
    printed = {(row["device"], row["method"]): row["printed"] for row in rows["gains"] if row["printed"] is not None}
    assert len(printed) == 8
    assert (printed["processor, 1 MB", "StdPL-6"], printed["GPU, 5 MB", "Load&Exec"]) == (5.83, 18.77)
    assert len(rows["grid"]) == 3 * 8 * 10 and {row["method"] for row in rows["sizes"]} == {"STI"}


def test_accuracies_beside_the_gains_in_time_are_of_the_same_deadlines(rows: dict[str, list[dict[str, Any]]]) -> None:
    """STI-22 is judged by them (errata)."""
    late = [row for row in rows["gains"] if row["deadlines_in_time"] and row["deadlines_in_time"] < row["deadlines"]]
    assert late and all(row["gain_in_time"] != row["gain"] for row in late)
    for row in late:
        points = 100 * (row["accuracy_in_time"] - row["accuracy_other_in_time"])
        assert points == pytest.approx(row["gain_in_time"])


def test_every_row_on_answers_states_its_agreement_with_the_whole_model(rows: dict[str, list[dict[str, Any]]]) -> None:
    """XP-03."""
    for name in ("grid", "sizes"):
        assert rows[name] and all(0.0 <= row["agreement"] <= 1.0 for row in rows[name])


def test_a_real_pipeline_is_judged_by_every_plan() -> None:
    """STI-06, STI-16."""

    def verdict(bare: str, **changed: Any) -> str:
        records = all_claims([], PipelineMeasurement.model_validate(pipeline(**changed)))
        return next(record.verdict for record in records if record.identifier == bare)

    assert [verdict(f"STI-16 ({letter})") for letter in "abc"] == [HOLDS] * 3 and verdict("STI-06") == HOLDS
    grid = pipeline()["grid"]
    assert verdict("STI-16 (c)", grid=[*grid, grid[0] | {"error": 0.11}]) == FAILS
    assert verdict("STI-16 (b)", grid=[*grid, grid[0] | {"stall_share": 0.16}]) == FAILS
    assert verdict("STI-16 (b)", grid=[*grid, grid[-1] | {"stall_share": 0.6}]) == HOLDS
    assert verdict("STI-16 (b)", grid=grid[3:]) == UNKNOWN
    assert verdict("STI-16 (a)", faster=[pipeline()["faster"][0] | {"ratio": 3.9}]) == FAILS
    assert verdict("STI-06", unpack={"least_ratio": 2.5, "six_over_two": 0.7}) == FAILS
    warm = [row | {"cold": False} for row in grid]
    assert {verdict("STI-16 (a)", layers=6), verdict("STI-06", layers=6), verdict("STI-16 (c)", grid=warm)} == {UNKNOWN}


def test_two_studies_of_one_model_and_task_are_refused(tmp_path: Path) -> None:
    write_study(tmp_path / "one.json", study())
    write_study(tmp_path / "two.json", study())
    with pytest.raises(InputError, match="two studies of small on sst2"):
        read_studies([tmp_path / "one.json", tmp_path / "two.json"], Study)


@pytest.mark.parametrize(
    "options",
    [{"store": Path("s")}, {"importance_task": Path("t")}, {"store": Path("s"), "task": Path("t"), "studies": [Path("a")] * 2}],
)
def test_contradictory_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        reproduction.reproduce(**options)


def test_the_command_writes_page_and_json(tmp_path: Path) -> None:
    write_study(tmp_path / "study.json", study())
    (tmp_path / "pipeline.json").write_text(json.dumps(pipeline()))
    options = ["--study", str(tmp_path / "study.json"), "--pipeline", str(tmp_path / "pipeline.json")]
    done = CliRunner().invoke(app, ["sti", *options, "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert {row["study"] for row in printed["tables"][1]["rows"]} == {"small on sst2"}
    assert (tmp_path / "out" / "report.html").exists()
    assert json.loads((tmp_path / "out" / "reproduction.json").read_text())["claims"] == printed["claims"]


def test_a_study_that_lacks_a_planned_submodel_is_refused() -> None:
    with pytest.raises(InputError):
        Studied.of(begun())
