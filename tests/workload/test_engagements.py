"""Engagements of a few turns each (STI-17), whatever process they begin by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.workload.arrivals import Arrivals, Engagements
from simnmt.workload.arrivals.engagements import EngagementsProcess

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


@settings(max_examples=25, deadline=None)
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
        ({"turns": []}, "at least 1 item"),
        ({"turns": [1.5, -0.5]}, "less than or equal to 1"),
        ({"begin": {"kind": "recorded", "file": "azure.csv", "lengths": "rank"}}, "write independent"),
        ({"think_time": 5}, "expected a mapping"),
    ],
)
def test_what_engagements_cannot_be(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        process_of(**keys)
