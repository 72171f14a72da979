from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.errors import TraceError
from simnmt.network.link import Link, bytes_per_token
from simnmt.network.rtt_series import constant

LINK = Link(constant(0.05), 100e6, 100e6)


def test_worked_example_of_cnmt_03() -> None:
    token_bytes = bytes_per_token(65_536)
    assert token_bytes * (30 + 24) == 108
    assert LINK.transfer_s(0.0, 30, 24, token_bytes) == pytest.approx(8.64e-6, rel=1e-12)
    transfer_s = LINK.transfer_s(0.05, 30, 24, token_bytes)
    assert transfer_s == pytest.approx(0.05000864, rel=1e-12)
    assert 0.05 / transfer_s > 0.999


@pytest.mark.parametrize(
    ("vocab", "expected"),
    [
        (1, 2),
        (50_000, 2),
        (65_536, 2),
        (65_537, 3),
        (85_000, 3),
        (250_000, 3),
        (1 << 24, 3),
        ((1 << 24) + 1, 4),
    ],
)
def test_bytes_per_token_of_cnmt_03(vocab: int, expected: int) -> None:
    assert bytes_per_token(vocab) == expected


@given(st.integers(65_537, 1 << 40))
def test_bytes_per_token_is_the_least_that_holds_every_id(vocab: int) -> None:
    bits = 8 * bytes_per_token(vocab)
    assert 2 ** (bits - 8) < vocab <= 2**bits
    assert bytes_per_token(vocab) >= math.floor(math.log2(vocab) / 8)


def test_both_ways_make_the_transfer_and_columns_agree_with_numbers() -> None:
    link = Link(constant(0.05), 1e6, 4e6)
    rtt_s, src_len, tgt_len = np.array([0.05, 0.08]), np.array([30, 7]), np.array([24, 100])
    total_s = link.transfer_s(rtt_s, src_len, tgt_len, 3)
    assert total_s == pytest.approx(link.uplink_s(rtt_s, src_len, 3) + link.downlink_s(rtt_s, tgt_len, 3), rel=1e-15)
    for i in range(2):
        assert total_s[i] == link.transfer_s(float(rtt_s[i]), int(src_len[i]), int(tgt_len[i]), 3)
    assert link.uplink_s(0.0, 1000, 2) == pytest.approx(0.016)
    assert link.downlink_s(0.0, 1000, 2) == pytest.approx(0.004)


@pytest.mark.parametrize("rate_bps", [0.0, -1.0, math.nan, math.inf])
def test_a_bandwidth_that_is_none_is_refused(rate_bps: float) -> None:
    with pytest.raises(TraceError, match="downlink_bps"):
        Link(constant(0.05), 1e6, rate_bps)


def test_a_vocabulary_of_nothing_is_refused() -> None:
    with pytest.raises(TraceError, match="vocabulary of 0"):
        bytes_per_token(0)
