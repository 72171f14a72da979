"""Codes of a few bits as a stream of bytes: code i in bits [i * b, (i + 1) * b), the least significant first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def packed_bits(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The stream of codes below 2 ** bits, its last byte filled up with zeros."""
    return np.packbits(np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little"), bitorder="little")


def unpacked_bits(stream: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint8]:
    """The first `count` codes of a stream, a byte each."""
    each = np.unpackbits(stream, count=count * bits, bitorder="little").reshape(count, bits)
    return np.packbits(each, axis=1, bitorder="little")[:, 0]
