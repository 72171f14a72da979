"""The fast columns equal the world; the fit recovers the ratios and states its assumptions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from simnmt.base import shipped_files
from simnmt.experiment.cases import RunPlan
from simnmt.network.connection_profiles import connection_profile
from simnmt.network.series_csv import read_notes
from simnmt.papers.cnmt import fit as fitting
from simnmt.papers.cnmt import published, table_replay
from simnmt.papers.cnmt.fit import Costs, DeviceCosts, Shape, Solution, TableOneFit, draw_experiment
from simnmt.papers.cnmt.inferred_profiles import confirm, fit_and_replay, fit_as_text, write_fit
from simnmt.papers.cnmt.published import DATA_SETS
from simnmt.papers.cnmt.reproduction import ratio_table
from simnmt.papers.cnmt.table_one import TableRun, mean_absolute_errors
from simnmt.profile.cost import LognormalResidual, Plane
from simnmt.profile.profile_file import read_profile

DE_EN = DATA_SETS[0]


def costs_of(gateway: tuple[float, float, float], cloud: tuple[float, float, float], relative_sd: float) -> Costs:
    residual = LognormalResidual(relative_sd)
    return DeviceCosts(Plane(*gateway), residual), DeviceCosts(Plane(*cloud), residual)


def a_fit(costs: Costs) -> TableOneFit:
    solution = Solution("de-en", 0.75, 1, Shape(0.2, 0.0, 0.1, 0.3), costs, 0.01)
    return TableOneFit(0.75, ((0.75, 0.01),), {"de-en": solution}, {"de-en": (solution,)})


def test_the_fast_columns_give_the_totals_of_the_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_replay, "REPLICATIONS", 1)
    costs = costs_of((0.0006, 0.003, 0.002), (0.0001, 0.0004, 0.003), 0.3)
    fit = a_fit(costs)
    write_fit(tmp_path, fit)
    part = confirm(tmp_path, data_sets=[DE_EN], requests=3000, seed=7)

    series = {name: connection_profile(name, mean_s) for name, mean_s in fit.mean_rtt_s.items()}
    experiment = draw_experiment("de-en", fitting.shipped_lengths(DE_EN), series, seed=7, requests=3000)
    assert {network for _, network, _ in part.run.total_s} == set(series)
    for (_, network, policy), total_s in part.run.total_s.items():
        totals = experiment.totals(costs, network, fit.mean_rtt_s[network])
        # The files keep RTTs to a microsecond.
        assert total_s == pytest.approx(3000 * totals.latency_s[policy], rel=1e-5)


def test_mean_times_meet_both_server_ratios() -> None:
    for workload in published.WORKLOADS:
        for level in fitting.admissible_levels(3):
            gateway_s, cloud_s = fitting.mean_times_s(workload, level)
            for network, rtt_s in (("cp1", fitting.CP1_MEAN_RTT_S), ("cp2", level * fitting.CP1_MEAN_RTT_S)):
                target = published.implied_ratios(workload, network).targets["cloud"]
                assert (cloud_s + rtt_s) / gateway_s == pytest.approx(target)
            assert gateway_s / fitting.GREATEST_SPEEDUP <= cloud_s <= gateway_s


def test_the_fit_recovers_the_ratios_of_known_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ratios of known planes replace the published ones; a fit on other requests must recover them."""
    series = {name: connection_profile(name, fitting.CP1_MEAN_RTT_S) for name in published.NETWORKS}
    lengths = fitting.shipped_lengths(DE_EN)
    truth = costs_of((0.0012, 0.003, 0.005), (0.0003, 0.0009, 0.004), 0.2)
    known = draw_experiment("de-en", lengths, series, seed=11, requests=8000)
    ratios = {}
    for network, level in (("cp1", 1.0), ("cp2", 0.7)):
        totals = known.totals(truth, network, level * fitting.CP1_MEAN_RTT_S)
        ratios[network] = {p: totals.over_gateway(p) for p in ("cloud", "oracle", "naive", "cnmt")}

    def implied(workload: str, network: str) -> published.ImpliedRatios:
        r = ratios[network]
        both = (r["cloud"], r["cloud"]), (r["oracle"], r["oracle"])
        return published.ImpliedRatios(workload, network, *both, r["naive"], r["cnmt"])

    monkeypatch.setattr(published, "implied_ratios", implied)
    monkeypatch.setattr(fitting, "WEIGHTS", {})
    monkeypatch.setattr(fitting, "GENERATIONS", 8)  # the error that is left is of the requests, which differ
    experiment = draw_experiment("de-en", lengths, series, seed=4, requests=5000)
    solution = fitting.fit_data_set(DE_EN, experiment, 0.7, seed=4)
    again = known.totals(solution.costs, "cp2", 0.7 * fitting.CP1_MEAN_RTT_S)
    for policy, ratio in ratios["cp2"].items():  # three of these four are held out of the fit
        assert again.over_gateway(policy) == pytest.approx(ratio, rel=0.02)
    assert solution.objective < 0.01
    gateway, cloud = solution.costs
    mean = known.src_len.mean(), known.tgt_len.mean()
    for ours, theirs in ((gateway, truth[0]), (cloud, truth[1])):
        assert float(ours.plane.seconds(*mean)) == pytest.approx(float(theirs.plane.seconds(*mean)), rel=0.05)


@pytest.mark.deep
def test_a_whole_fit_is_deterministic_and_respects_its_bounds() -> None:
    fits = [fitting.fit_table_one([DE_EN], seeds=(1, 2), levels=1, requests=100, jobs=jobs) for jobs in (1, 2)]
    assert fits[0] == fits[1]
    low, high = DE_EN.src_over_tgt
    for solution in fits[0].solutions["de-en"]:
        gateway, cloud = (device.plane for device in solution.costs)
        assert low - 1e-9 <= gateway.s_per_src_token / gateway.s_per_tgt_token <= high + 1e-9
        for coefficient in ("s_per_src_token", "s_per_tgt_token"):
            ours, theirs = getattr(cloud, coefficient), getattr(gateway, coefficient)
            assert 0 <= theirs / fitting.GREATEST_SPEEDUP <= ours * (1 + 1e-9) and ours <= theirs
        assert min(gateway.s_fixed, cloud.s_fixed) >= 0
    assert fits[0].chosen["de-en"] in fits[0].solutions["de-en"]


def test_profiles_are_marked_as_inferred_with_their_assumptions(tmp_path: Path) -> None:
    fit = a_fit(costs_of((0.00061234567, 0.003, 0.002), (0.0001, 0.0004, 0.003), 0.3))
    write_fit(tmp_path, fit)
    gateway = tmp_path / "tx2-bilstm.json"
    profile = read_profile(gateway)
    assert profile.execution.kind == "inferred"
    assert profile.execution.plane.s_per_src_token == 0.0006123
    assert profile.execution.fit.model_extra["assumed_cp1_mean_rtt_s"] == 0.08
    assert profile.execution.fit.model_extra["fitted_cp2_mean_rtt_s"] == 0.06
    assert "10.1109/ISCAS48785.2022.9937603" in profile.provenance.source
    assert profile.length_unit.src == "word"
    assert json.loads(gateway.read_text())["execution"]["fit"]["seeds"] == [1]
    assert "tx2-bilstm" in fit_as_text(fit) and "CP2 60.0 ms" in fit_as_text(fit)


def test_ratios_distinguish_fitted_from_test(published_rows: list[dict[str, object]]) -> None:
    run = TableRun.of(published_rows)
    ratios = run.ratios()
    assert len(ratios) == 24
    assert sum(ratio.role == "test" for ratio in ratios) == 9
    assert np.allclose([ratio.error for ratio in ratios], 0.0)
    assert set(mean_absolute_errors(ratios)) == {"all", "de-en", "fr-en", "en-zh", "fitted", "test"}
    part = table_replay.Part("inferred", run, [])
    assert "1.1735 | 1.1706" in ratio_table([part]).text()
    assert TableRun.of([]).ratios() == [] and mean_absolute_errors([]) == {}


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
    done = [move[0] for move in small_fit.moves]
    assert done == sorted(done) and set(range(1, 34)) <= set(done), "three fits, and five replications of six cells"
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
