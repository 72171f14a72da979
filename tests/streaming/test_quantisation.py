"""Outliers and centroids: the paper's examples, and independent oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.streaming.errors import StoreError
from simnmt.streaming.store.quantisation import DEVIATION_LIMIT, Ascending, GaussianFit

STI_04 = np.array([0.2, -0.1, 0.6, 0, 0.4, -0.3, 0.1, 0.5], np.float32)


def log_density(fit: GaussianFit, weight: float) -> float:
    return -0.5 * math.log(2 * math.pi * fit.deviation**2) - (weight - fit.mean) ** 2 / (2 * fit.deviation**2)


def none_out(weights: np.ndarray) -> Ascending:
    return Ascending.of(weights, np.zeros(len(weights), bool))


def test_outliers_of_sti_03() -> None:
    fit = GaussianFit(0.0, 0.04)
    assert [round(log_density(fit, weight), 3) for weight in (0.14, 0.15)] == [-3.825, -4.731]
    assert fit.outliers(np.array([0.14, -0.14, 0.15, -0.15], np.float32)).tolist() == [False, False, True, True]
    assert fit.cut == pytest.approx(0.14198, abs=1e-5)


@pytest.mark.parametrize(
    ("deviation", "cut", "percent"), [(0.02, 3.740, 0.018), (0.04, 3.550, 0.039), (0.1, 3.281, 0.103), (1, 2.482, 1.305)]
)
def test_the_rule_of_sti_03_is_not_free_of_scale(deviation: float, cut: float, percent: float) -> None:
    deviations = GaussianFit(0.0, deviation).cut / deviation
    assert round(deviations, 3) == cut
    assert round(100 * math.erfc(deviations / math.sqrt(2)), 3) == percent


def test_the_fit_is_the_one_component_mixture_that_the_paper_fits() -> None:
    import sklearn.mixture as mixture

    weights = (0.01 + 0.05 * np.random.default_rng(3).standard_t(4, 5000)).astype(np.float32)
    fit, theirs = GaussianFit.of(weights), mixture.GaussianMixture(1, reg_covar=0.0).fit(weights[:, None].astype(float))
    assert fit.mean == pytest.approx(theirs.means_[0, 0], rel=1e-9)
    assert fit.deviation**2 == pytest.approx(theirs.covariances_[0, 0, 0], rel=1e-9)
    densities = theirs.score_samples(weights[:, None].astype(float))
    assert fit.outliers(weights).tolist() == (densities < -4).tolist()
    assert 10 < fit.outliers(weights).sum() < 500


def test_from_a_deviation_of_21_79_on_every_weight_is_an_outlier() -> None:
    assert 21.78 < DEVIATION_LIMIT < 21.79
    weights = np.random.default_rng(4).standard_normal(1000).astype(np.float32)
    weights = (weights - weights.mean()) / weights.std()
    assert not GaussianFit.of(weights * np.float32(21.5)).outliers(weights * np.float32(21.5)).all()
    with pytest.raises(StoreError, match=r"layer 7: with a deviation of 22 every weight is an outlier"):
        GaussianFit.of(weights * np.float32(22), "layer 7")


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ([0.5, 0.5, 0.5], r"layer 7: all weights are 0\.5, to which no Gaussian fits"),
        ([0, 0, 0], "layer 7: all weights are 0,"),
        ([20, -20, 20, -20], "layer 7: with a deviation of 20 every weight is an outlier"),
        ([0.1, math.nan], "layer 7 has weights that are not finite"),
        ([0.1, math.inf], "layer 7 has weights that are not finite"),
        ([3e38, 3e38, -3e38], "layer 7"),
    ],
)
def test_layers_that_cannot_be_quantised_are_named(weights: list[float], complaint: str) -> None:
    with pytest.raises(StoreError, match=complaint):
        GaussianFit.of(np.array(weights, np.float32), "layer 7")


def test_equal_weights_whose_mean_rounds_are_equal_all_the_same() -> None:
    with pytest.raises(StoreError, match=r"all weights are 0\.1,"):
        GaussianFit.of(np.full(1_000_003, 0.1, np.float32))


def test_centroids_of_sti_04() -> None:
    codes, centroids = none_out(STI_04).grouped(1)
    assert centroids.tolist() == pytest.approx([-0.075, 0.425])
    assert codes.tolist() == [1, 0, 1, 0, 1, 0, 0, 1]
    codes, centroids = none_out(STI_04).grouped(2)
    assert centroids.tolist() == pytest.approx([-0.2, 0.05, 0.3, 0.55])
    assert codes.tolist() == [2, 0, 3, 1, 2, 0, 1, 3]
    codes, centroids = none_out(STI_04).grouped(3)
    assert centroids[codes].tolist() == STI_04.tolist()


@given(
    weights=st.lists(st.sampled_from([-1.5, -0.25, -0.0, 0.0, 0.25, 1e-40, 0.5, 2.0]), min_size=1, max_size=90),
    bits=st.sampled_from([2, 3, 6]),
    seed=st.integers(0, 99),
)
def test_groups_are_those_of_a_stable_sort_cut_evenly(weights: list[float], bits: int, seed: int) -> None:
    """Equal values go by position, larger groups come first, outliers take no part; numpy sorts and cuts independently."""
    flat = np.array(weights, np.float32)
    outliers = np.random.default_rng(seed).random(len(flat)) < 0.2
    codes, centroids = Ascending.of(flat, outliers).grouped(bits)
    kept = np.flatnonzero(~outliers)
    groups = np.array_split(kept[np.argsort(flat[kept], kind="stable")], 1 << bits)
    for code, group in enumerate(groups):
        assert (codes[group] == code).all()
        assert centroids[code] == (np.float32(flat[group].mean(dtype=np.float64)) if len(group) else 0)
    assert not codes[outliers].any()


def test_errors_of_gaussian_weights_in_deviations_are_those_of_sti_04() -> None:
    weights = np.random.default_rng(5).standard_normal(200_000).astype(np.float32)
    ascending = none_out(weights)
    errors = {}
    for bits in (2, 3, 4, 5, 6):
        codes, centroids = ascending.grouped(bits)
        errors[bits] = float(np.sqrt(np.mean((centroids[codes] - weights) ** 2)))
    assert errors == pytest.approx({2: 0.374, 3: 0.235, 4: 0.150, 5: 0.097, 6: 0.063}, abs=0.01)
