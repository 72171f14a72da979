"""What the figures of a cell hold before anybody draws them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simnmt.report.charts import pack
from simnmt.report.figures import (
    PLANE_REQUESTS,
    RTT_POINTS,
    SPANS,
    latency,
    parts,
    plane,
    quality,
    rtt,
    timeline,
)
from simnmt.report.page import run_panels
from simnmt.results.live_log import OUTCOMES
from simnmt.results.requests import RequestLog
from simnmt.results.summary import Device

from .conftest import view_of, with_log, with_quality


def named(chart: Any) -> dict[str, Any]:
    """The marks of a chart by name."""
    return {mark.name: mark for mark in chart.marks}


def test_requests_that_never_ended_have_no_latency(result: Any) -> None:
    cell = result.cells[0]
    requests = cell.logs["edge"]["latency_s"].size
    lost = with_log(cell, outcome=np.full(requests, OUTCOMES.index("timeout"), np.int8), latency_s=np.full(requests, np.nan))
    assert [mark.x for mark in latency(view_of(lost)).chart.marks] == [[]] * 5


@pytest.mark.parametrize("requests", [1, 2, 7])
def test_a_handful_of_requests_is_enough(result: Any, requests: int) -> None:
    cell = result.cells[0]
    few = replace(cell, logs={name: RequestLog(log.columns, slice(requests)) for name, log in cell.logs.items()})
    assert pack(run_panels(replace(result, cells=[few]), few))


def test_parts_are_milliseconds_of_the_rows_and_only_of_policies_with_a_row(result: Any) -> None:
    cell = result.cells[1]
    drawn = parts(view_of(cell, [row for row in result.summary_rows if row["policy"] != "naive"])).chart
    row = next(row for row in result.summary_rows if row["network"] == "cp2" and row["policy"] == "cnmt")
    marks = named(drawn)
    assert [marks[name].x[-1] for name in ("waiting", "execution", "transfer")] == [
        float(f"{1e3 * row[f'mean_{part}_s']:.5g}") for part in ("queue", "execution", "transfer")
    ]
    assert len(marks["waiting"].x) == 4
    total = drawn.marks[-1]
    assert (total.x[-1], total.low[-1], total.high[-1]) == pytest.approx(
        [1e3 * row[f"mean_latency_s{end}"] for end in ("", "_low", "_high")]
    )


def test_quality_is_a_point_with_both_intervals_for_each_stable_policy(result: Any) -> None:
    cell, scored = result.cells[0], with_quality(result)
    assert "quality" not in [panel.name for panel in run_panels(result, cell)]
    assert "quality" in [panel.name for panel in run_panels(scored, cell)]
    rows = [row | {"unstable": "cloud: load 2" * (row["policy"] == "cloud")} for row in scored.summary_rows]
    drawn = quality(view_of(cell, rows))
    assert drawn.controls[0].options[:2] == [("latency", "mean latency"), ("p95", "p95 of latency")]
    assert drawn.chart.reading == "Left out, because no steady mean exists: cloud."
    for price, column in (("latency", "mean_latency_s"), ("p95", "p95_latency_s")):
        marks = named(drawn.charts[price,])
        assert [*marks] == ["edge", "oracle", "naive", "cnmt"]
        trace, row = marks["cnmt"].trace(), next(row for row in rows if row["policy"] == "cnmt")
        assert (trace["x"], trace["y"]) == ([1e3 * row[column]], [row["chrf"]])
        assert (trace["error_y"]["array"], trace["error_y"]["arrayminus"]) == ([2.0], [1.0])
        assert trace["error_x"]["array"] == pytest.approx([1e3 * (row[f"{column}_high"] - row[column])])
        assert trace["error_x"]["arrayminus"] == pytest.approx([1e3 * (row[column] - row[f"{column}_low"])])


def test_the_series_is_drawn_in_full_with_at_most_2000_points(result: Any) -> None:
    cell = result.cells[0]
    cell = with_log(cell, rtt_time_s=np.linspace(0.0, cell.series.duration_s, cell.logs["edge"].requests, endpoint=False))
    drawn = rtt(view_of(cell))
    series, estimate = drawn.chart.marks
    assert drawn.chart.x.title.endswith(", h")
    assert len(series.x) == len(series.y) <= RTT_POINTS and len(estimate.y) <= RTT_POINTS
    assert (series.x[0], series.x[-1]) == (0.0, cell.series.duration_s / 3_600)
    assert max(series.y) == pytest.approx(1e3 * cell.series.rtt_s.max(), rel=1e-4)
    assert estimate.name == "estimate of cnmt"
    assert not drawn.chart.y.from_zero, "the axis shows the variation, not a block from 0"


def test_a_run_that_used_a_sliver_of_the_trace_is_shown_that_sliver_sharply(result: Any) -> None:
    cell = result.cells[0]
    requests = cell.logs["cnmt"]["src_len"].size
    time_s = np.arange(40_000) * 0.36
    rtt_s = 0.05 + 0.01 * np.random.default_rng(1).random(40_000)
    rtt_s[0] = 9.0
    fine = SimpleNamespace(name="fine", kind="synthetic", time_s=time_s, rtt_s=rtt_s, duration_s=14_400.0)
    estimates = np.full(requests, 0.05)
    cell = with_log(cell, rtt_time_s=np.linspace(7_200.0, 7_300.0, requests), rtt_estimate_s=estimates)
    chart = rtt(view_of(replace(cell, series=fine))).chart
    series = chart.marks[0]
    assert chart.x.title.endswith(", s") and (series.x[0], series.x[-1]) == pytest.approx((7_200.0, 7_300.0), abs=0.4)
    assert len(series.x) >= 277, "every sample of the span"
    assert max(series.y) < 70.0, "the peak outside the span moves no axis"


def test_no_estimate_is_drawn_where_no_policy_needs_one(result: Any) -> None:
    cell = result.cells[0]
    silent = view_of(with_log(cell, tgt_len_predicted=np.full_like(cell.logs["edge"]["latency_s"], np.nan)))
    assert len(rtt(silent).chart.marks) == 1
    assert all("assumed M" not in named(chart) for chart in plane(silent).charts.values())


@pytest.fixture
def flooded(result: Any) -> Any:
    """Requests come for 100 s; at the gateway they wait ever longer, in the cloud never, and the region gets none."""
    cell = result.cells[0]
    requests = cell.logs["edge"]["src_len"].size
    arrival_s = np.linspace(0.0, 100.0, requests)
    local = cell.logs["cnmt"]["target"] == 0
    times = {
        "src_len": cell.logs["edge"]["src_len"], "arrival_s": arrival_s,
        "t_queue_s": np.where(local, 5 * arrival_s, 0.0), "t_exe_s": np.full(requests, 0.01),
        "t_tx_s": np.where(local, 0.0, 0.1), "target": np.where(local, 0, 2).astype(np.int8),
        "rtt_estimate_s": np.full(requests, np.nan), "tgt_len_predicted": np.full(requests, np.nan),
    }  # fmt: skip
    times["latency_s"] = times["t_queue_s"] + times["t_exe_s"] + times["t_tx_s"]
    devices = (Device("gateway", 1, 1), Device("region", 1, 1), Device("cloud", 2, 2))
    return replace(
        cell, devices=devices, logs={"cnmt": RequestLog(times), "other": RequestLog({**times, "t_queue_s": np.zeros(requests)})}
    )


def test_what_is_drawn_encloses_the_time_that_was_waited_and_worked(flooded: Any) -> None:
    drawn = timeline(view_of(flooded))
    log = flooded.logs["cnmt"]
    for number, workers in ((0, 1), (2, 4)):
        there = log["target"] == number
        shown = {measure: named(drawn.charts[str(number), measure]).get("cnmt") for measure in ("waiting", "busy")}
        length_s = np.diff(shown["busy"].x) * 60
        assert length_s.size == SPANS
        work_s = log["t_exe_s"][there].sum() / workers
        assert (np.array(shown["busy"].y[:-1]) / 100 * length_s).sum() == pytest.approx(work_s, rel=1e-2)
        if number == 2:
            assert not any(shown["waiting"].y), "nothing waits there"
        else:
            waited_s = (np.array(shown["waiting"].y[:-1]) * length_s).sum()
            assert waited_s == pytest.approx(log["t_queue_s"][there].sum(), rel=1e-2)


@pytest.fixture
def worked_example(result: Any) -> Any:
    """The planes and lengths of CNMT-09, at an RTT of 50 ms."""
    src_len = np.arange(1, 61)
    first = RequestLog(result.cells[0].logs["cnmt"].columns, slice(60))
    logs = {"cnmt": RequestLog({**first, "src_len": src_len, "tgt_len_predicted": 0.8 * src_len + 1.0})}
    return replace(
        result.cells[0],
        logs=logs,
        series=SimpleNamespace(mean_s=0.050),
        planes=((0.0004, 0.003, 0.005), (0.0001, 0.001, 0.004)),
    )


def marks_of(cell: Any, policy: str = "cnmt") -> dict[str, Any]:
    """The marks of a policy's plane by name; unnamed ones by kind, a list each."""
    chart = plane(view_of(cell)).charts[str(list(cell.logs).index(policy)),]
    marks: dict[str, Any] = {mark.name: mark for mark in chart.marks if mark.name}
    for mark in chart.marks:
        if not mark.name:
            marks.setdefault(mark.kind, []).append(mark)
    return marks


def test_on_the_border_both_devices_are_equally_fast(worked_example: Any) -> None:
    border = marks_of(worked_example)["equally fast"]
    assert len(border.x) > 1
    for src_len, tgt_len in zip(border.x, border.y, strict=True):
        assert 0.0003 * src_len + 0.002 * tgt_len + 0.001 == pytest.approx(0.050, abs=1e-6)


def test_every_policy_is_shown_at_the_same_requests(result: Any) -> None:
    cell = result.cells[0]
    points = {policy: marks_of(cell, policy)["points"][0] for policy in cell.logs}
    assert 1_000 < len(points["cnmt"].x) <= PLANE_REQUESTS
    assert len({tuple(mark.x) for mark in points.values()}) == 1
    assert set(points["edge"].text) == {"gateway"} and set(points["cloud"].text) == {"cloud"}
