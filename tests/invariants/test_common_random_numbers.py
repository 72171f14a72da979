"""All policies meet the same requests; replications, devices and networks do not share what should differ."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base import random_streams
from simnmt.experiment.units import Unit, run_unit
from tests.invariants.conftest import DISCIPLINES, POISSON
from tests.units import arrays_of, digest, plan_of, unit_of, watched

MakeScenario = Callable[..., dict[str, Any]]


def test_on_an_own_clock_the_rtt_that_a_policy_meets_depends_on_its_pace(make_scenario: MakeScenario) -> None:
    """The exception that CNMT-02 allows, and why it has no oracle bound."""
    logs = simnmt.run(make_scenario(networks={"cp1": {"rtt": "@cp1", "clock": "own"}})).cells[0].logs
    assert len({digest(logs[policy]["rtt_time_s"]) for policy in ("edge", "cloud", "oracle", "cnmt")}) == 4
    assert len({digest(log["tgt_len"]) for log in logs.values()}) == 1


@pytest.mark.parametrize("arrivals", DISCIPLINES)
def test_all_policies_meet_the_same_arrivals_lengths_noise_and_rtt(
    make_tiers: MakeScenario, monkeypatch: pytest.MonkeyPatch, arrivals: str
) -> None:
    """What the world is handed, hashed, policy by policy; the servers drawn for a request and the thinking after it too."""
    policies: dict[str, Any] = {
        "edge": {},
        "cloud": {},
        "oracle": {},
        "cnmt": {},
        "queue": {"kind": "cnmt", "sees_backlog": True},
    }
    scenario = make_tiers(arrivals=DISCIPLINES[arrivals], requests=400, policies=policies)
    scenario["devices"]["region"]["balancer"] = "random"
    plan = plan_of(scenario)
    met: dict[str, list[str]] = {}
    for replication in (0, 1):
        runs, _ = watched(monkeypatch, unit_of(plan, replication))
        for run in runs:
            met.setdefault("requests", []).append(digest(run.world.requests))
            met.setdefault("thinking", []).append(digest(run.world.clients))
            # Idle servers of the same kind differ in what was drawn for them, and in nothing else.
            met.setdefault("servers", []).append(pickle.dumps(run.world.kinds).hex())
    assert set(met) == {"requests", "thinking", "servers"}
    for name, digests in met.items():
        assert len(digests) == 2 * len(policies)
        assert len(set(digests[: len(policies)])) == 1, name
        assert len(set(digests)) == (1 if name == "thinking" and arrivals != "closed loop" else 2), name


def test_no_quantities_share_a_stream_but_where_the_trace_begins_and_how_pairs_are_dealt(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the gateway's noise would be the cloud's, or two workloads would meet their bursts at the same requests."""
    two = {"first": POISSON["de-en"], "second": POISSON["de-en"] | {"arrivals": {"kind": "poisson", "rate_rps": 12.0}}}
    networks = {"cp1": {"rtt": "@cp1"}, "cp2": {"rtt": "@cp2"}}
    plan = plan_of(make_scenario(workloads=two, networks=networks))
    stream = random_streams.stream
    asked: Counter[tuple[int, str, int]] = Counter()

    def watched(seed: int, replication: int, name: str, block: int = 0) -> np.random.Generator:
        asked[replication, name, block] += 1
        return stream(seed, replication, name, block)

    monkeypatch.setattr(random_streams, "stream", watched)
    of_workload: dict[str, set[str]] = {}
    for case in plan.cases.values():
        of_workload[case.name] = set()
        for network, link in plan.networks.items():
            asked.clear()
            run_unit(Unit(plan.scenario, case, network, link, 1))
            assert set(asked.values()) == {1}
            of_workload[case.name] |= {name for _, name, _ in asked}
    assert of_workload["first"] & of_workload["second"] == {"cp1/trace start", "cp2/trace start", "fit_split"}
    # The split, per device the calibration's lengths and noise; arrivals, lengths, nodes, two devices' noise; two traces.
    assert len(of_workload["first"]) == 1 + 4 + 5 + 2


def test_each_replication_learns_anew(make_scenario: MakeScenario) -> None:
    """So that an interval holds the luck of the fit too; with one fit for all, Naive's were several times too narrow."""
    plan = plan_of(make_scenario())
    first, second = (run_unit(unit_of(plan, replication)).learnt for replication in (0, 1))
    assert first.lengths.len_slope != second.lengths.len_slope
    assert first.fit_pairs.mean_tgt_len != second.fit_pairs.mean_tgt_len
    assert all(one != other for one, other in zip(first.planes, second.planes, strict=True))


def test_replications_are_other_requests_on_another_stretch_of_the_trace(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(make_scenario())
    first, second = (watched(monkeypatch, unit_of(plan, replication))[0][0].world.requests for replication in (0, 1))
    for name in ("src_len", "tgt_len", "execution_s", "uplink_s"):
        for ours, theirs in zip(*(arrays_of((getattr(requests, name),)) for requests in (first, second)), strict=True):
            assert (ours == theirs).mean() < 0.2, name
    assert np.mean(first.src_len) == pytest.approx(np.mean(second.src_len), rel=0.1)


def test_more_end_nodes_change_the_node_column_and_nothing_else(make_scenario: MakeScenario) -> None:
    def logs(end_nodes: int) -> Any:
        workload = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 6.0}, "end_nodes": end_nodes}
        return simnmt.run(make_scenario(workloads={"de-en": workload})).cells[0].logs

    one, many = logs(1), logs(40)
    for policy, log in one.items():
        assert {name for name, column in log.items() if digest(column) != digest(many[policy][name])} == {"node"}
    assert set(np.unique(one["edge"]["node"])) == {0}
    counts = np.bincount(many["edge"]["node"], minlength=40)
    assert len(counts) == 40
    assert counts.min() > 20  # 50 expected


def test_pairs_to_fit_on_and_pairs_to_evaluate_are_disjoint_and_all_there_are(make_scenario: MakeScenario) -> None:
    from simnmt.workload.configuration import TableFile

    plan = plan_of(make_scenario(fit={"share": 0.3, "inferences": 10}))
    case = run_unit(unit_of(plan)).learnt
    whole = TableFile(table="@de-en-news").load(Path())

    def counts(table: Any) -> Counter[tuple[int, int]]:
        keys = zip(table.src_len.tolist(), table.tgt_len.tolist(), strict=True)
        return Counter(dict(zip(keys, table.count.tolist(), strict=True)))

    assert counts(case.fit_pairs) + counts(case.evaluated_pairs) == counts(whole)
    assert case.fit_pairs.pairs == round(0.3 * whole.pairs)
    # What is learnt comes from the one, what is run from the other.
    assert case.lengths.pairs == case.fit_pairs.pairs
    known = set(counts(case.evaluated_pairs))
    truth = run_unit(unit_of(plan)).truth
    assert truth is not None
    assert set(zip(np.asarray(truth.src_len).tolist(), np.asarray(truth.tgt_len).tolist(), strict=True)) <= known


def test_calibration_meets_other_noise_than_the_run(make_scenario: MakeScenario) -> None:
    """Were it the run's, the believed planes would lean towards the very errors they are judged by."""
    plan = plan_of(make_scenario(fit={"inferences": 2_000}))
    believed, true = run_unit(unit_of(plan)).learnt.planes[0], plan.cases["de-en"].profiles[0].plane
    assert believed != true
    assert believed.s_per_tgt_token == pytest.approx(true.s_per_tgt_token, rel=0.1)
    exact = plan_of(make_scenario(fit={"inferences": 0}))
    assert run_unit(unit_of(exact)).learnt.planes[0] == true
