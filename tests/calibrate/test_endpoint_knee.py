"""The queueing knee of a running service, without a clock: what disturbs a measurement moves it little, or leaves it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.calibrate import endpoint_calibration, processor_use
from simnmt.calibrate.calibration import Calibrated
from simnmt.calibrate.endpoint_apis import APIS
from simnmt.calibrate.endpoint_calibration import calibrate_endpoint
from simnmt.calibrate.endpoint_knee import LevelRound, UnloadedTime, fit_knee, levels_to_repeat, median_interval, pool_rounds
from simnmt.calibrate.endpoint_settings import EndpointSettings
from simnmt.profile.endpoint_block import LoadLevel
from tests.calibrate.endpoint_simulation import Noise, SimulatedService, run_simulated
from tests.calibrate.test_endpoint import LINES
from tests.campaigns.harness import thinned

SEEDS = range(4)


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Noise, int], Calibrated]:
    """Calibrates a simulated service; `others_cpus`: load of the box by other programs."""
    (tmp_path / "text.de").write_text("\n".join(LINES))
    monkeypatch.setattr(endpoint_calibration, "run_precisely", run_simulated)

    def one(noise: Noise, seed: int) -> Calibrated:
        monkeypatch.setattr(processor_use, "others_cpus", lambda: 2.0 if noise.busy else 0.0)
        monkeypatch.setitem(APIS, "libretranslate", lambda settings: SimulatedService(noise, seed))
        settings = EndpointSettings(
            "http://localhost", "libretranslate", str(tmp_path / "text.de"), quick=True, max_concurrency=32, seed=seed
        )
        return calibrate_endpoint(settings, tmp_path / f"{seed}.json")

    return one


DISTURBED = {
    "3 % noise": Noise(relative=0.03),
    "late timers": Noise(busy=True, late_s=0.002, jitter_s=0.002),
    "short work": Noise(busy=True, late_s=0.0003, jitter_s=0.0005, pace=0.1, workers=2),
    "an echo longer than the work": Noise(echo_s=0.2, http_s=0.001),
    "an echo as long as the work": Noise(busy=True, echo_s=0.08, http_s=0.001, relative=0.05, jitter_s=0.001),
    "a long steady round trip": Noise(echo_s=0.03, http_s=0.03, jitter_s=0.0003),
    "slow outliers": Noise(outliers=0.02),
    "a generator that stalls": Noise(stall_share=0.03, stall_s=0.15),
    "a service that stalls": Noise(frozen_share=0.01, frozen_s=0.3),
    "all of these": Noise(
        busy=True, outliers=0.01, late_s=0.001, jitter_s=0.001, stall_share=0.02, stall_s=0.15, frozen_share=0.005, frozen_s=0.2
    ),
    "one worker": Noise(workers=1, stall_share=0.02, stall_s=0.1),
    "12 workers": Noise(workers=12, stall_share=0.01, stall_s=0.1),
}


@pytest.mark.parametrize("disturbance", thinned(DISTURBED, ("short work", "all of these", "one worker")))
def test_the_knee_is_within_10_percent_and_its_interval_holds_most_of_the_workers(calibrated: Any, disturbance: str) -> None:
    noise = DISTURBED[disturbance]
    blocks = [calibrated(noise, seed).profile.endpoint for seed in SEEDS]
    knees = np.array([block.knee_concurrency for block in blocks], np.float64)
    assert np.abs(knees / noise.workers - 1.0).max() < 0.1, knees
    held = [low <= noise.workers <= high for low, high in (block.knee_interval for block in blocks)]
    assert sum(held) >= len(SEEDS) - 1, [block.knee_interval for block in blocks]
    assert all(high < 1.5 * low for low, high in (block.knee_interval for block in blocks))


@pytest.mark.parametrize("seed", thinned(SEEDS, (0, 1)))
def test_no_knee_is_given_where_an_unsteady_round_trip_hides_the_work(calibrated: Any, seed: int) -> None:
    done = calibrated(Noise(echo_s=0.03, http_s=0.03, jitter_s=0.004, pace=0.1), seed)
    block = done.profile.endpoint
    assert (block.knee_concurrency, block.knee_interval, block.knee_rps, block.workers) == (None, None, None, None)
    assert "the time of a sentence alone is only known as" in block.knee_reason
    assert block.describe_knee() == f"left out: {block.knee_reason}"
    assert f"the knee is left out: {block.knee_reason}" in done.warnings


def test_an_echo_that_is_longer_than_a_sentence_is_not_taken_off(calibrated: Any) -> None:
    done = calibrated(Noise(echo_s=0.2, http_s=0.001), 1)
    round_trip = done.profile.endpoint.round_trip
    assert (round_trip.how, round_trip.taken_off_s, round_trip.echo) == ("included", 0.0, "GET /languages")
    assert any("takes longer than the shortest sentence" in warning for warning in done.warnings)
    assert done.profile.plane.s_per_tgt_token == pytest.approx(0.003, rel=0.02)


def test_on_a_busy_box_the_least_echo_is_taken_off_the_least_times(calibrated: Any) -> None:
    done = calibrated(Noise(busy=True, relative=0.0, jitter_s=0.003), 2)
    block = done.profile.endpoint
    assert block.round_trip.taken_off_s < 0.7 * block.round_trip.seconds.median_s
    assert done.profile.plane.s_per_tgt_token == pytest.approx(0.003, rel=0.02)


def test_a_slow_service_is_not_sent_further_rounds(calibrated: Any) -> None:
    block = calibrated(Noise(pace=20.0), 1).profile.endpoint
    assert {len(level.executed_rounds) for level in block.ladder} == {1}
    assert block.knee_concurrency == pytest.approx(3.0, rel=0.1)


ALONE = UnloadedTime(0.1, 0.1, 0.1)


def level(concurrency: int, *executed: float, refused: int = 0) -> LoadLevel:
    rounds = [LevelRound(concurrency, 20, one, (0.1,) * (20 - refused), 0.0, 1.0) for one in executed]
    return pool_rounds(rounds, ALONE.mean_s)


def test_a_disturbed_round_does_not_move_the_knee() -> None:
    steady = [level(1, 1.0), level(2, 2.0, 2.0, 2.0), level(4, 3.0, 3.0, 3.1), level(8, 3.0, 2.9, 3.0)]
    stalled = [*steady[:2], level(4, *7 * [3.0], 27.0, 3.1), level(8, *7 * [3.0], 0.4, 2.9)]
    assert fit_knee(steady, ALONE).concurrency == fit_knee(stalled, ALONE).concurrency == 3.0
    assert fit_knee(steady, ALONE).interval == pytest.approx((2.9, 3.1))


def test_the_interval_holds_that_of_the_time_alone() -> None:
    levels = [level(2, *6 * [2.0]), level(4, *6 * [3.0]), level(8, *6 * [3.0])]
    assert fit_knee(levels, UnloadedTime(0.1, 0.08, 0.11)).interval == pytest.approx((2.4, 3.3))


@pytest.mark.parametrize(
    ("levels", "reason"),
    [
        (
            [level(1, 1.0), level(2, 2.0), level(4, 3.9), level(8, 2.4), level(16, 2.4)],
            "the levels contradict each other: the service executed 3.9 at once at a concurrency of 4, but 2.4 at 16",
        ),
        (
            [level(1, 1.0), level(2, 2.0), level(4, 3.0), level(8, 1.5)],
            "the levels contradict each other: the service executed 3 at once, but 1.5 at a concurrency of 8",
        ),
        (
            [level(1, 1.0), level(2, 2.0), level(4, 2.4, 3.0, 3.3), level(8, 2.2, 2.9, 3.4)],
            "it lies anywhere from 2.2 to 3.4 sentences at once, because the levels differ from round to round",
        ),
    ],
)
def test_levels_that_contradict_each_other_give_no_knee(levels: Sequence[LoadLevel], reason: str) -> None:
    knee = fit_knee(levels, ALONE)
    assert (knee.concurrency, knee.interval, knee.reason) == (None, None, reason)


def test_a_service_that_refuses_under_load_contradicts_nothing() -> None:
    levels = [level(1, 1.0), level(2, 2.0), level(4, 3.0), level(8, 1.5, refused=5)]
    assert fit_knee(levels, ALONE).concurrency == 3.0
    assert levels_to_repeat(levels) == [2, 4]


def test_without_a_saturated_level_there_is_neither_a_knee_nor_a_reason() -> None:
    assert fit_knee([level(1, 1.0), level(2, 1.9)], ALONE) == fit_knee([], ALONE)
    assert fit_knee([], ALONE).reason == ""
    assert levels_to_repeat([level(1, 1.0), level(2, 1.9)]) == []


def test_levels_are_repeated_until_they_agree() -> None:
    agreeing, differing = (2.9, 3.0, 3.1), (2.8, 3.0, 3.2)
    below = [level(1, 1.0), level(2, 2.0, 2.0, 2.0)]
    assert levels_to_repeat([level(1, 1.0), level(2, 2.0), level(4, 3.0), level(8, 3.0)]) == [2, 4, 8]
    assert levels_to_repeat([*below, level(4, *agreeing), level(8, *agreeing)]) == []
    assert levels_to_repeat([*below, level(4, *differing), level(8, *differing)]) == [2, 4, 8]
    assert levels_to_repeat([*below, level(4, *differing), level(8, 3.0)]) == [8]  # a level that was added later catches up
    all_rounds = [level(2, *9 * [2.0]), level(4, *3 * differing), level(8, *3 * differing)]
    assert levels_to_repeat(all_rounds) == []


def test_the_interval_of_a_median_leaves_out_as_many_values_as_95_percent_allow() -> None:
    assert median_interval(np.array([3.0, 1.0, 2.0])) == (1.0, 3.0)
    assert median_interval(np.arange(6.0)) == (0.0, 5.0)
    assert median_interval(np.arange(9.0)) == (1.0, 7.0)
    random = np.random.default_rng(1)
    held = [low <= 0.0 <= high for low, high in (median_interval(random.standard_cauchy(25)) for _ in range(400))]
    assert 0.93 < np.mean(held) < 0.99
