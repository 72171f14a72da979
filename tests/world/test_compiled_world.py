"""The compiled world gives the bits of the world in SimPy, and says what it does not cover."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from simnmt.world import compiled_world, simulation
from tests.campaigns.harness import SCALE
from tests.world.random_worlds import World, assert_equal, random_worlds

pytestmark = pytest.mark.skipif(compiled_world.library() is None, reason="the compiled world was not compiled")


@given(random_worlds())
@settings(max_examples=round(300 * SCALE))
def test_first_in_first_out_worlds_are_equal_to_the_bit(world: World) -> None:
    assert_equal(world.run(simulation.simulate), world.run(compiled_world.simulate_compiled))


@given(random_worlds(streams=True))
@settings(max_examples=round(300 * SCALE))
def test_worlds_that_stream_are_equal_to_the_bit(world: World) -> None:
    assert_equal(world.run(simulation.simulate), world.run(compiled_world.simulate_compiled))


@given(random_worlds(batches=True))
@settings(max_examples=round(300 * SCALE))
def test_worlds_that_batch_are_equal_to_the_bit(world: World) -> None:
    assert_equal(world.run(simulation.simulate), world.run(compiled_world.simulate_compiled))
