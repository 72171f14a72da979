"""Outliers and centroids: the paper's examples, and independent oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.streaming_block import BERT_BASE, ShardGeometry
from simnmt.streaming.shards import (
    SEGMENTS,
    GaussianFit,
    LayerBuffer,
    LayerWeights,
    ascending,
    grouped,
    layer_shards,
    segment_rows,
)
from tests.streaming.made_encoder import put, random_layer

STI_04 = np.array([0.2, -0.1, 0.6, 0, 0.4, -0.3, 0.1, 0.5], np.float32)


def log_density(fit: GaussianFit, weight: float) -> float:
    return -0.5 * math.log(2 * math.pi * fit.deviation**2) - (weight - fit.mean) ** 2 / (2 * fit.deviation**2)


def all_grouped(weights: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and centroids without outliers."""
    return grouped(weights, ascending(weights, np.zeros(len(weights), bool)), bits)


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


def test_centroids_of_sti_04() -> None:
    codes, centroids = all_grouped(STI_04, 1)
    assert centroids.tolist() == pytest.approx([-0.075, 0.425])
    assert codes.tolist() == [1, 0, 1, 0, 1, 0, 0, 1]
    codes, centroids = all_grouped(STI_04, 2)
    assert centroids.tolist() == pytest.approx([-0.2, 0.05, 0.3, 0.55])
    assert codes.tolist() == [2, 0, 3, 1, 2, 0, 1, 3]
    codes, centroids = all_grouped(STI_04, 3)
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
    codes, centroids = grouped(flat, ascending(flat, outliers), bits)
    kept = np.flatnonzero(~outliers)
    groups = np.array_split(kept[np.argsort(flat[kept], kind="stable")], 1 << bits)
    for code, group in enumerate(groups):
        assert (codes[group] == code).all()
        assert centroids[code] == (np.float32(flat[group].mean(dtype=np.float64)) if len(group) else 0)
    assert not codes[outliers].any()


def test_errors_of_gaussian_weights_in_deviations_are_those_of_sti_04() -> None:
    weights = np.random.default_rng(5).standard_normal(200_000).astype(np.float32)
    errors = {}
    for bits in (2, 3, 4, 5, 6):
        codes, centroids = all_grouped(weights, bits)
        errors[bits] = float(np.sqrt(np.mean((centroids[codes] - weights) ** 2)))
    assert errors == pytest.approx({2: 0.374, 3: 0.235, 4: 0.150, 5: 0.097, 6: 0.063}, abs=0.01)


SMALL = ShardGeometry(layers=2, heads=4, width=16, ffn=32)


def test_a_shard_of_sti_01_has_196_608_weights_in_attention_and_in_each_feed_forward_matrix() -> None:
    rows = segment_rows(BERT_BASE)
    assert 768 * sum(rows[name] for name in "qkvo") == 768 * rows["ffn_in"] == 768 * rows["ffn_out"] == 196_608
    assert 768 * sum(rows.values()) == BERT_BASE.weights_per_shard == 589_824


def whole_layer(weights: LayerWeights, hidden: np.ndarray, heads: int) -> np.ndarray:
    """Attention and the feed-forward network as the text books write them, head after head, with no layout at all."""
    q, k, v, o, ffn_in, ffn_out = (getattr(weights, name).numpy() for name in SEGMENTS)
    out, size = np.zeros_like(hidden), q.shape[0] // heads
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        scores = (hidden @ q[rows].T) @ (hidden @ k[rows].T).T
        share = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        out += share @ (hidden @ v[rows].T) @ o[:, rows].T
    return out + np.maximum(hidden @ ffn_in.T, 0) @ ffn_out.T


def from_buffer(buffer: LayerBuffer, hidden: np.ndarray) -> np.ndarray:
    """The same from the segments of a buffer of any number of shards."""
    query, key, value, out, first, second = (buffer.segments[name] for name in SEGMENTS)
    tokens, by_head = len(hidden), (len(hidden), buffer.slices, -1)
    q, k, v = ((hidden @ part.T).reshape(by_head).transpose(1, 0, 2) for part in (query, key, value))
    scores = q @ k.transpose(0, 2, 1)
    share = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
    context = (share @ v).transpose(1, 0, 2).reshape(tokens, -1)
    return context @ out + np.maximum(hidden @ first.T, 0) @ second


def test_the_shards_of_a_layer_summed_are_the_layer() -> None:
    weights, hidden = (
        random_layer(16, 32, torch.Generator().manual_seed(0), scale=0.3),
        np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32),
    )
    expected = whole_layer(weights, hidden, 4)
    summed, together = np.zeros_like(hidden), LayerBuffer(SMALL, 4)
    for position, index in enumerate((2, 0, 3, 1)):  # their order is nobody's business
        alone = LayerBuffer(SMALL, 1)
        put(alone, 0, layer_shards(SMALL, weights)[index])
        put(together, position, layer_shards(SMALL, weights)[index])
        summed += from_buffer(alone, hidden)
    np.testing.assert_allclose(summed, expected, atol=1e-5)
    np.testing.assert_allclose(from_buffer(together, hidden), expected, atol=1e-5)
