"""The network as requests met it, and what was believed of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simnmt.report.figures import RTT_POINTS, rtt
from simnmt.report.plane_figures import plane


def with_log(cell: Any, **columns: Any) -> Any:
    """The same cell with columns of every log replaced."""
    return replace(cell, logs={name: {**log, **columns} for name, log in cell.logs.items()})


def test_the_series_is_drawn_in_full_with_at_most_2000_points(result: Any) -> None:
    cell = result.cells[0]
    drawn = rtt(cell)
    assert drawn["unit"] == "h"
    assert len(drawn["ms"]) <= RTT_POINTS
    assert len(drawn["estimate"]["ms"]) <= RTT_POINTS
    assert (drawn["time"][0], drawn["time"][-1]) == (0.0, 4.0)
    assert max(drawn["ms"]) == pytest.approx(1e3 * cell.series.rtt_s.max(), rel=1e-4)
    assert cell.logs.keys() - {"cnmt"} == set(list(cell.logs)[: drawn["estimate"]["policy"]])


def test_an_estimate_that_met_the_trace_twice_is_drawn_over_its_first_lap(result: Any) -> None:
    cell = result.cells[0]
    requests = cell.logs["cnmt"]["src_len"].size
    twice = with_log(cell, rtt_time_s=np.linspace(1_000.0, 29_000.0, requests), rtt_estimate_s=np.arange(requests) + 1.0)
    estimate = rtt(twice)["estimate"]
    assert max(estimate["ms"]) <= 1e3 * (requests * 0.52)
    assert 0 <= min(estimate["time"]) <= max(estimate["time"]) <= 4.0


def test_a_run_that_used_a_sliver_of_the_trace_is_shown_that_sliver_sharply(result: Any) -> None:
    cell = result.cells[0]
    requests = cell.logs["cnmt"]["src_len"].size
    time_s = np.arange(40_000) * 0.36
    rtt_s = 0.05 + 0.01 * np.random.default_rng(1).random(40_000)
    fine = SimpleNamespace(**{**vars(cell.series), "time_s": time_s, "rtt_s": rtt_s})
    sliver = replace(with_log(cell, rtt_time_s=np.linspace(7_200.0, 7_300.0, requests)), series=fine)
    drawn = rtt(sliver)
    assert (drawn["unit"], drawn["used"]) == ("s", [7_200.0, 7_300.0])
    assert len(drawn["time"]) == len(drawn["ms"]) <= RTT_POINTS
    assert (drawn["time"][0], drawn["time"][-1]) == (0.0, 14_400.0)
    assert sum(7_200 <= time <= 7_300 for time in drawn["time"]) >= 277, "every sample of the span"


@pytest.mark.parametrize(("begin_s", "end_s"), [(0.0, 7_200.0), (100.0, 14_000.0), (50.0, 50.0)])
def test_a_run_that_used_much_of_the_trace_or_one_moment_of_it_is_shown_it_all(
    result: Any, begin_s: float, end_s: float
) -> None:
    cell = result.cells[0]
    times_s = np.linspace(begin_s, end_s, cell.logs["cnmt"]["src_len"].size)
    assert rtt(with_log(cell, rtt_time_s=times_s))["used"] is None


def test_a_single_sample_of_rtt_is_a_line(result: Any) -> None:
    lone = {"time_s": np.zeros(1), "rtt_s": np.array([0.05]), "duration_s": 1.0}
    cell = replace(result.cells[0], series=SimpleNamespace(**{**vars(result.cells[0].series), **lone}))
    assert rtt(cell)["time"] == [0.0, 1.0]
    assert rtt(cell)["ms"] == [50.0, 50.0]


def test_no_estimate_is_drawn_where_no_policy_needs_one(result: Any) -> None:
    cell = result.cells[0]
    silent = with_log(cell, tgt_len_predicted=np.full_like(cell.logs["edge"]["latency_s"], np.nan))
    assert rtt(silent)["estimate"] is None
    assert plane(silent)["assumed"] == [None] * 5
