"""A profile that was measured under load: its workers and its factors in a scenario."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.base.shipped_files import find
from simnmt.profile import read_profile
from simnmt.profile.blocks import OccupancyPoint
from simnmt.profile.cost import Plane
from simnmt.profile.device_profile import DeviceProfile, ProfileError, checked_profile
from tests.world.theory import queue_of

PLANE = Plane(0.0, 0.0008, 0.01)
POINTS = [{"occupancy": 2.0, "factor": 1.5, "executions": 40}, {"occupancy": 4.0, "factor": 2.5}]


def measured(name: str = "service", **execution: Any) -> DeviceProfile:
    profile = read_profile(find("calibration", "@tx2-gru"))
    content = profile.model_dump(mode="json") | {"name": name}
    content["execution"] |= execution
    return checked_profile(content)


def scenario(**devices: Any) -> dict[str, Any]:
    """Poisson arrivals at a gateway, which executes all requests itself."""
    return queue_of(1, "exponential", rate_rps=20.0, requests=3_000) | {
        "replications": 1,
        "devices": {"gateway": devices | {"outside_range_share": 1.0}},
    }


def test_factors_are_linear_between_points_and_start_at_one() -> None:
    assert measured(by_occupancy=POINTS).execution.occupancy_factors == (1.0, 1.5, 2.0, 2.5)
    ends = [{"occupancy": 1.0, "factor": 1.2}, {"occupancy": 2.5, "factor": 1.5}]
    assert measured(by_occupancy=ends).execution.occupancy_factors == pytest.approx((1.2, 1.4, 1.5))
    assert measured().execution.occupancy_factors == ()
    with pytest.raises(ProfileError, match="by_occupancy: values must rise"):
        measured(by_occupancy=[*POINTS, OccupancyPoint(occupancy=3.0, factor=1.0).model_dump()])


def test_a_run_has_the_workers_and_the_factors_of_the_profile() -> None:
    """The same for all occupancies, they are those of a slower device."""
    slower = measured(plane=asdict(PLANE.times(1.25)))
    loaded = measured(plane=asdict(PLANE), workers=2, by_occupancy=[{"occupancy": 1.0, "factor": 1.25}])
    run, expected = (simnmt.run(scenario(**device)) for device in ({"profile": loaded}, {"profile": slower, "workers": 2}))
    assert run.summary_rows[0]["mean_latency_s"] == pytest.approx(expected.summary_rows[0]["mean_latency_s"], rel=1e-9)
    assert any("executes 2 requests at once, as its profile says" in note for note in run.notes)
    assert any("takes 1.25 times as long" in note for note in run.notes)
    alone = simnmt.run(scenario(profile=loaded, workers=1))
    assert alone.summary_rows[0]["mean_latency_s"] > 1.1 * run.summary_rows[0]["mean_latency_s"]
    assert not any("at once" in note for note in alone.notes)


def test_workloads_that_share_a_device_share_its_behaviour_under_load() -> None:
    first, second = measured(by_occupancy=POINTS), measured("other", by_occupancy=POINTS[:1])
    mix = scenario(profile=first)
    mix["workloads"] |= {"x": mix["workloads"]["w"]}
    assert simnmt.run(mix).notes
    mix["devices"]["gateway"]["profile"] = {"w": first, "x": second}
    with pytest.raises(InputError, match="its profiles for w and x state other workers or by_occupancy"):
        simnmt.run(mix)
