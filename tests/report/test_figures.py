"""What the figures hold before anybody draws them."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.report import figures


def with_log(cell: Any, **columns: Any) -> Any:
    """The same cell with columns of every log replaced."""
    return replace(cell, logs={name: {**log, **columns} for name, log in cell.logs.items()})


@pytest.fixture
def worked_example(result: Any) -> Any:
    """The planes and lengths of CNMT-09, at an RTT of 50 ms."""
    src_len = np.arange(1, 61)
    logs = {"cnmt": {**{key: values[:60] for key, values in result.cells[0].logs["cnmt"].items()}, "src_len": src_len}}
    logs["cnmt"]["tgt_len_predicted"] = 0.8 * src_len + 1.0
    series = SimpleNamespace(**{**vars(result.cells[0].series), "mean_s": 0.050})
    return replace(result.cells[0], logs=logs, series=series, planes=((0.0004, 0.003, 0.005), (0.0001, 0.001, 0.004)))


def test_the_choice_of_cnmt_turns_where_cnmt_09_says(worked_example: Any) -> None:
    plane = figures.plane(worked_example)
    assert plane["assumed"][0]["turns_at"] == [24.74]


def test_on_the_border_both_devices_are_equally_fast(worked_example: Any) -> None:
    border = figures.plane(worked_example)["border"]
    for src_len, tgt_len in zip(border["src"], border["tgt"], strict=True):
        assert 0.0003 * src_len + 0.002 * tgt_len + 0.001 == pytest.approx(0.050, abs=1e-6)


def test_a_border_that_target_length_does_not_move_stands_upright(worked_example: Any) -> None:
    upright = replace(worked_example, planes=((0.002, 0.003, 0.0), (0.001, 0.003, 0.0)))
    assert figures.plane(upright)["border"]["src"] == [50.0, 50.0]
    alike = replace(worked_example, planes=((0.001, 0.003, 0.0), (0.001, 0.003, 0.0)))
    assert figures.plane(alike)["border"] is None


def test_every_policy_is_shown_at_the_same_requests(result: Any) -> None:
    plane = figures.plane(result.cells[0])
    sampled = len(plane["src_len"])
    assert 1_000 < sampled <= figures.PLANE_REQUESTS
    assert {len(targets) for targets in plane["targets"]} == {sampled}
    assert plane["targets"][0] == "0" * sampled
    assert plane["targets"][1] == "1" * sampled


def test_the_series_is_drawn_in_full_with_at_most_2000_points(result: Any) -> None:
    cell = result.cells[0]
    drawn = figures.rtt(cell)
    assert drawn["unit"] == "h"
    assert len(drawn["ms"]) <= figures.RTT_POINTS
    assert len(drawn["estimate"]["ms"]) <= figures.RTT_POINTS
    assert (drawn["time"][0], drawn["time"][-1]) == (0.0, 4.0)
    assert max(drawn["ms"]) == pytest.approx(1e3 * cell.series.rtt_s.max(), rel=1e-4)
    assert cell.logs.keys() - {"cnmt"} == set(list(cell.logs)[: drawn["estimate"]["policy"]])


def test_an_estimate_that_met_the_trace_twice_is_drawn_over_its_first_lap(result: Any) -> None:
    cell = result.cells[0]
    requests = cell.logs["cnmt"]["src_len"].size
    twice = with_log(cell, rtt_time_s=np.linspace(1_000.0, 29_000.0, requests), rtt_estimate_s=np.arange(requests) + 1.0)
    estimate = figures.rtt(twice)["estimate"]
    assert max(estimate["ms"]) <= 1e3 * (requests * 0.52)
    assert 0 <= min(estimate["time"]) <= max(estimate["time"]) <= 4.0


def test_a_run_that_used_a_sliver_of_the_trace_is_shown_that_sliver_sharply(result: Any) -> None:
    cell = result.cells[0]
    requests = cell.logs["cnmt"]["src_len"].size
    time_s = np.arange(40_000) * 0.36
    rtt_s = 0.05 + 0.01 * np.random.default_rng(1).random(40_000)
    fine = SimpleNamespace(**{**vars(cell.series), "time_s": time_s, "rtt_s": rtt_s})
    sliver = replace(with_log(cell, rtt_time_s=np.linspace(7_200.0, 7_300.0, requests)), series=fine)
    drawn = figures.rtt(sliver)
    assert (drawn["unit"], drawn["used"]) == ("s", [7_200.0, 7_300.0])
    assert len(drawn["time"]) == len(drawn["ms"]) <= figures.RTT_POINTS
    assert (drawn["time"][0], drawn["time"][-1]) == (0.0, 14_400.0)
    assert sum(7_200 <= time <= 7_300 for time in drawn["time"]) >= 277, "every sample of the span"


@pytest.mark.parametrize(("begin_s", "end_s"), [(0.0, 7_200.0), (100.0, 14_000.0), (50.0, 50.0)])
def test_a_run_that_used_much_of_the_trace_or_one_moment_of_it_is_shown_it_all(
    result: Any, begin_s: float, end_s: float
) -> None:
    cell = result.cells[0]
    times_s = np.linspace(begin_s, end_s, cell.logs["cnmt"]["src_len"].size)
    assert figures.rtt(with_log(cell, rtt_time_s=times_s))["used"] is None


def test_a_single_sample_of_rtt_is_a_line(result: Any) -> None:
    lone = {"time_s": np.zeros(1), "rtt_s": np.array([0.05]), "duration_s": 1.0}
    cell = replace(result.cells[0], series=SimpleNamespace(**{**vars(result.cells[0].series), **lone}))
    assert figures.rtt(cell)["time"] == [0.0, 1.0]
    assert figures.rtt(cell)["ms"] == [50.0, 50.0]


def test_no_estimate_is_drawn_where_no_policy_needs_one(result: Any) -> None:
    cell = result.cells[0]
    silent = with_log(cell, tgt_len_predicted=np.full_like(cell.logs["edge"]["latency_s"], np.nan))
    assert figures.rtt(silent)["estimate"] is None
    assert figures.plane(silent)["assumed"] == [None] * 5


def test_requests_that_never_ended_have_no_latency(result: Any) -> None:
    cell = result.cells[0]
    requests = cell.logs["edge"]["latency_s"].size
    lost = with_log(cell, outcome=np.ones(requests, np.int8), latency_s=np.full(requests, np.nan))
    assert figures.latency(lost.logs)["ms"] == [[]] * 5


def test_the_offloaded_share_over_length_adds_up_to_the_share_of_all(result: Any) -> None:
    logs = result.cells[0].logs
    src_len = logs["cnmt"]["src_len"]
    share = figures.offloaded_share(logs)
    assert share["percent"][0] == [0.0] * len(share["src_len"])
    assert share["percent"][1] == [100.0] * len(share["src_len"])
    assert share["src_len"] == sorted(share["src_len"])
    assert np.interp(src_len, share["src_len"], share["percent"][4]).mean() == pytest.approx(
        100 * logs["cnmt"]["target"].mean(), abs=2
    )


@pytest.mark.parametrize("requests", [1, 2, 7])
def test_a_handful_of_requests_is_enough(result: Any, requests: int) -> None:
    cell = result.cells[0]
    cell = replace(
        cell, logs={name: {key: values[:requests] for key, values in log.items()} for name, log in cell.logs.items()}
    )
    assert json.loads(figures.embedded(figures.figures(cell)))["plane"]["targets"][1] == "1" * requests


@given(st.text())
def test_embedded_json_cannot_leave_its_script_element(text: str) -> None:
    embedded = figures.embedded({"text": text})
    assert not set("<>&") & set(embedded)
    assert json.loads(embedded) == {"text": text}
