"""Backlog and utilisation over time as they are drawn: few numbers, the same areas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.report.figures import SPANS, timeline
from simnmt.results.summary import Device


@pytest.fixture
def flooded(result: Any) -> Any:
    """Requests come for 100 s; at the gateway they wait ever longer, in the cloud never, and the region gets none."""
    cell = result.cells[0]
    requests = cell.logs["edge"]["src_len"].size
    arrival_s = np.linspace(0.0, 100.0, requests)
    local = cell.logs["cnmt"]["target"] == 0
    times = {
        "arrival_s": arrival_s, "t_queue_s": np.where(local, 5 * arrival_s, 0.0), "t_exe_s": np.full(requests, 0.01),
        "t_tx_s": np.where(local, 0.0, 0.1), "target": np.where(local, 0, 2).astype(np.int8),
    }  # fmt: skip
    times["latency_s"] = times["t_queue_s"] + times["t_exe_s"] + times["t_tx_s"]
    devices = (Device("gateway", 1, 1), Device("region", 1, 1), Device("cloud", 2, 2))
    return replace(cell, devices=devices, logs={"cnmt": times, "other": {**times, "t_queue_s": np.zeros(requests)}})


def edges_of(spans: list[list[float]]) -> Any:
    return np.concatenate([[spans[0][0]], *(np.linspace(begin, end, int(count) + 1)[1:] for begin, end, count in spans)])


def test_what_is_drawn_encloses_the_time_that_was_waited_and_worked(flooded: Any) -> None:
    drawn = timeline(flooded, 1_000_000)
    assert drawn["unit"] == "min"
    log = flooded.logs["cnmt"]
    length_s = np.diff(edges_of(drawn["spans"][0])) * 60
    assert length_s.size == SPANS
    for number, (waiting, busy) in enumerate(zip(drawn["waiting"][0], drawn["busy"][0], strict=True)):
        there = log["target"] == number
        if number == 1:
            assert waiting is busy is None, "nobody was sent there"
            continue
        work_s = log["t_exe_s"][there].sum() / (4 if number == 2 else 1)
        assert (np.array(busy) / 100 * length_s).sum() == pytest.approx(work_s, rel=1e-2)
        if number == 2:
            assert waiting is None, "nothing waits there"
        else:
            assert (np.array(waiting) * length_s).sum() == pytest.approx(log["t_queue_s"][there].sum(), rel=1e-2)


def test_spans_stay_sharp_while_requests_come(flooded: Any) -> None:
    begin, rest = timeline(flooded, 1_000_000)["spans"][0]
    assert begin == [0.0, pytest.approx(100 / 60), SPANS * 4 // 5]
    assert rest == [pytest.approx(100 / 60), pytest.approx(600 / 60, rel=0.01), SPANS // 5]


@pytest.mark.parametrize(("numbers", "spans"), [(1_000_000, 400), (1_200, 100), (1, 50)])
def test_many_cells_policies_and_devices_have_fewer_spans(flooded: Any, numbers: int, spans: int) -> None:
    drawn = timeline(flooded, numbers)
    assert sum(count for _, _, count in drawn["spans"][0]) == spans
    assert len(drawn["waiting"][0][0]) == spans
