"""The simulation of a live run: queues, overheads and links are where they belong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simnmt.experiment.cases import Unit
from simnmt.experiment.inputs import read_inputs
from simnmt.live.cell_run import References
from simnmt.live.decider import live_unit
from simnmt.live.deployment import ReplayedRequests, engine_settings, replayed_requests
from simnmt.live.matched_simulation import Costs, predicted_costs, simulate_matched, slowed
from simnmt.profile.blocks import ProfileError
from simnmt.scenario.source import open_source

Column = NDArray[np.float64]


def unit_of(*overrides: str) -> Unit:
    source = open_source("@open-loop", ["requests=400", "workloads.de-en.end_nodes=1", "fit.inferences=0", *overrides])
    return live_unit(read_inputs(source.scenario, Path.cwd(), source.document))


@pytest.fixture(scope="module")
def unit() -> Unit:
    return unit_of("networks.cp2={rtt: {constant_ms: 20}}", "workloads.de-en.arrivals.rate_rps=12")


@pytest.fixture(scope="module")
def requests(unit: Unit) -> ReplayedRequests:
    return replayed_requests(unit)


def first_in_first_out(entry_s: Column, service_s: Column) -> Column:
    """Waiting times of a queue with one worker, by Lindley's recursion."""
    waits_s, free_s = [], 0.0
    for entry, service in zip(entry_s.tolist(), service_s.tolist(), strict=True):
        waits_s.append(max(free_s - entry, 0.0))
        free_s = max(free_s, entry) + service
    return np.array(waits_s)


def test_texts_have_the_source_tokens_but_for_the_end_mark(requests: ReplayedRequests) -> None:
    assert [len(text.split()) + 1 for text in requests.texts] == requests.src_len.tolist()
    assert requests.offsets_s is not None and (np.diff(requests.offsets_s) >= 0.0).all()
    assert requests.tgt_len.min() >= 1


def test_requests_that_stay_wait_as_in_a_queue_with_one_worker(unit: Unit, requests: ReplayedRequests) -> None:
    random = np.random.default_rng(1)
    execution_s, overhead_s = random.gamma(4.0, 0.02, 400), random.gamma(2.0, 0.001, 400)
    costs = Costs((execution_s, execution_s), (overhead_s, np.zeros(400)))
    run = simulate_matched(unit, "cnmt", requests, costs, link_begin_s=0.0, targets=np.zeros(400, np.int64))
    assert requests.offsets_s is not None
    entry_s = requests.offsets_s + overhead_s / 2
    order = np.argsort(entry_s, kind="stable")
    expected_s = np.empty(400)
    expected_s[order] = first_in_first_out(entry_s[order], execution_s[order])
    assert run.queue_s == pytest.approx(expected_s, abs=1e-9)
    assert expected_s.max() > 0.1, "some requests must wait"
    assert run.latency_s == pytest.approx(expected_s + execution_s + overhead_s, abs=1e-9)
    assert not run.transfer_s.any()


def test_what_keeps_the_next_request_waiting_belongs_to_no_execution(unit: Unit, requests: ReplayedRequests) -> None:
    execution_s, nothing_s = np.full(400, 0.05), np.zeros(400)
    costs = Costs((execution_s, execution_s), (nothing_s, nothing_s), turnaround_s=(0.02, 0.0))
    run = simulate_matched(unit, "edge", requests, costs, link_begin_s=0.0)
    assert requests.offsets_s is not None
    assert run.execution_s == pytest.approx(execution_s)
    assert run.queue_s == pytest.approx(first_in_first_out(requests.offsets_s, execution_s + 0.02), abs=1e-9)


def test_an_offloaded_request_pays_link_server_and_gateway(unit: Unit, requests: ReplayedRequests) -> None:
    costs = Costs((np.full(400, 9.0), np.full(400, 1e-4)), (np.full(400, 0.002), np.full(400, 0.003)))
    run = simulate_matched(unit, "cloud", requests, costs, link_begin_s=5.0)
    assert (run.target == 1).all()
    up_s, down_s = unit.links.link.ways_s(np.zeros(400), requests.src_len, requests.tgt_len, 2)
    assert run.transfer_s == pytest.approx(up_s + down_s + 0.003)
    assert run.overhead_s == pytest.approx(np.full(400, 0.002))
    assert run.latency_s.min() >= 0.020 + 0.003 + 0.002 + 1e-4


def test_a_slower_box_is_charged_by_its_factor(unit: Unit, requests: ReplayedRequests) -> None:
    usual, slow = (predicted_costs(unit, requests, 3, factors) for factors in ((1.0, 1.0), (1.5, 1.0)))
    assert slow.execution_s[0] == pytest.approx(1.5 * usual.execution_s[0])
    assert slow.execution_s[1] == pytest.approx(usual.execution_s[1])
    assert slowed(unit, (1.5, 1.0)).case == unit.case, "no device of this scenario batches"


def test_a_slower_batching_server_has_slower_steps(unit: Unit) -> None:
    batched = unit_of(
        "devices.cloud={profile: '@cpu2-gru', batching: {kind: mini, size: 8}}", "devices.gateway.profile=@cpu1-gru"
    )
    decodings = [one.case.targets[1].decoding for one in (batched, slowed(batched, (1.0, 2.0)))]
    usual_s, slow_s = (
        float(decoding.cost.solo_s(np.array([20]), np.array([20]))[0]) for decoding in decodings if decoding is not None
    )
    assert slow_s == pytest.approx(2.0 * usual_s, rel=1e-6)


def test_requests_wait_for_the_reference_executions_of_a_server_that_batches() -> None:
    unit = unit_of(
        "devices.cloud={profile: '@cpu2-gru', batching: {kind: top_up, size: 8, refill: free}}",
        "devices.gateway.profile=@cpu1-gru",
        "networks.cp2={rtt: {constant_ms: 20}}",
        "workloads.de-en.arrivals.rate_rps=1",
    )
    gateway, cloud = unit.case.targets
    assert cloud.decoding is not None
    varying = replace(cloud, decoding=replace(cloud.decoding, varies=True))
    unit = replace(unit, case=replace(unit.case, targets=(gateway, varying)))
    requests = replayed_requests(unit)
    assert requests.offsets_s is not None
    usual_s = cloud.decoding.cost.solo_s(requests.src_len, requests.tgt_len)
    costs = Costs((usual_s, usual_s), (np.zeros(400), np.zeros(400)))
    up_s, _ = unit.links.link.ways_s(np.zeros(400), requests.src_len, requests.tgt_len, 2)
    entry_s = requests.offsets_s + up_s
    # One execution of 0.3 s begins 0.1 s before each tenth request comes.
    begin_s = entry_s[::10] - 0.1
    busy = References(begin_s, np.full(begin_s.size, 0.3), np.full(begin_s.size, 0.2))
    nothing = References(*np.empty((3, 0)))
    alone, beside = (
        simulate_matched(unit, "cloud", requests, costs, link_begin_s=0.0, references=[nothing, references])
        for references in (nothing, busy)
    )
    assert (beside.target == 1).all()
    waited_s = beside.queue_s[::10] - alone.queue_s[::10]
    assert np.median(waited_s) == pytest.approx(0.2, abs=2e-3)
    assert np.median(beside.queue_s - alone.queue_s) == 0.0, "the others meet none"
    assert beside.transfer_s == pytest.approx(alone.transfer_s)


def test_draws_differ_and_repeat(unit: Unit, requests: ReplayedRequests) -> None:
    first, again, other = (predicted_costs(unit, requests, draw).execution_s[0] for draw in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_a_profile_of_no_measured_engine_cannot_be_deployed(unit: Unit, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="holds no engine that could be started"):
        engine_settings(unit.case.targets[0], tmp_path)
