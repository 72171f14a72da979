"""Engagements of a few turns each (STI-17), whatever process they begin by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.base.extension import of_object
from simnmt.workload.arrivals import Arrivals, Engagements
from simnmt.workload.arrivals.custom import custom_arrivals
from simnmt.workload.arrivals.engagements import EngagementsProcess
from simnmt.workload.arrivals.process import OpenProcess

arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)
FOLDER = Path(__file__).parent / "arrivals"


def process_of(**keys: Any) -> EngagementsProcess:
    all_keys = {"kind": "engagements", "begin": {"kind": "poisson", "rate_rps": 0.1}, "think_time": {"constant_s": 3}, **keys}
    process = arrivals.validate_python(all_keys).process(FOLDER)
    assert isinstance(process, EngagementsProcess)
    return process


def test_turns_of_an_engagement_follow_each_other_by_the_think_time() -> None:
    """Whole engagements alone: the run may end in the middle of the last ones."""
    process = process_of(turns=[0.5, 0.3, 0.2])
    issued_s, of = process.times(20_000, 1, 0, "a"), process.engagements(20_000, 1, 0, "a")
    begin_s = process.begin.times(20_000, 1, 0, "a/begin")
    counts = np.bincount(of)
    assert set(counts[:-10]) == {1, 2, 3}
    for engagement in range(200):
        own_s = issued_s[of == engagement]
        assert own_s == pytest.approx(begin_s[engagement] + 3.0 * np.arange(len(own_s)))


def test_as_many_have_each_number_of_turns_as_the_shares_say() -> None:
    process = process_of(turns=[0.5, 0.3, 0.2])
    counts = np.bincount(process.engagements(60_000, 2, 0, "a"))[:-50]
    shares = np.bincount(counts, minlength=4)[1:] / len(counts)
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=4 * 0.5 / np.sqrt(len(counts)))
    assert process.mean_turns == pytest.approx(1.7) and process.mean_rate_rps == pytest.approx(0.17)


def test_engagements_of_one_turn_are_the_process_that_they_begin_by() -> None:
    process = process_of(turns=[1.0])
    assert np.array_equal(process.times(70_000, 3, 1, "a"), process.begin.times(70_000, 3, 1, "a/begin"))
    assert np.array_equal(process.engagements(70_000, 3, 1, "a"), np.arange(70_000))


@given(
    st.floats(0.001, 1e6),
    st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any),
    st.integers(0, 400),
    st.integers(0, 400),
    st.integers(0, 2**32),
)
def test_a_longer_run_begins_with_the_shorter_one_and_its_engagements(
    think_s: float, weights: list[int], one: int, two: int, seed: int
) -> None:
    """Also where turns of thousands of engagements lie between two turns of one, and where many are issued at one moment."""
    turns = [weight / sum(weights) for weight in weights]
    process = process_of(turns=turns, think_time={"mean_s": think_s})
    short, long = sorted((one, two))
    for column in (process.times, process.engagements):
        assert np.array_equal(column(short, seed, 1, "a"), column(long, seed, 1, "a")[:short])
    assert np.all(np.diff(process.times(long, seed, 1, "a")) >= 0.0)


def test_turns_that_reach_over_many_blocks_of_engagements_come_in_their_place() -> None:
    """Against one plain sort of all turns: the think time lasts as long as 50,000 engagements."""
    process = process_of(turns=[0.2, 0.8], think_time={"constant_s": 500_000}, begin={"kind": "poisson", "rate_rps": 0.1})
    issued_s, of = process.times(150_000, 1, 0, "a"), process.engagements(150_000, 1, 0, "a")
    begin_s = process.begin.times(150_000, 1, 0, "a/begin")
    first = np.zeros(150_000, bool)
    first[np.unique(of, return_index=True)[1]] = True
    assert np.array_equal(issued_s[first], begin_s[: first.sum()])
    assert issued_s[~first] == pytest.approx(begin_s[of[~first]] + 500_000.0)
    assert np.all(np.diff(issued_s) >= 0.0)


def test_other_kinds_of_begin_may_read_a_trace() -> None:
    keys = {"kind": "engagements", "begin": {"kind": "recorded", "file": "times.csv"}, "think_time": {"mean_s": 2}}
    configuration = arrivals.validate_python(keys)
    assert isinstance(configuration, Engagements)
    assert list(input_files(configuration, FOLDER).values()) == [FOLDER / "times.csv"]
    assert with_absolute_paths(configuration, FOLDER).begin.file == str(FOLDER / "times.csv")
    assert "recorded trace" in configuration.process(FOLDER).account


def test_every_other_kind_takes_each_request_for_itself() -> None:
    for keys in ({"kind": "poisson", "rate_rps": 1}, {"kind": "back_to_back"}):
        assert arrivals.validate_python(keys).process(FOLDER).engagements(5, 1, 0, "a") is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"turns": [0.5, 0.3]}, "sum to 0.8, not 1"),
        ({"think_time": 5}, "expected a mapping"),
    ],
)
def test_what_engagements_cannot_be(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        process_of(**keys)


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
