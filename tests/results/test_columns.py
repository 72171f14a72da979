"""The registry of request columns: one line adds a column everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.results.columns import COLUMNS, Column, columns_table, recorder
from simnmt.results.request_log import RequestLog
from simnmt.results.requests import Requests, Trail
from simnmt.world.fifo_server import FifoPool
from simnmt.world.server import Serve, Site
from simnmt.world.simulation import simulate
from tests.worlds import believing, everything_to

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "results.md"


class WarmPool(FifoPool):
    """Boxes that say how warm they are when a request reaches them."""

    records = frozenset({"heat_k"})

    def open(self, site: Site) -> Serve:
        reaches = super().open(site)

        def reaches_warm(event: Any) -> None:
            site.trail["heat_k"][event.request] = 290.0 + event.request
            reaches(event)

        return reaches_warm


def test_a_column_is_one_line_from_the_world_to_the_log_and_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLUMNS, "heat_k", Column("heat_k", "f8", "K", "heat of its box", "heat_k", "on_request", np.nan))
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
    trail = simulate(requests, everything_to(1), believing(0.0), [WarmPool()])
    assert trail.heat_k.tolist() == [290.0, 291.0]
    log = RequestLog.of(requests, trail)
    assert [*log][-1] == "heat_k" and log["heat_k"].tolist() == [290.0, 291.0]
    assert columns_table().endswith("| `heat_k` | K | heat of its box |")


def test_the_page_on_results_lists_the_columns_of_the_request_log() -> None:
    assert columns_table() in RESULTS_PAGE.read_text(encoding="utf-8")


def test_the_recorder_holds_what_every_run_fills_and_what_is_asked_for() -> None:
    columns = recorder(3, ("state", "execution_s"))
    assert {"arrival_s", "target", "server", "queue_s", "state", "execution_s"} <= columns.keys()
    assert columns["state"].tolist() == [-1] * 3 and np.isnan(columns["execution_s"]).all()
    assert "stall_s" not in columns and "latency_s" not in columns
    with pytest.raises(ValueError, match="latency_s"):
        recorder(3, ("latency_s",))


def test_a_column_that_a_trail_lacks_is_none_and_an_unknown_name_is_an_error() -> None:
    trail = Trail({})
    assert trail.state is None
    with pytest.raises(AttributeError):
        _ = trail.colour
    with pytest.raises(KeyError):
        _ = RequestLog.of(Requests(np.array([1]), (np.ones(1),)), trail)["colour"]
