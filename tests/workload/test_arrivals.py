"""What holds for every kind of arrivals, Poisson arrivals, engagements of a few turns (STI-17), and processes of users."""

from __future__ import annotations

import pickle
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from scipy import stats

from simnmt.base import random_streams
from simnmt.base.configuration import input_files, with_absolute_paths
from simnmt.base.extension import of_object
from simnmt.workload.arrivals import ArrivalProcess, Arrivals, ArrivalsError, RandomStream
from simnmt.workload.arrivals.engagements import EngagementsProcess
from simnmt.workload.arrivals.process import custom_arrivals

FOLDER = Path(__file__).parent / "arrivals"
arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)

OPEN: dict[str, dict[str, Any]] = {
    "poisson": {"kind": "poisson", "rate_rps": 3.0},
    "renewal": {"kind": "renewal", "distribution": "gamma", "parameters": {"a": 0.5}, "rate_rps": 3.0},
    "renewal of two columns": {"kind": "renewal", "distribution": "betaprime", "parameters": {"a": 2, "b": 3}, "rate_rps": 3.0},
    "daily": {"kind": "varying", "daily": {"swing": 1.0, "peak_hour": 14}, "rate_rps": 3.0},
    "steps": {"kind": "varying", "steps": [{"for_s": 10, "rate_rps": 6}, {"for_s": 10, "rate_rps": 0}]},
    "on_off": {"kind": "on_off", "on_rate_rps": 30.0, "mean_on_s": 1.0, "mean_off_s": 9.0},
    "rates": {"kind": "recorded", "file": "rates.csv"},
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


def rng(seed: int = 1, replication: int = 0, name: str = "a") -> RandomStream:
    return RandomStream(seed, replication, name)


@pytest.fixture(scope="module", params=OPEN)
def process(request: pytest.FixtureRequest) -> ArrivalProcess:
    return process_of(OPEN[request.param])


# --- whatever the kind ---


def test_times_are_sorted_seconds_from_the_start(process: ArrivalProcess) -> None:
    arrival_s = process.times(20_000, rng())
    assert arrival_s.shape == (20_000,) and arrival_s.dtype == np.float64
    assert arrival_s[0] >= 0 and np.all(np.diff(arrival_s) >= 0) and np.all(np.isfinite(arrival_s))
    assert process.times(0, rng()).shape == (0,)


def test_the_number_of_requests_matches_the_mean_rate(process: ArrivalProcess) -> None:
    """Three a second, over more than two days where that is the period; bursts need the most."""
    assert process.mean_rate_rps == pytest.approx(3.0)
    arrival_s = process.times(1_000_000, rng(5))
    whole_days = 3 * 86_400.0
    assert np.searchsorted(arrival_s, whole_days) / whole_days == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize("name", OPEN)
def test_another_mean_rate_keeps_the_random_numbers(name: str) -> None:
    """In the process and in the keys of the configuration alike."""
    process = process_of(OPEN[name])
    np.testing.assert_allclose(process.at_rate(3.0).times(2_000, rng(1, 1)), process.times(2_000, rng(1, 1)), rtol=1e-9)
    faster = process.at_rate(9.0)
    assert faster.mean_rate_rps == pytest.approx(9.0)
    arrival_s = faster.times(2_000, rng(1, 1))
    assert arrival_s[-1] < process.times(2_000, rng(1, 1))[-1]
    written = arrivals.validate_python(OPEN[name]).at_rate(9.0).process(FOLDER)
    np.testing.assert_allclose(written.times(2_000, rng(1, 1)), arrival_s, rtol=1e-9)
    if name in ("poisson", "renewal", "times"):
        np.testing.assert_allclose(np.diff(process.times(2_000, rng(1, 1))), 3.0 * np.diff(arrival_s), rtol=1e-6, atol=1e-6)


def test_a_longer_run_begins_with_exactly_the_shorter_one(process: ArrivalProcess) -> None:
    """Also where the shorter one ends inside a block of the stream, a lap, or a window."""
    for column in (process.times, process.size_ranks, process.engagements):
        long = column(140_000, rng(3, 1))
        for size in (1, 2, 7, 100, 1_001, 65_536, 70_000):
            assert long is None or np.array_equal(column(size, rng(3, 1)), long[:size])


def test_the_key_alone_decides(process: ArrivalProcess) -> None:
    keys = [(1, 0, "a"), (2, 0, "a"), (1, 1, "a"), (1, 0, "b")]
    drawn = {process.times(200, rng(*key)).tobytes() for key in keys}
    again = {pickle.loads(pickle.dumps(process)).times(200, rng(*key)).tobytes() for key in keys}
    assert drawn == again
    exact = process.account.startswith("arrivals of a recorded trace") and "spread" not in process.account
    assert len(drawn) == (2 if exact else 4)  # a trace of exact times is the same in every replication 0


def test_no_two_quantities_share_a_stream(process: ArrivalProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """But times and ranks, which begin at the same place on the trace."""
    made: list[tuple[str, str, np.random.PCG64]] = []
    bits = random_streams.bits

    def watched(seed: int, replication: int, name: str, block: int = 0) -> np.random.PCG64:
        made.append((name, str((drawn := bits(seed, replication, name, block)).state), drawn))
        return drawn

    monkeypatch.setattr(random_streams, "bits", watched)
    process.times(70_000, rng(1, 1))
    process.size_ranks(70_000, rng(1, 1))
    assert all(name == "a" or name.startswith("a/") for name, _, _ in made)
    drawn = Counter((name, begin) for name, begin, after in made if str(after.state) != begin)
    assert {name for (name, _), count in drawn.items() if count > 1} <= {"a/trace start"}


def test_the_account_is_one_line_of_words(process: ArrivalProcess) -> None:
    assert "\n" not in process.account and not process.account.endswith(".")
    assert "requests/s" in process.account
    assert any(kind in process.account for kind in ("assumed", "unstated", "measured", "synthetic"))


@pytest.mark.parametrize("name", [*OPEN, "clients"])
def test_a_configuration_written_out_and_read_again_means_the_same(name: str) -> None:
    """With every default in place, as a run directory keeps it."""
    config = with_absolute_paths(arrivals.validate_python(OPEN.get(name, CLOSED)), FOLDER)
    again = arrivals.validate_json(arrivals.dump_json(config))
    assert again == config
    assert again.process(Path("/nowhere")).account == process_of(OPEN.get(name, CLOSED)).account
    file = OPEN.get(name, CLOSED).get("file")
    assert list(input_files(again, Path("/nowhere")).values()) == ([FOLDER / file] if file else [])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "back_to_back", "rate_rps": 4}, "Extra inputs are not permitted"),
        ({"kind": "poisson"}, "give rate_rps, requests_per_month or characters_per_day"),
        ({"kind": "poisson", "rate_rps": 4.0, "characters_per_day": 1e6}, "stated twice, also by rate_rps"),
        ({"kind": "varying", "steps": [{"for_s": 1, "rate_rps": 0}]}, "nowhere above 0"),
        ({"kind": "varying", "daily": {"swing": 1, "peak_hour": 3}}, "daily needs rate_rps"),
        ({"kind": "clients", "clients": 5, "think_time": {}}, "give either constant_s or mean_s"),
        (OPEN["engagements"] | {"turns": [0.5, 0.3]}, "sum to 0.8, not 1"),
        (OPEN["engagements"] | {"begin": OPEN["azure"]}, "lengths: rank"),
        (OPEN["engagements"] | {"think_time": 5}, "valid dictionary"),
    ],
)
def test_what_arrivals_cannot_be(value: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        arrivals.validate_python(value)
    assert caught.value.error_count() == 1


PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "arrivals.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
EXAMPLES = [YAML(typ="safe").load(block)["arrivals"] for block in BLOCKS]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["kind"])
def test_an_example_of_the_documentation_loads(tmp_path: Path, example: dict[str, Any]) -> None:
    shutil.copy(FOLDER / "azure.csv", tmp_path)
    process = arrivals.validate_python(example).process(tmp_path)
    if process.discipline == "open":
        assert process.mean_rate_rps == pytest.approx(2.5, rel=0.5)


def test_the_documentation_shows_one_of_every_kind() -> None:
    kinds = {get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(Arrivals)[0])}
    assert {example["kind"] for example in EXAMPLES} == kinds
    for kind in kinds:
        assert f"[`{kind}`](#" in PAGE.read_text(encoding="utf-8")


# --- poisson ---


@pytest.mark.parametrize("name", ["poisson", "renewal", "daily", "steps", "azure", "rates", "engagements"])
def test_a_rate_may_be_stated_in_the_units_of_services(name: str) -> None:
    """2.5 requests/s are 6.57 million in 730 hours, and 17.28 million characters a day at 80 a request."""
    value = {key: part for key, part in OPEN[name].items() if key != "rate_rps"}
    stating = value["begin"] if name == "engagements" else value
    stating.pop("rate_rps", None)
    for unit in ({"requests_per_month": 6_570_000.0}, {"characters_per_day": 17_280_000.0}):
        begin = {"begin": stating | unit} if name == "engagements" else {}
        stated = arrivals.validate_python({**value, **({} if begin else unit), **begin})
        process = stated.in_requests(80.0).process(FOLDER)
        assert process.mean_rate_rps == pytest.approx(2.5), unit
        assert stated.at_rate(7.0).in_requests(None).process(FOLDER).mean_rate_rps == pytest.approx(7.0)
    with pytest.raises(ArrivalsError, match="characters_per_day needs the characters of a request"):
        stated.in_requests(None)


def test_gaps_are_exponential_with_the_mean_rate() -> None:
    arrival_s = process_of({"kind": "poisson", "rate_rps": 4.0}).times(100_000, rng(5))
    gap_s = np.diff(arrival_s, prepend=0.0)
    assert stats.kstest(gap_s, stats.expon(scale=0.25).cdf).pvalue > 0.001
    assert arrival_s[-1] / 100_000 == pytest.approx(0.25, rel=4 / np.sqrt(100_000))
    assert abs(np.corrcoef(gap_s[1:], gap_s[:-1])[0, 1]) < 4 / np.sqrt(100_000)


# --- engagements ---


def engaged(**keys: Any) -> EngagementsProcess:
    all_keys = {"kind": "engagements", "begin": {"kind": "poisson", "rate_rps": 0.1}, "think_time": {"constant_s": 3}, **keys}
    process = process_of(all_keys)
    assert isinstance(process, EngagementsProcess)
    return process


def test_turns_of_an_engagement_follow_each_other_by_the_think_time() -> None:
    """Whole engagements alone: the run may end in the middle of the last ones."""
    process = engaged(turns=[0.5, 0.3, 0.2])
    issued_s, numbers = process.times(60_000, rng()), process.engagements(60_000, rng())
    begin_s = process.begin.times(60_000, rng(name="a/begin"))
    for engagement in range(200):
        turn_s = issued_s[numbers == engagement]
        assert turn_s == pytest.approx(begin_s[engagement] + 3.0 * np.arange(len(turn_s)))
    turns = np.bincount(numbers)[:-50]
    shares = np.bincount(turns, minlength=4)[1:] / len(turns)
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=4 * 0.5 / np.sqrt(len(turns)))
    assert process.mean_rate_rps == pytest.approx(0.17)


def test_engagements_of_one_turn_are_the_process_that_they_begin_by() -> None:
    process = engaged(turns=[1.0])
    assert np.array_equal(process.times(70_000, rng(3, 1)), process.begin.times(70_000, rng(3, 1, "a/begin")))
    assert np.array_equal(process.engagements(70_000, rng(3, 1)), np.arange(70_000))


def test_turns_that_reach_over_many_blocks_of_engagements_come_in_their_place() -> None:
    """The think time lasts as long as 50,000 engagements, which are drawn in several blocks."""
    process = engaged(turns=[0.2, 0.8], think_time={"constant_s": 500_000})
    issued_s, numbers = process.times(150_000, rng()), process.engagements(150_000, rng())
    begin_s = process.begin.times(150_000, rng(name="a/begin"))
    first = np.zeros(150_000, bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    assert np.array_equal(issued_s[first], begin_s[: first.sum()])
    assert issued_s[~first] == pytest.approx(begin_s[numbers[~first]] + 500_000.0)
    assert np.all(np.diff(issued_s) >= 0.0)


# --- a user's process ---


class Every:
    """A user's process: a request every half second."""

    mean_rate_rps = 2.0

    def times(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return 0.5 * np.arange(1, n + 1)


def test_a_users_process_with_a_rate_is_scaled_in_time_and_no_key_sets_it() -> None:
    configuration = custom_arrivals(of_object(Every()))
    process = configuration.process(Path()).at_rate(10.0)
    assert process.mean_rate_rps == pytest.approx(10.0)
    np.testing.assert_allclose(process.times(3, rng()), [0.1, 0.2, 0.3])
    assert configuration.at_rate(10.0) == configuration
