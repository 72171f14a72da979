"""The compiled world gives the bits of the world in SimPy, and says what it does not cover."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from simnmt.base.errors import InputError
from simnmt.batching import Batching
from simnmt.network.link import Hop, Link, MovingRoute
from simnmt.network.message_paths import MessagePaths
from simnmt.network.series import constant_rtt
from simnmt.policies import Fixed, LeastTotal, QuantileEstimate, TransferEstimate
from simnmt.profile.batch_cost import DecodingCost
from simnmt.results.requests import Trail
from simnmt.world import batch_pool, compiled_decoding, compiled_world, simulation
from simnmt.world.batch_pool import BatchServerSpec
from simnmt.world.deciders import Beliefs
from simnmt.world.fifo_server import FifoPool
from simnmt.world.server import FewestTokens, LeastLoadedOfDrawn
from simnmt.world.simulation import Clients
from tests.campaigns.harness import SCALE
from tests.world.batched_worlds import BATCHINGS, COST, asked
from tests.world.decoding import batchings
from tests.world.random_worlds import World, assert_equal, assert_equal_accounts, costs, random_worlds

pytestmark = pytest.mark.skipif(compiled_world.library() is None, reason="the compiled world was not compiled")


DEEP = SCALE > 1.0
SEED = 20
WORLDS = 10_000 if DEEP else 80
"""Random worlds that are compared: in the suite, and in `make check-deep`."""


@seed(SEED)
@given(random_worlds(), st.sampled_from([0, compiled_world.PAUSE_AFTER_MS]), st.sampled_from([1, 7, compiled_world.BLOCK]))
@settings(max_examples=WORLDS, database=None)
def test_random_worlds_are_equal_to_the_bit(world: World, pause_after_ms: int, block: int) -> None:
    """In both engines, the compiled one with a pause between all events and without, and with blocks of any size."""
    compiled = partial(compiled_world.simulate_compiled, pause_after_ms=pause_after_ms)
    with mock.patch.object(compiled_world, "BLOCK", block):
        assert_equal(world.run(simulation.simulate), world.run(compiled))


@given(batchings(), costs(), st.lists(st.tuples(st.integers(1, 16), st.integers(0, 12), st.integers(0, 40)), max_size=60))
@settings(max_examples=round(60 * SCALE))
def test_decoded_sentences_are_equal_to_the_bit(
    batching: Batching, cost: DecodingCost, sentences: list[tuple[int, int, int]]
) -> None:
    src_len, tgt_len, eighths = np.array(sentences, np.int64).reshape(-1, 3).T
    arrival_s = np.sort(eighths) / 8.0
    reference = batch_pool.decode_all(batching, cost, src_len, tgt_len, arrival_s)
    compiled = compiled_decoding.decode_all_compiled(batching, cost, src_len, tgt_len, arrival_s)
    for name in ("finish_s", "first_token_s", "begin_s", "total_s"):
        assert np.asarray(getattr(reference, name)).tobytes() == np.asarray(getattr(compiled, name)).tobytes(), name
    assert_equal_accounts([reference.account], [compiled.account])


@pytest.mark.parametrize("discipline", ["open", "closed", "open, over a shared line"])
def test_every_failed_allocation_is_a_memory_error_and_nothing_else(discipline: str) -> None:
    """Of a run with batches, views, an oracle's foresight, and more requests under way than the first arrays hold."""
    requests, choice = asked(300, rate_rps=60.0), lambda block: LeastTotal(block.execution_s)
    spec = BatchServerSpec(BATCHINGS["half-empty"], COST)
    loop: dict[str, Any] = {}
    if discipline == "closed":
        requests = replace(requests, arrival_s=None, node=None)
        hop = Hop((Link(0.02, 1e6, 1e6),), (0.0,))
        loop["route"] = MovingRoute(hop, (hop,), (2, 2), requests.src_len, requests.tgt_len, None, (None, None))
        loop["clients"] = Clients(100, 5, np.full(100 + len(requests), 0.5))
    elif discipline != "open":
        hop = Hop((Link(constant_rtt(0.02), 4e4, 1e5, shared=True),), (0.0,))
        lengths = np.asarray(requests.src_len), np.asarray(requests.tgt_len)
        loop["paths"] = MessagePaths((hop,), (2, 2), *lengths, requests.arrival_s, (None, None))

    def run(allocations: int) -> Trail:
        beliefs = Beliefs(lambda decider, target: QuantileEstimate(0.1, 0.5, 4), true_backlog=True)
        pool = spec.servers(3, FewestTokens())
        settings = {"deciders": 2, "workers": 2, "judged_share": 1.0, "allocations": allocations, **loop}
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


NAN = float("nan")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"execution_s": (np.full(50, NAN), np.ones(50))}, "execution_s[0] of request 0 is below 0, infinite or NaN"),
        ({"execution_s": (np.ones(50), np.append(np.ones(49), np.inf))}, "execution_s[1] of request 49 is below 0, infinite"),
        ({"uplink_s": (np.full(50, -1.0),)}, "uplink_s[0] of request 0 is below 0, infinite or NaN"),
        ({"downlink_s": (np.ones(49),)}, "49 values of downlink_s[0] for 50 requests"),
        ({"downlink_s": ()}, "downlink_s of 0 targets"),
        ({"arrival_s": np.append(np.arange(49.0), 3.0)}, "arrival_s of request 49 is before that of the request before"),
        ({"arrival_s": np.append(np.arange(49.0), NAN)}, "arrival_s of request 49 is below 0, infinite or NaN"),
        ({"node": np.full(50, -1, np.int32)}, "node of request 0 is below 0"),
        ({"tgt_len": np.full(50, -1)}, "tgt_len of request 0 is below 0"),
        ({"src_len": np.full(50, -1)}, "src_len of request 0 is below 0"),
    ],
)
def test_columns_that_no_request_has_are_refused_alike_by_both_engines(changed: dict[str, Any], message: str) -> None:
    assert_refused_alike(message, requests=replace(asked(50), **changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"deciders": 0}, "0 deciders (give at least 1)"),
        ({"workers": 0}, "0 workers (give at least 1)"),
        ({"servers": []}, "execution times of 2 targets, servers of 1 (give one each)"),
        ({"servers": [FifoPool(2, 1, LeastLoadedOfDrawn(np.full((50, 1), 2, np.int16)))]}, "are not its boxes 0 to 1"),
        ({"servers": [FifoPool(2, 1, LeastLoadedOfDrawn(np.zeros((49, 1), np.int16)))]}, "draw one for each request"),
        ({"decide_for": lambda block: Fixed(2)}, "a policy for target 2 of 2 (count them from 0)"),
        ({"decide_for": lambda block: LeastTotal([np.ones(50)])}, "prepared for other requests than those of the block"),
        ({"decide_for": lambda block: LeastTotal([np.ones(50), np.full(50, NAN)])}, "a policy that estimates NaN"),
    ],
)
def test_parts_of_a_run_that_do_not_fit_are_refused_alike_by_both_engines(changed: dict[str, Any], message: str) -> None:
    assert_refused_alike(message, **changed)


def guess(decider: int, target: int) -> TransferEstimate:
    return TransferEstimate(0.1)


@pytest.mark.parametrize("faulty", [5_000, 65_536])
def test_both_engines_name_the_same_request_beyond_their_first_block(faulty: int) -> None:
    """Blocks of the engines differ in size: 4,096 and 65,536 requests."""
    requests = asked(65_600)
    assert requests.arrival_s is not None
    unknown, earlier = np.array(requests.execution_s[1]), np.array(requests.arrival_s)
    unknown[faulty] = NAN
    earlier[faulty:] -= 1.0
    changes: list[dict[str, Any]] = [{"execution_s": (requests.execution_s[0], unknown)}, {"arrival_s": earlier}]
    for changed in changes:
        lines = set()
        for engine in ("simpy", "compiled"):
            world = replace(requests, **changed), lambda block: LeastTotal(block.execution_s), Beliefs(guess), [FifoPool()]
            with pytest.raises(InputError, match=f"of request {faulty} ") as refused:
                compiled_world.simulate(*world, engine=engine)
            lines.add(str(refused.value))
        assert len(lines) == 1


def test_without_a_compiled_world_the_message_says_how_to_compile_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (compiled_world, compiled_decoding):
        monkeypatch.setattr(module, "library", lambda: None)
    world = asked(5), lambda block: Fixed(0), Beliefs(guess), [FifoPool()]
    with pytest.raises(InputError, match=r"^the compiled world is not compiled .run `python -m simnmt.base.compile`"):
        compiled_world.simulate(*world, engine="compiled")
    with pytest.raises(InputError, match=r"^the compiled world is not compiled"):
        compiled_decoding.decode_all(BATCHINGS["one"], COST, [3], [4], engine="compiled")
    assert compiled_world.simulate(*world).engine == "simpy"


def assert_refused_alike(message: str, **changed: Any) -> None:
    """Assert that both engines refuse a run in the same line before they hand it to the C."""
    arguments = {"requests": asked(50), "decide_for": lambda block: LeastTotal(block.execution_s), "servers": [FifoPool()]}
    beliefs = Beliefs(lambda decider, target: TransferEstimate(0.1))
    lines = []
    for engine in ("simpy", "compiled"):
        with pytest.raises(InputError) as refused, mock.patch.object(compiled_world.library(), "simnmt_world_block") as block:
            compiled_world.simulate(beliefs=beliefs, engine=engine, **arguments | changed)
        block.assert_not_called()
        lines.append(str(refused.value))
    assert lines[0] == lines[1] and message in lines[0]


def test_times_that_a_fixed_policy_never_reads_may_be_unknown() -> None:
    requests = asked(50)
    requests = replace(requests, execution_s=(requests.execution_s[0], np.full(50, NAN)))
    for engine in ("simpy", "compiled"):
        beliefs = Beliefs(lambda decider, target: TransferEstimate(0.1))
        trail = compiled_world.simulate(requests, lambda block: Fixed(0), beliefs, [FifoPool()], engine=engine)
        assert not np.asarray(trail.target[:]).any()
