"""A service under load: its executions follow from when requests were sent and answered, and its factors from those."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.calibrate import endpoint
from simnmt.calibrate.endpoint import EndpointSettings, calibrate_endpoint
from simnmt.calibrate.endpoint_load import (
    PROBES,
    Executions,
    LoadSizes,
    LoadTimes,
    choose_workers,
    knee_rps,
    loaded_profile,
    reconstruct,
    replay_error,
    varied,
)
from simnmt.devices import Fifo
from simnmt.profile import read_profile
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import profile_doubts
from simnmt.results.requests import Requests
from tests.calibrate.endpoint_stub import StubService, stub_service
from tests.worlds import believing, everything_to, in_engine

FACTORS = (1.0, 1.3, 1.5, 1.6)


def simulated(workers: int, load: float, count: int = 4_000, seed: int = 1) -> tuple[LoadTimes, Any]:
    """What a service of known workers and factors does with Poisson arrivals, and the trail of its simulation."""
    random = np.random.default_rng(seed)
    alone_s = random.lognormal(0.0, 0.4, count)
    arrival_s = np.cumsum(random.standard_exponential(count)) / (load * workers / 1.3)
    box = Fifo(workers=workers, occupancy_factors=FACTORS)
    trail = in_engine(
        Requests(np.ones(count, int), (alone_s,), arrival_s=arrival_s),
        everything_to(0),
        believing(0.0),
        [],
        local=box,
        engine=None,
    )
    return LoadTimes(arrival_s, arrival_s + trail.queue_s + trail.execution_s, alone_s), trail


def test_begins_and_occupancies_follow_from_arrivals_and_departures_by_hand() -> None:
    """Two workers: request 2 begins when 1 leaves, with 0 there; 3 arrives when 0 has left, and begins at once beside 2."""
    begin_s, occupancy = reconstruct(np.array([0.0, 1.0, 2.0, 6.0]), np.array([5.0, 4.0, 8.0, 7.0]), 2)
    assert begin_s.tolist() == [0, 1, 4, 6]
    assert occupancy.tolist() == [1, 2, 2, 2]
    begin_s, occupancy = reconstruct(np.array([0.0, 1.0, 2.0]), np.array([3.0, 5.0, 9.0]), 1)
    assert begin_s.tolist() == [0, 3, 5]
    assert occupancy.tolist() == [1, 2, 1]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("load", [0.3, 0.7])
def test_executions_are_reconstructed_exactly(workers: int, load: float) -> None:
    times, trail = simulated(workers, load)
    begin_s, occupancy = reconstruct(times.arrival_s, times.departure_s, workers)
    np.testing.assert_allclose(begin_s, times.arrival_s + trail.queue_s, 1e-9)
    executions = Executions([times], workers)
    np.testing.assert_allclose(executions.ratio, np.array(FACTORS)[np.minimum(occupancy, 4) - 1], 1e-6)
    points = executions.points(10)
    exact = {point.occupancy: point.factor for point in points if point.occupancy <= 3.0}
    assert [exact[level] for level in (1.0, 2.0, 3.0)] == pytest.approx(FACTORS[:3])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_workers_are_those_with_which_executions_of_one_occupancy_differ_least(workers: int) -> None:
    """From three short loops, with a spread of single executions of 20 %, as a calibration has them."""
    random = np.random.default_rng(2)
    blocks = [simulated(workers, load, 150, seed)[0] for seed, load in enumerate((0.3, 0.5, 0.7, 1.2))]
    noisy = [LoadTimes(one.arrival_s, one.departure_s, one.plane_s * random.lognormal(0.0, 0.2, 150)) for one in blocks]
    assert choose_workers(noisy, range(1, 5)) == workers


def test_one_worker_may_serve_requests_in_another_order_than_they_came() -> None:
    """Request 2 overtakes request 1."""
    begin_s, occupancy = reconstruct(np.array([0.0, 1.0, 2.0]), np.array([3.0, 9.0, 5.0]), 1)
    assert begin_s.tolist() == [0, 5, 3]
    assert occupancy.tolist() == [1, 1, 2]


def test_a_replay_errs_where_factors_or_workers_are_others() -> None:
    times, _ = simulated(2, 0.7)
    late = LoadTimes(times.arrival_s + 1e5, times.departure_s + 1e5, times.plane_s)
    assert replay_error([times, late], 2, FACTORS) == pytest.approx(0.0, abs=1e-9)
    assert replay_error([times], 2, (1.3,)) > 0.05 < replay_error([times], 1, FACTORS)


def test_points_have_enough_executions_and_sparse_occupancies_join_their_neighbours() -> None:
    """A box of many workers: requests begin when they come, in groups, and take half a second for each that is there."""
    groups = [1] * 12 + [2] * 4 + [3] * 8 + [4] * 20 + [7] * 3
    executions = Executions([LoadTimes(np.zeros(1), np.ones(1), np.ones(1))], 1)
    executions.occupancy = np.array(groups)
    executions.ratio, executions.plane_s = 0.5 * executions.occupancy, np.ones(len(groups))
    points = executions.points(10)
    assert [point.executions for point in points] == [12, 12, 23]
    assert [point.occupancy for point in points] == pytest.approx([1.0, 32 / 12, 101 / 23])
    assert [point.factor for point in points] == pytest.approx([0.5, 16 / 12, 50.5 / 23])
    assert [point.executions for point in executions.points(40)] == [47]


def test_the_knee_leaves_out_the_begin_and_the_end_of_a_closed_loop() -> None:
    departure_s = np.concatenate([[9.0, 9.5], 10.0 + np.arange(21) / 4, [30.0, 50.0]])
    assert knee_rps(departure_s, 2) == pytest.approx(4.0)


@pytest.mark.parametrize("count", [2, 7, 40])
def test_a_text_comes_again_after_half_of_the_others_at_the_earliest(count: int) -> None:
    texts = varied([str(number) for number in range(count)], np.random.default_rng(5))
    drawn = [next(texts) for _ in range(10 * count)]
    assert set(drawn[:count]) == {str(number) for number in range(count)}
    for place, text in enumerate(drawn):
        assert text not in drawn[place + 1 : place + 1 + (count - 1) // 2]


def loaded(service: StubService, tmp_path: Path, workers: int | None = 1, sentences: int = 300) -> DeviceProfile:
    """The profile of a stub, calibrated with short loads."""
    text = tmp_path / "text.de"
    text.write_text("\n".join(" ".join(f"n{line}x{place}" for place in range(1 + line % 20)) for line in range(sentences)))
    settings = EndpointSettings(service.url, "libretranslate", str(text), quick=True, workers=workers)
    return calibrate_endpoint(settings, tmp_path / "service.json").profile


@pytest.fixture(autouse=True)
def short_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "QUICK", LoadSizes(knee_s=0.5, loop_s=0.8, least=15, most=60, most_s=1.0, alone=4))


def test_a_service_that_slows_down_is_measured_under_load_through_http(tmp_path: Path) -> None:
    """Each further request makes an execution half as long again; how exactly that is found is shown by the reconstruction."""
    with stub_service(pace=0.2, slowed=0.5, memory="last") as service:
        profile = loaded(service, tmp_path)
    assert sum(point.executions or 0 for point in profile.execution.by_occupancy) > 30
    assert profile.endpoint is not None and profile.endpoint.knee_rps is not None and profile.endpoint.remembers_last
    assert read_profile(tmp_path / "service.json") == profile
    repeated = sum(earlier == later for earlier, later in pairwise(service.asked[2:]))
    assert repeated == PROBES, "only a probe sends a text twice in succession"


def test_a_service_that_fails_under_load_is_not_measured_under_load(tmp_path: Path) -> None:
    with stub_service(pace=0.01, api_fault="fail after 70") as service:
        profile = loaded(service, tmp_path)
    assert profile.endpoint is not None and not profile.execution.by_occupancy
    assert re.fullmatch(r"not measured under load: \d+ of \d+ requests failed: out of memory", profile.endpoint.doubts[-1])


def test_a_service_that_remembers_gets_each_text_once_and_is_not_loaded_if_they_do_not_suffice(tmp_path: Path) -> None:
    with stub_service(pace=0.5, memory="all") as service:
        profile = loaded(service, tmp_path, sentences=40)
    assert profile.endpoint is not None
    assert profile.endpoint.doubts[-2].startswith("the service remembers translations")
    assert profile.endpoint.doubts[-1].endswith("and the text has too few different sentences")
    assert not profile.execution.by_occupancy


def test_a_service_that_changes_its_speed_and_loads_that_no_replay_explains_are_doubtful(tmp_path: Path) -> None:
    times, _ = simulated(1, 0.5, 200)
    executions = Executions([times], 1)
    with stub_service(pace=0.01, api_fault="fail after 60") as service:
        before = loaded(service, tmp_path)
    assert before.endpoint is not None
    doubtful, fine = (loaded_profile(before, 1, executions, *errors) for errors in ((-0.4, 0.5), (0.2, 0.1)))
    assert fine.endpoint is not None and fine.endpoint.doubts == before.endpoint.doubts
    messages = " ".join(doubt.message for doubt in profile_doubts(doubtful))
    assert "the service changed its speed: single requests took -40 % after the loads" in messages
    assert "a replay of the loads errs by 50 % in mean latency" in messages
