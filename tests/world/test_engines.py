"""The engines agree in every choice and in times to 1e-9, and the compiled one says what it does not cover."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from simnmt.base.errors import InputError
from simnmt.batching import Batching
from simnmt.devices import Fifo
from simnmt.devices import batch as batch_room
from simnmt.devices.device import LeastLoadedOfDrawn
from simnmt.policies import Fixed, LeastTotal, TransferEstimate
from simnmt.policies.views import DecisionView
from simnmt.profile.batch_cost import DecodingCost
from simnmt.results.requests import Block, Trail
from simnmt.world import engine as engines
from simnmt.world import reference
from simnmt.world.deciders import Beliefs
from simnmt.world.faults import Faults
from simnmt.world.structures import library
from tests.campaigns.harness import SCALE
from tests.world.batched_worlds import BATCHINGS, COST, asked
from tests.world.decoding import batchings
from tests.world.random_worlds import World, assert_agree, assert_equal_accounts, costs, random_worlds

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled world was not compiled")


DEEP = SCALE > 1.0
SEED = 20
ENGINES = ("reference", "compiled")
WORLDS = 10_000 if DEEP else 80
"""Random worlds that are compared: in the suite, and in `make check-deep`."""


@seed(SEED)
@given(random_worlds(), st.sampled_from([0, engines.PAUSE_AFTER_MS]), st.sampled_from([1, 7, engines.BLOCK]))
@settings(max_examples=WORLDS, database=None)
def test_random_worlds_are_the_same_in_both_engines(world: World, pause_after_ms: int, block: int) -> None:
    """In both engines, the compiled one with a pause between all events and without, and with blocks of any size."""
    compiled = partial(engines.simulate_compiled, pause_after_ms=pause_after_ms)
    with mock.patch.object(engines, "BLOCK", block):
        assert_agree(world.run(reference.simulate), world.run(compiled))


@given(batchings(), costs(), st.lists(st.tuples(st.integers(1, 16), st.integers(0, 12), st.integers(0, 40)), max_size=60))
@settings(max_examples=round(60 * SCALE))
def test_decoded_sentences_are_the_same_in_both_engines(
    batching: Batching, cost: DecodingCost, sentences: list[tuple[int, int, int]]
) -> None:
    src_len, tgt_len, eighths = np.array(sentences, np.int64).reshape(-1, 3).T
    arrival_s = np.sort(eighths) / 8.0
    plain = batch_room.decode_all(batching, cost, src_len, tgt_len, arrival_s)
    compiled = engines.decode_all(batching, cost, src_len, tgt_len, arrival_s, engine="compiled")
    for name in ("finish_s", "first_token_s", "begin_s", "total_s"):
        np.testing.assert_allclose(getattr(plain, name), getattr(compiled, name), 1e-9, 1e-9, err_msg=name)
    assert_equal_accounts([plain.account], [compiled.account])


def guess(decider: int, target: int) -> TransferEstimate:
    return TransferEstimate(0.1)


def alternately(block: Block) -> Any:
    return lambda in_block, delay_s: in_block % 2


def test_a_policy_in_python_decides_in_the_compiled_engine_as_in_the_reference() -> None:
    requests = asked(50)
    trails = [engines.simulate(requests, alternately, Beliefs(guess), [Fifo()], engine=name) for name in ENGINES]
    assert [trail.engine for trail in trails] == list(ENGINES)
    assert_agree(*trails)


def test_a_policy_that_is_shown_a_view_sees_the_same_in_both_engines() -> None:
    requests = asked(200, rate_rps=40.0)
    seen: dict[str, list[DecisionView]] = {name: [] for name in ENGINES}

    def decide_for(views: list[DecisionView]) -> Any:
        def decide(in_block: int, view: DecisionView) -> int:
            views.append(view)
            return int(view.backlog_s > 0.05)

        return lambda block: decide

    for name, views in seen.items():
        engines.simulate(requests, decide_for(views), Beliefs(guess, shows_view=True), [Fifo()], engine=name)
    for one, other in zip(*seen.values(), strict=True):
        for field in fields(DecisionView):
            unknown = [np.nan if value is None else value for value in np.atleast_1d(getattr(one, field.name))]
            others = [np.nan if value is None else value for value in np.atleast_1d(getattr(other, field.name))]
            np.testing.assert_allclose(unknown, others, 1e-9, 1e-9, err_msg=field.name)
    assert any(view.backlog_s > 0.05 for view in seen["compiled"])


@pytest.mark.parametrize("wrong", [KeyError("mine"), KeyboardInterrupt()])
def test_what_a_policy_raises_is_raised_by_the_run(wrong: BaseException) -> None:
    def decide_for(block: Block) -> Any:
        def decide(in_block: int, delay_s: Any) -> int:
            if in_block == 7:
                raise wrong
            return 0

        return decide

    with pytest.raises(type(wrong)):
        engines.simulate(asked(50), decide_for, Beliefs(guess), [Fifo()], engine="compiled")


def test_a_target_that_does_not_exist_ends_the_run() -> None:
    with pytest.raises(IndexError):
        engines.simulate(asked(5), lambda block: lambda in_block, delay_s: 2, Beliefs(guess), [Fifo()], engine="compiled")


def test_the_reference_runs_what_the_compiled_engine_does_not_cover_and_says_why() -> None:
    def run(**engine: str) -> Trail:
        return engines.simulate(asked(50), alternately, Beliefs(guess), [Fifo()], faults=Faults(), **engine)

    assert (run().engine, bool(run().engine_reason)) == ("reference", True)
    assert run(engine="reference").engine_reason == ""
    with pytest.raises(InputError):
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
        ({"kinds": []}, "execution times of 2 targets, boxes of 1 (give one each)"),
        ({"kinds": [Fifo(2, 1, LeastLoadedOfDrawn(np.full((50, 1), 2, np.int16)))]}, "are not its boxes 0 to 1"),
        ({"kinds": [Fifo(2, 1, LeastLoadedOfDrawn(np.zeros((49, 1), np.int16)))]}, "draw one for each request"),
        ({"decide_for": lambda block: Fixed(2)}, "a policy for target 2 of 2 (count them from 0)"),
        ({"decide_for": lambda block: LeastTotal([np.ones(50)])}, "prepared for other requests than those of the block"),
        ({"decide_for": lambda block: LeastTotal([np.ones(50), np.full(50, NAN)])}, "a policy that estimates NaN"),
    ],
)
def test_parts_of_a_run_that_do_not_fit_are_refused_alike_by_both_engines(changed: dict[str, Any], message: str) -> None:
    assert_refused_alike(message, **changed)


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
        for name in ENGINES:
            world = replace(requests, **changed), lambda block: LeastTotal(block.execution_s), Beliefs(guess), [Fifo()]
            with pytest.raises(InputError, match=f"of request {faulty} ") as refused:
                engines.simulate(*world, engine=name)
            lines.add(str(refused.value))
        assert len(lines) == 1


def test_without_a_compiled_engine_the_reference_runs_unless_the_other_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "library", lambda: None)
    world = asked(5), lambda block: Fixed(0), Beliefs(guess), [Fifo()]
    with pytest.raises(InputError):
        engines.simulate(*world, engine="compiled")
    with pytest.raises(InputError):
        engines.decode_all(BATCHINGS["one"], COST, [3], [4], engine="compiled")
    assert engines.simulate(*world).engine == "reference"


def assert_refused_alike(message: str, **changed: Any) -> None:
    """Assert that both engines refuse a run in the same line before they hand it to the C."""
    arguments = {"requests": asked(50), "decide_for": lambda block: LeastTotal(block.execution_s), "kinds": [Fifo()]}
    beliefs = Beliefs(lambda decider, target: TransferEstimate(0.1))
    lines = []
    for name in ENGINES:
        with pytest.raises(InputError) as refused, mock.patch.object(library(), "simnmt_world_block") as block:
            engines.simulate(beliefs=beliefs, engine=name, **arguments | changed)
        block.assert_not_called()
        lines.append(str(refused.value))
    assert lines[0] == lines[1] and message in lines[0]


def test_times_that_a_fixed_policy_never_reads_may_be_unknown() -> None:
    requests = asked(50)
    requests = replace(requests, execution_s=(requests.execution_s[0], np.full(50, NAN)))
    for name in ENGINES:
        beliefs = Beliefs(lambda decider, target: TransferEstimate(0.1))
        trail = engines.simulate(requests, lambda block: Fixed(0), beliefs, [Fifo()], engine=name)
        assert not np.asarray(trail.target[:]).any()
