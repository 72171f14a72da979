"""Overheads of devices: distributions of requests' costs with means in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simnmt.network.overhead import (
    ConstantOverhead,
    EmpiricalOverhead,
    LognormalOverhead,
    Overhead,
    OverheadConfiguration,
)

DRAWS = 20_000
MICROSECONDS = st.integers(0, 10**9).map(lambda microseconds: microseconds / 1e3)
"""In milliseconds."""
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


def test_quantiles_of_a_measurement_keep_its_mean() -> None:
    """Also with a tail as heavy as that of the first testbed's remote path."""
    measured_ms = np.random.default_rng(3).lognormal(0.0, 0.9, 5_000)
    for quantiles_ms in (np.quantile(measured_ms, np.linspace(0, 1, 1_001)), np.sort(measured_ms)):
        overhead = EmpiricalOverhead(quantiles_ms=quantiles_ms.tolist())
        assert 1e3 * overhead.mean_s == pytest.approx(measured_ms.mean(), rel=0.01)


@pytest.mark.parametrize(
    "content", [2, 2.0, {"constant_ms": 2.0}, {"mean_ms": 2.0, "sd_ms": 0.0}, {"quantiles_ms": [2.0, 2.0]}]
)
def test_each_form_can_state_a_constant(content: object) -> None:
    overhead = OVERHEAD.validate_python(content)
    assert overhead.mean_s == pytest.approx(0.002, rel=1e-15)
    np.testing.assert_allclose(overhead.draw_s(np.random.default_rng(0), 5), 0.002, rtol=1e-15)
    assert "2 ms" in overhead.describe()


def test_a_plain_number_is_written_as_a_constant() -> None:
    written = OVERHEAD.dump_python(OVERHEAD.validate_python(0.8), mode="json")
    assert written == {"constant_ms": 0.8}
    assert OVERHEAD.validate_python(written) == ConstantOverhead(constant_ms=0.8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (True, "give a number of ms"),
        ("0.8 ms", "give a number of ms"),
        (-0.1, "greater than or equal to 0"),
        (float("inf"), "less than or equal to 1000000"),
        ({"mean_ms": 0.0, "sd_ms": 0.1}, "greater than or equal to 0.000001"),
        ({"mean_ms": 1.0}, "Field required"),
        ({"quantiles_ms": [1.0]}, "at least 2"),
        ({"quantiles_ms": [1.0, 3.0, 2.0]}, "number 3 is 2 after 3"),
        ({"quantiles_ms": [-1.0, 2.0]}, "greater than or equal to 0"),
        ({"mean_ms": 1.0, "sd_ms": 0.1, "quantiles_ms": [1.0, 2.0]}, "not permitted"),
    ],
)
def test_what_is_no_overhead_is_refused(content: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        OVERHEAD.validate_python(content)
