"""What the page says of devices, and of policies by what they are rather than by how they are called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simnmt.report.devices import Share, boxes, device_table, profile_kinds, roles
from simnmt.results.summary import Device


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (Device("d", 1, 1), ""),
        (Device("d", 4, 1), "4 boxes"),
        (Device("d", 1, 2), "2 workers"),
        (Device("d", 1_000, 2), "1\u202f000 boxes, 2 workers each"),
    ],
)
def test_boxes_and_workers_are_counted(device: Device, text: str) -> None:
    assert boxes(device) == text


def test_profiles_of_one_kind_are_said_together(result: Any) -> None:
    cell = result.cells[0]
    assert profile_kinds(cell) == [("gateway profile", "inferred"), ("cloud profile", "measured")]
    assert profile_kinds(replace(cell, profile_kinds=("inferred",) * 2)) == [("both device profiles", "inferred")]
    devices = tuple(Device(name, 1, 1) for name in ("end_node", "gateway", "region", "cloud"))
    mixed = replace(cell, devices=devices, profile_kinds=("measured", "inferred", "measured", "measured"))
    assert profile_kinds(mixed) == [("end_node, region and cloud profiles", "measured"), ("gateway profile", "inferred")]
    assert profile_kinds(replace(mixed, profile_kinds=("measured",) * 4)) == [("all device profiles", "measured")]


def test_a_policy_is_what_the_scenario_says_of_it_whatever_its_name(result: Any) -> None:
    policies = {
        "edge": {"kind": "cloud"},
        "cloud": {"kind": "fixed", "device": "region"},
        "oracle": {"kind": "edge"},
        "naive": {"kind": "cnmt", "sees_backlog": True, "transfer_estimate": "smoothed", "lengths": "line"},
        "cnmt": {"kind": "cnmt", "lengths": "distribution", "minimises": "p95", "transfer_estimate": {"kind": "last"}},
    }
    assert roles(replace(result, scenario={"policies": policies})) == {
        "edge": "cloud only", "cloud": "region only", "oracle": "gateway only", "naive": "sees queues, smoothed transfer",
        "cnmt": "minimises p95",
    }  # fmt: skip
    assert roles(result) == {"edge": "gateway only", "cloud": "cloud only", "oracle": "knows the truth"}


def test_the_table_of_devices_shows_shares_loads_and_the_busiest_box_where_it_differs(result: Any) -> None:
    cell = replace(result.cells[0], logs=dict.fromkeys(("edge", "cnmt", "queue")))
    rows = [
        {
            "policy": policy, "gateway_share": share, "gateway_load": load, "gateway_busiest_load": busiest, "cloud_share": 0.0,
            "cloud_load": 0.0, "cloud_busiest_load": 0.0, "unstable": "gateway: load 1.20" if busiest > 1 else None,
            "replications": 2, "gateway_overload": busiest if busiest > 1 else None, "gateway_overloaded_in": 2,
        }
        for policy, share, load, busiest in (("edge", 1.0, 0.9, 1.2), ("cnmt", 0.5, 0.5, 0.5001))
    ]  # fmt: skip
    gateway, cloud = device_table(cell, rows)
    assert gateway.entries == [
        Share("100.0", "0.90, busiest 1.20", "overloaded"),
        Share("50.0", "0.50"),
        Share("\u2013"),
    ]
    assert [entry.share for entry in cloud.entries] == ["\u2013"] * 3
