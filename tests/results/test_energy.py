"""Energy and money of a run by its columns: nothing is lost, and nothing counts twice."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaf.infrastructure import Link, Node
from leaf.power import PowerModelLink, PowerModelNode

from simnmt.profile.power import BoxPower
from simnmt.results.device_accounts import TargetCosts, account_energy
from tests.results.test_batches import account


def log_of(**columns: Any) -> dict[str, Any]:
    """Return requests that arrive at once at the first target, without links, with some other columns."""
    count = len(columns["t_exe_s"])
    log: dict[str, Any] = {
        "arrival_s": np.zeros(count),
        "target": np.zeros(count, np.int8),
        "src_len": np.full(count, 10, np.int32),
    }
    log |= {"tgt_len": np.full(count, 20, np.int32), "t_tx_s": np.zeros(count)}
    log |= {name: np.asarray(column) for name, column in columns.items()}
    log.setdefault("latency_s", log["t_exe_s"] + log["t_tx_s"])
    return log


def power(idle_w: float, busy_w: float) -> BoxPower:
    return BoxPower(idle_w, busy_w, "given")


@given(
    rows=st.lists(st.tuples(st.floats(0.001, 9.0), st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=20),
    workers=st.integers(1, 4),
    above_w=st.floats(0.0, 500.0),
    j_per_byte=st.floats(1e-9, 1e-3),
)
def test_requests_in_turn_draw_the_energy_of_nodes_and_links_in_leaf(
    rows: list[tuple[float, int, int]], workers: int, above_w: float, j_per_byte: float
) -> None:
    """One request after the other on a LEAF node with a unit for each worker; LEAF's link draws energy per bit."""
    execution_s, src_len, tgt_len = (np.array(column) for column in zip(*rows, strict=True))
    ends_s = np.cumsum(execution_s)
    log = log_of(arrival_s=ends_s - execution_s, t_exe_s=execution_s, src_len=src_len, tgt_len=tgt_len)
    costs = TargetCosts("box", 1, workers, power(9.0, 9.0 + above_w), 0.0, (2, 2 * j_per_byte, 0.0))
    energy = account_energy(log, [costs])
    node = Node("box", workers, PowerModelNode(max_power=9.0 + above_w, static_power=9.0))
    node.used_cu = 1
    link = Link(Node("a"), Node("b"), bandwidth=1e9, power_model=PowerModelLink(j_per_byte / 8))
    link.used_bandwidth = 16.0 * int((src_len + tgt_len).sum())
    joules = float(node.measure_power()) * ends_s[-1] + float(link.measure_power())
    assert energy.sums["energy_j"] == pytest.approx(joules, rel=1e-9, abs=1e-9)
    assert energy.request_j(log).sum() == pytest.approx(joules, rel=1e-9, abs=1e-9)
    assert energy.parts[-1]["bytes"] == 2 * int((src_len + tgt_len).sum())


def test_a_box_draws_busy_power_while_its_batches_are_encoded_refilled_and_decoded() -> None:
    batches = account()
    log = log_of(t_exe_s=np.arange(1.0, 9.0), arrival_s=np.arange(8.0))
    energy = account_energy(log, [TargetCosts("cloud", 2, 1, power(10.0, 40.0))], [batches])
    span_s = 15.0
    assert energy.parts[0]["dynamic_j"] == pytest.approx(30.0 * batches.busy_s)
    assert energy.parts[0]["static_j"] == 10.0 * 2 * span_s
    joules = energy.request_j(log)
    assert joules.sum() == pytest.approx(energy.sums["energy_j"], rel=1e-12)
    assert joules[7] - joules[0] == pytest.approx(30.0 * batches.busy_s * 7.0 / 36.0), "by their execution times"


def test_executions_that_answered_no_request_are_shared_by_those_that_did() -> None:
    log = log_of(t_exe_s=[1.0, 3.0])
    costs = [TargetCosts("cloud", 1, 2, power(0.0, 10.0))]
    energy = account_energy(log, costs, unanswered_s=[6.0])
    assert energy.sums["dynamic_j"] == 5.0 * (4.0 + 6.0)
    assert energy.request_j(log).tolist() == [12.5, 37.5]


def test_an_unknown_power_of_one_device_makes_the_sum_unknown_and_never_zero() -> None:
    log = log_of(t_exe_s=[1.0, 2.0], target=np.array([0, 1], np.int8))
    costs = [TargetCosts("edge", 1, 1, power(1.0, 2.0), 3.6), TargetCosts("cloud", 2, 1, None)]
    energy = account_energy(log, costs)
    sums = energy.sums
    assert isnan(sums["static_j"]) and isnan(sums["dynamic_j"]) and np.isnan(energy.request_j(log)).all()
    assert sums["cost"] == pytest.approx(3.6 * 2.0 / 3600.0)
    assert energy.numbers()["mean_energy_j"] is None
    assert energy.parts[0]["dynamic_j"] == 1.0
    assert isnan(account_energy(log, [TargetCosts("a", 1, 1, None), TargetCosts("b", 1, 1, None)]).sums["cost"])


def test_money_is_for_hours_of_all_boxes_and_for_bytes_in_both_directions() -> None:
    log = log_of(t_exe_s=[1800.0, 3600.0], src_len=[10, 30], tgt_len=[20, 40])
    energy = account_energy(log, [TargetCosts("cloud", 3, 1, None, 1.5, (2, 0.0, 2 * 5.0 / 1e9))])
    money = 3 * 1.5 + 100 * 2 * 5.0 / 1e9
    numbers = energy.numbers()
    assert numbers["mean_cost"] == pytest.approx(money / 2, rel=1e-12)
    assert numbers["cost_per_thousand_tokens"] == pytest.approx(money / 60 * 1e3)
