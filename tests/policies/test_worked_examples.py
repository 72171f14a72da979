"""The worked examples of C-NMT, to the digits."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.network.link import Link, bytes_per_token
from simnmt.network.series import constant_rtt
from simnmt.policies import CNmt, Fixed, LeastTotal, constant_length, kept_lengths
from simnmt.profile.cost import Plane
from simnmt.profile.execution_fit import fit_plane
from simnmt.results.requests import Requests
from simnmt.workload.length_regression import LengthRegression, fit_lengths
from simnmt.workload.length_table import LengthTable
from simnmt.world.inputs import DecideFor
from tests.worlds import CLOUD, GATEWAY, recording, run

GATEWAY_PLANE, CLOUD_PLANE = Plane(0.0004, 0.003, 0.005), Plane(0.0001, 0.001, 0.004)
LENGTHS = LengthRegression(slope=0.8, offset=1.0)


def test_cnmt_03_a_request_of_108_bytes_takes_8_64_us() -> None:
    assert bytes_per_token(65_536) == 2
    assert bytes_per_token(85_000) == bytes_per_token(250_000) == 3
    link = Link(constant_rtt(0.050), 100e6, 100e6)
    transfer_s = sum(link.ways_one_s(0.0, 30, 24, 2))
    payload_s = transfer_s - 0.050
    assert payload_s == pytest.approx(8.64e-6, rel=1e-9)
    assert 0.050 / transfer_s > 0.999


def test_cnmt_05_four_exact_rows_give_their_plane_back() -> None:
    src_len, tgt_len = np.array([1, 10, 5, 30]), np.array([1, 5, 20, 40])
    plane = fit_plane(src_len, tgt_len, 0.4 * src_len + 3.0 * tgt_len + 5.0).plane
    values = (plane.s_per_src_token, plane.s_per_tgt_token, plane.s_fixed)
    assert values == pytest.approx((0.4, 3.0, 5.0), abs=1e-9, rel=0.0)


def test_cnmt_07_four_pairs_give_slope_offset_r2_and_mse() -> None:
    fit = fit_lengths(LengthTable.of_pairs("four", "made up", "word", "word", [4, 8, 12, 20], [5, 7, 12, 17]))
    values = [fit.len_slope, fit.len_offset, fit.pairs_r2, fit.pairs_mse]
    assert [round(x, 6) for x in values[:2]] == [0.778571, 1.685714]
    assert [round(x, 5) for x in values[2:]] == [0.97826, 0.47143]


def test_cnmt_09_a_sentence_of_24_tokens_stays_and_one_of_25_goes() -> None:
    src_len = np.array([24, 25])
    decide = CNmt((GATEWAY_PLANE, CLOUD_PLANE), LENGTHS.predict).prepare(src_len)
    assert [decide(request, (0.0, 0.050)) for request in (0, 1)] == [GATEWAY, CLOUD]
    tgt_len = LENGTHS.predict(src_len)
    margin_ms = 1e3 * (GATEWAY_PLANE.seconds(src_len, tgt_len) - CLOUD_PLANE.seconds(src_len, tgt_len) - 0.050)
    assert margin_ms == pytest.approx([-1.4, 0.5], abs=1e-9)


def test_cnmt_09_the_border_lies_at_24_7368_tokens() -> None:
    ((first, last),) = kept_lengths(GATEWAY_PLANE, CLOUD_PLANE, LENGTHS, 0.050)
    assert (first, round(last, 4)) == (1.0, 24.7368)


EXPECTED = {
    "edge": ("e e e e e e", 592.0),
    "cloud": ("c c c c c c", 515.0),
    "oracle": ("e c c e c c", 475.2),
    "naive": ("e e c c e e", 538.8),
    "cnmt": ("e c c c c e", 505.8),
}
"""CNMT-10: choices (e at the gateway, c in the cloud) and total, ms."""


class TestCnmt10:
    """Six requests, back to back through the world; the present transfer time stands in the columns."""

    SRC_LEN = np.array([10, 30, 40, 24, 60, 26])
    TGT_LEN = np.array([9, 22, 36, 30, 45, 20])
    RTT_S = np.array([50, 50, 20, 80, 80, 30]) / 1e3
    REQUESTS = Requests(
        src_len=SRC_LEN,
        execution_s=(GATEWAY_PLANE.seconds(SRC_LEN, TGT_LEN), CLOUD_PLANE.seconds(SRC_LEN, TGT_LEN)),
        uplink_s=(RTT_S / 2,),
        downlink_s=(RTT_S / 2,),
    )

    def run(self, name: str) -> tuple[str, float]:
        """(choices, total in ms)"""
        planes = (GATEWAY_PLANE, CLOUD_PLANE)
        deciders: dict[str, DecideFor] = {
            "edge": lambda block: Fixed(GATEWAY).prepare(block.src_len),
            "cloud": lambda block: Fixed(CLOUD).prepare(block.src_len),
            "oracle": lambda block: LeastTotal(block.execution_s),
            "naive": lambda block: CNmt(planes, constant_length(20.0)).prepare(block.src_len),
            "cnmt": lambda block: CNmt(planes, LENGTHS.predict).prepare(block.src_len),
        }
        trail = run(self.REQUESTS, deciders[name], 0.050, clairvoyant=name == "oracle")
        gateway_s, cloud_s = self.REQUESTS.execution_s
        latency_s = np.where(trail.target == CLOUD, cloud_s + self.RTT_S, gateway_s)
        assert trail.arrival_s == pytest.approx(np.cumsum(latency_s) - latency_s, abs=1e-12)
        assert not trail.queue_s.any()
        return " ".join("ec"[target] for target in trail.target), 1e3 * float(latency_s.sum())

    @pytest.mark.parametrize("name", EXPECTED)
    def test_choices_and_totals(self, name: str) -> None:
        choices, total_ms = self.run(name)
        assert choices == EXPECTED[name][0]
        assert total_ms == pytest.approx(EXPECTED[name][1], abs=1e-9)

    @pytest.mark.parametrize(("name", "percent"), [("naive", (-8.99, 4.62, 13.38)), ("cnmt", (-14.56, -1.79, 6.44))])
    def test_percentages_against_gateway_server_and_oracle(self, name: str, percent: tuple[float, ...]) -> None:
        _, total_ms = self.run(name)
        values = [100 * (total_ms / self.run(baseline)[1] - 1) for baseline in ("edge", "cloud", "oracle")]
        assert tuple(round(change, 2) for change in values) == percent


class TestCnmt11:
    """Sent at 1000.0, received at 1130.0, 80.0 at the server, 30.0 of them queued: a transfer of 50.0."""

    # Request 0 holds the server until 1050 and is itself answered late. Requests from the second on stay at the gateway.
    REQUESTS = Requests(
        src_len=np.array([1, 1, 0, 0, 0, 0, 0]),
        execution_s=(np.full(7, 0.001), np.array([60.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0])),
        uplink_s=(np.array([20.0, 20.0, 0.0, 0.0, 0.0, 0.0, 0.0]),),
        downlink_s=(np.array([500.0, 30.0, 0.0, 0.0, 0.0, 0.0, 0.0]),),
        arrival_s=np.array([970.0, 1000.0, 1129.9, 1130.0, 1131.0, 1549.9, 1550.0]),
    )

    def test_the_gateway_measures_50_and_leaves_the_wait_at_the_server_out(self) -> None:
        delays, decide_for = recording(lambda block: lambda request, delay_s: int(block.src_len[request]))
        trail = run(self.REQUESTS, decide_for, 7.0)
        assert trail.target.tolist() == [1, 1, 0, 0, 0, 0, 0]
        assert trail.queue_s.tolist() == [0.0, 30.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        # Known from the very moment of its receipt; then held until request 0 is answered, which was away for 520 on the link.
        assert trail.estimate_s.tolist() == [7.0, 7.0, 7.0, 50.0, 50.0, 50.0, 520.0]
        assert trail.measured_at_s.tolist() == [0.0, 0.0, 0.0, 1130.0, 1130.0, 1130.0, 1550.0]
        assert delays == [(0.0, estimate_s) for estimate_s in trail.estimate_s.tolist()]
