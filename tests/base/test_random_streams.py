"""Random numbers depend on what they are for, and on nothing else."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from simnmt.base.random_streams import BLOCK, draw, stream


def uniform(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    return generator.random(count)


KEY = (1, 0, "lengths", 0)
RECORDED = [0.6029016081173727, 0.7043151202130281, 0.08616854627256154]


@pytest.mark.parametrize("other", [(2, 0, "lengths", 0), (1, 1, "lengths", 0), (1, 0, "arrivals", 0), (1, 0, "lengths", 1)])
def test_seed_replication_name_and_block_each_give_another_stream(other: tuple[int, int, str, int]) -> None:
    ours, theirs = stream(*KEY).random(10_000), stream(*other).random(10_000)
    assert not (ours == theirs).any()
    assert abs(np.corrcoef(ours, theirs)[0, 1]) < 0.05


def test_these_are_the_numbers_that_every_machine_gets() -> None:
    """A recorded result can only be run again if they never change."""
    numbers = stream(*KEY).random(3)
    seed = np.random.SeedSequence([1, 0, zlib.crc32(b"lengths"), 0])
    assert numbers.tolist() == np.random.Generator(np.random.PCG64(seed)).random(3).tolist() == RECORDED


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 10])
def test_a_longer_run_begins_with_the_shorter_one(size: int) -> None:
    numbers = draw(1, 0, "lengths", size, uniform)
    assert numbers.shape == (size,)
    assert (numbers == draw(1, 0, "lengths", 2 * BLOCK + 10, uniform)[:size]).all()


def test_blocks_do_not_repeat_each_other_and_no_stream_moves_another() -> None:
    alone = draw(1, 0, "arrivals", 100, uniform)
    numbers = draw(1, 0, "lengths", 2 * BLOCK, uniform)
    assert len(np.unique(numbers)) == 2 * BLOCK
    assert numbers.mean() == pytest.approx(0.5, abs=0.01)
    assert (draw(1, 0, "arrivals", 100, uniform) == alone).all()
