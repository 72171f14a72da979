"""The account of a streamed device, and the numbers of the summary that come of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from simnmt.results.device_accounts import (
    BoxesAccount,
    StreamAccount,
    stream_columns,
)

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


def test_the_summarys_numbers_follow_from_it() -> None:
    numbers = stream_columns("gateway", StreamAccount.of(LOG, 0, 3, BOXES, LOST_S), makespan_s=10.0)
    assert list(numbers) == list(stream_columns("gateway", None, 1.0))
    assert {name.removeprefix("gateway_"): value for name, value in numbers.items()} == {
        "cold_share": 0.25,
        "stall_share": pytest.approx(2.5 / 8.0),
        "missed_share": 0.5,
        "compute_busy_share": pytest.approx(0.15),
        "disk_busy_share": pytest.approx(0.05),
        "cold_mean_s": 4.0,
        "first_turn_mean_s": 2.0,
        "later_turn_mean_s": 1.0,
        "cold_decision_regret_s": 3.0,
        "read_mean_bytes": 3000.0,
        "peak_buffer_bytes": 900.0,
        "peak_shard_bytes": 1300.0,
        "mean_buffer_bytes": pytest.approx(200.0),
    }


def test_numbers_of_states_without_requests_are_unknown_not_zero() -> None:
    nobody = StreamAccount(np.zeros(2, np.int64), np.zeros(2), np.zeros(2), np.zeros(2, np.int64), BOXES)
    numbers = stream_columns("gateway", nobody, 10.0)
    assert {name for name, value in numbers.items() if value is not None} == {
        f"gateway_{name}"
        for name in ("compute_busy_share", "disk_busy_share", "peak_buffer_bytes", "peak_shard_bytes", "mean_buffer_bytes")
    }
    assert stream_columns("gateway", StreamAccount.of(LOG, 0, 3, BOXES), 10.0)["gateway_cold_decision_regret_s"] is None
    assert set(stream_columns("gateway", None, 10.0).values()) == {None}
