"""What waits and works in each span of time is what a count request by request finds, and obeys Little's law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simnmt
from simnmt.results.stability import device_timeline, edges, presence_s
from simnmt.results.summary import Device

DEVICES = (Device("gateway", 2, 1), Device("region", 1, 3), Device("cloud", 4, 2))
LONG = 3_000


def made_up_log(requests: int, seed: int = 1, arrivals_end_s: float = 100.0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    log = {
        "arrival_s": np.sort(draw.uniform(0.0, arrivals_end_s, requests)),
        "target": draw.integers(0, 3, requests).astype(np.int8),
        "t_queue_s": np.where(draw.random(requests) < 0.5, 0.0, draw.exponential(2.0, requests)),
        "t_exe_s": draw.exponential(1.0, requests),
        "t_tx_s": draw.exponential(0.3, requests),
    }
    return log | {"latency_s": log["t_queue_s"] + log["t_exe_s"] + log["t_tx_s"]}


def overlap_s(begin_s: Any, end_s: Any, edges_s: Any) -> Any:
    """Seconds of intervals in spans, the plain way: every interval with every span."""
    low = np.maximum(begin_s[:, None], edges_s[:-1])
    high = np.minimum(end_s[:, None], edges_s[1:])
    return np.maximum(high - low, 0.0).sum(0)


def test_backlog_and_utilisation_are_those_of_a_count_request_by_request() -> None:
    log = made_up_log(700)
    spans = device_timeline(log, DEVICES, 100)
    length_s = np.diff(spans.edges_s)
    entry_s = log["arrival_s"] + log["t_tx_s"] / 2
    start_s = entry_s + log["t_queue_s"]
    for number, device in enumerate(DEVICES):
        there = log["target"] == number
        waiting = overlap_s(entry_s[there], start_s[there], spans.edges_s) / length_s
        np.testing.assert_allclose(spans.waiting[number], waiting, atol=1e-10)
        busy = overlap_s(start_s[there], (start_s + log["t_exe_s"])[there], spans.edges_s)
        np.testing.assert_allclose(spans.busy_share[number] * device.servers * device.workers, busy / length_s, atol=1e-10)


def test_a_backlog_over_the_whole_run_is_the_rate_of_arrivals_times_the_mean_wait() -> None:
    """Little's law, device by device: no span loses or invents a wait; and the work done is the work that came."""
    log = made_up_log(LONG)
    spans = device_timeline(log, DEVICES, 400)
    length_s = np.diff(spans.edges_s)
    for number, device in enumerate(DEVICES):
        there = log["target"] == number
        rate_rps = there.sum() / length_s.sum()
        assert np.average(spans.waiting[number], weights=length_s) == pytest.approx(rate_rps * log["t_queue_s"][there].mean())
        work_s = (spans.busy_share[number] * length_s).sum() * device.servers * device.workers
        assert work_s == pytest.approx(log["t_exe_s"][there].sum())


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
