"""The least total, estimates and their settings; what no policy can beat, and what C-NMT cannot get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from simnmt.devices import Fifo
from simnmt.policies import (
    CNmt,
    Fixed,
    LeastTotal,
    Policy,
    PolicyConfiguration,
    QuantileEstimate,
    TransferEstimate,
    constant_length,
)
from simnmt.profile.cost import Plane
from simnmt.results.requests import Requests, Trail
from simnmt.workload.length_regression import LengthRegression
from simnmt.world.deciders import Beliefs
from tests.worlds import CLOUD, GATEWAY, latency_s, simulate, two_devices

STEADY = settings(derandomize=True, deadline=None, max_examples=60)
COEFFICIENT = st.floats(0.0, 0.05)
PLANES = st.builds(Plane, COEFFICIENT, COEFFICIENT, COEFFICIENT)
LENGTH = st.integers(1, 200)
SECONDS = st.integers(0, 32).map(lambda eighths: eighths / 8) | st.floats(0.0, 4.0)


@st.composite
def worlds(draw: st.DrawFn) -> Requests:
    """Requests back to back with any times at all."""
    rows = draw(st.lists(st.tuples(LENGTH, SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=20))
    src_len, *times_s = (np.array(column) for column in zip(*rows, strict=True))
    return two_devices(src_len, *(column.astype(np.float64) for column in times_s))


def run(requests: Requests, policy: Policy | None, initial_transfer_s: float = 0.05, knows_transfer: bool = False) -> Trail:
    """Back to back; None stands for the oracle."""
    return simulate(
        requests,
        lambda block: LeastTotal(block.execution_s) if policy is None else policy.prepare(block.src_len),
        Beliefs(lambda decider, target: TransferEstimate(initial_transfer_s), true_transfer=knows_transfer or policy is None),
        [Fifo()],
    )


def latencies_s(requests: Requests, policy: Policy | None, **options: Any) -> NDArray[np.float64]:
    return latency_s(requests, run(requests, policy, **options))


@STEADY
@given(worlds(), st.tuples(PLANES, PLANES), st.floats(-2.0, 3.0), st.floats(-5.0, 50.0), st.floats(0.0, 2.0))
def test_back_to_back_no_policy_serves_any_request_faster_than_the_oracle(
    requests: Requests, planes: tuple[Plane, Plane], slope: float, offset: float, initial_transfer_s: float
) -> None:
    """The policies' planes and lengths have nothing to do with the truth."""
    best_s = latencies_s(requests, None)
    rivals = [
        Fixed(GATEWAY),
        Fixed(CLOUD),
        CNmt(planes, LengthRegression(slope, offset).predict),
        CNmt(planes, constant_length(abs(offset) + 1.0)),
    ]
    for policy in rivals:
        assert (best_s <= latencies_s(requests, policy, initial_transfer_s=initial_transfer_s) + 1e-12).all()


ROW = st.tuples(LENGTH, LENGTH, st.floats(-1e3, 1e6), st.floats(0.0, 1.0), st.floats(0.0, 5.0))


@STEADY
@given(st.tuples(PLANES, PLANES), st.lists(ROW, min_size=1, max_size=20))
def test_however_wrong_its_lengths_cnmt_keeps_what_it_expects_here_before_a_round_trip_is_over(
    planes: tuple[Plane, Plane], rows: list[tuple[int, int, float, float, float]]
) -> None:
    """The cloud's own time is never negative. With lengths guessed too short this holds of the true times as well."""
    src_len, tgt_len, wrong, short_share, transfer_s = (np.array(column) for column in zip(*rows, strict=True))
    for guess, local_s in (
        (wrong, planes[GATEWAY].seconds(src_len, wrong)),
        (short_share * tgt_len, planes[GATEWAY].seconds(src_len, tgt_len)),
    ):
        decide = CNmt(planes, lambda _, guess=guess: guess).prepare(src_len)
        for request in np.flatnonzero(local_s <= transfer_s):
            assert decide(request, (0.0, transfer_s[request])) == GATEWAY


def test_policies_that_predict_lengths_show_them() -> None:
    src_len = np.array([1, 10, 100])
    planes = (Plane(0.0, 1.0, 0.0), Plane(0.0, 0.0, 0.0))
    assert CNmt(planes, LengthRegression(0.5, -1.0).predict).predicted_tgt_len(src_len).tolist() == [1.0, 4.0, 49.0]
    assert CNmt(planes, constant_length(7.5)).predicted_tgt_len(src_len).tolist() == [7.5] * 3
    assert not hasattr(Fixed(GATEWAY), "predicted_tgt_len")


# A grid of sixteenths adds without rounding, so that ties are ties; the others are whatever floats are.
SIXTEENTHS = st.integers(0, 64).map(lambda sixteenths: sixteenths / 16) | st.floats(0.0, 1e3)


@given(
    st.integers(1, 6).flatmap(
        lambda targets: st.lists(st.lists(SIXTEENTHS, min_size=2 * targets, max_size=2 * targets), min_size=1)
    )
)
def test_the_least_total_is_taken_and_of_equal_ones_the_first(rows: list[list[float]]) -> None:
    """For one to six targets: execution in the first half of a row, delays in the second."""
    execution_s, delay_s = np.split(np.array(rows), 2, axis=1)
    decide = LeastTotal(list(execution_s.T))
    for request, delays in enumerate(delay_s.tolist()):
        assert decide(request, delays) == np.argmin(execution_s[request] + delays)


TRANSFERS = st.floats(0.0, 1e4)


@given(st.floats(0.01, 0.99) | st.just(1.0), st.lists(TRANSFERS, min_size=1, max_size=30), TRANSFERS)
def test_an_estimate_weighs_each_measurement_by_its_age(weight: float, measured: list[float], initial_s: float) -> None:
    """With weight 1 the last measurement wins, to the bit (CNMT-11)."""
    estimate, count = TransferEstimate(initial_s, weight), len(measured)
    assert (estimate.value_s, estimate.measured_at_s) == (initial_s, 0.0)
    for number, transfer_s in enumerate(measured, start=1):
        estimate.learn(transfer_s, float(number))
        assert estimate.measured_at_s == number and (weight < 1.0 or estimate.value_s == transfer_s)
    expected = (1 - weight) ** count * initial_s
    expected += sum(weight * (1 - weight) ** (count - 1 - k) * transfer_s for k, transfer_s in enumerate(measured))
    assert estimate.value_s == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert min(initial_s, *measured) * (1 - 1e-9) <= estimate.value_s <= max(initial_s, *measured) * (1 + 1e-9)


@given(st.lists(TRANSFERS, min_size=1, max_size=60), st.floats(0.0, 1.0), st.integers(1, 40), TRANSFERS)
def test_a_quantile_is_that_of_the_last_measurements(
    measured: list[float], quantile: float, window: int, initial_s: float
) -> None:
    """The initial value is forgotten at the first measurement."""
    estimate = QuantileEstimate(initial_s, quantile, window)
    assert (estimate.value_s, estimate.measured_at_s) == (initial_s, 0.0)
    for count, transfer_s in enumerate(measured, start=1):
        estimate.learn(transfer_s, float(count))
        expected_s = np.quantile(measured[max(count - window, 0) : count], quantile)
        assert estimate.value_s == pytest.approx(expected_s, rel=1e-12, abs=1e-12)
        assert estimate.measured_at_s == count


POLICY: TypeAdapter[Any] = TypeAdapter(PolicyConfiguration)


@pytest.mark.parametrize("kind", ["cnmt", "naive"])
def test_a_policy_is_that_of_the_paper_but_for_what_is_configured(kind: str) -> None:
    policy = POLICY.validate_python({"kind": kind})
    assert (policy.kind, policy.sees_backlog, policy.plan_state) == (kind, False, "ignored")
    assert kind == "naive" or policy.minimises == "mean"
    smoothed, quantile = {"kind": "smoothed", "weight": 0.5}, {"kind": "quantile", "quantile": 0.0, "window": 2}
    for content, value_s in (({}, 5.0), ({"transfer_estimate": smoothed}, 4.0), ({"transfer_estimate": quantile}, 4.0)):
        estimate = POLICY.validate_python({"kind": kind} | content).transfer_estimate.estimate(1.0)
        for transfer_s in (3.0, 4.0, 5.0):
            estimate.learn(transfer_s, 1.0)
        assert estimate.value_s == value_s


REFUSED = [
    ({"kind": "cnmt", "transfer_estimate": "newest"}, "transfer_estimate"),
    ({"kind": "cnmt", "transfer_estimate": {"kind": "smoothed", "weight": 0.0}}, "weight"),
    ({"kind": "cnmt", "transfer_estimate": {"kind": "last", "weight": 0.5}}, "weight"),
    ({"kind": "cnmt", "transfer_estimate": {"kind": "quantile", "quantile": 25}}, "quantile"),
    ({"kind": "cnmt", "transfer_estimate": {"kind": "quantile", "window": 0}}, "window"),
    ({"kind": "cnmt", "plan_state": "guessed"}, "plan_state"),
    ({"kind": "oracle", "plan_state": "known"}, "plan_state"),
    ({"kind": "naive", "lengths": "distribution"}, "lengths"),
    ({"kind": "fixed"}, "device"),
    # Keys that contradict each other.
    ({"kind": "cnmt", "minimises": "p95"}, ""),
    ({"kind": "cnmt", "lengths": "distribution", "len_slope": 1.0}, ""),
]


@pytest.mark.parametrize(("content", "key"), REFUSED)
def test_a_wrong_key_is_refused_at_its_place(content: dict[str, Any], key: str) -> None:
    """`tests/campaigns/test_scenarios.py` compares the schema with the reader."""
    with pytest.raises(ValidationError) as refused:
        POLICY.validate_python(content)
    assert not key or any(key in error["loc"] for error in refused.value.errors())


def test_a_policy_names_the_devices_on_which_it_may_execute_requests() -> None:
    kinds = ({"kind": "edge"}, {"kind": "cloud"}, {"kind": "fixed", "device": "near"}, {"kind": "cnmt"})
    used = [list(POLICY.validate_python(kind).devices_of(["gateway", "near", "far"])) for kind in kinds]
    assert used == [["gateway"], ["far"], ["near"], ["gateway", "near", "far"]]
