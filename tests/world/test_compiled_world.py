"""The compiled world gives the bits of the world in SimPy, and says what it does not cover."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from simnmt.base.errors import InputError
from simnmt.policies import LeastTotal, ProbedEstimate, QuantileEstimate, TransferEstimate
from simnmt.results.requests import Trail
from simnmt.world import compiled_world, simulation
from simnmt.world.batch_pool import BatchServerSpec
from simnmt.world.deciders import Beliefs
from simnmt.world.fifo_server import FifoPool
from simnmt.world.server import FewestTokens
from tests.campaigns.harness import SCALE
from tests.world.batched_worlds import BATCHINGS, COST, asked
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


def test_every_failed_allocation_is_a_memory_error_and_nothing_else() -> None:
    """Of a run with batches, views, an oracle's foresight, and more requests under way than the first arrays hold."""
    requests, choice = asked(300, rate_rps=60.0), lambda block: LeastTotal(block.execution_s)
    spec = BatchServerSpec(BATCHINGS["half-empty"], COST)

    def run(allocations: int) -> Trail:
        beliefs = Beliefs(lambda decider, target: QuantileEstimate(0.1, 0.5, 4), true_backlog=True)
        pool = spec.servers(3, FewestTokens())
        settings = {"deciders": 2, "workers": 2, "judged_share": 1.0, "allocations": allocations}
        return compiled_world.simulate_compiled(requests, choice, beliefs, [pool], **settings)

    whole, failures = run(-1), 0
    for allocations in range(100_000):
        try:
            trail = run(allocations)
        except MemoryError:
            failures += 1
            continue
        break
    assert failures > 50
    assert_equal(trail, whole)


def test_what_the_compiled_world_does_not_cover_is_named_and_runs_in_simpy() -> None:
    requests = asked(50)
    alternately = lambda block: lambda in_block, delay_s: in_block % 2  # noqa: E731

    def run(**engine: str) -> Trail:
        beliefs = Beliefs(lambda decider, target: TransferEstimate(0.1))
        return compiled_world.simulate(requests, alternately, beliefs, [FifoPool()], **engine)

    assert run().engine == "simpy"
    with pytest.raises(InputError, match="the compiled world does not cover a policy in Python"):
        run(engine="compiled")


def test_an_error_of_the_network_ends_the_run() -> None:
    def broken(at_s: float) -> float:
        raise OSError("no such moment")

    beliefs = Beliefs(lambda decider, target: ProbedEstimate(0.1, 0.01, broken), probes=True)
    with pytest.raises(OSError, match="no such moment"):
        compiled_world.simulate_compiled(asked(50), lambda block: LeastTotal(block.execution_s), beliefs, [FifoPool()])
