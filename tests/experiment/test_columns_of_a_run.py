"""Where the requests of a run lie: in files while it runs, and nowhere to be seen afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.base import columns
from simnmt.base.columns import Column
from simnmt.base.random_streams import BLOCK
from simnmt.experiment.cases import Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import run_plan
from simnmt.experiment.units import run_unit
from simnmt.results import request_log
from simnmt.results.request_log import COLUMNS, RequestLog
from simnmt.scenario.source import open_source
from simnmt.world import compiled_world
from tests.campaigns.harness import deep
from tests.units import plan_of, unit_of

MakeScenario = Callable[..., dict[str, Any]]
REQUESTS = BLOCK + 1_000
"""More than one block of draws."""


def workload(**arrivals: Any) -> dict[str, Any]:
    return {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals}}


OPEN = workload(kind="poisson", rate_rps=6.0)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short columns lie in files too, as long ones do."""
    monkeypatch.setattr(Column, "FILES_FROM_BYTES", 1)


@pytest.mark.usefixtures("in_files")
def test_what_a_unit_sends_back_does_not_grow_with_its_requests(make_scenario: MakeScenario, tmp_path: Path) -> None:
    sent = []
    for requests in (2_000, 20_000):
        unit = unit_of(plan_of(make_scenario(workloads=OPEN, requests=requests)))
        folder = tmp_path / str(requests)
        sent.append(pickle.dumps(run_unit(replace(unit, folder=folder))))
        assert isinstance(pickle.loads(sent[-1]).trails["cnmt"].queue_s, Column)
        assert 200 < sum(path.stat().st_size for path in files_in(folder)) / requests < 300
    assert abs(len(sent[1]) - len(sent[0])) < 5_000  # longer sentences may lengthen what is predicted by length


@pytest.mark.usefixtures("in_files")
def test_later_replications_keep_no_passages(make_scenario: MakeScenario, tmp_path: Path) -> None:
    result = run_unit(replace(unit_of(plan_of(make_scenario(workloads=OPEN)), replication=1), folder=tmp_path / "unit"))
    assert (result.truth, result.trails) == (None, {})
    assert {path.parent for path in files_in(tmp_path / "unit")} == {tmp_path / "unit"}


def test_a_short_unit_writes_no_file(make_scenario: MakeScenario, tmp_path: Path) -> None:
    unit = replace(unit_of(plan_of(make_scenario(workloads=OPEN))), folder=tmp_path / "unit")
    result = pickle.loads(pickle.dumps(run_unit(unit)))
    assert not unit.folder.exists()
    assert len(result.trails["cnmt"].queue_s) == 2_000


@pytest.mark.parametrize("jobs", [1, deep(2)])
@pytest.mark.usefixtures("in_files")
def test_a_run_removes_its_files_as_it_goes_and_is_read_all_the_same(
    make_scenario: MakeScenario, tmp_path: Path, jobs: int
) -> None:
    plan = plan_of(make_scenario(workloads=OPEN, requests=3_000, replications=3))
    folder, seen = tmp_path / "scratch", []
    folder.mkdir()

    def ended(units: float, _: int) -> None:
        if units == int(units):
            seen.append(len(list(folder.iterdir())))

    result = run_plan(plan, folder=folder, jobs=jobs, progress=ended)
    assert max(seen) <= (jobs if jobs > 1 else 0)  # with several, the others are at their next units by then
    assert list(folder.iterdir()) == []
    folder.rmdir()
    (cell,) = result.cells
    assert all(len(cell.logs["cnmt"][name]) == 3_000 for name in COLUMNS)
    assert cell.logs["cnmt"]["latency_s"].mean() == pytest.approx(result.requests.query("policy == 'cnmt'").latency_s.mean())


DISCIPLINES: dict[str, dict[str, Any]] = {
    "back to back": {"workloads": workload(kind="back_to_back")},
    "back to back, own clock": {
        "workloads": workload(kind="back_to_back"),
        "networks": {"cp1": {"rtt": "@cp1", "clock": "own"}},
        "requests": 3_000,
    },
    "open": {"workloads": OPEN},
    "open, over access links": {
        "workloads": {"de-en": {**OPEN["de-en"], "end_nodes": 5}},
        "networks": {"cp1": {"rtt": "@cp1", "hops": {"gateway": {"rtt": {"constant_ms": 400}}}}},
    },
    "closed": {"workloads": workload(kind="clients", clients=9, think_time={"mean_s": 0.5}), "requests": 3_000},
}


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_a_longer_run_begins_with_the_shorter_one(make_scenario: MakeScenario, discipline: str) -> None:
    """Drawn block by block: all that is drawn of a request is the same, however many follow it."""
    keys = {"requests": REQUESTS, "policies": {"edge": {}}} | DISCIPLINES[discipline]
    fewer = keys | {"requests": keys["requests"] * 9 // 10}
    longer, shorter = (run_unit(unit_of(plan_of(make_scenario(**scenario)))) for scenario in (keys, fewer))
    assert longer.truth is not None and shorter.truth is not None
    same = [(longer.truth.src_len, shorter.truth.src_len), (longer.truth.tgt_len, shorter.truth.tgt_len)]
    same += [*zip(longer.truth.execution_s, shorter.truth.execution_s, strict=True), (longer.truth.node, shorter.truth.node)]
    if "poisson" in str(keys["workloads"]):
        same.append((longer.trails["edge"].arrival_s, shorter.trails["edge"].arrival_s))
        same += zip(longer.truth.transfer_s, shorter.truth.transfer_s, strict=True)
    for ours, theirs in same:
        np.testing.assert_array_equal(ours[: fewer["requests"]], theirs[:])


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_a_long_unit_that_is_kept_in_files_gives_what_a_short_one_gives(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, discipline: str, engine: Any
) -> None:
    """Columns in files and sums over parts change no bit of a column, and no number beyond rounding."""
    if engine == "compiled" and compiled_world.library() is None:
        pytest.skip("no C compiler is installed")
    unit = unit_of(plan_of(make_scenario(**DISCIPLINES[discipline] | {"requests": 2_500})))
    assert_files_change_nothing(replace(unit, engine=engine), monkeypatch, tmp_path)


@pytest.mark.parametrize("scenario", ["@batched-cloud", "@sti-gateway"])
def test_so_does_a_unit_that_batches_or_streams_and_foresees_its_misroutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scenario: str
) -> None:
    source = open_source(scenario, ["requests=1200", "foresee_misroutes=true"])
    plan = read_inputs(source.scenario, tmp_path, source.document)
    case, (network, links) = next(iter(plan.cases.values())), next(iter(plan.networks.items()))
    assert_files_change_nothing(Unit(plan.scenario, case, network, links, 0), monkeypatch, tmp_path)


def assert_files_change_nothing(unit: Unit, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Assert that a unit gives the same columns and numbers if it counts as a long one."""
    short = run_unit(replace(unit, folder=folder / "short"))
    monkeypatch.setattr(columns, "FILES_FROM_ROWS", 1_000)
    monkeypatch.setattr(Column, "FILES_FROM_BYTES", 1)
    monkeypatch.setattr(request_log, "PART", 700)
    long = run_unit(replace(unit, folder=folder / "long"))
    assert short.truth is not None and long.truth is not None
    for policy, trail in short.trails.items():
        one, other = RequestLog(short.truth, trail), RequestLog(long.truth, long.trails[policy])
        assert list(one) == list(other)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=f"{policy}, {name}")
            assert one[name].dtype == other[name].dtype
        if trail.lost_s is not None:
            np.testing.assert_array_equal(trail.lost_s[:], long.trails[policy].lost_s[:])
    for key, numbers in short.numbers.items():
        known = {name: number for name, number in numbers.items() if number is not None}
        assert {name: number for name, number in long.numbers[key].items() if number is not None} == pytest.approx(
            known, rel=1e-12
        )
    assert long.best_offloaded_share == short.best_offloaded_share
    assert long.mean_transfer_s == pytest.approx(short.mean_transfer_s, rel=1e-12)


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_a_long_unit_reports_what_is_done_block_by_block(make_scenario: MakeScenario, engine: Any) -> None:
    """Draws are a stage, and so is each policy; between their blocks an interrupt ends the run."""
    plan = plan_of(make_scenario(workloads=OPEN, requests=REQUESTS, replications=1, policies={"edge": {}, "cnmt": {}}))
    done: list[float] = []
    run_plan(plan, engine=engine, progress=lambda runs, of: done.append(runs / of))
    assert done == sorted(done)
    assert {1 / 3, 2 / 3, 1.0} <= set(done)
    assert sum(1 / 3 < share < 2 / 3 for share in done) == (1 if engine == "compiled" else REQUESTS // 4_096)
