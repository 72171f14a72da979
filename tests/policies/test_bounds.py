"""What no policy can beat, and what C-NMT cannot get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simnmt.devices import Fifo
from simnmt.policies import CLOUD, GATEWAY, CNmt, Fixed, Oracle, Policy, TransferEstimate, constant_length
from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.results.requests import Requests, Trail
from simnmt.workload.length_regression import LengthRegression
from simnmt.world.deciders import Beliefs
from tests.world.engines import simulate
from tests.worlds import latency_s, two_devices

STEADY = settings(derandomize=True, deadline=None, max_examples=60)
COEFFICIENT = st.floats(0.0, 0.05)
PLANES = st.builds(ExecutionPlane, COEFFICIENT, COEFFICIENT, COEFFICIENT)
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
        lambda block: (policy or Oracle(block.execution_s)).prepare(block.src_len),
        Beliefs(lambda decider, target: TransferEstimate(initial_transfer_s), true_transfer=knows_transfer or policy is None),
        [Fifo()],
    )


def latencies_s(requests: Requests, policy: Policy | None, **how: Any) -> NDArray[np.float64]:
    return latency_s(requests, run(requests, policy, **how))


@STEADY
@given(worlds(), st.tuples(PLANES, PLANES), st.floats(-2.0, 3.0), st.floats(-5.0, 50.0), st.floats(0.0, 2.0))
def test_back_to_back_no_policy_serves_any_request_faster_than_the_oracle(
    requests: Requests, planes: tuple[ExecutionPlane, ExecutionPlane], slope: float, offset: float, initial_transfer_s: float
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


def noiseless(seed: int, requests: int = 3_000) -> tuple[Requests, CNmt, NDArray[np.int64]]:
    """A world on its planes, a C-NMT that knows them and every target length, and those lengths."""
    random = np.random.default_rng(seed)
    src_len, tgt_len = random.integers(1, 80, requests), random.integers(1, 80, requests)
    planes = (ExecutionPlane(0.001, 0.008, 0.010), ExecutionPlane(0.0002, 0.002, 0.005))
    one_way_s = 0.06 * random.lognormal(0.5, 0.8, (2, requests))
    world = two_devices(src_len, *(plane.seconds(src_len, tgt_len) for plane in planes), *one_way_s)
    return world, CNmt(planes, lambda _: tgt_len.astype(np.float64)), tgt_len


@pytest.mark.parametrize("seed", range(5))
def test_with_perfect_lengths_true_planes_and_the_present_rtt_cnmt_equals_the_oracle(seed: int) -> None:
    requests, cnmt, _ = noiseless(seed)
    ours, oracle = run(requests, cnmt, knows_transfer=True), run(requests, None)
    assert (ours.target == oracle.target).all()
    assert (ours.arrival_s == oracle.arrival_s).all()
    assert 0.2 < ours.target.mean() < 0.8


def test_each_of_the_three_perfections_is_needed() -> None:
    requests, cnmt, tgt_len = noiseless(0)
    best_s = latencies_s(requests, None).sum()
    stale = latencies_s(requests, cnmt)
    assert stale.sum() > 1.001 * best_s
    one_length = CNmt(cnmt.planes, constant_length(float(tgt_len.mean())))
    assert latencies_s(requests, one_length, knows_transfer=True).sum() > 1.001 * best_s


ROW = st.tuples(LENGTH, LENGTH, st.floats(-1e3, 1e6), st.floats(0.0, 1.0), st.floats(0.0, 5.0))


@STEADY
@given(st.tuples(PLANES, PLANES), st.lists(ROW, min_size=1, max_size=20))
def test_however_wrong_its_lengths_cnmt_keeps_what_it_expects_here_before_a_round_trip_is_over(
    planes: tuple[ExecutionPlane, ExecutionPlane], rows: list[tuple[int, int, float, float, float]]
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
    planes = (ExecutionPlane(0.0, 1.0, 0.0), ExecutionPlane(0.0, 0.0, 0.0))
    assert CNmt(planes, LengthRegression(0.5, -1.0).predict).predicted_tgt_len(src_len).tolist() == [1.0, 4.0, 49.0]
    assert CNmt(planes, constant_length(7.5)).predicted_tgt_len(src_len).tolist() == [7.5] * 3
    for silent in (Fixed(GATEWAY), Oracle((src_len * 1.0, src_len * 1.0))):
        assert not hasattr(silent, "predicted_tgt_len")
