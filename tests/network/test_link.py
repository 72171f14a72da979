from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from simnmt.network.link import (
    EmpiricalOverhead,
    Link,
    LognormalOverhead,
    Overhead,
    OverheadConfiguration,
    bytes_per_token,
)
from simnmt.network.series import BandwidthSeries, RttSeries, constant_rtt


@pytest.mark.parametrize(
    ("vocab", "expected"), [(1, 2), (65_536, 2), (65_537, 3), (250_000, 3), (1 << 24, 3), ((1 << 24) + 1, 4)]
)
def test_bytes_per_token_of_cnmt_03(vocab: int, expected: int) -> None:
    assert bytes_per_token(vocab) == expected


@given(st.integers(65_537, 1 << 40))
def test_bytes_per_token_is_the_least_that_holds_every_id(vocab: int) -> None:
    bits = 8 * bytes_per_token(vocab)
    assert 2 ** (bits - 8) < vocab <= 2**bits


def test_each_direction_takes_half_the_rtt_and_the_time_of_its_payload() -> None:
    link = Link(constant_rtt(0.05), 1e6, 4e6)
    assert link.ways_one_s(7.0, 1000, 1000, 2) == pytest.approx((0.025 + 0.016, 0.025 + 0.004), rel=1e-15)
    assert link.ways_one_s(7.0, 0, 0, 2) == (0.025, 0.025)


def test_rtt_and_bandwidths_are_those_of_the_moment_on_separate_laps() -> None:
    rtt = RttSeries("r", "measured", "", np.array([0.0, 10.0]), np.array([0.1, 0.2]))  # a lap of 20 s
    uplink = BandwidthSeries("b", "measured", "", np.array([0.0, 15.0]), np.array([1e3, 2e3]))  # a lap of 30 s
    link = Link(rtt, uplink, 4e3)
    ways = np.array([link.ways_one_s(at_s, 100, 200, 2) for at_s in (5.0, 12.0, 17.0, 21.0, 47.0)])
    np.testing.assert_allclose(ways[:, 0], [0.05 + 1.6, 0.1 + 1.6, 0.1 + 0.8, 0.05 + 0.8, 0.05 + 0.8])
    np.testing.assert_allclose(ways[:, 1], [0.05 + 0.8, 0.1 + 0.8, 0.1 + 0.8, 0.05 + 0.8, 0.05 + 0.8])


@st.composite
def links(draw: st.DrawFn) -> Link:
    def columns(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        gaps = draw(st.lists(st.floats(1e-3, 1e3), max_size=8))
        times = np.cumsum([0.0, *gaps])
        return times, np.array(draw(st.lists(st.floats(low, high), min_size=len(times), max_size=len(times))))

    def bandwidth() -> float | BandwidthSeries:
        if draw(st.booleans()):
            return draw(st.floats(1.0, 1e12))
        return BandwidthSeries("b", "synthetic", "", *columns(1.0, 1e12))

    return Link(RttSeries("r", "synthetic", "", *columns(1e-6, 10.0)), bandwidth(), bandwidth())


@given(
    links(),
    st.lists(st.tuples(st.floats(-1e7, 1e7), st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=20),
    st.integers(2, 4),
)
def test_one_request_and_columns_of_them_agree_to_the_last_bit(link: Link, requests, token_bytes: int) -> None:
    at_s, src_len, tgt_len = (np.array(column) for column in zip(*requests, strict=True))
    columns = [column.tolist() for column in link.ways_s(at_s, src_len, tgt_len, token_bytes)]
    assert list(zip(*columns, strict=True)) == [link.ways_one_s(*request, token_bytes) for request in requests]


DRAWS = 20_000
MICROSECONDS = st.integers(0, 10**9).map(lambda microseconds: microseconds / 1e3)  # in ms
OVERHEAD: TypeAdapter[Overhead] = TypeAdapter(OverheadConfiguration)


@given(st.floats(1e-3, 1e4), st.floats(0.0, 1.5), st.integers(0, 2**32))
def test_a_lognormal_overhead_has_its_mean_and_deviation(mean_ms: float, relative_sd: float, seed: int) -> None:
    overhead = LognormalOverhead(mean_ms=mean_ms, sd_ms=relative_sd * mean_ms)
    drawn_ms = 1e3 * overhead.draw_s(np.random.default_rng(seed), DRAWS)
    assert drawn_ms.min() > 0.0
    assert overhead.mean_s == mean_ms / 1e3
    # Six standard errors; that of the deviation is large where the tail is heavy.
    assert drawn_ms.mean() == pytest.approx(mean_ms, rel=6 * relative_sd / DRAWS**0.5 + 1e-12)
    if relative_sd <= 0.3:
        assert drawn_ms.std() == pytest.approx(relative_sd * mean_ms, rel=0.05, abs=1e-9 * mean_ms)


@given(st.lists(MICROSECONDS, min_size=2, max_size=40).map(sorted), st.integers(0, 2**32))
def test_an_empirical_overhead_has_the_mean_and_the_quantiles_that_were_measured(quantiles_ms: list[float], seed: int) -> None:
    overhead = EmpiricalOverhead(quantiles_ms=quantiles_ms)
    drawn_ms = 1e3 * overhead.draw_s(np.random.default_rng(seed), DRAWS)
    spread_ms = quantiles_ms[-1] - quantiles_ms[0]
    assert quantiles_ms[0] * (1 - 1e-12) <= drawn_ms.min() <= drawn_ms.max() <= quantiles_ms[-1] * (1 + 1e-12)
    assert 1e3 * overhead.mean_s == pytest.approx(drawn_ms.mean(), rel=1e-9, abs=6 * spread_ms / 2 / DRAWS**0.5 + 1e-9)


@pytest.mark.parametrize(
    "content", [2, 2.0, {"constant_ms": 2.0}, {"mean_ms": 2.0, "sd_ms": 0.0}, {"quantiles_ms": [2.0, 2.0]}]
)
def test_each_form_can_state_a_constant(content: object) -> None:
    overhead = OVERHEAD.validate_python(content)
    assert overhead.mean_s == pytest.approx(0.002, rel=1e-15)
    np.testing.assert_allclose(overhead.draw_s(np.random.default_rng(0), 5), 0.002, rtol=1e-15)
    assert "2 ms" in overhead.describe()
    assert OVERHEAD.validate_python(OVERHEAD.dump_python(overhead, mode="json")) == overhead
