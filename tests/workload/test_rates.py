"""Arrivals at another rate: every kind that has a mean rate takes one, by its process and by its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from simnmt.base.extension import of_object
from simnmt.workload.arrivals import Arrivals
from simnmt.workload.arrivals.custom import custom_arrivals
from simnmt.workload.arrivals.process import OpenProcess

KINDS: dict[str, dict[str, Any]] = {
    "poisson": {"kind": "poisson", "rate_rps": 4.0},
    "renewal": {"kind": "renewal", "distribution": "gamma", "parameters": {"a": 0.5}, "rate_rps": 4.0},
    "renewal by scale": {"kind": "renewal", "distribution": "gamma", "parameters": {"a": 0.5}, "scale_s": 0.5},
    "bursts": {"kind": "on_off", "on_rate_rps": 20.0, "off_rate_rps": 1.0, "mean_on_s": 2.0, "mean_off_s": 9.0},
    "day": {"kind": "varying", "daily": {"rate_rps": 4.0, "swing": 0.5, "peak_hour": 14}},
    "hours": {"kind": "varying", "daily": {"hourly_rps": [1.0, 7.0] * 12}},
    "steps": {"kind": "varying", "steps": [{"for_s": 10, "rate_rps": 2.0}, {"for_s": 5, "rate_rps": 0.0}]},
    "series": {"kind": "varying", "series": {"csv": "rates.csv"}},
    "recorded": {"kind": "recorded", "file": "times.csv"},
    "recorded at a speed": {"kind": "recorded", "file": "times.csv", "speed": 2.0},
    "engagements": {
        "kind": "engagements", "begin": {"kind": "poisson", "rate_rps": 2.0}, "turns": [0.5, 0.5],
        "think_time": {"distribution": "expon", "mean_s": 3.0},
    },
}  # fmt: skip
DRAW = (2_000, 1, 1, "w/arrivals")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rates.csv").write_text("t_s,rate_rps\n0,2\n60,8\n120,2\n")
    (tmp_path / "times.csv").write_text("t_s\n" + "\n".join(f"{number * 0.4 + (number % 3) * 0.1}" for number in range(60)))
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_with_a_rate_takes_another_one(folder: Path, kind: str) -> None:
    configuration = TypeAdapter(Arrivals).validate_python(KINDS[kind])
    process = configuration.process(folder)
    present = process.mean_rate_rps
    assert present is not None
    faster = process.at_rate(3.0 * present)
    assert faster.mean_rate_rps == pytest.approx(3.0 * present)
    assert faster.times(*DRAW)[-1] < process.times(*DRAW)[-1]
    np.testing.assert_allclose(process.at_rate(present).times(*DRAW), process.times(*DRAW), rtol=1e-9)
    written = configuration.with_rate(3.0 * present, present)
    assert written is not None
    np.testing.assert_allclose(written.process(folder).times(*DRAW), faster.times(*DRAW), rtol=1e-9)


@pytest.mark.parametrize("kind", ["poisson", "renewal", "recorded"])
def test_gaps_of_one_seed_are_scaled(folder: Path, kind: str) -> None:
    process = TypeAdapter(Arrivals).validate_python(KINDS[kind]).process(folder)
    assert process.mean_rate_rps is not None
    half = process.at_rate(process.mean_rate_rps / 2.0)
    np.testing.assert_allclose(np.diff(half.times(*DRAW)), 2.0 * np.diff(process.times(*DRAW)), rtol=1e-6, atol=1e-6)


def test_turns_and_bursts_keep_their_times(folder: Path) -> None:
    """At three times the rate, a user thinks as long as before, and a burst lasts as long."""
    bursts = TypeAdapter(Arrivals).validate_python(KINDS["bursts"])
    assert bursts.at_rate(3.0 * bursts.mean_rate_rps).mean_on_s == bursts.mean_on_s
    engagements = TypeAdapter(Arrivals).validate_python(KINDS["engagements"]).process(folder)
    assert engagements.at_rate(9.0).think_time == engagements.think_time


class Every(OpenProcess):
    """A user's process."""

    mean_rate_rps = 2.0

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> np.ndarray:
        """One request every half second."""
        return 0.5 * np.arange(1, size + 1)


def test_a_users_process_with_a_rate_is_scaled_in_time_and_no_key_sets_it() -> None:
    configuration = custom_arrivals(of_object(Every()))
    process = configuration.process(Path()).at_rate(10.0)
    assert process.mean_rate_rps == pytest.approx(10.0)
    np.testing.assert_allclose(process.times(3, 1, 0, "w"), [0.1, 0.2, 0.3])
    assert configuration.with_rate(10.0, 2.0) is None


@pytest.mark.parametrize(
    "kind",
    [{"kind": "back_to_back"}, {"kind": "clients", "clients": 3, "think_time": {"distribution": "expon", "mean_s": 3.0}}],
)
def test_arrivals_that_wait_for_answers_have_no_rate(kind: dict[str, Any]) -> None:
    process = TypeAdapter(Arrivals).validate_python(kind)
    assert process.mean_rate_rps is None
    with pytest.raises(TypeError, match="have no rate"):
        process.at_rate(1.0)
