"""Accounts of devices, batches, streamed models and energy, and what summary, run directory and log say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaf.infrastructure import Link, Node
from leaf.power import PowerModelLink, PowerModelNode

from simnmt.profile.power import BoxPower
from simnmt.results.device_accounts import (
    BatchAccount,
    BoxesAccount,
    StreamAccount,
    TargetCosts,
    account_energy,
    batch_columns,
    stream_columns,
)
from simnmt.results.requests import RequestLog
from simnmt.results.stability import device_timeline
from simnmt.results.summary import BatchedWork, Device, measure
from tests.results.test_summary import DEVICES, TRAIL, truth

ACTIVE = np.array([4, 4, 3, 2, 2, 1, 1, 1, 1, 4, 3, 3, 3, 1, 1])
"""Sentences under way in each of the fifteen steps of FNI-08's worked example: batches of up to four, lengths
2, 5, 3, 9 and 4, 4, 1, 6."""


def account(**other: Any) -> BatchAccount:
    """That example with a second a step, encoded in two calls of sources of 2, 5, 3, 9 and 4, 4, 1, 6 tokens."""
    steps = np.bincount(ACTIVE, minlength=5)
    example: dict[str, Any] = {
        "size": 4, "steps": steps, "step_s": steps.astype(np.float64), "encode_s": 2.0, "refill_s": 1.0,
        "encodings": 2, "refills": 2, "src_tokens": 34, "padded_tokens": 4 * 9 + 4 * 6, "sentences": 8,
    }  # fmt: skip
    return BatchAccount(**example | other)


def test_the_occupancy_of_the_worked_example_of_fni_08_and_accounts_of_several_servers_add_up() -> None:
    example = account()
    assert example.mean_active == pytest.approx(34 / 15)
    assert example.shares() == {"full_share": 3 / 15, "below_8_share": 1.0, "padding_share": pytest.approx(26 / 60)}
    whole = account().merged([account(), BatchAccount.empty(4)])
    assert (whole.steps.sum(), whole.step_s.sum(), whole.mean_active) == (30, 30.0, example.mean_active)
    assert (whole.sentences, whole.tokens, whole.encodings, whole.refills) == (16, 68, 4, 4)
    assert (whole.busy_s, whole.encode_s, whole.refill_s) == (36.0, 4.0, 2.0)


CLOUD_COLUMNS = [*batch_columns("cloud", 1, None, 1.0, np.empty(0), np.empty(0))]
BATCHING = (DEVICES[0], Device("cloud", 2, 1, batch=4))
IN_BATCHES = replace(TRAIL, batches=(None, account())).with_columns(
    execution_s=np.array([np.nan, 0.75, 2.0, 1.5]), first_token_s=np.array([np.nan, 0.5, 0.25, 2.5])
)


def test_the_log_holds_what_an_execution_took_in_its_batch() -> None:
    """Alone each would have taken 0.5 s on the cloud; the gateway does not batch."""
    log = RequestLog.of(truth(), IN_BATCHES)
    assert log["t_exe_s"].tolist() == [1.0, 0.75, 2.0, 1.5]
    assert log["latency_s"].tolist() == [1.0, 2.0, 11.0, 4.5]
    np.testing.assert_array_equal(log["first_token_s"], [np.nan, 0.5, 0.25, 2.5])
    assert np.isnan(RequestLog.of(truth(), TRAIL)["first_token_s"]).all()


def test_the_numbers_of_a_device_that_batches() -> None:
    """Three requests of eight tokens each, over a run of eleven seconds in which the last was issued at 3 s."""
    numbers = measure(
        RequestLog.of(truth(), IN_BATCHES), np.zeros(4), BATCHING, "open", (None, BatchedWork(account(), np.array([3.0])))
    )
    makespan_s = numbers["makespan_s"]
    assert makespan_s == 13.0
    of_cloud = {name.removeprefix("cloud_"): value for name, value in numbers.items() if name.startswith("cloud_")}
    assert of_cloud == {
        "share": 0.75,
        "mean_batch": pytest.approx(34 / 15),
        "full_share": 0.2,
        "below_8_share": 1.0,
        "padding_share": pytest.approx(26 / 60),
        "busy_share": pytest.approx(18.0 / (2 * 13.0)),
        "mean_queue_s": 0.75,
        "first_token_mean_s": pytest.approx(3.25 / 3),
        "first_token_p95_s": pytest.approx(2.3),
        "sentences_per_s": pytest.approx(8 / 13.0),
        "tokens_per_s": pytest.approx(34 / 13.0),
        "busy_sentences_per_s": pytest.approx(8 / 18.0),
        "busy_tokens_per_s": pytest.approx(34 / 18.0),
        # 3 s of work as full batches do it, for two boxes in 3 s; of which the second got two requests of three.
        "load": pytest.approx(0.5),
        "busiest_load": pytest.approx(2 / 3),
    }
    assert numbers["gateway_load"] == pytest.approx(1.0 / 3.0)
    assert not any(name.startswith("gateway") and name.replace("gateway", "cloud") in CLOUD_COLUMNS for name in numbers)


def test_a_device_that_was_sent_nothing_or_waits_for_nothing_has_no_such_numbers() -> None:
    here = IN_BATCHES.with_columns(
        target=np.zeros(4, np.int8), execution_s=np.full(4, np.nan), first_token_s=np.full(4, np.nan)
    )
    idle = measure(
        RequestLog.of(truth(), here), np.zeros(4), BATCHING, "open", (None, BatchedWork(BatchAccount.empty(4), np.zeros(1)))
    )
    assert {name: idle[name] for name in CLOUD_COLUMNS if idle[name] is not None} == {
        "cloud_busy_share": 0.0, "cloud_sentences_per_s": 0.0, "cloud_tokens_per_s": 0.0
    }  # fmt: skip
    assert idle["cloud_load"] == 0.0
    in_turn = measure(RequestLog.of(truth(), TRAIL), np.zeros(4), BATCHING, "back_to_back")
    assert all(in_turn[name] is None for name in CLOUD_COLUMNS)
    assert list(in_turn) == list(idle)


def test_the_places_of_a_batch_count_as_workers_from_the_first_step_of_a_sentence_on() -> None:
    """A sentence that is being encoded has no place yet: three requests on eight places, from their first token on."""
    log = RequestLog.of(truth(), IN_BATCHES)
    timeline, one_by_one = (device_timeline(log, (DEVICES[0], Device("cloud", 2, 1, batch)), 20) for batch in (4, None))
    stayed_s = log["t_queue_s"] + log["t_exe_s"] - log["first_token_s"]
    assert (timeline.busy_share[1] * np.diff(timeline.edges_s)).sum() * 8 == pytest.approx(np.nansum(stayed_s))
    np.testing.assert_array_equal(timeline.waiting, one_by_one.waiting)


BOXES = BoxesAccount(
    boxes=2, compute_s=3.0, read_s=1.0, read_bytes=12_000, peak_buffer_bytes=900, peak_shard_bytes=1300, buffer_byte_s=4000.0,
    working_bytes=50,
)  # fmt: skip
LOG = {
    "target": np.array([0, 1, 0, 0, 0], np.int8),
    "state": np.array([0, -1, 1, 2, 2], np.int8),
    "t_exe_s": np.array([4.0, 9.0, 2.0, 1.0, 1.0]),
    "stall_s": np.array([2.0, 0.0, 0.5, 0.0, 0.0]),
    "deadline_missed": np.array([True, False, True, False, False]),
}
LOST_S = np.array([3.0, 7.0, 0.0, 0.25, 0.75])


def test_an_account_sums_what_each_state_took_at_its_own_device() -> None:
    account = StreamAccount.of(LOG, 0, 3, BOXES, LOST_S)
    assert account.requests.tolist() == [1, 1, 2]
    assert account.execution_s.tolist() == [4.0, 2.0, 2.0]
    assert account.stall_s.tolist() == [2.0, 0.5, 0.0]
    assert account.missed.tolist() == [1, 1, 0]
    assert account.decision_regret_s is not None and account.decision_regret_s.tolist() == [3.0, 0.0, 1.0]
    numbers = json.loads(json.dumps(account.as_json()))
    assert numbers["state"] == ["cold", "turn 1", "turn 2 on"] and numbers["read_bytes"] == 12_000


def test_the_numbers_of_a_device_that_streams() -> None:
    numbers = stream_columns("gateway", StreamAccount.of(LOG, 0, 3, BOXES, LOST_S), makespan_s=10.0)
    assert list(numbers) == list(stream_columns("gateway", None, 1.0))
    assert {name.removeprefix("gateway_"): value for name, value in numbers.items()} == {
        "cold_share": 0.25, "stall_share": pytest.approx(2.5 / 8.0), "missed_share": 0.5,
        "compute_busy_share": pytest.approx(0.15), "disk_busy_share": pytest.approx(0.05), "cold_mean_s": 4.0,
        "first_turn_mean_s": 2.0, "later_turn_mean_s": 1.0, "cold_decision_regret_s": 3.0, "read_mean_bytes": 3000.0,
        "peak_buffer_bytes": 900.0, "peak_shard_bytes": 1300.0, "mean_buffer_bytes": pytest.approx(200.0),
    }  # fmt: skip


def test_numbers_of_states_without_requests_are_unknown_not_zero() -> None:
    nobody = StreamAccount(np.zeros(2, np.int64), np.zeros(2), np.zeros(2), np.zeros(2, np.int64), BOXES)
    numbers = stream_columns("gateway", nobody, 10.0)
    known = ("compute_busy_share", "disk_busy_share", "peak_buffer_bytes", "peak_shard_bytes", "mean_buffer_bytes")
    assert {name for name, value in numbers.items() if value is not None} == {f"gateway_{name}" for name in known}
    assert stream_columns("gateway", StreamAccount.of(LOG, 0, 3, BOXES), 10.0)["gateway_cold_decision_regret_s"] is None


def log_of(**columns: Any) -> dict[str, Any]:
    """Return requests that arrive at once at the first target, without links, with some other columns."""
    count = len(columns["t_exe_s"])
    lengths = {"src_len": np.full(count, 10, np.int32), "tgt_len": np.full(count, 20, np.int32)}
    log: dict[str, Any] = {
        "arrival_s": np.zeros(count),
        "t_tx_s": np.zeros(count),
        "target": np.zeros(count, np.int8),
    } | lengths
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
    assert "cost_per_million_characters" not in numbers, "characters are unknown"
    costs = [TargetCosts("cloud", 3, 1, None, 1.5, (2, 0.0, 2 * 5.0 / 1e9))]
    numbers = account_energy(log, costs, characters=[80.0]).numbers()
    assert numbers["cost_per_million_characters"] == pytest.approx(money / 160 * 1e6)
