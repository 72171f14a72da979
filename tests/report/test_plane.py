"""Who is believed fastest where, on the plane of source and target length."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simnmt.report.figures import PLANE_REQUESTS, plane
from simnmt.results.summary import Device

from .conftest import MadeUpLog, view_of


@pytest.fixture
def worked_example(result: Any) -> Any:
    """The planes and lengths of CNMT-09, at an RTT of 50 ms."""
    src_len = np.arange(1, 61)
    first = result.cells[0].logs["cnmt"].first(60)
    logs = {"cnmt": MadeUpLog({**first, "src_len": src_len, "tgt_len_predicted": 0.8 * src_len + 1.0})}
    series = SimpleNamespace(**{**vars(result.cells[0].series), "mean_s": 0.050})
    return replace(result.cells[0], logs=logs, series=series, planes=((0.0004, 0.003, 0.005), (0.0001, 0.001, 0.004)))


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


def test_a_border_that_target_length_does_not_move_stands_upright(worked_example: Any) -> None:
    upright = replace(worked_example, planes=((0.002, 0.003, 0.0), (0.001, 0.003, 0.0)))
    assert marks_of(upright)["equally fast"].x == [50.0, 50.0]
    alike = replace(worked_example, planes=((0.001, 0.003, 0.0), (0.001, 0.003, 0.0)))
    assert "equally fast" not in marks_of(alike)


def test_every_policy_is_shown_at_the_same_requests(result: Any) -> None:
    cell = result.cells[0]
    points = {policy: marks_of(cell, policy)["points"][0] for policy in cell.logs}
    assert 1_000 < len(points["cnmt"].x) <= PLANE_REQUESTS
    assert len({tuple(mark.x) for mark in points.values()}) == 1
    assert set(points["edge"].text) == {"gateway"} and set(points["cloud"].text) == {"cloud"}


def test_of_more_than_two_devices_no_border_is_drawn(result: Any) -> None:
    devices = (Device("end_node", 9, 1), Device("gateway", 2, 1), Device("cloud", 1, 4))
    planes = ((0.001, 0.010, 0.001), (0.001, 0.004, 0.005), (0.0001, 0.001, 0.004))
    assert "equally fast" not in marks_of(replace(result.cells[0], devices=devices, planes=planes))
