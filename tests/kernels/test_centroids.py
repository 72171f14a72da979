"""The nearest centroid of a hidden state (FVP-05)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.kernels.columns import Centroids
from simnmt.kernels.errors import KernelError
from tests.kernels.implementations import each_implementation

pytestmark = each_implementation


def test_worked_example_of_fvp_05() -> None:
    """With the printed bars, the norm of a signed score, the answer would be 1, which is wrong."""
    centroids = Centroids.of(torch.tensor([[2.0, 0.0], [0.0, 0.5]]))
    hidden = torch.tensor([[2.0, 0.0]])
    scores = centroids.points.square().sum(1) - 2 * hidden @ centroids.points.T
    assert scores.tolist() == [[-4.0, 0.25]]
    relative = -2 * ((hidden - centroids.mean) @ centroids.points.T + centroids.half_norms)
    assert float(relative[0, 1] - relative[0, 0]) == 4.25, "the mean moves both scores alike"
    assert centroids.nearest(hidden).tolist() == [0]
    assert (scores + hidden.square().sum()).tolist() == [[0.0, 4.25]], "true squared distances"
    assert int(scores.abs().argmin()) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_common_offset_of_100_deviations_changes_no_centroid(dtype: torch.dtype) -> None:
    """Without the mean, one answer of 25 was wrong. Of two that rounding to float32 cannot tell apart, either is right."""
    generator = torch.Generator().manual_seed(0)
    points = (torch.randn(500, 512, generator=generator) + 100).to(dtype)
    hidden = torch.randn(1_000, 512, generator=generator) + 100
    distances = torch.cdist(hidden.double(), points.double()).square()
    chosen = distances.gather(1, Centroids.of(points).nearest(hidden)[:, None])[:, 0]
    assert (chosen <= (1.0 + 4e-6) * distances.min(1).values).all()


@given(st.integers(0, 20), st.integers(1, 60), st.integers(1, 70), st.integers(0, 999))
def test_the_nearest_centroid_equals_brute_force(rows: int, clusters: int, width: int, seed: int) -> None:
    """By squared distances in float64; where rounding to float32 could choose another, that one must be as near but for it."""
    generator = torch.Generator().manual_seed(seed)
    points, hidden = torch.randn(clusters, width, generator=generator), torch.randn(rows, width, generator=generator)
    nearest = Centroids.of(points).nearest(hidden)
    assert nearest.dtype == torch.int64
    distances = (hidden.double()[:, None] - points.double()).square().sum(2)
    chosen = distances.gather(1, nearest[:, None])[:, 0]
    magnitudes = hidden.double().square().sum(1) + points.double().square().sum(1).max()
    assert (chosen <= distances.min(1).values + 8 * width * 2.0**-24 * magnitudes).all()


def test_the_lowest_of_equally_near_centroids_is_chosen() -> None:
    points = torch.tensor([[3.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    centroids = Centroids.of(points)
    assert centroids.nearest(torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])).tolist() == [1, 1, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_centroids_take_half_the_memory_and_are_compared_exactly(dtype: torch.dtype) -> None:
    """FVP-18: against float64 of the rounded points. Products rounded to their type would choose another for some rows."""
    generator = torch.Generator().manual_seed(1)
    points = (torch.randn(600, 64, generator=generator) + 3.0).to(dtype)
    hidden = torch.randn(200, 64, generator=generator) + 3.0
    centroids = Centroids.of(points)
    assert centroids.points.dtype == dtype
    assert centroids.nbytes == 2 * 600 * 64 + 4 * 600 + 4 * 64
    for states in (hidden, hidden.to(dtype)):
        distances = (states.double()[:, None] - points.double()).square().sum(2)
        assert torch.equal(centroids.nearest(states), distances.argmin(1))
    rounded = (hidden.to(dtype) @ points.T + centroids.half_norms.to(dtype)).argmax(1)
    assert not torch.equal(rounded, distances.argmin(1)), "of the last hidden states, which are of that type too"
    hidden[3, 5] = torch.nan
    with pytest.raises(KernelError, match="hidden row 3 is not finite"):
        centroids.nearest(hidden)
