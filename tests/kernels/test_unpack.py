"""Unpacking against the codes' bits one by one, as compiled and in numpy (STI-06)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.kernels.native_library import KernelError
from simnmt.kernels.unpack import PACKED_BITS, PackedWeights, Place, unpack
from tests.kernels.implementations import each_implementation

each_bits = pytest.mark.parametrize("bits", PACKED_BITS)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Bit by bit."""
    return np.packbits((codes[:, None] >> np.arange(bits)) & 1, bitorder="little")


def wanted(drawn: PackedWeights) -> np.ndarray:
    stream = np.unpackbits(drawn.codes, bitorder="little")[: drawn.weights * drawn.bits].reshape(-1, drawn.bits)
    weights = drawn.centroids[stream @ (1 << np.arange(drawn.bits))]
    weights[drawn.outlier_at] = drawn.outlier_values
    return weights


@each_implementation
def test_worked_example_of_sti_04() -> None:
    codes = packed(np.array([2, 0, 3, 1, 2, 0, 1, 3]), 2)
    assert codes.tolist() == [0b01110010, 0b11010010]
    centroids = np.array([-0.2, 0.05, 0.3, 0.55], np.float32)
    out = np.zeros(8, np.float32)
    outlier = np.array([2], np.int32), np.array([9.5], np.float32)
    unpack(PackedWeights(2, 8, codes, centroids, *outlier), out, [(0, 0, 8)])
    assert out.tolist() == np.array([0.3, -0.2, 9.5, 0.05, 0.3, -0.2, 0.05, 0.55], np.float32).tolist()


@each_implementation
@each_bits
def test_every_weight_is_the_centroid_of_its_code_or_an_outlier(bits: int) -> None:
    drawn = PackedWeights.random(bits, 40_040, outlier_share=0.01)
    out = np.full(drawn.weights, np.nan, np.float32)
    unpack(drawn, out, [(0, 0, drawn.weights)])
    np.testing.assert_array_equal(out, wanted(drawn))


@each_implementation
@given(
    bits=st.sampled_from(PACKED_BITS),
    counts=st.lists(st.integers(0, 90), min_size=1, max_size=6),
    gap=st.integers(0, 5),
    seed=st.integers(0, 9),
)
def test_segments_are_written_to_their_places_and_nowhere_else(bits: int, counts: list[int], gap: int, seed: int) -> None:
    drawn = PackedWeights.random(bits, 8 * 12 * len(counts), outlier_share=0.05, seed=seed)
    places: list[Place] = []
    to = gap
    for index, count in reversed(list(enumerate(counts))):
        places.append((96 * index, to, count))
        to += count + gap
    out = np.full(to, np.nan, np.float32)
    unpack(drawn, out, places)
    whole, left = wanted(drawn), np.ones(to, bool)
    for first, begin, count in places:
        np.testing.assert_array_equal(out[begin : begin + count], whole[first : first + count])
        left[begin : begin + count] = False
    assert np.isnan(out[left]).all()


SOUND: dict[str, Any] = {
    "bits": 3,
    "weights": 16,
    "codes": np.zeros(6, np.uint8),
    "centroids": np.zeros(8, np.float32),
    "outlier_at": np.array([15], np.int32),
    "outlier_values": np.zeros(1, np.float32),
}


@each_implementation
@pytest.mark.parametrize(
    ("change", "place"),
    [({"bits": 7}, 0), ({"outlier_at": np.array([-1], np.int32)}, 0), ({"codes": np.zeros(5, np.uint8)}, 0), ({}, -1), ({}, 1)],
)
def test_arrays_that_do_not_fit_are_refused_before_memory_is_touched(change: dict[str, Any], place: int) -> None:
    out = np.zeros(16, np.float32)
    unpack(PackedWeights(**SOUND), out, [(0, 0, 16)])
    with pytest.raises(KernelError):
        unpack(PackedWeights(**SOUND | change), out, [(0, place, 16)])
