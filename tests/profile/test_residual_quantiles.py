"""The distribution of single executions about the plane: how it follows from executions, and how factors are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.profile.blocks import ProfileError
from simnmt.profile.profile_file import checked_profile
from simnmt.profile.residual_quantiles import ResidualQuantiles
from tests.profile.made_profile import whole_profile


@settings(max_examples=25)
@given(
    times=st.lists(st.floats(0.1, 50.0), min_size=30, max_size=300),
)
def test_the_residual_has_the_mean_one_and_the_quantiles_of_its_executions(times: list[float]) -> None:
    factors = np.array(times)
    residual = ResidualQuantiles.of(factors)
    grid = (np.arange(50_000) + 0.5) / 50_000
    drawn = np.interp(grid, residual.shares, residual.factors)
    assert drawn.mean() == pytest.approx(1.0, abs=1e-4)
    assert drawn.std() == pytest.approx(residual.relative_sd, rel=1e-2, abs=1e-4)
    scale = residual.factors[-1] / factors.max()
    for share in (0.05, 0.5, 0.95, 0.99):
        assert np.quantile(drawn, share) == pytest.approx(scale * np.quantile(factors, share), rel=1e-2, abs=0.02)


@settings(max_examples=10)
@given(st.integers(0, 2**16))
def test_a_factor_is_drawn_at_the_quantile_of_its_normal_number(seed: int) -> None:
    residual = ResidualQuantiles.of(np.random.default_rng(seed).lognormal(0.0, 0.3, 500))
    normal = np.random.default_rng(seed + 1).standard_normal(50_000)
    drawn = residual.factor(normal)
    assert (np.argsort(drawn) == np.argsort(normal)).mean() > 0.99, "the same requests are slow on every device profile"
    assert np.quantile(drawn, 0.99) == pytest.approx(np.interp(0.99, residual.shares, residual.factors), rel=0.05)
    assert drawn.mean() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    "quantiles",
    [
        {"shares": [0.0, 1.0], "factors": [0.5, 1.6]},
        {"shares": [0.0, 1.0], "factors": [1.5, 0.5]},
        {"shares": [0.1, 1.0], "factors": [0.5, 1.5]},
        {"shares": [0.0, 0.5, 1.0], "factors": [0.5, 1.5]},
    ],
)
def test_quantiles_that_are_no_distribution_of_mean_one_are_refused_with_their_key(quantiles: dict[str, Any]) -> None:
    content = whole_profile()
    content["execution"] = content["execution"] | {"residual_quantiles": quantiles}
    with pytest.raises(ProfileError) as refused:
        checked_profile(content)
    assert "execution.residual_quantiles" in str(refused.value)
