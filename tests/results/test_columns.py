"""The registry of request columns: one line adds a column everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.devices import Fifo
from simnmt.devices.device import Clock, Execution
from simnmt.devices.fifo import FifoDevice
from simnmt.results.columns import COLUMNS, RequestColumn
from simnmt.results.requests import RequestLog, Requests
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
        device = WarmDevice(self, clock, requests.execution_s[target].tolist())
        device.trail = trail
        return device


def test_a_column_is_one_line_from_the_world_to_the_log_and_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        COLUMNS, "heat_k", RequestColumn("heat_k", "f8", "K", "heat of its box", "heat_k", "on_request", np.nan)
    )
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
    rows = [f"| `{column.log}` | {column.unit} | {column.doc} |" for column in COLUMNS.values() if column.log]
    table = "\n".join(["| column | unit | meaning |", "|---|---|---|", *rows])
    assert table in RESULTS_PAGE.read_text(encoding="utf-8")
