"""Which policies are held against which, and which workloads make a sweep over the load."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.experiment.comparisons import variants
from simnmt.scenario.configuration import Scenario

MakeScenario = Callable[..., dict[str, Any]]
POLICIES = {"edge": {}, "cnmt": {}, "queue": {"kind": "cnmt", "sees_backlog": True}}


def swept(make_scenario: MakeScenario, *arrivals: dict[str, Any], **keys: Any) -> list[list[str]]:
    """The workloads of each sweep over workloads that ask as these arrivals say."""
    workloads = {f"w{number}": {"lengths": "@de-en-news", "arrivals": each} for number, each in enumerate(arrivals)}
    scenario = make_scenario(workloads=workloads, policies=POLICIES, **({"requests": 50} | keys))
    return [sorted(point["workload"] for point in sweep["points"]) for sweep in simnmt.run(scenario).load_sweeps]


def poisson(rate_rps: float) -> dict[str, Any]:
    return {"kind": "poisson", "rate_rps": rate_rps}


def bursts(on_rps: float, off_rps: float, mean_on_s: float = 2.0) -> dict[str, Any]:
    return {"kind": "on_off", "on_rate_rps": on_rps, "off_rate_rps": off_rps, "mean_on_s": mean_on_s, "mean_off_s": 3.0}


def test_workloads_that_differ_in_their_rate_alone_make_a_sweep(make_scenario: MakeScenario) -> None:
    assert swept(make_scenario, poisson(2.0), poisson(4.0)) == [["w0", "w1"]]
    assert swept(make_scenario, bursts(4.0, 1.0), bursts(8.0, 2.0)) == [["w0", "w1"]]


@pytest.mark.parametrize(
    "pair",
    [
        (bursts(4.0, 1.0), bursts(8.0, 2.0, mean_on_s=9.0)),
        (bursts(4.0, 1.0), bursts(8.0, 1.0)),
        (
            {"kind": "varying", "daily": {"rate_rps": 4.0, "swing": 0.5, "peak_hour": 12}},
            {"kind": "varying", "daily": {"rate_rps": 8.0, "swing": 0.9, "peak_hour": 12}},
        ),
    ],
)
def test_workloads_that_differ_in_more_than_their_rate_make_none(
    make_scenario: MakeScenario, pair: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    assert swept(make_scenario, *pair) == []


def test_workloads_whose_devices_differ_make_none(make_scenario: MakeScenario) -> None:
    devices = make_scenario()["devices"]
    gateway, cloud = (device["profile"] for device in devices.values())
    devices["cloud"]["profile"] = {"w0": cloud, "w1": gateway}
    assert swept(make_scenario, poisson(2.0), poisson(4.0), devices=devices) == []


def test_a_workload_of_one_moment_has_no_load_and_no_sweep(make_scenario: MakeScenario, tmp_path: Any) -> None:
    trace = tmp_path / "requests.csv"
    trace.write_text("arrival_s\n0\n1\n2\n", encoding="utf-8")
    recorded = {"kind": "recorded", "file": str(trace)}
    assert swept(make_scenario, recorded, {**recorded, "speed": 2.0}, requests=1) == []


def test_every_policy_that_estimates_is_held_against_the_plain_one_of_its_kind(make_scenario: MakeScenario) -> None:
    policies = {
        "edge": {}, "oracle": {}, "cnmt": {}, "naive": {}, "smoothed": {"kind": "cnmt", "transfer_estimate": "smoothed"},
        "queue": {"kind": "cnmt", "transfer_estimate": "smoothed", "sees_backlog": True},
        "naive-queue": {"kind": "naive", "sees_backlog": True},
    }  # fmt: skip
    found = variants(Scenario.model_validate(make_scenario(policies=policies)))
    assert found == {"smoothed": "cnmt", "queue": "smoothed", "naive-queue": "naive"}


def test_workloads_with_arrays_of_lengths_make_no_sweep_and_no_warning(make_scenario: MakeScenario) -> None:
    random = np.random.default_rng(1)
    lengths = [random.integers(low, low + 8, (200, 2)) for low in (2, 20)]
    workloads = {f"w{at}": {"lengths": lengths[at], "arrivals": poisson(2.0 + at)} for at in (0, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = simnmt.run(make_scenario(workloads=workloads, policies=POLICIES, requests=50))
    assert result.load_sweeps == []
