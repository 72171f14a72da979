"""Overload, and what waits and works over time: no mean passes for a steady state, and no chance for overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simnmt
from simnmt.results.places import ALL, Place
from simnmt.results.stability import device_timeline, edges, is_overloaded, overloads, presence_s, with_stability
from simnmt.results.summary import Device, comparisons, measure, rows

ONE = Device("cloud", 1, 1)


def numbers(load: float, busiest: float | None = None, share: float = 1.0) -> dict[str, float | None]:
    return {"cloud_share": share, "cloud_load": load, "cloud_busiest_load": load if busiest is None else busiest}


def overload_texts(*replications: dict[str, float | None], requests: int = 100_000, device: Device = ONE) -> list[str]:
    return [str(overload) for overload in overloads(replications, requests, [device])]


@pytest.mark.parametrize(
    ("loads", "requests", "expected"),
    [
        ([0.98], 100_000, []),
        ([1.02], 100_000, ["cloud: load 1.02"]),
        ([1.2, 1.4], 100_000, ["cloud: load 1.30"]),
        ([0.7, 1.1, 0.8], 100_000, ["cloud: load 1.10 in 1 of 3 replications"]),
        # Too short to tell: the work of two requests that came close together is no load that would last.
        ([4.5], 2, []),
        ([1.05], 100, []),
        ([1.05] * 5, 2_000, ["cloud: load 1.05"]),
        # Of 2,000 requests the work varies by 3 %: at load 0.97 some run of five is likely to have seen 1.02.
        ([0.93, 0.96, 0.97, 1.02, 0.95], 2_000, []),
        ([0.93, 0.96, 0.97, 1.02, 0.95], 200_000, ["cloud: load 1.02 in 1 of 5 replications"]),
    ],
)
def test_a_load_beyond_one_is_an_overload_unless_by_chance(loads: list[float], requests: int, expected: list[str]) -> None:
    assert overload_texts(*map(numbers, loads), requests=requests) == expected


def test_a_box_that_is_given_more_than_the_others_is_an_overload() -> None:
    """Seven busy end nodes on five gateways: two gateways have two of them. Many boxes, though each saw few requests."""
    assert overload_texts(numbers(0.84, 1.2), device=Device("cloud", 5, 1)) == ["cloud: load 1.20"]
    assert overload_texts(numbers(1.2, 2.0), requests=10_000, device=Device("cloud", 1_000, 1)) == ["cloud: load 2.00"]


@pytest.mark.parametrize("replications", [1, 5])
@pytest.mark.parametrize("requests", [2, 10, 100, 1_000])
def test_a_load_just_below_one_is_rarely_called_an_overload(requests: int, replications: int) -> None:
    """Poisson arrivals, exponential service times, true load 0.965: a run of twenty at most is called unstable throughout."""
    draw = np.random.default_rng(requests)
    alarms = 0
    for _ in range(200):
        loads = [
            0.965 * float(draw.exponential(1.0, requests).sum() / draw.exponential(1.0, requests).sum())
            for _ in range(replications)
        ]
        overloaded = overloads([numbers(load) for load in loads], requests, [ONE])
        alarms += any(overload.replications == overload.of for overload in overloaded)
    assert alarms <= 10


@pytest.mark.parametrize("boxes", [2, 40, 1_000])
@pytest.mark.parametrize("per_box", [1, 10, 100])
def test_chance_makes_an_overload_of_evenly_shared_work_in_one_run_of_twenty_at_most(boxes: int, per_box: int) -> None:
    """All boxes together are all but full, so that almost any excess would overload one."""
    draw = np.random.default_rng(boxes * per_box)
    alarms = 0
    for _ in range(100):
        requests = boxes * per_box
        work = np.bincount(draw.integers(0, boxes, requests), draw.exponential(1.0, requests), boxes)
        busiest = 0.99 * float(work.max() / work.mean())
        alarms += bool(overload_texts(numbers(0.99, busiest), requests=requests, device=Device("cloud", boxes, 1)))
    assert alarms <= 5


def queue_of_one(arrival_s: Any, service_s: Any) -> dict[str, Any]:
    """The log of a first-in first-out server, by Lindley's recursion."""
    wait_s = np.zeros(arrival_s.size)
    for at in range(1, arrival_s.size):
        wait_s[at] = max(0.0, wait_s[at - 1] + service_s[at - 1] - (arrival_s[at] - arrival_s[at - 1]))
    zeros = np.zeros(arrival_s.size)
    return {
        "arrival_s": arrival_s, "target": zeros.astype(np.int8), "server": zeros.astype(np.int32), "t_queue_s": wait_s,
        "t_exe_s": service_s, "t_tx_s": zeros, "latency_s": wait_s + service_s, "rtt_estimate_age_s": zeros,
        "energy_j": zeros,
    }  # fmt: skip


@pytest.mark.parametrize("load", [1.1, 1.5, 3.0])
def test_the_last_request_waits_as_long_as_the_growth_says(load: float) -> None:
    draw = np.random.default_rng(7)
    log = queue_of_one(np.cumsum(draw.exponential(1.0, 20_000)), draw.exponential(load, 20_000))
    run = {Place(ALL, "w", "n", "p"): [measure(log, np.zeros(20_000), [ONE], "open")]}
    (row,) = with_stability(rows(run, 20_000), run, {("all", "w"): [ONE]})
    lasts_s = row["requests"] / row["offered_rps"]
    assert row["backlog_growth"] == pytest.approx(load - 1.0, abs=0.05)
    assert row["backlog_growth"] * lasts_s == pytest.approx(log["t_queue_s"][-1], rel=0.02)


def table(**loads: float) -> list[dict[str, Any]]:
    run: Any = {
        Place(ALL, "w", "n", policy): [
            {**numbers(load), "gateway_share": 0.1, "gateway_load": 0.2, "gateway_busiest_load": 0.3}
        ]
        for policy, load in loads.items()
    }
    return with_stability(rows(run, 1_000), run, {("all", "w"): [Device("gateway", 1, 1), ONE]})


def test_rows_keep_each_overload_worst_first() -> None:
    """More than one device may be overloaded, each in other replications; no digit is lost."""
    run: Any = {
        Place(ALL, "w", "n", "p"): [
            {"gateway_share": 0.5, "gateway_load": gateway, "gateway_busiest_load": gateway, **numbers(cloud, share=0.5)}
            for gateway, cloud in ((1.23456, 1.5), (0.5, 1.5))
        ]
    }
    (row,) = with_stability(rows(run, 10_000), run, {("all", "w"): [Device("gateway", 1, 1), ONE]})
    assert row["unstable"] == "cloud: load 1.50, gateway: load 1.23 in 1 of 2 replications"
    assert [(row[f"{name}_overload"], row[f"{name}_overloaded_in"]) for name in ("cloud", "gateway")] == [
        (1.5, 2),
        (1.23456, 1),
    ]
    assert is_overloaded(row, "gateway") and not is_overloaded(table(calm=0.5)[0], "cloud")


def test_a_closed_loop_overloads_nothing() -> None:
    """A closed loop keeps its devices as busy as can be; back to back nothing has a load."""
    run: Any = {Place(ALL, "w", "n", "p"): [numbers(1.3)], Place(ALL, "back", "n", "p"): [dict.fromkeys(numbers(0.0), None)]}
    assert [row["unstable"] for row in with_stability(rows(run, 1_000), run, {})] == [None, None]
    assert [row["unstable"] for row in with_stability(rows(run, 1_000), run, {("all", "w"): [ONE]})] == [
        "cloud: load 1.30",
        None,
    ]


def test_comparisons_with_the_unstable_are_marked() -> None:
    judged = table(calm=0.5, idle=0.1, flood=1.3, worse=9.0)
    pairs = comparisons({Place.of(row): [{"total_latency_s": 1.0}] for row in judged}, ["calm", "worse"], judged)
    assert {(pair["policy"], pair["baseline"]): pair["unstable"] for pair in pairs} == {
        ("calm", "worse"): "baseline", ("idle", "calm"): None, ("idle", "worse"): "baseline",
        ("flood", "calm"): "policy", ("flood", "worse"): "both", ("worse", "calm"): "policy",
    }  # fmt: skip


DEVICES = (Device("gateway", 2, 1), Device("region", 1, 3), Device("cloud", 4, 2))


def overlap_s(begin_s: Any, end_s: Any, edges_s: Any) -> Any:
    """Seconds of intervals in spans, the plain way: every interval with every span."""
    low = np.maximum(begin_s[:, None], edges_s[:-1])
    high = np.minimum(end_s[:, None], edges_s[1:])
    return np.maximum(high - low, 0.0).sum(0)


def test_one_request_by_hand() -> None:
    """Issued at 2, at its queue at 3, executed from 5 to 9, answered at 10; spans of one second."""
    log = {
        name: np.array([value]) for name, value in (("arrival_s", 2.0), ("t_tx_s", 2.0), ("t_queue_s", 2.0), ("t_exe_s", 4.0))
    }
    log |= {"latency_s": np.array([8.0]), "target": np.array([0], np.int8)}
    spans = device_timeline(log, DEVICES[:1], 10)
    assert spans.edges_s.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 6.0, 10.0]
    assert spans.waiting.tolist() == [[0.0] * 8 + [0.5, 0.0]]
    assert spans.busy_share.tolist() == [[0.0] * 8 + [0.125, 0.375]]


def test_an_overloaded_run_keeps_sharp_spans_while_requests_come() -> None:
    """Working off what is left may take a hundred times as long as the requests took to come."""
    edges_s = edges(10.0, 1_000.0, 400)
    assert edges_s.size == 401
    assert (edges_s <= 10.0).sum() == 321
    assert (np.diff(edges_s) > 0.0).all()
    assert edges_s[[0, -1]].tolist() == [0.0, 1_000.0]
    assert edges(10.0, 10.01, 400).tolist() == np.linspace(0.0, 10.01, 401).tolist(), "nothing is left to be worked off"
    assert edges(0.0, 5.0, 4).tolist() == np.linspace(0.0, 5.0, 5).tolist(), "all at once"
    assert edges(0.0, 0.0, 4).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0], "nobody asked"


@given(
    st.lists(st.tuples(st.floats(0.0, 12.0), st.floats(0.0, 12.0)).map(sorted), min_size=1, max_size=40),
    st.lists(st.floats(0.01, 10.0), min_size=2, max_size=12, unique=True).map(sorted),
)
def test_presence_is_the_overlap_with_any_spans(intervals: list[list[float]], at: list[float]) -> None:
    begin_s, end_s = np.array(intervals).T
    np.testing.assert_allclose(presence_s(begin_s, end_s, np.array(at)), overlap_s(begin_s, end_s, np.array(at)), atol=1e-9)


OPEN = {"kind": "poisson", "rate_rps": 8.0}
CLOSED = {"kind": "clients", "clients": 9, "think_time": {"constant_s": 0.1}}


@pytest.mark.parametrize("arrivals", [OPEN, CLOSED], ids=["open", "closed"])
def test_in_a_real_run_no_worker_does_two_things_at_once(make_scenario: Callable[..., Any], arrivals: dict[str, Any]) -> None:
    """Were a request taken to start at another moment than it does, busy workers would seem to do more than they can."""
    scenario = make_scenario(
        requests=1_000, replications=1, policies={"edge": {}, "cloud": {}, "cnmt": {}},
        networks={"n": {"rtt": {"constant_ms": 30}, "hops": {"gateway": {"rtt": {"constant_ms": 9}}}}},
        workloads={"w": {"lengths": "@de-en-news", "arrivals": arrivals, "end_nodes": 9}},
    )  # fmt: skip
    scenario["devices"]["gateway"]["count"] = 2
    result = simnmt.run(scenario)
    (cell,) = result.cells
    assert len(cell.logs) == 3
    for (policy, log), row in zip(cell.logs.items(), result.summary_rows, strict=True):
        spans = device_timeline(log, cell.devices, 400)
        assert spans.busy_share.max() <= 1.0 + 1e-3, "the payload makes the way there and the way back differ by microseconds"
        length_s = np.diff(spans.edges_s)
        for number, device in enumerate(cell.devices):
            waited_s = (spans.waiting[number] * length_s).sum()
            assert waited_s == pytest.approx(log["t_queue_s"][log["target"] == number].sum(), abs=1e-6)
            work_s = (spans.busy_share[number] * length_s).sum() * device.servers * device.workers
            assert work_s == pytest.approx(log["t_exe_s"][log["target"] == number].sum())
        assert row["policy"] == policy
        assert spans.edges_s[-1] == pytest.approx(row["makespan_s"])
