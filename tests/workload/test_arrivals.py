"""What holds for every kind of arrivals, and the two oldest kinds."""

from __future__ import annotations

import pickle
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from scipy import stats

from simnmt.base import random_streams
from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.workload.arrivals import ArrivalProcess, Arrivals, BackToBack

FOLDER = Path(__file__).parent / "arrivals"
arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)

OPEN: dict[str, dict[str, Any]] = {
    "poisson": {"kind": "poisson", "rate_rps": 3.0},
    "renewal": {"kind": "renewal", "distribution": "gamma", "parameters": {"a": 0.5}, "rate_rps": 3.0},
    "renewal of two columns": {"kind": "renewal", "distribution": "betaprime", "parameters": {"a": 2, "b": 3}, "rate_rps": 3.0},
    "daily": {"kind": "varying", "daily": {"rate_rps": 3.0, "swing": 1.0, "peak_hour": 14}},
    "hourly": {"kind": "varying", "daily": {"hourly_rps": [0.0] * 8 + [4.5] * 16, "start_hour": 7.5}},
    "steps": {"kind": "varying", "steps": [{"for_s": 10, "rate_rps": 6}, {"for_s": 10, "rate_rps": 0}], "gap_cv": 2.0},
    "series": {"kind": "varying", "series": {"csv": "rates.csv", "rate_rps": 3.0}},
    "on_off": {"kind": "on_off", "on_rate_rps": 30.0, "mean_on_s": 1.0, "mean_off_s": 9.0},
    "azure": {"kind": "recorded", "file": "azure.csv", "lengths": "rank", "rate_rps": 3.0},
    "mooncake": {"kind": "recorded", "file": "mooncake.jsonl", "lengths": "rank", "rate_rps": 3.0},
    "counts": {"kind": "recorded", "file": "counts.csv", "rate_rps": 3.0},
    "times": {"kind": "recorded", "file": "times.csv", "rate_rps": 3.0},
    "engagements": {
        "kind": "engagements",
        "begin": {"kind": "poisson", "rate_rps": 2.0},
        "turns": [0.6, 0.3, 0.1],
        "think_time": {"mean_s": 5.0},
    },
}
"""One of each that sets its own pace; all with a mean of 3 requests a second."""
CLOSED = {"kind": "clients", "clients": 5, "think_time": {"mean_s": 2.0}}


def process_of(value: dict[str, Any]) -> ArrivalProcess:
    return arrivals.validate_python(value).process(FOLDER)


@pytest.fixture(scope="module", params=OPEN)
def process(request: pytest.FixtureRequest) -> ArrivalProcess:
    return process_of(OPEN[request.param])


# --- whatever the kind ---


def test_times_are_sorted_seconds_from_the_start(process: ArrivalProcess) -> None:
    arrival_s = process.times(20_000, 1, 0, "a")
    assert arrival_s.shape == (20_000,) and arrival_s.dtype == np.float64
    assert arrival_s[0] >= 0 and np.all(np.diff(arrival_s) >= 0) and np.all(np.isfinite(arrival_s))
    assert process.times(0, 1, 0, "a").shape == (0,)


def test_the_number_of_requests_matches_the_mean_rate(process: ArrivalProcess) -> None:
    """Three a second, over more than two days where that is the period; bursts need the most."""
    assert process.mean_rate_rps == pytest.approx(3.0)
    arrival_s = process.times(1_000_000, 5, 0, "a")
    whole_days = 3 * 86_400.0
    assert np.searchsorted(arrival_s, whole_days) / whole_days == pytest.approx(3.0, rel=0.02)


def test_a_longer_run_begins_with_exactly_the_shorter_one(process: ArrivalProcess) -> None:
    """Also where the shorter one ends inside a block of the stream, a lap, or a window."""
    long = process.times(140_000, 3, 1, "a")
    for size in (1, 2, 7, 100, 1_001, 65_536, 70_000):
        assert np.array_equal(process.times(size, 3, 1, "a"), long[:size])


def test_the_key_alone_decides(process: ArrivalProcess) -> None:
    keys = [(1, 0, "a"), (2, 0, "a"), (1, 1, "a"), (1, 0, "b")]
    drawn = {process.times(200, *key).tobytes() for key in keys}
    again = {process.times(200, *key).tobytes() for key in keys}
    assert drawn == again
    exact = process.account.startswith("arrivals of a recorded trace") and "spread" not in process.account
    assert len(drawn) == (2 if exact else 4)  # a trace of exact times is the same in every replication 0


def test_other_processes_draw_the_same(process: ArrivalProcess) -> None:
    again = pickle.loads(pickle.dumps(process))
    assert np.array_equal(again.times(500, 1, 2, "a"), process.times(500, 1, 2, "a"))
    assert (again.account, again.discipline) == (process.account, "open")


def test_no_two_quantities_share_a_stream(process: ArrivalProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """But times and ranks, which begin at the same place on the trace."""
    asked: Counter[tuple[int, int, str, int]] = Counter()
    stream = random_streams.stream

    def watched(seed: int, replication: int, name: str, block: int = 0) -> np.random.Generator:
        asked[seed, replication, name, block] += 1
        return stream(seed, replication, name, block)

    monkeypatch.setattr(random_streams, "stream", watched)
    process.times(70_000, 1, 1, "a")
    process.size_ranks(70_000, 1, 1, "a")
    assert all(name == "a" or name.startswith("a/") for _, _, name, _ in asked)
    assert {name for (_, _, name, _), count in asked.items() if count > 1} <= {"a/trace start"}


def test_the_account_is_one_line_of_words(process: ArrivalProcess) -> None:
    assert "\n" not in process.account and not process.account.endswith(".")
    assert "requests/s" in process.account
    assert any(kind in process.account for kind in ("assumed", "unstated", "measured", "synthetic"))


@given(st.sampled_from(sorted(OPEN)), st.integers(0, 3_000), st.integers(0, 3_000), st.integers(0, 2**32), st.integers(0, 5))
def test_a_prefix_is_a_prefix_for_any_sizes(name: str, one: int, two: int, seed: int, replication: int) -> None:
    drawn = process_of(OPEN[name])
    short, long = sorted((one, two))
    assert np.array_equal(drawn.times(short, seed, replication, "a"), drawn.times(long, seed, replication, "a")[:short])
    ranks = drawn.size_ranks(long, seed, replication, "a")
    if ranks is not None:
        assert np.array_equal(drawn.size_ranks(short, seed, replication, "a"), ranks[:short])


@pytest.mark.parametrize("name", [*OPEN, "clients"])
def test_a_configuration_written_out_and_read_again_means_the_same(name: str) -> None:
    """With every default in place, as a run directory keeps it."""
    config = with_absolute_paths(arrivals.validate_python(OPEN.get(name, CLOSED)), FOLDER)
    again = arrivals.validate_json(arrivals.dump_json(config))
    assert again == config
    assert again.process(Path("/nowhere")).account == process_of(OPEN.get(name, CLOSED)).account
    named = {
        "series": "rates.csv",
        "azure": "azure.csv",
        "mooncake": "mooncake.jsonl",
        "counts": "counts.csv",
        "times": "times.csv",
    }
    assert list(input_files(again, Path("/nowhere")).values()) == ([FOLDER / named[name]] if name in named else [])


# --- back to back ---


def test_back_to_back_leaves_the_pace_to_the_world() -> None:
    drawn = BackToBack().process(FOLDER)
    assert (drawn.discipline, drawn.mean_rate_rps, drawn.size_ranks(5, 1, 0, "a")) == ("back_to_back", None, None)
    for ask in (drawn.times, drawn.think_times):
        with pytest.raises(TypeError, match="back_to_back arrivals"):
            ask(5, 1, 0, "a")


# --- poisson ---


def test_gaps_are_exponential_with_the_mean_rate() -> None:
    arrival_s = process_of({"kind": "poisson", "rate_rps": 4.0}).times(100_000, 5, 0, "a")
    gap_s = np.diff(arrival_s, prepend=0.0)
    assert stats.kstest(gap_s, stats.expon(scale=0.25).cdf).pvalue > 0.001
    assert arrival_s[-1] / 100_000 == pytest.approx(0.25, rel=4 / np.sqrt(100_000))
    assert abs(np.corrcoef(gap_s[1:], gap_s[:-1])[0, 1]) < 4 / np.sqrt(100_000)


def test_counts_per_second_are_poisson() -> None:
    arrival_s = process_of({"kind": "poisson", "rate_rps": 4.0}).times(100_000, 6, 0, "a")
    seconds = int(arrival_s[-1])
    observed = np.bincount(np.bincount(arrival_s.astype(int), minlength=seconds)[:seconds], minlength=13)
    observed = np.append(observed[:12], observed[12:].sum())
    expected = seconds * np.append(stats.poisson.pmf(np.arange(12), 4.0), stats.poisson.sf(11, 4.0))
    assert stats.chisquare(observed, expected).pvalue > 0.001


def test_half_the_rate_takes_exactly_twice_the_time() -> None:
    """Rates share their random numbers, so that a sweep over the rate compares like with like."""
    slow, fast = (process_of({"kind": "poisson", "rate_rps": rate}).times(1000, 1, 0, "a") for rate in (2.0, 4.0))
    assert np.array_equal(slow, 2 * fast)


# --- what a scenario may say ---


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "poisson"}, "Field required"),
        ({"kind": "back_to_back", "rate_rps": 4}, "Extra inputs are not permitted"),
        ({"kind": "varying", "daily": {"hourly_rps": [0.0] * 24}}, "nowhere above 0"),
        ({"kind": "recorded", "file": "x", "speed": 2, "rate_rps": 3}, "give speed or rate_rps, not both"),
        ({"kind": "clients", "clients": 5, "think_time": {}}, "Field required"),
    ],
)
def test_what_arrivals_cannot_be(value: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        arrivals.validate_python(value)
    assert caught.value.error_count() == 1


PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "arrivals.md"
BLOCKS = [
    YAML(typ="safe").load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
]
EXAMPLES = [keys["arrivals"] for block in BLOCKS for keys in block.get("workloads", {"": block}).values()]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["kind"])
def test_an_example_loads(tmp_path: Path, example: dict[str, Any]) -> None:
    for name in ("azure.csv", "rates.csv"):
        shutil.copy(Path(__file__).parent / "arrivals" / name, tmp_path)
    process = TypeAdapter(Arrivals).validate_python(example).process(tmp_path)
    if process.discipline == "open":
        assert process.mean_rate_rps == pytest.approx(2.5, rel=0.5)


def test_there_is_one_of_every_kind() -> None:
    kinds = {get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(Arrivals)[0])}
    assert {example["kind"] for example in EXAMPLES} == kinds
    for kind in kinds:
        assert f"[`{kind}`](#" in PAGE.read_text(encoding="utf-8")
