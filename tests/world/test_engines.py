"""The engines agree in every choice and in times to 1e-9, and the compiled one says what it does not cover."""

from __future__ import annotations

import re
from dataclasses import astuple, replace
from functools import partial
from math import inf
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from simnmt.base.errors import InputError
from simnmt.batching import Batching
from simnmt.devices import Batched, Fifo
from simnmt.network.outages import DownTimes
from simnmt.policies import Fixed, LeastTotal, TransferEstimate
from simnmt.policies.decision import DecisionView
from simnmt.results.requests import Requests, Trail
from simnmt.world import compiled_world
from simnmt.world import engine as engines
from simnmt.world.deciders import Beliefs
from simnmt.world.faults import Faults
from tests.campaigns.harness import SCALE
from tests.world.batched_worlds import BATCHINGS, COST, EIGHTHS, asked, cost
from tests.world.random_worlds import World, batch_view, random_worlds
from tests.worlds import alternately, assert_agree, believing, in_compiled, in_engine, in_reference, needs_compiled

pytestmark = needs_compiled


ENGINES = ("reference", "compiled")
WORLDS = 10_000 if SCALE > 1.0 else 80
"""Random worlds that are compared: in the suite, and in `make check-deep`."""


@seed(20)
@given(random_worlds(), st.sampled_from([0, compiled_world.PAUSE_AFTER_MS]), st.sampled_from([1, 7, compiled_world.BLOCK]))
@settings(max_examples=WORLDS, database=None)
def test_random_worlds_are_the_same_in_both_engines(world: World, pause_after_ms: int, block: int) -> None:
    """In both engines, the compiled one with a pause between all events and without, and with blocks of any size."""
    compiled = partial(in_compiled, pause_after_ms=pause_after_ms)
    with mock.patch.object(compiled_world, "BLOCK", block):
        assert_agree(world.run(in_reference), world.run(compiled))


def run(engine: str = "auto", requests: Requests | None = None, decide_for: Any = alternately, **settings: Any) -> Trail:
    """One gateway and one cloud."""
    arguments = {"beliefs": believing(0.1), "kinds": [Fifo()]} | settings
    return in_engine(asked(50) if requests is None else requests, decide_for, engine=engine, **arguments)


@pytest.mark.parametrize("local", [Fifo(), Fifo(max_wait_s=(inf, 1.0))])
def test_a_policy_that_is_shown_a_view_sees_the_same_in_both_engines(local: Fifo) -> None:
    requests = asked(200, rate_rps=40.0)
    seen: dict[str, list[DecisionView]] = {name: [] for name in ENGINES}

    def decide_for(views: list[DecisionView]) -> Any:
        def decide(in_block: int, view: DecisionView) -> int:
            views.append(view)
            return int(view.backlog_s > 0.05)

        return lambda block: decide

    for name, views in seen.items():
        run(name, requests, decide_for(views), beliefs=believing(0.1, shows_view=True), local=local)
    for one, other in zip(*seen.values(), strict=True):
        ours, theirs = (np.hstack(astuple(view)).astype(float) for view in (one, other))  # what is unknown becomes NaN
        np.testing.assert_allclose(ours, theirs, 1e-9, 1e-9)
    assert any(view.backlog_s > 0.05 for view in seen["compiled"])


def test_the_decision_on_the_first_sentence_of_a_document_holds_for_all() -> None:
    """Documents go on from block to block of the compiled engine."""
    document = np.repeat(np.arange(20, dtype=np.int32), np.arange(20) % 4 + 1)
    first = np.searchsorted(document, document)
    requests = asked(len(document))
    assert requests.arrival_s is not None
    requests = replace(requests, document=document, arrival_s=requests.arrival_s[first])
    for name in ENGINES:
        with mock.patch.object(compiled_world, "BLOCK", 7):
            assert (run(name, requests, decides_by_document=True).target == first % 2).all()
            assert (run(name, requests).target == np.arange(len(document)) % 2).all()


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


def test_more_deciders_than_a_target_may_have_boxes_are_compiled() -> None:
    requests = replace(asked(300), node=np.arange(300, dtype=np.int32) * 133)
    assert_agree(*(run(name, requests, local=Fifo(40_000)) for name in ENGINES))


@pytest.mark.parametrize("wrong", [KeyError("mine"), KeyboardInterrupt(), 2])
def test_what_a_policy_raises_and_a_target_that_does_not_exist_end_the_run(wrong: Any) -> None:
    def decide(in_block: int, delay_s: Any) -> Any:
        if in_block == 7 and isinstance(wrong, BaseException):
            raise wrong
        return wrong if in_block == 7 else 0

    with pytest.raises(type(wrong) if isinstance(wrong, BaseException) else IndexError):
        run("compiled", decide_for=lambda block: decide)


@pytest.mark.parametrize(
    "uncompiled", [{"faults": Faults()}, {"faults": Faults(), "kinds": [Fifo(failures=[DownTimes([(1.0, 2.0)])])]}]
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


@pytest.mark.parametrize(
    ("name", "value"),
    [("execution_s", np.nan), ("execution_s", np.inf), ("uplink_s", -1.0), ("arrival_s", 0.0), ("node", -1), ("tgt_len", -1)],
)
def test_both_engines_refuse_a_wrong_value_alike_by_its_request(name: str, value: float) -> None:
    """Beyond the first block, which the C has run; a user's device may give such times."""
    requests = asked(50)
    column = getattr(requests, name)
    changed = np.array(column[-1] if isinstance(column, tuple) else column)
    changed[40] = value
    requests = replace(requests, **{name: (*column[:-1], changed) if isinstance(column, tuple) else changed})
    lines = set()
    for engine in ENGINES:
        with (
            pytest.raises(InputError, match=rf"{name}.* of request 40 ") as refused,
            mock.patch.object(compiled_world, "BLOCK", 16),
        ):
            run(engine, requests, lambda block: LeastTotal(block.execution_s))
        lines.add(str(refused.value))
    (line,) = lines
    assert re.match(rf"{name}.* of request 40 ", line)


def test_what_a_policy_never_reads_may_be_unknown() -> None:
    requests = replace(asked(50), execution_s=(np.ones(50), np.full(50, np.nan)))
    for name in ENGINES:
        assert not run(name, requests, lambda block: Fixed(0)).target.any()
