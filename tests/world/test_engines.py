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
from simnmt.devices import Batched, Fifo
from simnmt.devices import batch as batch_room
from simnmt.devices.device import LeastLoadedOfDrawn
from simnmt.devices.failures import Failures
from simnmt.experiment import units as unit_module
from simnmt.network.outages import DownTimes
from simnmt.policies import Fixed, LeastTotal, TransferEstimate
from simnmt.policies.decision import DecisionView
from simnmt.profile.cost import DecodingCost
from simnmt.results.requests import Block, Requests, Trail
from simnmt.world import compiled_world, inputs
from simnmt.world import engine as engines
from simnmt.world.compiled_world import simulate_compiled
from simnmt.world.deciders import Beliefs
from simnmt.world.faults import Faults
from simnmt.world.reference import simulate_reference
from simnmt.world.structures import library
from tests.campaigns.harness import SCALE
from tests.units import plan_of, unit_of
from tests.world.batched_worlds import BATCHINGS, COST, EIGHTHS, asked, batchings, cost
from tests.world.random_scenarios import random_scenarios
from tests.world.random_worlds import World, assert_agree, assert_equal_accounts, batch_view, costs, random_worlds
from tests.worlds import believing, in_compiled, in_engine, in_reference

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled world was not compiled")


DEEP = SCALE > 1.0
SEED = 20
ENGINES = ("reference", "compiled")
WORLDS = 10_000 if DEEP else 80
"""Random worlds that are compared: in the suite, and in `make check-deep`."""


@seed(SEED)
@given(random_worlds(), st.sampled_from([0, compiled_world.PAUSE_AFTER_MS]), st.sampled_from([1, 7, compiled_world.BLOCK]))
@settings(max_examples=WORLDS, database=None)
def test_random_worlds_are_the_same_in_both_engines(world: World, pause_after_ms: int, block: int) -> None:
    """In both engines, the compiled one with a pause between all events and without, and with blocks of any size."""
    compiled = partial(in_compiled, pause_after_ms=pause_after_ms)
    with mock.patch.object(compiled_world, "BLOCK", block):
        assert_agree(world.run(in_reference), world.run(compiled))


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


def alternately(block: Block) -> Any:
    return lambda in_block, delay_s: in_block % 2


def run(engine: str = "auto", requests: Requests | None = None, decide_for: Any = alternately, **settings: Any) -> Trail:
    """One gateway and one cloud."""
    arguments = {"beliefs": believing(0.1), "kinds": [Fifo()]} | settings
    return in_engine(asked(50) if requests is None else requests, decide_for, engine=engine, **arguments)


def test_a_policy_in_python_decides_in_the_compiled_engine_as_in_the_reference() -> None:
    trails = [run(name) for name in ENGINES]
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
        run(name, requests, decide_for(views), beliefs=believing(0.1, shows_view=True))
    for one, other in zip(*seen.values(), strict=True):
        for field in fields(DecisionView):
            unknown = [np.nan if value is None else value for value in np.atleast_1d(getattr(one, field.name))]
            others = [np.nan if value is None else value for value in np.atleast_1d(getattr(other, field.name))]
            np.testing.assert_allclose(unknown, others, 1e-9, 1e-9, err_msg=field.name)
    assert any(view.backlog_s > 0.05 for view in seen["compiled"])


def test_answers_of_one_moment_are_heard_in_the_order_in_which_the_box_gave_them() -> None:
    """Steps take no time here: a box ends two batches in one moment, and the requests' numbers do not give their order."""
    arrival_s = np.array([0.25, 0.25, 0.75, 0.875, 1.125, 1.25, 2.375, 2.5])
    tgt_len = np.array([0, 1, 4, 1, 4, 0, 4, 0])
    none_s = np.zeros(8)
    requests = Requests(np.full(8, 4), (none_s + 0.5, none_s), (none_s,), (none_s,), arrival_s, tgt_len=tgt_len)
    batching = Batching(2, threshold=1, collected=2, longest_wait_s=0.5, encoded_together=1)
    steps = cost((0.0, 0.0, 0.0, 0.0), (0.125, 0.0, 0.0, 0.0), (0.0, 0.0), (0.0, 0.0))
    beliefs = Beliefs(lambda decider, target: TransferEstimate(0.0), (None, batch_view(Batched(batching, EIGHTHS), 1)))
    trails = [
        run(
            name,
            requests,
            lambda block: LeastTotal(block.execution_s),
            beliefs=beliefs,
            kinds=[Batched(batching, steps)],
            expected_for=lambda block: [block.execution_s[0], block.tgt_len.astype(float)],
        )
        for name in ENGINES
    ]
    assert_agree(*trails)
    assert trails[0].target.any()


@pytest.mark.parametrize("wrong", [KeyError("mine"), KeyboardInterrupt()])
def test_what_a_policy_raises_is_raised_by_the_run(wrong: BaseException) -> None:
    def decide(in_block: int, delay_s: Any) -> int:
        if in_block == 7:
            raise wrong
        return 0

    with pytest.raises(type(wrong)):
        run("compiled", decide_for=lambda block: decide)


def test_a_target_that_does_not_exist_ends_the_run() -> None:
    with pytest.raises(IndexError):
        run("compiled", decide_for=lambda block: lambda in_block, delay_s: 2)


@pytest.mark.parametrize(
    "uncompiled", [{"faults": Faults()}, {"faults": Faults(), "kinds": [Fifo(failures=Failures([DownTimes([(1.0, 2.0)])]))]}]
)
def test_the_reference_runs_what_the_compiled_engine_does_not_cover_and_gives_the_reason(uncompiled: dict[str, Any]) -> None:
    trail = run(**uncompiled)
    assert (trail.engine, bool(trail.engine_reason)) == ("reference", True)
    assert run("reference", **uncompiled).engine_reason == ""
    with pytest.raises(InputError):
        run("compiled", **uncompiled)


def test_without_a_compiled_engine_the_reference_runs_unless_the_other_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_world, "library", lambda: None)
    with pytest.raises(InputError):
        run("compiled")
    with pytest.raises(InputError):
        engines.decode_all(BATCHINGS["one"], COST, [3], [4], engine="compiled")
    assert run().engine == "reference"


def refused_alike(requests: Requests, decide_for: Any = lambda block: LeastTotal(block.execution_s), **settings: Any) -> str:
    """Return the line in which both engines refuse a run before they hand it to the C."""
    lines = set()
    for name in ENGINES:
        with pytest.raises(InputError) as refused, mock.patch.object(library(), "simnmt_world_block") as block:
            run(name, requests, decide_for, **settings)
        block.assert_not_called()
        lines.add(str(refused.value))
    (line,) = lines
    return line


NAN = float("nan")


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"execution_s": (np.full(50, NAN), np.ones(50))}, "execution_s[0] of request 0"),
        ({"execution_s": (np.ones(50), np.append(np.ones(49), np.inf))}, "execution_s[1] of request 49"),
        ({"uplink_s": (np.full(50, -1.0),)}, "uplink_s[0] of request 0"),
        ({"downlink_s": (np.ones(49),)}, "downlink_s[0]"),
        ({"downlink_s": ()}, "downlink_s"),
        ({"arrival_s": np.append(np.arange(49.0), 3.0)}, "arrival_s of request 49"),
        ({"arrival_s": np.append(np.arange(49.0), NAN)}, "arrival_s of request 49"),
        ({"node": np.full(50, -1, np.int32)}, "node of request 0"),
        ({"tgt_len": np.full(50, -1)}, "tgt_len of request 0"),
        ({"src_len": np.full(50, -1)}, "src_len of request 0"),
    ],
)
def test_columns_that_no_request_has_are_refused_alike_by_both_engines(changed: dict[str, Any], place: str) -> None:
    assert place in refused_alike(replace(asked(50), **changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"deciders": 0},
        {"workers": 0},
        {"kinds": []},
        {"kinds": [Fifo(2, 1, LeastLoadedOfDrawn(np.full((50, 1), 2, np.int16)))]},
        {"kinds": [Fifo(2, 1, LeastLoadedOfDrawn(np.zeros((49, 1), np.int16)))]},
        {"decide_for": lambda block: Fixed(2)},
        {"decide_for": lambda block: LeastTotal([np.ones(50)])},
        {"decide_for": lambda block: LeastTotal([np.ones(50), np.full(50, NAN)])},
    ],
)
def test_parts_of_a_run_that_do_not_fit_are_refused_alike_by_both_engines(changed: dict[str, Any]) -> None:
    refused_alike(asked(50), **changed)


def test_both_engines_name_the_same_request_beyond_the_first_block() -> None:
    faulty = compiled_world.BLOCK
    requests = asked(faulty + 64)
    unknown, earlier = np.array(requests.execution_s[1]), np.array(requests.arrival_s)
    unknown[faulty] = NAN
    earlier[faulty:] -= 1.0
    for changed in ({"execution_s": (requests.execution_s[0], unknown)}, {"arrival_s": earlier}):
        lines = set()
        for name in ENGINES:
            with pytest.raises(InputError, match=f"of request {faulty} ") as refused:
                run(name, replace(requests, **changed), lambda block: LeastTotal(block.execution_s))
            lines.add(str(refused.value))
        assert len(lines) == 1


def test_times_that_a_fixed_policy_never_reads_may_be_unknown() -> None:
    requests = asked(50)
    requests = replace(requests, execution_s=(requests.execution_s[0], np.full(50, NAN)))
    for name in ENGINES:
        assert not run(name, requests, lambda block: Fixed(0)).target.any()


SCENARIOS = 1_000 if DEEP else 12
"""Random scenarios: in `make check-deep`, and in the suite."""


def simulate_in_both(world: inputs.World, policy: inputs.PolicySetup, judged_share: float, engine: Any) -> Trail:
    """Run one policy in both engines, and assert that their trails agree."""
    trails = [simulate_compiled(world, policy, judged_share), simulate_reference(world, policy, judged_share)]
    assert_agree(*trails)
    return trails[1]


@seed(21)
@given(random_scenarios())
@settings(max_examples=SCENARIOS, database=None)
def test_every_policy_of_a_random_scenario_is_the_same_in_both_engines(scenario: dict[str, Any]) -> None:
    """And the runs of a gap analysis, in which C-NMT knows the truth of one quantity at a time."""
    with mock.patch.object(unit_module, "simulate", simulate_in_both):
        unit_module.run_unit(unit_of(plan_of(scenario)))
