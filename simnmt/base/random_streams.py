"""Random streams: random numbers keyed by their purpose, never by the order in which they are drawn (XP-06).

The draw of request i depends on (seed, replication, stream name, block of i) alone. So every policy of a scenario meets the
same numbers, a longer run begins with the shorter one, and the number of processes changes nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK = 65_536
"""Requests that are drawn, made or read at a time; the columns of a block fit into the processor's cache."""


def stream(seed: int, replication: int, name: str, block: int = 0) -> np.random.Generator:
    """Return the generator of one block of a stream; the same key gives the same generator on every machine."""
    return np.random.Generator(bits(seed, replication, name, block))


def bits(seed: int, replication: int, name: str, block: int = 0) -> np.random.PCG64:
    """Return the random bits of one block of a stream."""
    return np.random.PCG64(np.random.SeedSequence([seed, replication, zlib.crc32(name.encode()), block]))


def draw(
    seed: int,
    replication: int,
    name: str,
    size: int,
    sample: Callable[[np.random.Generator, int], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Draw `size` numbers of one stream, block by block; `sample(generator, k)` must draw its k numbers one after another."""
    numbers = np.empty(size)
    for block, rows in blocks(size):
        numbers[rows] = sample(stream(seed, replication, name, block), rows.stop - rows.start)
    return numbers


def uniform(seed: int, replication: int, name: str, size: int) -> NDArray[np.float64]:
    """Return `size` numbers of one stream, uniform in [0, 1)."""
    return draw(seed, replication, name, size, lambda generator, count: generator.random(count))


def standard_normal(seed: int, replication: int, name: str, size: int) -> NDArray[np.float64]:
    """Return `size` standard normal numbers of one stream."""
    return draw(seed, replication, name, size, lambda generator, count: generator.standard_normal(count))


def blocks(size: int) -> Iterator[tuple[int, slice]]:
    """Yield the number and the requests of each block."""
    for number, start in enumerate(range(0, size, BLOCK)):
        yield number, slice(start, min(start + BLOCK, size))
