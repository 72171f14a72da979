"""What was fitted beside what it is to stand for: the paper's figures 3 and 2a from what a run knows (CNMT-18)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.report.plane_figures import MOST_MEANS, execution, lengths
from simnmt.report.run_tables import share_explained

from .conftest import with_log

FITS = [
    {"workload": "w", "of": "target length over source length", "samples": 1_873, "pairs_r2": 0.9, "pairs_mse": 13.5,
     "means_r2": 0.9996, "means_mse": 0.92},
    {"workload": "w", "of": "execution time on the gateway", "samples": 10_000, "r2": 0.85, "mse_ms2": 1.2},
    {"workload": "w", "of": "execution time on the cloud", "samples": 0},
]  # fmt: skip


def curves_of(cell: Any, fits: Any = FITS, device: str = "all") -> tuple[dict[str, Any], str]:
    """The marks of execution times by device name, the plane as `believed`, the bands as `bands`; and the sentence."""
    panel = execution(cell, fits, "w", lambda number: f"policy-{number}")
    chart = panel.charts[device,]
    curves = {mark.name: mark for mark in chart.marks if mark.kind == "points"}
    lines = [mark for mark in chart.marks if mark.kind == "line"]
    bands = [mark for mark in chart.marks if mark.kind == "band"]
    return curves | {"believed": lines, "bands": bands}, chart.reading


def test_means_and_deviations_per_source_length_are_those_of_the_pairs(result: Any) -> None:
    cell = result.cells[0]
    drawn = lengths(cell, FITS, "w")
    band, points, line = drawn.chart.marks
    src_len, tgt_len = cell.logs["edge"]["src_len"], cell.logs["edge"]["tgt_len"]
    assert points.x == np.unique(src_len).tolist()
    for place in (0, 20, len(points.x) - 1):
        there = tgt_len[src_len == points.x[place]]
        assert f"of {there.size:,} pair".replace(",", "\u202f") in points.text[place]
        assert points.y[place] == pytest.approx(there.mean(), rel=1e-3)
        assert band.high[place] == (None if there.size == 1 else pytest.approx(there.mean() + there.std(ddof=1), rel=1e-2))
    slope = (line.y[-1] - line.y[-2]) / (line.x[-1] - line.x[-2])
    assert (slope, line.y[-1] - slope * line.x[-1]) == pytest.approx((0.92, 1.4))
    reading = drawn.chart.reading
    assert "M = 0.92 N + 1.4, fitted on 1\u202f873 of the pairs" in reading
    assert "R² > 0.999 and a mean squared error of 0.92 tokens²" in reading
    end = drawn.chart.x.span
    assert end is not None and (src_len <= end[1]).mean() >= 0.99


def test_times_per_target_length_are_those_of_all_requests_where_a_policy_sent_all(result: Any) -> None:
    cell = result.cells[0]
    curves, reading = curves_of(cell)
    for number, (device, policy) in enumerate((("gateway", "edge"), ("cloud", "cloud"))):
        log, plane, drawn = cell.logs[policy], cell.planes[number], curves[device]
        assert drawn.x == np.unique(log["tgt_len"]).tolist()
        for place in (0, 20):
            there = log["tgt_len"] == drawn.x[place]
            time_ms = 1e3 * log["t_exe_s"][there]
            assert drawn.y[place] == pytest.approx(time_ms.mean(), rel=1e-3)
            assert curves["bands"][number].high[place] == pytest.approx(time_ms.mean() + time_ms.std(ddof=1), rel=1e-2)
            believed_ms = 1e3 * (plane[0] * log["src_len"][there] + plane[1] * log["tgt_len"][there] + plane[2])
            assert curves["believed"][number].y[place] == pytest.approx(believed_ms.mean(), rel=1e-3)
    gateway = (
        "gateway: all 20\u202f000 requests under edge; the plane was fitted with R² 0.850 and a mean squared error of 1.2 ms²."
    )
    assert reading.startswith(gateway) and reading.endswith("the plane is the profile's own.")


def test_where_no_policy_sent_all_the_requests_are_those_of_the_one_that_sent_most(result: Any) -> None:
    cell = result.cells[0]
    few = replace(cell, logs={policy: cell.logs[policy] for policy in ("oracle", "edge")})
    away = int((cell.logs["oracle"]["target"] == 1).sum())
    assert curves_of(few, device="1")[1].startswith(
        f"cloud: the {away:,} requests sent there under oracle".replace(",", "\u202f")
    )
    curves, reading = curves_of(replace(cell, logs={"edge": cell.logs["edge"]}))
    assert "cloud" not in curves and reading.endswith("No request went to cloud.")


def test_of_long_targets_neighbours_share_a_mean(result: Any) -> None:
    requests = result.cells[0].logs["edge"]["src_len"].size
    long = with_log(result.cells[0], tgt_len=np.arange(requests) % 1_000 + 1, t_exe_s=np.ones(requests))
    curves, reading = curves_of(long, [])
    drawn, band = curves["gateway"], curves["bands"][0]
    assert len(drawn.x) == MOST_MEANS
    assert drawn.x[:2] == [3.0, 8.0]
    assert set(drawn.y) == set(band.low) == set(band.high) == {1_000.0}
    assert "5 neighbouring M to a mean" in reading


def test_one_request_is_enough_and_has_no_deviation(result: Any) -> None:
    cell = result.cells[0]
    one = replace(cell, logs={name: log.first(1) for name, log in cell.logs.items()})
    curves, _ = curves_of(one, [])
    assert len(curves["gateway"].x) == 1 and curves["bands"][0].low == [None]


@pytest.mark.parametrize(("r2", "text"), [(None, "-"), (0.9994, "0.999"), (0.99999, "> 0.999"), (1.0, "1.000")])
def test_no_fit_is_called_perfect_that_is_not(r2: float | None, text: str) -> None:
    assert share_explained(r2) == text
