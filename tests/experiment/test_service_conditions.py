"""Runs on profiles measured in service: they are charged by it, and say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.draws import learn
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import RunResult, run_plan
from simnmt.profile.blocks import CellSample
from simnmt.profile.execution_plane import PlaneCoefficients
from simnmt.profile.profile_file import read_profile, write_profile
from simnmt.profile.service_block import ResidualQuantiles, ServiceBlock, ServiceConditions
from simnmt.scenario.source import open_source
from tests.units import unit_of

SCENARIO = """\
version: 1
name: x
requests: 2000
replications: 1
workloads:
  w: {lengths: "@de-en-news", arrivals: {kind: poisson, rate_rps: 2}}
networks: {n: {rtt: "@cp1"}}
devices:
  gateway: {profile: box.json}
  cloud: {profile: "@cpu1-gru"}
policies: {edge: {}, cnmt: {}}
"""
LEVEL = 1.5


@pytest.fixture
def plan_of(tmp_path: Path) -> Any:
    """Reads the scenario, whose gateway is 1.5 times as slow in service as in the bench, with a tail."""

    def plan(*overrides: str, text: str = SCENARIO, **conditions: Any) -> RunPlan:
        bench = read_profile(shipped_files.find("calibration", "@cpu1-gru"))
        plane = {name: LEVEL * value for name, value in bench.execution.plane.model_dump().items()}
        lengths = {"gaps": "poisson", "rate_rps": 2.0, "mean_gap_s": 0.4, "idled_share": 0.8, "load": 0.2, "lengths": "spread"}
        block = ServiceBlock(
            kind="measured",
            conditions=ServiceConditions.model_validate(lengths | conditions),
            plane=PlaneCoefficients(**plane),
            residual=ResidualQuantiles.of(np.random.default_rng(0).lognormal(0.0, 0.4, 2000)),
            executions=400,
            samples=tuple(CellSample.of([0.1], src_len=20, tgt_len=tgt) for tgt in (2, 20, 60)),
        )
        write_profile(tmp_path / "box.json", bench.model_copy(update={"in_service": block}))
        (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
        source = open_source(tmp_path / "s.yaml", overrides)
        return read_inputs(source.scenario, tmp_path, source.document)

    return plan


def mean_execution_s(result: RunResult) -> float:
    return next(row for row in result.summary_rows if row["policy"] == "edge")["mean_execution_s"]


def test_simulated_means_follow_the_block_and_the_bench_if_the_scenario_says_so(plan_of: Any) -> None:
    result, bench = run_plan(plan_of()), run_plan(plan_of("devices.gateway.cost=bench"))
    assert mean_execution_s(result) == pytest.approx(LEVEL * mean_execution_s(bench), rel=0.03)
    plan = plan_of()
    table = plan.cases["w"].replayed
    block = read_profile(shipped_files.find("calibration", "@cpu1-gru"))
    plane_s = np.average(block.plane.seconds(table.src_len, table.tgt_len), weights=table.count)
    assert mean_execution_s(result) == pytest.approx(LEVEL * float(plane_s), rel=0.05)


def test_what_policies_fit_follows_the_block(plan_of: Any) -> None:
    for inferences in (0, 10_000):
        gateway, cloud = learn(unit_of(plan_of(f"fit.inferences={inferences}"))).planes
        assert float(gateway.seconds(20, 20)) == pytest.approx(LEVEL * float(cloud.seconds(20, 20)), rel=0.03)


def test_without_the_block_a_run_is_that_of_the_bench_to_the_bit(plan_of: Any, tmp_path: Path) -> None:
    bench = run_plan(plan_of("devices.gateway.cost=bench"))
    shipped = SCENARIO.replace("box.json", '"@cpu1-gru"')
    assert run_plan(plan_of(text=shipped)).totals_s == bench.totals_s


def test_a_batching_device_multiplies_its_steps_and_says_so(plan_of: Any) -> None:
    batching = SCENARIO.replace("gateway: {profile: box.json}", "gateway: {profile: box.json, batching: {kind: mini, size: 4}}")
    service, bench = (
        plan_of(text=batching).cases["w"].targets[0],
        plan_of("devices.gateway.cost=bench", text=batching).cases["w"].targets[0],
    )
    lengths = np.array([20])
    solo_s = [target.decoding.cost.solo_s(lengths, lengths)[0] for target in (service, bench)]
    assert solo_s[0] == pytest.approx(LEVEL * solo_s[1])
    assert any("costs of batches" in note and "multiplied by 1.5" in note for note in run_plan(plan_of(text=batching)).notes)


def test_a_note_says_under_which_conditions_a_device_is_charged(plan_of: Any) -> None:
    notes = run_plan(plan_of()).notes
    assert any("w, gateway: charged as in service: Poisson arrivals of 2/s (idle 400 ms" in note for note in notes)
    assert not any("charged as in service" in note for note in run_plan(plan_of("devices.gateway.cost=bench")).notes)


def test_a_cost_of_no_such_kind_is_refused_in_its_place(plan_of: Any) -> None:
    with pytest.raises(InputError, match=r"devices\.gateway\.cost: "):
        plan_of("devices.gateway.cost=service")
