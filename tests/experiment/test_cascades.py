"""Cascades and routes in whole scenarios: both executions take time, energy and a box, and the parts add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.results.requests import DONE, FALLBACK, GAVE_UP
from simnmt.results.run import Run
from tests.policies.stub_gains import know_gains
from tests.worlds import needs_compiled

SHARE = 0.3
CASCADE = {"kind": "cascade", "signal": "ridge", "budget": SHARE}


@pytest.fixture(autouse=True)
def gains(monkeypatch: pytest.MonkeyPatch) -> None:
    know_gains(monkeypatch)


def scenario(**keys: Any) -> dict[str, Any]:
    gateway, cloud = ({"idle_w": 0.0, "busy_w": busy_w} for busy_w in (10.0, 100.0))
    return {
        "version": 1,
        "name": "cascades",
        "requests": 3_000,
        "replications": 1,
        "fit": {"inferences": 500},
        "workloads": {"w": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 7.0}, "end_nodes": 3}},
        "networks": {"n": {"rtt": {"constant_ms": 20}, "hops": {"gateway": {"rtt": {"constant_ms": 4}}}}},
        "devices": {
            "gateway": {"profile": "@tx2-bilstm", "count": 2, "power": gateway},
            "cloud": {"profile": "@titan-xp-bilstm", "power": cloud},
        },
        "policies": {"edge": {}, "cloud": {}, "cascade": CASCADE, "route": CASCADE | {"kind": "route", "signal": "src_len"}},
    } | keys


def run(**keys: Any) -> Run:
    return simnmt.run(scenario(**keys), jobs=1)


def of(result: Run, policy: str) -> tuple[dict[str, Any], pd.DataFrame]:
    (row,) = (row for row in result.summary_rows if row["policy"] == policy)
    return row, result.requests.query(f"policy == '{policy}'").reset_index(drop=True)


@pytest.fixture
def result(gains: None) -> Run:
    return run()


def test_a_deferred_request_has_the_times_of_both_devices(result: Run) -> None:
    row, requests = of(result, "cascade")
    is_deferred = requests["deferred_exe_s"].notna()
    assert row["offloaded_share"] == is_deferred.mean() == pytest.approx(SHARE, abs=0.01)
    assert ((requests["target"] == 1) == is_deferred).all()
    parts = requests[["t_queue_s", "t_exe_s", "t_tx_s", "deferred_queue_s", "deferred_exe_s"]].fillna(0.0).sum(axis=1)
    assert requests["latency_s"].to_numpy() == pytest.approx(parts.to_numpy())
    assert sum(row[f"mean_{part}_s"] for part in ("queue", "execution", "transfer")) == pytest.approx(row["mean_latency_s"])
    assert set(requests["deferred_server"]) == {0, 1}
    _, at_edge = of(result, "edge")
    assert requests.loc[is_deferred, "deferred_exe_s"].to_numpy() == pytest.approx(
        at_edge.loc[is_deferred, "t_exe_s"].to_numpy()
    )
    assert requests.loc[is_deferred, "deferred_queue_s"].to_numpy() == pytest.approx(
        at_edge.loc[is_deferred, "t_queue_s"].to_numpy()
    ), "nothing changes at the gateway, which executes every request"
    assert (at_edge["deferred_queue_s"] == 0.0).all() and at_edge["deferred_exe_s"].isna().all()
    assert row["misrouted_share"] is not None and row["mean_decision_regret_s"] is not None
    assert {record["baseline"] for record in result.comparisons} == {"edge", "cloud"}


def test_devices_are_loaded_and_draw_power_for_all_that_they_execute(result: Run) -> None:
    (row, requests), (edge, at_edge), (cloud, at_cloud) = (of(result, name) for name in ("cascade", "edge", "cloud"))
    is_deferred = requests["deferred_exe_s"].notna()
    for name in ("gateway_share", "gateway_load", "gateway_busiest_load"):
        assert row[name] == pytest.approx(edge[name])
    there = at_cloud.loc[is_deferred, "t_exe_s"].sum() / at_cloud["t_exe_s"].sum()
    assert row["cloud_load"] == pytest.approx(there * cloud["cloud_load"])
    joules = 10.0 * at_edge["t_exe_s"] + 100.0 * np.where(is_deferred, at_cloud["t_exe_s"], 0.0)
    assert requests["energy_j"].to_numpy() == pytest.approx(joules.to_numpy())
    assert row["mean_energy_j"] == pytest.approx(joules.mean())


def test_no_budget_is_the_edge_and_a_route_with_all_of_it_the_cloud() -> None:
    nothing, everything = CASCADE | {"budget": 0.0}, {"kind": "route", "signal": "random", "budget": 1.0}
    result = run(policies={"edge": {}, "cloud": {}, "nothing": nothing, "everything": everything})
    for policy, other in (("nothing", "edge"), ("everything", "cloud")):
        (row, requests), (other_row, other_requests) = of(result, policy), of(result, other)
        for name in ("target", "latency_s", "t_queue_s", "energy_j"):
            assert (requests[name] == other_requests[name]).all(), name
        assert row["p95_latency_s"] == other_row["p95_latency_s"]


def test_a_price_defers_less_when_the_cloud_is_busy() -> None:
    policies = {"aware": {"kind": "cascade", "signal": "oracle", "seconds_per_point": 0.05, "sees_backlog": True}}
    shares = []
    for rate_rps in (2.0, 20.0):
        arrivals = {"kind": "poisson", "rate_rps": rate_rps}
        devices = {"gateway": {"profile": "@tx2-bilstm", "workers": 9}, "cloud": {"profile": "@tx2-bilstm"}}
        workloads = {"w": {"lengths": "@de-en-news", "arrivals": arrivals}}
        row, _ = of(run(policies=policies, devices=devices, workloads=workloads), "aware")
        shares.append(row["offloaded_share"])
    assert shares[0] > shares[1] + 0.05 and shares[1] > 0.05


@needs_compiled
@pytest.mark.parametrize(
    "gateway",
    [{"profile": "@tx2-bilstm", "count": 2}, {"profile": "@cpu2-gru", "batching": {"kind": "mini", "size": 4}}],
)
def test_both_engines_agree(gateway: Any) -> None:
    keys = scenario(requests=800)
    keys["devices"]["cloud"] = {"profile": "@tx2-bilstm", "max_waiting": 1}
    keys["policies"]["cascade"] = CASCADE | {"budget": 0.9}
    keys["policies"]["aware"] = {"kind": "cascade", "signal": "ridge", "seconds_per_point": 0.1, "sees_backlog": True}
    keys["devices"]["gateway"] = gateway
    ours, theirs = (simnmt.run(keys, jobs=1, engine=engine).requests for engine in ("compiled", "reference"))
    assert (ours["target"] == theirs["target"]).all() and (ours["outcome"] == theirs["outcome"]).all()
    assert ours["latency_s"].to_numpy() == pytest.approx(theirs["latency_s"].to_numpy(), abs=1e-9)
    assert FALLBACK in set(ours.loc[ours["policy"] == "cascade", "outcome"])


def test_the_work_of_both_devices_counts_for_clients_that_have_given_up() -> None:
    keys = scenario()
    keys["workloads"]["w"]["clients"] = {"timeout_ms": 250.0}
    row, requests = of(simnmt.run(keys, jobs=1), "cascade")
    patient, _ = of(run(), "cascade")
    assert set(requests["outcome"]) == {DONE, GAVE_UP} and 0.02 < row["gave_up_share"] < 0.9
    for name in ("gateway_load", "cloud_load", "mean_energy_j"):
        per_request = row["answered_share"] if name == "mean_energy_j" else 1.0
        assert row[name] * per_request == pytest.approx(patient[name], rel=0.02)


def test_sites_may_differ_in_their_policies() -> None:
    sites = {"here": {"share": 1}, "there": {"share": 1, "policies": {"cascade": {"kind": "edge"}}}}
    networks = {"n": {"rtt": {"constant_ms": 20}}}
    result = run(sites=sites, networks=networks, policies={"cascade": CASCADE | {"budget": 1.0}})
    shares = {row["site"]: row["offloaded_share"] for row in result.summary_rows}
    assert (shares["here"], shares["there"]) == (1.0, 0.0)
    assert 0.4 < shares["all"] < 0.6


def test_the_run_directory_keeps_the_columns_of_first_executions(tmp_path: Any) -> None:
    result = simnmt.run(scenario(requests=300), out=tmp_path / "run")
    kept = simnmt.load(tmp_path / "run").requests
    assert {"deferred_queue_s", "deferred_exe_s", "deferred_server"} <= {*kept.columns}
    assert kept["deferred_exe_s"].notna().sum() == result.requests["deferred_exe_s"].notna().sum() > 0


def test_the_longer_wait_of_a_deferred_request_makes_it_overdue() -> None:
    """The gateway is busy, and the cloud idle."""
    keys = scenario(classes={"files": {"priority": 1, "max_wait_s": 0.05}}, share_devices=True)
    keys["workloads"]["w"]["class"] = "files"
    policies = {"edge": {}, "all": CASCADE | {"budget": 1.0}}
    rows = {row["policy"]: row for row in simnmt.run(keys | {"policies": policies}, jobs=1).summary_rows}
    assert rows["all"]["overdue_share"] >= rows["edge"]["overdue_share"] > 0.1


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, r"policies\.cascade: weighs the gain in quality, which workload w does not know"),
        (
            {"devices": {"gateway": {"profile": "@tx2-bilstm"}}, "networks": {"n": {"rtt": {"constant_ms": 20}}}},
            r"policies\.cascade: .* there is only one",
        ),
        (
            {"sites": {"a": {"policies": {"cascade": CASCADE | {"signal": "oracle"}}}}, "networks": {"n": {"rtt": "@cp1"}}},
            r"sites\.a\.policies\.cascade: knows the truth at one site",
        ),
    ],
    ids=["no scores", "one device", "the truth at one site"],
)
def test_what_cannot_weigh_quality_is_refused_at_its_place(
    monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], message: str
) -> None:
    monkeypatch.undo()
    with pytest.raises(InputError, match=message):
        run(**{"policies": {"cascade": CASCADE}, **keys})


def test_a_cascade_behind_a_streamed_model_is_refused() -> None:
    keys = scenario(policies={"cascade": CASCADE})
    keys["devices"]["gateway"] = {"profile": "@cpu1-marian-sti", "sti": {"deadline_ms": 720, "preload_mb": 6}}
    with pytest.raises(InputError, match="decides again when gateway has executed a request"):
        simnmt.run(keys, jobs=1)
