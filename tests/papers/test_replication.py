"""The text of a replay's claims, and a small fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from simnmt.base import shipped_files
from simnmt.experiment.cases import RunPlan
from simnmt.network.series_csv import read_notes
from simnmt.papers.cnmt import fit as fitting
from simnmt.papers.cnmt import table_replay
from simnmt.papers.cnmt.claims import evaluate
from simnmt.papers.cnmt.fit import TableOneFit
from simnmt.papers.cnmt.inferred_profiles import fit_and_replay, write_fit
from simnmt.papers.cnmt.published import DATA_SETS
from simnmt.papers.cnmt.table_one import TableRun
from simnmt.papers.kit.claim import format_claims
from simnmt.profile.profile_file import read_profile

Rows = list[dict[str, Any]]


def test_each_claim_is_a_sentence_that_begins_with_its_verdict(published_rows: Rows, published_gaps: Rows) -> None:
    run = TableRun.of(published_rows, published_gaps)
    lines = format_claims(evaluate(run, ["inferred"]), explain=True).splitlines()
    opening = "Holds: CNMT-17 (a). The oracle's total time is at most every other policy's (in 6 of 6 cells, least margin +"
    assert lines[0].startswith(opening) and "; a theorem back to back on one RTT clock: " in lines[0]
    assert len(lines) == 6 and all(
        line.startswith(f"Not distinguishable: CNMT-17 ({letter}). ")
        and line.endswith("so this shows consistency, not proof).")
        for letter, line in zip("bcde", lines[1:], strict=False)
    ), "one replication shows no noise"
    measured = format_claims(evaluate(run, ["measured"]), explain=True)
    assert "not proof" not in measured
    nothing = format_claims(evaluate(TableRun.of([])), explain=True)
    assert nothing.splitlines()[4].startswith("Not measurable here: CNMT-17 (e). ")
    assert not any(twice in measured for twice in ("..", "))", ".)", ".;", ":.", "((", ". ("))


@dataclass(frozen=True)
class SmallFit:
    """A fit with one seed, one level, few requests and generations, and its replay: quick, and with inaccurate ratios."""

    fit: TableOneFit
    replay: table_replay.Part
    moves: list[tuple[float, int]]
    analysed: dict[tuple[str, ...], bool]
    """By the workloads of a run, whether their gap was analysed."""


@pytest.fixture(scope="module")
def small_fit() -> SmallFit:
    moves: list[tuple[float, int]] = []
    analysed: dict[tuple[str, ...], bool] = {}
    run = table_replay.run_plan

    def spy(plan: RunPlan, **options: Any) -> Any:
        analysed[tuple(plan.cases)] = plan.scenario.gap_analysis
        return run(plan, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_replay, "run_plan", spy)
        patch.setattr(fitting, "GENERATIONS", 2)
        fit, replay = fit_and_replay(
            seeds=[1], levels=1, fit_requests=200, requests=300, progress=lambda *move: moves.append(move)
        )
    return SmallFit(fit, replay, moves, analysed)


def test_a_whole_fit_writes_six_profiles_and_two_series_and_replays_the_table_on_them(
    tmp_path: Path, small_fit: SmallFit
) -> None:
    fit, replay = small_fit.fit, small_fit.replay
    expected = [(done, 33) for done in range(1, 34)]
    assert [move for move in small_fit.moves if move[0] == int(move[0])] == expected, (
        "three fits, and five replications of six cells"
    )
    write_fit(tmp_path, fit, replay)
    names = [name for data_set in DATA_SETS for name in data_set.profiles]
    assert {path.name for path in tmp_path.iterdir()} == {"cp1.csv", "cp2.csv", *(f"{name}.json" for name in names)}
    assert len(replay.run.ratios()) == 24 and len(replay.run.changes()) == 36
    [last] = [record for record in replay.claims if record.identifier == "CNMT-17 (e)"]
    assert "most of the gap: EN-ZH CP1 " in last.why, "the claim is judged by its cause too"
    assert all("one replication" not in record.why for record in replay.claims), (
        "claims are judged by intervals over replications"
    )
    assert f"--cp2-mean-ms {1e3 * fit.mean_rtt_s['cp2']:g}" in read_notes(tmp_path / "cp2.csv")["made"]
    for name in names:
        execution = read_profile(tmp_path / f"{name}.json").execution
        assert execution.kind == "inferred"
        assert len(execution.fit.model_extra["errors"]) == 8 and execution.fit.model_extra["seeds"] == [1]


def test_the_replay_after_a_fit_analyses_the_gap_of_one_data_set_alone(small_fit: SmallFit) -> None:
    """(e) needs the gap of EN-ZH; an analysis runs every cell once more for each source of loss."""
    assert small_fit.analysed == {("de-en", "fr-en"): False, ("en-zh",): True}


def test_the_shipped_table_one_runs_on_what_the_fit_used() -> None:
    scenario = YAML(typ="safe").load(shipped_files.find("scenarios", "table1").read_text(encoding="utf-8"))
    for data_set in DATA_SETS:
        assert scenario["workloads"][data_set.workload] == {"lengths": f"@{data_set.lengths}"}
        for device, name in zip(("gateway", "cloud"), data_set.profiles, strict=True):
            assert scenario["devices"][device]["profile"][data_set.workload] == f"@{name}"
            fit = read_profile(shipped_files.find("calibration", name)).execution.fit.model_extra
            assert fit["lengths"].startswith(f"@{data_set.lengths} in place of {data_set.corpus}")
            assert fit["lengths"].endswith(data_set.remark)
            cp2 = read_notes(shipped_files.find("traces/rtt", "cp2"))["made"]
            assert f"--cp2-mean-ms {1e3 * fit['fitted_cp2_mean_rtt_s']:g}" in cp2
