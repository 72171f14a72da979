"""The columns of requests: one line adds one everywhere; the best target, and the misroutes from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.devices import Fifo
from simnmt.devices.device import Clock, Execution
from simnmt.devices.fifo import FifoDevice
from simnmt.results.columns import COLUMNS, RequestColumn
from simnmt.results.requests import RequestLog, Requests, Trail, decision_regret_s
from tests.worlds import believing, everything_to, in_reference

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "results.md"


class WarmDevice(FifoDevice):
    """Boxes that say how warm they are when a request reaches them."""

    trail: Any

    def enter(self, execution: Execution) -> None:
        self.trail["heat_k"][execution.request] = 290.0 + execution.request
        super().enter(execution)


class Warm(Fifo):
    records = frozenset({"heat_k"})

    def device(self, clock: Clock, target: int, requests: Requests, trail: Any, first_box: int) -> WarmDevice:
        device = WarmDevice(self, clock, target, requests, trail, first_box)
        device.trail = trail
        return device


def test_a_column_is_one_line_from_the_world_to_the_log_and_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLUMNS, "heat_k", RequestColumn("heat_k", "f8", "K", "heat_k", "on_request", np.nan))
    requests = Requests(
        src_len=np.array([3, 4]),
        execution_s=(np.ones(2), np.ones(2)),
        uplink_s=(np.zeros(2),),
        downlink_s=(np.zeros(2),),
        arrival_s=np.array([0.0, 5.0]),
        node=np.zeros(2, np.int64),
        tgt_len=np.array([3, 4]),
        transfer_s=(np.zeros(2), np.zeros(2)),
        rtt_time_s=np.zeros(2),
    )
    trail = in_reference(requests, everything_to(1), believing(0.0), [Warm()])
    assert trail.heat_k.tolist() == [290.0, 291.0]
    log = RequestLog.of(requests, trail)
    assert [*log][-1] == "heat_k" and log["heat_k"].tolist() == [290.0, 291.0]


def test_the_page_on_results_lists_the_columns_of_the_request_log() -> None:
    table = (
        RESULTS_PAGE.read_text(encoding="utf-8")
        .partition("| column | unit | meaning |\n|---|---|---|\n")[2]
        .partition("\n\n")[0]
    )
    listed = [tuple(cell.strip(" `") for cell in line.split("|")[1:3]) for line in table.splitlines()]
    assert listed == [(column.log, column.unit) for column in COLUMNS.values() if column.log]


def made_up(requests: int = 500, targets: int = 3, seed: int = 4) -> tuple[Requests, Trail]:
    """Requests of random lengths and times, and the trail of a policy that draws targets."""
    draw = np.random.default_rng(seed)
    truth = Requests(
        node=np.zeros(requests, np.int32),
        src_len=draw.integers(1, 40, requests),
        tgt_len=draw.integers(1, 40, requests),
        execution_s=tuple(draw.exponential(1.0, (targets, requests))),
        transfer_s=(np.zeros(requests), *draw.exponential(0.2, (targets - 1, requests))),
        rtt_time_s=np.zeros(requests),
    )
    columns = {
        "arrival_s": np.cumsum(draw.random(requests)),
        "target": draw.integers(0, targets, requests).astype(np.int8),
        "server": draw.integers(0, 9, requests).astype(np.int32),
        "queue_s": draw.exponential(9.0, requests),
        **{name: draw.random(requests) for name in ("estimate_s", "estimate_age_s")},
    }
    return truth, Trail(columns, tgt_len_by_src_len=np.arange(41.0)[None])


def test_the_best_target_is_the_first_of_the_least_and_a_regret_the_time_that_it_would_have_saved() -> None:
    truth, trail = made_up()
    total_s = np.stack([truth.total_s(target, truth.all) for target in range(3)])
    np.testing.assert_array_equal(truth.best_target, total_s.argmin(0))
    lost_s = decision_regret_s(truth, trail)
    np.testing.assert_allclose(lost_s, total_s[trail.target, np.arange(500)] - total_s.min(0), rtol=1e-6, atol=1e-9)
    assert (lost_s > 0.0).sum() == (trail.target != truth.best_target).sum()
    assert not decision_regret_s(truth, trail.with_columns(target=truth.best_target)).any()


def test_a_trail_with_a_truth_of_its_own_is_judged_by_that() -> None:
    truth, trail = made_up()
    reversed_truth = replace(truth, execution_s=truth.execution_s[::-1])
    assert not decision_regret_s(
        truth, replace(trail, truth=reversed_truth).with_columns(target=reversed_truth.best_target)
    ).any()


def test_where_two_devices_tie_the_nearer_is_best_and_neither_is_a_misroute() -> None:
    """As where all devices have one profile and nothing lies between them."""
    truth, trail = made_up(targets=2)
    tied = replace(truth, execution_s=(truth.execution_s[0],) * 2, transfer_s=(np.zeros(500), np.zeros(500)))
    assert not tied.best_target.any()
    assert trail.target.any() and not decision_regret_s(tied, trail).any()
