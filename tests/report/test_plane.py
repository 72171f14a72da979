"""Who is believed fastest where, on the plane of source and target length."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simnmt.report.plane_figures import PLANE_REQUESTS, codes, misrouted, plane
from simnmt.results.result import Transfer
from simnmt.results.summary import Device


@pytest.fixture
def worked_example(result: Any) -> Any:
    """The planes and lengths of CNMT-09, at an RTT of 50 ms."""
    src_len = np.arange(1, 61)
    logs = {"cnmt": {**{key: values[:60] for key, values in result.cells[0].logs["cnmt"].items()}, "src_len": src_len}}
    logs["cnmt"]["tgt_len_predicted"] = 0.8 * src_len + 1.0
    series = SimpleNamespace(**{**vars(result.cells[0].series), "mean_s": 0.050})
    return replace(result.cells[0], logs=logs, series=series, planes=((0.0004, 0.003, 0.005), (0.0001, 0.001, 0.004)))


def test_the_choice_of_cnmt_turns_where_cnmt_09_says(worked_example: Any) -> None:
    assert plane(worked_example)["assumed"][0]["turns_at"] == [24.74]


def test_on_the_border_both_devices_are_equally_fast(worked_example: Any) -> None:
    border = plane(worked_example)["border"]
    assert len(border["src"]) > 1
    for src_len, tgt_len in zip(border["src"], border["tgt"], strict=True):
        assert 0.0003 * src_len + 0.002 * tgt_len + 0.001 == pytest.approx(0.050, abs=1e-6)


def test_a_border_that_target_length_does_not_move_stands_upright(worked_example: Any) -> None:
    upright = replace(worked_example, planes=((0.002, 0.003, 0.0), (0.001, 0.003, 0.0)))
    assert plane(upright)["border"]["src"] == [50.0, 50.0]
    alike = replace(worked_example, planes=((0.001, 0.003, 0.0), (0.001, 0.003, 0.0)))
    assert plane(alike)["border"] is None


def test_every_policy_is_shown_at_the_same_requests(result: Any) -> None:
    drawn = plane(result.cells[0])
    sampled = len(drawn["src_len"])
    assert 1_000 < sampled <= PLANE_REQUESTS
    assert {len(targets) for targets in drawn["targets"]} == {sampled}
    assert drawn["targets"][0] == "0" * sampled
    assert drawn["targets"][1] == "1" * sampled


@pytest.fixture
def tiers(result: Any) -> Any:
    """A device between the two, 20 ms away and quicker than the end node; the cloud, quickest of all, is 110 ms away."""
    devices = (Device("end_node", 9, 1), Device("gateway", 2, 1), Device("cloud", 1, 4))
    transfers = tuple(Transfer(mean_s, mean_s, mean_s) for mean_s in (0.005, 0.025, 0.115))
    planes = ((0.001, 0.010, 0.001), (0.001, 0.004, 0.005), (0.0001, 0.001, 0.004))
    return replace(result.cells[0], devices=devices, transfers=transfers, planes=planes)


def test_with_more_devices_each_point_of_the_plane_has_the_one_believed_fastest(tiers: Any) -> None:
    drawn = plane(tiers)
    assert drawn["border"] is drawn["border_low"] is None
    cells = drawn["regions"]["cells"]
    found = np.array([ord(code) - ord("0") for code in drawn["regions"]["all"]]).reshape(cells, cells)
    assert set(found.ravel()) == {0, 1, 2}
    for row, column in ((0, 0), (3, 5), (10, 10), (30, 20), (59, 59)):
        src, tgt = (column + 0.5) * drawn["src_end"] / cells, (row + 0.5) * drawn["tgt_end"] / cells
        way_s = (0.0, 0.020, 0.110)
        seconds = [a * src + b * tgt + c + way for (a, b, c), way in zip(tiers.planes, way_s, strict=True)]
        assert found[row, column] == int(np.argmin(seconds))


def test_a_choice_among_three_turns_twice_and_where_two_are_equally_fast(tiers: Any) -> None:
    (turns,) = (entry["turns_at"] for entry in plane(tiers)["assumed"] if entry is not None and len(entry["turns_at"]) == 2)
    for (near, far), src in zip(((0, 1), (1, 2)), turns, strict=True):
        tgt = 0.92 * src + 1.4  # the line that is assumed
        seconds = [a * src + b * tgt + c + way for (a, b, c), way in zip(tiers.planes, (0.0, 0.020, 0.110), strict=True)]
        assert seconds[near] == pytest.approx(seconds[far], abs=1e-5)


def test_where_the_ways_are_not_known_no_region_is_claimed(tiers: Any) -> None:
    drawn = plane(replace(tiers, transfers=()))
    assert drawn["regions"] is None
    assert all(entry is None or entry["turns_at"] == [] for entry in drawn["assumed"])


def test_a_hundred_devices_have_a_code_each() -> None:
    assert [ord(code) - 48 for code in codes(np.arange(100).astype(np.int8))] == list(range(100))


def test_misroutes_are_sampled_and_their_sums_are_those_of_all(result: Any) -> None:
    cell = result.cells[0]
    for policy, drawn in zip(cell.logs, misrouted(cell), strict=True):
        found = cell.misroutes[policy]
        assert (drawn["count"], drawn["lost_s"]) == (found.count, pytest.approx(found.lost_s, rel=1e-4))
        assert len(drawn["lost_ms"]) == len(drawn["targets"]) == len(drawn["best"]) == len(drawn["src_len"]) <= 300
        assert drawn["lost_ms"] == pytest.approx((1e3 * found.request_lost_s).tolist(), rel=1e-2)
    assert misrouted(replace(cell, misroutes={})) is None
