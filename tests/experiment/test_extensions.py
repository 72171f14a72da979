"""Objects of Python in the places of shipped kinds: a scenario runs with them, and every slip in them is one line."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.batching import Batcher, Encode, Join, top_up
from simnmt.experiment import processes
from simnmt.experiment.processes import run_in_processes
from simnmt.network.series import RttSeries
from simnmt.policies.decision import Decide, DecisionView, Knowledge
from simnmt.workload.length_table import LengthTable
from simnmt.world.structures import library
from tests.command_line import assert_short_lines

MakeScenario = Callable[..., dict[str, Any]]
Tokens = np.ndarray[Any, Any]


class LongAway:
    """Sends sentences above a limit to target 1."""

    def __init__(self, limit: int = 20) -> None:
        self.limit = limit
        self.decisions = 0

    def prepare(self, src_len: Tokens) -> Decide:
        away = (src_len > self.limit).tolist()

        def decide(request: int, delay_s: Any) -> int:
            self.decisions += 1
            return 1 if away[request] else 0

        return decide


class Returning:
    """Decides as a function of the row in the block says."""

    def __init__(self, target_of: Callable[[int], Any]) -> None:
        self.target_of = target_of

    def prepare(self, src_len: Tokens) -> Callable[..., Any]:
        return lambda request, delay_s: self.target_of(request)


class Preparing:
    """Prepares as a function of the lengths says."""

    def __init__(self, prepare: Any, held: Any = None) -> None:
        self.prepare, self.held = prepare, held


class Ticks:
    """A request every second."""

    def times(self, n: int, rng: np.random.Generator) -> Tokens:
        return np.arange(1.0, n + 1.0)


def mean_s(result: Any, policy: str) -> float:
    return float(next(row["mean_latency_s"] for row in result.summary_rows if row["policy"] == policy))


def refusal(scenario: dict[str, Any], **options: Any) -> str:
    with pytest.raises(InputError) as refused:
        simnmt.run(scenario, **options)
    assert_short_lines(f"{refused.value}\n")
    return str(refused.value)


def test_a_policy_object_decides_by_its_own_rule(make_scenario: MakeScenario) -> None:
    result = simnmt.run(make_scenario(policies={"cnmt": {}, "mine": LongAway(20)}, requests=500))
    log = result.cells[0].logs["mine"]
    np.testing.assert_array_equal(log["target"][:] == 1, log["src_len"][:] > 20)
    assert 0.1 < (log["target"][:] == 1).mean() < 0.9
    engine = "reference" if library() is None else "compiled"
    assert result.engines == {"cnmt": engine, "mine": engine}


def test_a_class_and_a_function_of_the_knowledge_make_the_same_policy_as_an_object(make_scenario: MakeScenario) -> None:
    def of_knowledge(knowledge: Knowledge) -> LongAway:
        assert list(knowledge.devices) == ["gateway", "cloud"]
        return LongAway(20)

    policies = {"object": LongAway(), "class": LongAway, "function": of_knowledge}
    result = simnmt.run(make_scenario(policies=policies, requests=500))
    targets = [result.cells[0].logs[name]["target"][:] for name in policies]
    np.testing.assert_array_equal(targets[0], targets[1])
    np.testing.assert_array_equal(targets[0], targets[2])


def test_objects_give_the_same_numbers_in_another_process(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    class Inner(LongAway):  # known to no other process
        pass

    scenario = make_scenario(policies={"mine": Inner(15)}, requests=300)
    scenario["workloads"]["de-en"]["arrivals"] = Ticks()
    scenario["devices"]["gateway"]["profile"] = lambda src_len, tgt_len: 0.01 * tgt_len
    alone = simnmt.run(scenario, jobs=1)
    # One process shows it as two do, and each takes a second to start.
    monkeypatch.setattr(processes, "run_in_processes", lambda work, tasks, jobs: run_in_processes(work, tasks, 1))
    elsewhere = simnmt.run(scenario, jobs=2)
    assert alone.summary_rows == elsewhere.summary_rows


def test_a_policy_with_a_view_sees_the_queue_and_the_age_of_its_estimate(make_scenario: MakeScenario) -> None:
    seen: list[DecisionView] = []

    class Looking:
        def prepare(self, src_len: Tokens) -> None:
            pass

        def decide_with_view(self, request: int, view: DecisionView) -> int:
            assert list(view.delay_s) == [0.0, view.rtt_s[1]]
            with pytest.raises(AttributeError):
                view.now_s = 0.0  # type: ignore[misc]
            target = 1 if view.backlog_s > 0.0 or request % 3 == 0 else 0
            seen.append(view)
            return target

        def __deepcopy__(self, memo: object) -> Looking:
            return self

    scenario = make_scenario(policies={"mine": Looking()}, requests=300, replications=1)
    scenario["workloads"]["de-en"]["arrivals"] = {"kind": "poisson", "rate_rps": 8.0}
    log = simnmt.run(scenario).cells[0].logs["mine"]
    assert len(seen) == 300
    np.testing.assert_allclose([view.now_s for view in seen], log["arrival_s"][:])
    np.testing.assert_allclose([view.rtt_s[1] for view in seen], log["rtt_estimate_s"][:])
    np.testing.assert_allclose([view.rtt_age_s[1] for view in seen], log["rtt_estimate_age_s"][:])
    assert any(view.backlog_s > 0.0 for view in seen)
    assert seen[0].reports == [None, None] and seen[-1].reports[1] is not None
    kept = log["target"][:] == 0
    np.testing.assert_allclose(np.array([view.backlog_s for view in seen])[kept], log["t_queue_s"][:][kept], atol=1e-9)


def test_a_linear_cost_function_costs_what_the_profile_of_its_plane_costs(
    make_scenario: MakeScenario, make_profile: Callable[..., Any]
) -> None:
    profile = make_profile((0.002, 0.01, 0.003), 0.0)

    def cost(src_len: Tokens, tgt_len: Tokens) -> Tokens:
        return 0.002 * src_len + 0.01 * tgt_len + 0.003

    means = []
    for given in (profile, cost):
        scenario = make_scenario(requests=500, replications=1)
        scenario["devices"]["gateway"]["profile"] = given
        result = simnmt.run(scenario)
        means.append([mean_s(result, name) for name in ("edge", "oracle", "cnmt")])
    assert means[0] == pytest.approx(means[1], rel=1e-9)


def test_arrivals_of_ones_own_and_an_array_of_moments_are_the_same(make_scenario: MakeScenario) -> None:
    rows = []
    for arrivals in (Ticks(), np.arange(1.0, 301.0)):
        scenario = make_scenario(policies={"edge": {}, "cloud": {}}, requests=300)
        scenario["workloads"]["de-en"]["arrivals"] = arrivals
        result = simnmt.run(scenario)
        np.testing.assert_array_equal(result.cells[0].logs["edge"]["arrival_s"][:], np.arange(1.0, 301.0))
        rows.append(result.summary_rows)
    assert rows[0] == rows[1]


def test_a_run_directory_names_its_objects_and_is_not_repeated(make_scenario: MakeScenario, tmp_path: Path) -> None:
    result = simnmt.run(make_scenario(policies={"cnmt": {}, "mine": LongAway()}, requests=200), out=tmp_path / "run")
    assert result.directory is not None
    name = f"{LongAway.__module__}.LongAway"
    assert f"object: {name}" in (result.directory / "scenario.resolved.yaml").read_text()
    with pytest.raises(InputError, match=r"policies\.mine"):
        simnmt.run(result.directory)


PAIRS = [(3, 4), (5, 5), (7, 9), (12, 11)] * 40
TEXTS = [("a b c", "d e f g"), ("a b c d e", "f g h i j"), ("a", "b c")] * 60


def rows(scenario: dict[str, Any]) -> list[Any]:
    return simnmt.run(scenario).summary_rows


def with_lengths(scenario: dict[str, Any], lengths: Any) -> dict[str, Any]:
    return scenario | {"workloads": {"de-en": {"lengths": lengths}}}


def test_lengths_are_an_array_a_table_or_pairs_of_numbers(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=200, replications=1)
    src, tgt = zip(*PAIRS, strict=True)
    forms = [
        np.array(PAIRS),
        PAIRS,
        pd.DataFrame({"src_len": src, "tgt_len": tgt}),
        pd.DataFrame({"src_len": [3, 5, 7, 12], "tgt_len": [4, 5, 9, 11], "count": 40}),
        LengthTable.of_pairs("mine", "given", "word", "word", src, tgt),
    ]
    results = [rows(with_lengths(scenario, form)) for form in forms]
    assert all(result == results[0] for result in results)


def test_texts_are_counted_in_the_unit_of_the_profiles(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=200, replications=1)
    counted = [(len(source.split()), len(target.split())) for source, target in TEXTS]
    frame = pd.DataFrame(TEXTS, columns=["source", "target"])
    assert rows(with_lengths(scenario, TEXTS)) == rows(with_lengths(scenario, frame)) == rows(with_lengths(scenario, counted))


def test_an_rtt_is_an_array_a_table_or_a_series_in_its_own_unit(make_scenario: MakeScenario) -> None:
    time_s, rtt_s = np.arange(50.0), np.linspace(0.02, 0.2, 50)
    forms = [
        np.column_stack([time_s, rtt_s]),
        pd.DataFrame({"time_s": time_s, "rtt_ms": rtt_s * 1e3}),
        pd.DataFrame({"time_s": time_s + 7.0, "rtt_s": rtt_s}),
        RttSeries("cp1", "unstated", "given", time_s, rtt_s),
    ]
    results = [rows(make_scenario(requests=200, replications=1, networks={"cp1": {"rtt": form}})) for form in forms]
    for result in results:
        assert [row["mean_latency_s"] for row in result] == pytest.approx([row["mean_latency_s"] for row in results[0]])


class OneByOne:
    """Encodes and decodes one sentence after another."""

    size = 1

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.encoded: list[int] = []

    def arrive(self, request: int, src_len: int, now_s: float) -> None:
        self.waiting.append(request)

    def next(self, active: int, now_s: float, longest: int) -> Encode | Join | None:
        if active:
            return None
        if self.encoded:
            return Join((self.encoded.pop(),))
        if self.waiting:
            self.encoded.append(self.waiting.popleft())
            return Encode((self.encoded[0],))
        return None


class MyTopUp(Batcher):
    """The shipped rule as a class of a user."""

    def __init__(self) -> None:
        super().__init__(top_up(4, 2))


def batched(batching: Any, **keys: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "batched",
        "requests": 300,
        "replications": 1,
        "workloads": {"w": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 12.0}, "end_nodes": 4}},
        "networks": {"n": {"rtt": {"constant_ms": 30}}},
        "devices": {"gateway": {"profile": "@cpu1-gru"}, "cloud": {"profile": "@cpu1-gru", "batching": batching} | keys},
        "policies": {"cloud": {}, "cnmt": {}},
    }


@pytest.mark.parametrize(
    ("mine", "shipped"),
    [(OneByOne(), {"kind": "mini", "size": 1}), (MyTopUp(), {"kind": "top_up", "size": 4, "threshold": 2})],
)
def test_a_batcher_of_ones_own_gives_the_times_of_the_shipped_rule(mine: Any, shipped: dict[str, Any]) -> None:
    custom, registered = simnmt.run(batched(mine)), simnmt.run(batched(shipped))
    for policy in ("cloud", "cnmt"):
        logs = custom.cells[0].logs[policy], registered.cells[0].logs[policy]
        np.testing.assert_allclose(logs[0]["latency_s"], logs[1]["latency_s"], 1e-6)
    assert custom.engines["cloud"] == "reference" and custom.engine_reasons["cloud"]


def arriving(times: Callable[[int], Any]) -> Any:
    return type("Slipping", (), {"times": lambda self, n, rng: times(n)})()


def batcher(**methods: Any) -> Any:
    return type("Slipping", (OneByOne,), methods)()


POLICY, COST, ARRIVALS = "policies.mine", "devices.gateway.profile", "workloads.de-en.arrivals"
LENGTHS, RTT, BATCHER = "workloads.de-en.lengths", "networks.cp1.rtt", "devices.cloud.batching"
SLIPS: list[tuple[str, Any, str]] = [
    (POLICY, object(), "no method prepare"),
    (POLICY, Returning(lambda request: 2 if request == 7 else 0), "request 7: decide returned 2"),
    (POLICY, Returning(lambda request: True), "decide returned True"),
    (POLICY, Returning(lambda request: 1 // (3 - request)), "request 3: decide raised ZeroDivisionError"),
    (POLICY, Preparing(lambda src_len: None), "prepare returned None"),
    (POLICY, Preparing(lambda src_len: 1 // 0), "prepare raised ZeroDivisionError"),
    (POLICY, Preparing(lambda src_len: None, threading.Lock()), "cannot be copied"),
    (COST, lambda src_len, tgt_len: -1.0 * tgt_len, "returned -1.0 s"),
    (COST, lambda src_len, tgt_len: 0.0 * tgt_len, "no request takes any time"),
    (COST, lambda src_len, tgt_len: tgt_len[:3], "returned the shape (3,)"),
    (COST, lambda src_len: src_len, "raised TypeError"),
    (COST, object(), "neither a DeviceProfile"),
    (ARRIVALS, arriving(lambda size: np.zeros(3)), "the shape (3,)"),
    (ARRIVALS, arriving(lambda size: np.arange(size, 0, -1.0)), "out of order"),
    (ARRIVALS, arriving(lambda size: -np.arange(float(size))), "negative or not finite"),
    (ARRIVALS, arriving(lambda size: np.full(size, np.nan)), "negative or not finite"),
    (ARRIVALS, arriving(lambda size: "soon"), "raised ValueError"),
    (ARRIVALS, arriving(lambda size: 1 / 0), "raised ZeroDivisionError"),
    (LENGTHS, np.zeros(5), "no pairs"),
    (LENGTHS, [("a",)], "no pairs"),
    (LENGTHS, object(), "no pairs"),
    (LENGTHS, [("a b", None)] * 20, "no pairs"),
    (RTT, np.zeros((3, 3)), "no series"),
    (RTT, pd.DataFrame({"t": [0.0]}), "no series"),
    (RTT, pd.DataFrame({"time_s": [0.0, 0.0], "rtt_s": [0.1, 0.1]}), "must start at 0"),
    (BATCHER, batcher(next=lambda self, *state: None), "300 sentences wait"),
    (BATCHER, batcher(next=lambda self, *state: Encode((10**6,))), "moves (1000000,)"),
    (BATCHER, batcher(next=lambda self, *state: 3), "next returned 3"),
    (BATCHER, batcher(next=lambda self, *state: None, due_s="soon"), "due_s is 'soon'"),
    (BATCHER, batcher(next=lambda self, *state: 1 / 0), "next raised ZeroDivisionError"),
    (BATCHER, batcher(size=0), "the size 0"),
    (BATCHER, batcher(arrive=None), "no methods arrive and next"),
]
"""Keys, slipping objects in their place, and words that tell the slip from others."""


@pytest.mark.parametrize(("key", "slip", "words"), SLIPS)
def test_a_slip_is_one_line_before_anything_is_written(
    make_scenario: MakeScenario, tmp_path: Path, key: str, slip: Any, words: str
) -> None:
    scenario = batched(slip) if key == BATCHER else make_scenario(requests=50, policies={"edge": {}, "mine": LongAway()})
    *above, last = key.split(".")
    place = scenario
    for part in above:
        place = place[part]
    place[last] = slip
    message = refusal(scenario, out=tmp_path / "run")
    assert (last if key == POLICY else key) in message and words in message
    assert not (tmp_path / "run").exists()
