"""A validation: live runs on real sockets against both simulations, and its arithmetic by runs of known truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError
from simnmt.devices import KINDS
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.routes import lines_of, routes_of
from simnmt.live.decider import live_unit
from simnmt.live.deployment import replayed_requests
from simnmt.live.validation import (
    Comparison,
    Validation,
    _compared,
    _ranked,
    _reason_void,
    structural_columns,
    validate,
)
from simnmt.live.validation_runs import LiveRun, errors_of, gateways_of, unit_at
from simnmt.results.places import ALL
from simnmt.service.load import LoadLog
from tests.live.fake_engines import load_paced
from tests.live.live_services import engine_settings, plan_of
from tests.world.test_a_new_kind import Ticking

OVERHEAD_S, RTT_S = 0.003, 0.025


@pytest.fixture(scope="module")
def plan() -> RunPlan:
    return plan_of("@live-smoke", "requests=60", "networks={lan: {rtt: {constant_ms: 25}}}")


def run_of(plan: RunPlan, policy: str, target: int, pace: float = 1.0) -> LiveRun:
    """A run whose requests queued, travelled and were executed exactly as in the simulated world."""
    unit = live_unit(plan)
    requests = replayed_requests(unit)
    assert requests.offsets_s is not None
    offsets_s, count = requests.offsets_s, len(requests.src_len)
    execution_s = pace * (0.02 + 0.004 * requests.tgt_len)
    side = unit.links.link.ways_s(offsets_s, requests.src_len, requests.tgt_len, 2)
    up_s, down_s = side if target else (np.zeros(count), np.zeros(count))
    free_s, queue_s = 0.0, np.zeros(count)
    for number in range(count):
        arrival_s = offsets_s[number] + up_s[number]
        queue_s[number] = max(free_s - arrival_s, 0.0)
        free_s = arrival_s + queue_s[number] + execution_s[number]
    log = replace(
        LoadLog.of(count),
        begin_s=0.0,
        due_s=offsets_s,
        sent_s=offsets_s,
        received_s=offsets_s + up_s + queue_s + execution_s + down_s + OVERHEAD_S,
        status=np.full(count, 200),
        target=np.full(count, target),
        queue_s=queue_s,
        execution_s=execution_s,
    )
    return LiveRun(unit, policy, requests, log, (0.0, 0.0), (0.0, 0.0), (np.full(9, 0.01),) * 2)


def structural_errors(run: LiveRun, *others: LiveRun) -> Floats:
    return errors_of(run.figures(*structural_columns(run, others)), run.figures(*run.live_columns))[:5]


@pytest.mark.parametrize(("policy", "target"), [("edge", 0), ("cloud", 1)])
def test_a_run_that_behaved_as_the_simulated_world_has_no_structural_error(plan: RunPlan, policy: str, target: int) -> None:
    run, other = run_of(plan, policy, target), run_of(plan, policy, target, pace=2.0)
    assert run.overhead_s(target) == pytest.approx(np.full(60, OVERHEAD_S))
    assert run.log.queue_s.max() > 0.01, "requests queued"
    assert structural_errors(run, other) == pytest.approx(0.0, abs=1e-9)


def test_a_cascade_that_behaved_as_the_simulated_world_has_no_structural_error(plan: RunPlan) -> None:
    """Every second request of a run at the gateway goes on to a cloud that takes half as long."""
    run, is_deferred, free_s = run_of(plan, "edge", 0), np.arange(60) % 2 == 0, 0.0
    log, requests = run.log, run.requests
    assert requests.offsets_s is not None
    side = run.unit.links.link.ways_s(requests.offsets_s, requests.src_len, requests.tgt_len, 2)
    up_s, down_s = (np.where(is_deferred, way_s, 0.0) for way_s in side)
    sent_s, queue_s, execution_s = (
        log.received_s - OVERHEAD_S,
        log.queue_s.copy(),
        np.where(is_deferred, 0.5, 1.0) * log.execution_s,
    )
    for number in np.flatnonzero(is_deferred):
        entry_s = sent_s[number] + up_s[number]
        queue_s[number] = max(free_s - entry_s, 0.0)
        free_s = entry_s + queue_s[number] + execution_s[number]
    more_s = np.where(is_deferred, up_s + queue_s + execution_s + down_s, 0.0)
    first = {"deferred_queue_s": log.queue_s, "deferred_exe_s": log.execution_s}
    columns = {name: np.where(is_deferred, column, np.nan) for name, column in first.items()}
    target = is_deferred.astype(np.int64)
    cascaded = replace(
        log, target=target, received_s=log.received_s + more_s, queue_s=queue_s, execution_s=execution_s, **columns
    )
    live = replace(run, log=cascaded)
    for box in (0, 1):
        assert live.overhead_s(box) == pytest.approx(np.full(30, OVERHEAD_S))
    assert structural_errors(live, live) == pytest.approx(0.0, abs=1e-9)


def test_executions_in_batches_are_fitted_to_the_live_ones() -> None:
    batching = "devices.cloud.batching={kind: top_up, size: 4}"
    run = run_of(plan_of("@live-smoke", "requests=60", "networks={lan: {rtt: {constant_ms: 25}}}", batching), "cloud", 1)
    decoding, requests = run.unit.case.targets[1].decoding, run.requests
    assert decoding is not None and requests.offsets_s is not None
    apart_s = 1e3 * requests.offsets_s  # nothing shares a batch
    slow_s = 1.7 * decoding.cost.solo_s(requests.src_len, requests.tgt_len)
    received_s = apart_s + RTT_S + slow_s
    log = replace(run.log, due_s=apart_s, received_s=received_s, execution_s=slow_s, queue_s=np.zeros(60))
    slowed = replace(run, log=log, requests=replace(requests, offsets_s=apart_s))
    assert structural_errors(slowed, slowed)[0] == pytest.approx(0.0, abs=1e-3)


def test_the_first_device_is_simulated_as_its_kind_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "ticking", Ticking)
    overrides = ["requests=60", "networks={lan: {rtt: {constant_ms: 25}}}", "devices.gateway.execution=ticking"]
    run = run_of(plan_of("@live-smoke", *overrides), "edge", 0)
    assert structural_errors(run, run)[0] != pytest.approx(0.0, abs=1e-3)


def test_a_run_beside_other_load_or_with_lost_requests_is_void(plan: RunPlan) -> None:
    run, usual_s = run_of(plan, "edge", 0), (0.01, 0.01)
    beside = replace(run, references_s=(np.full(9, 0.01), np.full(9, 0.016)))
    assert _reason_void(beside, usual_s) == "", "the run never used the cloud"
    assert _reason_void(run, usual_s) == ""
    disturbed = replace(run, references_s=(np.full(9, 0.016), np.full(9, 0.01)))
    assert "gateway" in _reason_void(disturbed, usual_s)
    failed = replace(run, references_s=(np.array([np.inf, *[0.01] * 8]), np.full(9, 0.01)))
    assert "gateway" in _reason_void(failed, usual_s)
    lost = replace(run, log=replace(run.log, status=np.where(np.arange(60) < 2, 504, 200)))
    assert "not answered" in _reason_void(lost, usual_s)


def test_disturbed_runs_lend_no_overheads_to_others(plan: RunPlan) -> None:
    run, other = run_of(plan, "edge", 0), run_of(plan, "edge", 0)
    late = replace(other, log=replace(other.log, received_s=other.log.received_s + 1.0))
    cell = (run.unit.network, "edge")
    predicted = {(*cell, ALL, run.unit.replication): run.figures(*run.live_columns)}
    for others in ({late: "disturbed"}, {late: "disturbed", run_of(plan, "cloud", 1): ""}):
        (compared,) = _compared(cell, {run: "", **others}, predicted)
        assert compared.voids == ("disturbed",)
        assert compared.errors["structural"][0] == pytest.approx(0.0, abs=1e-9)


def row(policy: str, live_s: tuple[float, ...], predicted_s: float, structural_s: float = 1.0) -> Comparison:
    means_s = float(np.mean(live_s)), structural_s, predicted_s
    live, structural, predicted = (np.array([mean_s, mean_s, mean_s, 0.5, 0.0, mean_s, mean_s]) for mean_s in means_s)
    return Comparison("lan", policy, ALL, live, live, structural, predicted, live_s, (), False)


def test_only_policies_that_are_clearly_apart_live_can_be_inverted() -> None:
    ranking = _ranked("lan", [row("edge", (1.0, 1.1), 2.0), row("cloud", (1.3, 1.4), 1.5), row("cnmt", (1.05, 1.2), 1.9)])
    assert (ranking.live, ranking.predicted) == (("edge", "cnmt", "cloud"), ("cloud", "cnmt", "edge"))
    assert ranking.inverted == (("edge", "cloud"), ("cnmt", "cloud"))


def test_fewer_than_two_policies_with_two_runs_are_not_ranked() -> None:
    void = replace(row("cnmt", (1.0, 1.1), 1.0), void=True)
    for rows in ([row("edge", (1.0,), 1.0), row("cloud", (1.3,), 1.5)], [row("edge", (1.0, 1.1), 1.0), void], [void]):
        assert "nothing is ranked" in _ranked("lan", rows).sentence


def test_void_rows_count_for_no_error_and_are_marked() -> None:
    bad = replace(row("cnmt", (1.0, 1.0), 1.0, structural_s=2.0), void=True, voids=("disturbed", "disturbed"))
    validation = Validation("mine", 2, 10, [row("edge", (1.0, 1.0), 1.2, structural_s=1.03), bad], [])
    assert validation.worst_structural_error == pytest.approx(0.03)
    errors = validation.document()["rows"][0]["errors"]
    assert errors["predicted"]["mean_s"] == pytest.approx(0.2) and errors["structural"]["offloaded_share"] == 0.0


@pytest.mark.parametrize("documents", [(), ("workloads.de-en.documents={sentences: 2}",)], ids=["sentences", "documents"])
def test_live_runs_are_compared_with_both_simulations(monkeypatch: pytest.MonkeyPatch, documents: tuple[str, ...]) -> None:
    loads = iter((0.25, 1.5))
    monkeypatch.setattr("simnmt.calibrate.box.BusyWatch.over_span", lambda: next(loads))
    few = ("requests=4", "replications=2", "workloads.de-en.arrivals.rate_rps=25")
    policies, network = "policies={edge: {}, cloud: {}, oracle: {}}", "networks={lan: {rtt: {constant_ms: 30}}}"
    scenario = plan_of("@live-smoke", *few, *documents, policies, network)
    engines = {device: engine_settings(load_paced) for device in ("gateway", "cloud")}
    lines: list[str] = []
    validation = validate(scenario, any_model=True, engines=engines, progress=lines.append)
    edge, cloud = validation.rows
    assert validation.others_cpus == 1.5, "the greater of the load before and the load after"
    assert (edge.policy, cloud.policy) == ("edge", "cloud"), "the oracle cannot be deployed"
    assert (edge.live[3], cloud.live[3], cloud.predicted[3]) == (0.0, 1.0, 1.0), "offloaded shares"
    for compared in validation.rows:
        assert len(compared.live_means_s) + len(compared.voids) == 2 or compared.void
        assert compared.void or abs(compared.errors["structural"][0]) < 0.5
    assert cloud.live[0] > 0.03, "the round trip is slept"
    assert sum(line.startswith("run ") for line in lines) == 4


SITES = {
    "berlin": {"workloads": ["de-en"], "networks": {"lan": {"rtt": {"constant_ms": 10}}}},
    "paris": {"workloads": ["fr-en"], "networks": {"lan": {"rtt": {"constant_ms": 40}}}},
}


def scenario_of_sites(**keys: Any) -> dict[str, Any]:
    """Two sites of one language each, and one server with a model for each."""
    workload, gru = {"lengths": "@de-en-tatoeba"}, {"profile": "@cpu1-gru", "outside_range_share": 1.0}
    return {
        "version": 1,
        "name": "branches",
        "requests": 40,
        "replications": 1,
        "workloads": {name: workload | {"arrivals": {"kind": "poisson", "rate_rps": 12}} for name in ("de-en", "fr-en")},
        "devices": {
            "gateway": gru,
            "cloud": {"outside_range_share": 1.0, "models": dict.fromkeys(("de-en", "fr-en"), gru["profile"])},
        },
        "networks": {"lan": {"rtt": {"constant_ms": 10}}},
        "policies": {"cloud": {}, "cnmt": {}},
        "sites": SITES,
    } | keys


@pytest.mark.parametrize("sites", [{"berlin": {}, "paris": {}}, {"berlin": {}}], ids=len)
def test_the_lines_of_gateways_begin_where_those_of_simulated_sites_do(sites: dict[str, Any]) -> None:
    workloads = {"de-en": scenario_of_sites()["workloads"]["de-en"]}
    devices = {name: {"profile": "@cpu1-gru", "outside_range_share": 1.0} for name in ("gateway", "cloud")}
    network = {"lan": {"rtt": "@cp1"}}
    plan = plan_of(scenario_of_sites(sites=sites, workloads=workloads, networks=network, devices=devices))
    unit = unit_at(plan, "lan", 1)
    begins_s = [line.routes.begin_s for line in lines_of(unit)]
    assert [routes_of(gateway).begin_s for gateway in gateways_of(unit)] == begins_s
    assert len({*begins_s}) == len(sites), "each line begins elsewhere"


@pytest.mark.deep
def test_two_gateways_offload_to_one_server_of_two_models() -> None:
    """The engines take the same time for each step, so that what was measured live says what the simulation should be.

    If other programs are busy, the validation warns that its errors do not judge the simulation.
    """
    plan = plan_of(scenario_of_sites())
    engines = {device: engine_settings(load_paced) for device in ("gateway", "cloud")}
    validation = validate(plan, any_model=True, engines=engines)
    rows = {(row.policy, row.site): row for row in validation.rows}
    assert set(rows) == {(policy, site) for policy in ("cloud", "cnmt") for site in (ALL, "berlin", "paris")}
    for row in rows.values():
        mean_s, _, _, offloaded_share, *_ = row.errors["structural"]
        assert offloaded_share == 0.0 and (row.void or validation.warning or abs(mean_s) < 0.3)
    means_s = {site: rows["cloud", site].live[0] for site in SITES}
    assert means_s["paris"] - means_s["berlin"] > 0.01, "each site has its own line"
    assert [row.site for row in validation.rows[:3]] == [ALL, "berlin", "paris"]
    assert all(len(ranking.live) == 0 for ranking in validation.rankings), "one run of each policy ranks nothing"


@pytest.mark.deep
def test_a_server_serves_the_classes_of_two_gateways_as_a_simulated_one() -> None:
    """The files of one site wait for the chats of the other, at a server that is busy for most of the time."""
    sites = {"berlin": {"workloads": ["de-en"]}, "paris": {"workloads": ["fr-en"]}}
    scenario = scenario_of_sites(sites=sites, requests=300, policies={"cloud": {}})
    for name, request_class in (("de-en", "chats"), ("fr-en", "files")):
        of_class = {"class": request_class, "arrivals": {"kind": "poisson", "rate_rps": 17}}
        scenario["workloads"][name] = scenario["workloads"][name] | of_class
    gru = {"profile": "@cpu1-gru", "outside_range_share": 1.0}
    classes = {"chats": {"priority": 0}, "files": {"priority": 1, "max_wait_s": 20}}
    plan = plan_of(scenario | {"classes": classes, "devices": {"gateway": gru, "cloud": gru}})
    engines = {device: engine_settings(load_paced) for device in ("gateway", "cloud")}
    rows = {row.site: row for row in validate(plan, any_model=True, engines=engines).rows}
    assert rows["berlin"].live[0] < rows["paris"].live[0]
    for row in rows.values():
        assert row.void or abs(row.errors["structural"][0]) < 0.15


@pytest.mark.parametrize(
    ("scenario", "overrides"),
    [
        (scenario_of_sites(sites=SITES | {"rome": {"workloads": ["de-en"], "devices": {"gateway": None}}}), ()),
        (scenario_of_sites(sites=SITES | {"paris": SITES["paris"] | {"workloads": ["de-en", "fr-en"]}}), ()),
        (scenario_of_sites(sites=SITES | {"paris": SITES["paris"] | {"count": 2}}), ()),
        ("@tiers", ()),
        ("@quickstart", ()),
        ("@live-smoke", ("devices.cloud.count=2",)),
        ("@live-smoke", ("requests=30", "devices.cloud.failures={intervals_s: [[0, 100000]]}")),
    ],
    ids=["no gateway", "two workloads", "several sites", "access link", "back to back", "boxes", "no predicted answer"],
)
def test_what_cannot_be_compared_is_refused_before_an_engine_starts(
    monkeypatch: pytest.MonkeyPatch, scenario: Any, overrides: tuple[str, ...]
) -> None:
    monkeypatch.setattr("simnmt.live.validation_runs.EngineProcess", None)
    with pytest.raises(InputError):
        validate(plan_of(scenario, *overrides))
