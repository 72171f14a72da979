"""Energy and money of a run by its columns: nothing is lost, and nothing counts twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaf.infrastructure import Node
from leaf.power import PowerModelNode

from simnmt.profile.power import BoxPower, PowerConfiguration, RequestCost
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.energy_accounts import account_energy, busy_seconds
from simnmt.results.run_energy import Leg, PowerUse, RunEnergy
from tests.results.test_batches import account

NO_PATH: tuple[Leg, ...] = ()


def power(capacity: int = 1, **watts: float) -> BoxPower:
    return BoxPower.given(PowerConfiguration(**watts), capacity)


def log_of(**columns: Any) -> dict[str, Any]:
    """Requests at once on the first box of the first target, without links, unless told otherwise."""
    execution_s = np.asarray(columns["t_exe_s"], np.float64)
    count = len(execution_s)
    log = {name: np.zeros(count) for name in ("arrival_s", "t_queue_s", "t_tx_s")} | {
        "target": np.zeros(count, np.int8), "server": np.zeros(count, np.int32), "node": np.zeros(count, np.int32),
        "src_len": np.full(count, 10), "tgt_len": np.full(count, 20),
    } | {name: np.asarray(column) for name, column in columns.items()}  # fmt: skip
    log["latency_s"] = log["t_queue_s"] + log["t_exe_s"] + log["t_tx_s"]
    return log


def known(value: float | None) -> float:
    assert value is not None
    return value


LENGTHS = st.integers(1, 40)
REQUEST = st.tuples(
    st.floats(0.0, 50.0), st.floats(0.0, 5.0), st.floats(0.001, 9.0), st.integers(0, 2), LENGTHS, LENGTHS, st.integers(0, 4)
)


def in_turn(rows: list[tuple[Any, ...]], boxes: int, workers: int) -> dict[str, Any]:
    """A log of requests that boxes of so many workers execute first in, first out."""
    arrival_s, transfer_s, execution_s, server, src_len, tgt_len, node = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    server %= boxes
    free_s, queue_s = np.zeros((boxes, workers)), np.zeros(len(rows))
    entry_s = arrival_s + transfer_s / 2
    for request in np.argsort(entry_s, kind="stable"):
        of_box = free_s[server[request]]
        worker = int(of_box.argmin())
        start_s = max(entry_s[request], of_box[worker])
        queue_s[request] = start_s - entry_s[request]
        of_box[worker] = start_s + execution_s[request]
    return log_of(
        arrival_s=arrival_s, t_tx_s=transfer_s, t_exe_s=execution_s, server=server, src_len=src_len, tgt_len=tgt_len,
        node=node, t_queue_s=queue_s,
    )  # fmt: skip


def integral_j(log: dict[str, Any], boxes: int, watts: Any, span_s: float) -> float:
    """The power of all boxes over time, by the number of requests that each executes, from change to change."""
    start_s = log["arrival_s"] + log["t_tx_s"] / 2 + log["t_queue_s"]
    end_s, joules = start_s + log["t_exe_s"], 0.0
    for number in range(boxes):
        begins, ends = start_s[log["server"] == number], end_s[log["server"] == number]
        edges = np.unique(np.concatenate([[0.0, span_s], begins, ends]))
        middle = (edges[1:] + edges[:-1]) / 2
        active = (begins[None] <= middle[:, None]).sum(1) - (ends[None] <= middle[:, None]).sum(1)
        joules += float(np.dot(np.diff(edges), [watts(int(count)) for count in active]))
    return joules


@given(
    rows=st.lists(REQUEST, min_size=1, max_size=30),
    boxes=st.integers(1, 3),
    workers=st.integers(1, 4),
    watts=st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 50.0), st.floats(0.0, 50.0)),
)
def test_the_joules_of_all_requests_are_the_integral_of_the_power(
    rows: list[tuple[Any, ...]], boxes: int, workers: int, watts: tuple[float, float, float]
) -> None:
    idle_w, busy_w, load_w = np.cumsum(watts).tolist()
    log, box = in_turn(rows, boxes, workers), power(workers, idle_w=idle_w, busy_w=busy_w, load_w=load_w)
    legs = (Leg(2, np.array([1e-3]), np.zeros(1)), Leg(3, np.array([0.0, 5e-3]), np.zeros(2)))
    energy = account_energy(log, [PowerUse("box", boxes, box)], [legs])
    boxes_j = integral_j(log, boxes, lambda active: float(box.idle_w + box.dynamic_w(active)), energy.span_s)
    links_j = float(((log["src_len"] + log["tgt_len"]) * (2e-3 + 15e-3 * (log["node"] % 2))).sum())
    assert known(energy.static_j) + known(energy.dynamic_j) == pytest.approx(boxes_j, rel=1e-9, abs=1e-9)
    assert energy.transfer_j == pytest.approx(links_j, rel=1e-9, abs=1e-9)
    assert energy.request_j(log).sum() == pytest.approx(boxes_j + links_j, rel=1e-9, abs=1e-9) == energy.total_j
    assert energy.transfer_bytes == 5 * int((log["src_len"] + log["tgt_len"]).sum())


@given(rows=st.lists(REQUEST, min_size=1, max_size=20), workers=st.integers(1, 4), above_w=st.floats(0.0, 500.0))
def test_boxes_whose_workers_share_the_load_evenly_draw_what_leafs_nodes_draw(
    rows: list[tuple[Any, ...]], workers: int, above_w: float
) -> None:
    log, node = in_turn(rows, 2, workers), Node("box", workers, PowerModelNode(max_power=9.0 + above_w, static_power=9.0))
    energy = account_energy(log, [PowerUse("box", 2, power(workers, idle_w=9.0, load_w=9.0 + above_w))], [NO_PATH])

    def leaf_w(active: int) -> float:
        node.used_cu = active
        return float(node.measure_power())

    assert energy.total_j == pytest.approx(integral_j(log, 2, leaf_w, energy.span_s), rel=1e-9, abs=1e-9)


def test_a_box_that_is_busy_with_several_requests_is_busy_once() -> None:
    server = np.array([0, 1, 0, 0, 1])
    start_s, end_s = np.array([5.0, 0.0, 0.0, 1.0, 7.0]), np.array([6.0, 1.0, 4.0, 2.0, 9.0])
    assert busy_seconds(server, start_s, end_s, 2) == (4.0 + 1.0) + (1.0 + 2.0)
    assert busy_seconds(server, start_s, end_s, 3) == 8.0, "a third box is never busy"


def batched(of_batch: BatchAccount, **watts: float) -> tuple[RunEnergy, dict[str, Any]]:
    log = log_of(
        t_exe_s=np.full(8, 4.0), src_len=[2, 5, 3, 9, 4, 4, 1, 6], tgt_len=[2, 5, 3, 9, 4, 4, 1, 6], arrival_s=np.arange(8.0)
    )
    return account_energy(log, [PowerUse("cloud", 1, power(of_batch.size, **watts))], [NO_PATH], [of_batch]), log


def test_a_batch_draws_power_by_its_fill_as_in_the_worked_example_of_fni_08() -> None:
    """Fifteen steps of a second with 4, 3, 2 or 1 sentences; two calls of the encoder and two refills of four each."""
    energy, log = batched(account(), idle_w=10.0, busy_w=40.0, load_w=100.0)
    steps_j = 3 * 90.0 + 4 * 70.0 + 2 * 50.0 + 6 * 30.0
    assert energy.dynamic_j == pytest.approx(steps_j + (2.0 + 1.0) * 90.0)
    assert energy.static_j == 10.0 * 11.0
    joules = energy.request_j(log)
    assert joules.sum() == pytest.approx(energy.total_j, rel=1e-12)
    per_src_j, per_step_j = 3 * 90.0 / 34, steps_j / (34 + 8)
    assert joules[3] == pytest.approx(110.0 / 8 + 9 * per_src_j + 10 * per_step_j)


@given(
    step_s=st.lists(st.floats(0.0, 9.0), min_size=4, max_size=4),
    calls=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    watts=st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 50.0), st.floats(0.0, 50.0)),
)
def test_the_joules_of_batched_requests_add_up_to_those_of_their_batches(
    step_s: list[float], calls: tuple[int, int], watts: tuple[float, float, float]
) -> None:
    idle_w, busy_w, load_w = np.cumsum(watts).tolist()
    of_batch = account(step_s=np.array([0.0, *step_s]), encodings=calls[0], refills=calls[1])
    energy, log = batched(of_batch, idle_w=idle_w, busy_w=busy_w, load_w=load_w)
    box = power(4, idle_w=idle_w, busy_w=busy_w, load_w=load_w)
    active_s = [*((seconds, count) for count, seconds in enumerate(step_s, start=1)), (2.0, min(8 / calls[0], 4))]
    active_s.append((1.0, min(8 / calls[1], 4)))
    busy_j = sum(seconds * float(box.idle_w + box.dynamic_w(count)) for seconds, count in active_s)
    idle_j = idle_w * (energy.span_s - of_batch.busy_s)
    assert energy.request_j(log).sum() == pytest.approx(busy_j + idle_j, rel=1e-9, abs=1e-9)


def test_measured_joules_by_lengths_take_the_place_of_power_times_time() -> None:
    box = BoxPower(10.0, 40.0, 40.0, 1, "measured", RequestCost(-10.0, 0.5, 2.0, 1.0))
    log = log_of(t_exe_s=[1.0, 3.0], src_len=[4, 4], tgt_len=[10, 0], arrival_s=[0.0, 1.0])
    energy = account_energy(log, [PowerUse("edge", 2, box)], [NO_PATH])
    assert energy.dynamic_j == (23.0 - 10.0) + 0.0, "an execution takes no less than nothing above the idle power"
    assert energy.request_j(log).tolist() == [13.0 + 10.0 * 2 * 4.0 / 2, 40.0]
    assert energy.devices[0].kind == "measured"


def test_what_is_unknown_of_one_device_makes_the_sum_unknown_and_never_zero() -> None:
    log = log_of(t_exe_s=[1.0, 2.0], target=np.array([0, 1], np.int8))
    uses = [PowerUse("edge", 1, power(idle_w=1.0, busy_w=2.0), 3.6), PowerUse("cloud", 2, None, None)]
    energy = account_energy(log, uses, [NO_PATH, NO_PATH])
    assert (energy.static_j, energy.dynamic_j, energy.total_j) == (None, None, None)
    assert np.isnan(energy.request_j(log)).all()
    assert energy.price == pytest.approx(3.6 * 2.0 / 3600.0)
    assert energy.numbers()["mean_energy_j"] is None
    assert energy.devices[0].dynamic_j == 1.0
    assert account_energy(log, [uses[0], PowerUse("cloud", 2, None)], [NO_PATH] * 2).price is not None
    assert account_energy(log, [PowerUse("a", 1, None), PowerUse("b", 1, None)], [NO_PATH] * 2).price is None


def test_money_is_for_hours_of_all_boxes_and_for_bytes_in_both_directions() -> None:
    log = log_of(t_exe_s=[1800.0, 3600.0], src_len=[10, 30], tgt_len=[20, 40], node=[0, 1])
    path = (Leg(2, np.zeros(1), np.array([5.0])), Leg(2, np.zeros(2), np.array([0.0, 7.0])))
    energy = account_energy(log, [PowerUse("cloud", 3, None, 1.5)], [path], characters_per_src_token=6.0)
    links = (100 * 2 * 5.0 + 70 * 2 * 7.0) / 1e9
    assert energy.price == pytest.approx(3 * 1.5 + links, rel=1e-12)
    numbers = energy.numbers()
    assert numbers["mean_cost"] == pytest.approx((4.5 + links) / 2)
    assert numbers["cost_per_thousand_tokens"] == pytest.approx((4.5 + links) / 60 * 1e3)
    assert numbers["cost_per_million_characters"] == pytest.approx((4.5 + links) / (6.0 * 40) * 1e6)
