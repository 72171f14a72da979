"""Lengths, series and batchers that users bring do what shipped ones of the same content do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt
from simnmt.base.errors import InputError
from simnmt.batching import Batcher, Encode, Join, top_up
from simnmt.network.series import RttSeries
from simnmt.workload.length_table import LengthTable
from tests.refusals import assert_short_lines

MakeScenario = Callable[..., dict[str, Any]]
PAIRS = [(3, 4), (5, 5), (7, 9), (12, 11)] * 40
TEXTS = [("a b c", "d e f g"), ("a b c d e", "f g h i j"), ("a", "b c")] * 60


def refusal(scenario: dict[str, Any]) -> str:
    with pytest.raises(InputError) as refused:
        simnmt.run(scenario)
    assert_short_lines(f"{refused.value}\n")
    return str(refused.value)


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


@pytest.mark.parametrize("lengths", [np.zeros(5), [("a",)], object(), [("a b", None)] * 20])
def test_objects_without_lengths_are_refused(make_scenario: MakeScenario, lengths: Any) -> None:
    assert "workloads.de-en.lengths" in refusal(with_lengths(make_scenario(), lengths))


def test_an_rtt_is_an_array_a_table_or_a_series_in_its_own_unit(make_scenario: MakeScenario) -> None:
    time_s, rtt_s = np.arange(50.0), np.linspace(0.02, 0.2, 50)
    forms = [
        np.column_stack([time_s, rtt_s]),
        (time_s, rtt_s),
        pd.DataFrame({"time_s": time_s, "rtt_ms": rtt_s * 1e3}),
        pd.DataFrame({"time_s": time_s + 7.0, "rtt_s": rtt_s}),
        RttSeries("cp1", "unstated", "given", time_s, rtt_s),
    ]
    results = [rows(make_scenario(requests=200, replications=1, networks={"cp1": {"rtt": form}})) for form in forms]
    for result in results:
        assert [row["mean_latency_s"] for row in result] == pytest.approx([row["mean_latency_s"] for row in results[0]])


def test_a_bandwidth_is_a_series_of_megabits(make_scenario: MakeScenario) -> None:
    time_s = np.arange(10.0)
    results = []
    for uplink in (3.0, np.column_stack([time_s, np.full(10, 3.0)]), pd.DataFrame({"time_s": time_s, "bps": np.full(10, 3e6)})):
        network = {"rtt": {"constant_ms": 40}, "uplink_mbps": uplink}
        results.append([row["mean_latency_s"] for row in rows(make_scenario(requests=200, networks={"cp1": network}))])
    assert results[0] == pytest.approx(results[1]) and results[0] == pytest.approx(results[2])


@pytest.mark.parametrize(
    "rtt",
    [
        (np.arange(3.0), np.full(3, 50.0)),
        np.zeros((3, 3)),
        pd.DataFrame({"t": [0.0]}),
        (np.array([0.0, 0.0]), np.array([0.1, 0.1])),
        (np.arange(2.0), np.full(2, np.nan)),
    ],
)
def test_objects_that_are_no_series_are_refused_with_their_key(make_scenario: MakeScenario, rtt: Any) -> None:
    assert "networks.cp1.rtt" in refusal(make_scenario(networks={"cp1": {"rtt": rtt}}))


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


def slipping(**methods: Any) -> Any:
    return type("Slipping", (OneByOne,), methods)()


@pytest.mark.parametrize(
    "batcher",
    [
        slipping(next=lambda self, *state: None),
        slipping(next=lambda self, *state: Encode((10**6,))),
        slipping(next=lambda self, *state: 3),
        slipping(next=lambda self, *state: None, due_s="soon"),
        slipping(next=lambda self, *state: 1 / 0),
        slipping(size=0),
        slipping(arrive=None),
    ],
)
def test_a_batcher_that_slips_ends_the_run_in_one_line(batcher: Any) -> None:
    refusal(batched(batcher))
