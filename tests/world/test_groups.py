"""Deciders of several groups in one world: their own devices, their beliefs, and what both engines refuse."""

from __future__ import annotations

from dataclasses import astuple, replace
from math import inf
from typing import Any

import numpy as np
import pytest

from simnmt.batching import mini, top_up
from simnmt.devices import Batched, Fifo, Kind
from simnmt.network.outages import DownTimes
from simnmt.policies import BacklogView, LeastTotal
from simnmt.results.requests import Block
from simnmt.world.faults import Faults
from tests.world.batched_worlds import COST, asked
from tests.world.streamed_boxes import STREAMED
from tests.world.streamed_boxes import asked as asked_of_streams
from tests.worlds import (
    alternately,
    assert_agree,
    believing,
    everything_to,
    in_reference,
    simulate,
)

GROUPS: list[Kind] = [
    Fifo(2, workers=2),
    Batched(top_up(4, 2), COST),
    Fifo(),
    Batched(mini(3, longest_wait_s=0.05), COST).of(2),
    STREAMED.of(2),
]
DECIDERS = sum(kind.boxes for kind in GROUPS)


def test_groups_that_share_no_box_are_worlds_by_themselves() -> None:
    requests = asked_of_streams(500, 0.4)
    assert requests.arrival_s is not None
    decider = np.random.default_rng(3).integers(0, DECIDERS, 500).astype(np.int32)
    trail = simulate(requests, everything_to(0), [believing(0.1)] * len(GROUPS), [Fifo()], local=GROUPS, decider=decider)
    first, batches, streams = 0, [], []
    for kind in GROUPS:
        rows = np.flatnonzero((decider >= first) & (decider < first + kind.boxes))
        alone = simulate(
            requests.in_order(rows, requests.arrival_s),
            everything_to(0),
            believing(0.1),
            [Fifo()],
            local=kind,
            decider=decider[rows] - first,
        )
        for name, column in alone.columns.items():
            np.testing.assert_allclose(trail.columns[name][rows], column, 1e-12, err_msg=f"{kind.name} {name}")
        batches += [account for account in alone.batches if account is not None]
        streams += [until for until in alone.streamed if until is not None]
        first += kind.boxes
    (account, _), (until, _) = trail.batches, trail.streamed
    assert account is not None and until is not None
    assert account.size == max(other.size for other in batches)
    assert account.tokens == sum(other.tokens for other in batches)
    assert account.busy_s == pytest.approx(sum(other.busy_s for other in batches))
    assert until(1e3) == streams[0](1e3)


@pytest.mark.parametrize("faults", [None, Faults([[DownTimes([(3.0, 4.0)])]], 0.1, leave_out=True)])
def test_two_groups_of_equal_devices_are_one_group_of_two(faults: Faults | None) -> None:
    requests = asked(300, nodes=2)
    engine: Any = simulate if faults is None else in_reference
    one, two = (
        engine(requests, alternately, beliefs, [Fifo()], local=local, decider=decider, faults=faults)
        for beliefs, local, decider in (
            (believing(0.1), [Fifo(2)], None),
            ([believing(0.1)] * 2, [Fifo(), Fifo()], requests.node),
        )
    )
    assert_agree(replace(one, faults=None), replace(two, faults=None))
    if faults is not None:
        np.testing.assert_equal(astuple(one.faults), astuple(two.faults))
        assert one.faults.left_out[1][0] > 0.0


def test_each_group_has_its_own_beliefs() -> None:
    """The gateway of group 0 sees the queue of the cloud, that of group 1 does not, and that of group 2 knows the truth."""
    requests = replace(asked(300, rate_rps=60.0), node=None)
    decider = (np.arange(300) % 3).astype(np.int32)
    beliefs = [
        believing(0.2, views=(None, lambda: BacklogView(1))),
        believing(0.3),
        believing(0.4, clairvoyant=True),
    ]
    trail = simulate(
        requests,
        lambda block: LeastTotal(block.execution_s),
        beliefs,
        [Fifo()],
        local=[Fifo(), Fifo(), Fifo()],
        decider=decider,
        expected_for=lambda block: block.execution_s,
    )
    assert trail.estimate_s[:3].tolist() == [0.2, 0.3, 0.4]
    sent = [trail.target[decider == group].mean() for group in range(3)]
    assert sent[1] > max(sent[0], sent[2]) > 0.0, sent


def test_a_decider_without_a_device_sends_everything_and_no_oracle_prefers_its_device() -> None:
    requests, decider = asked(200), (np.arange(200) % 2).astype(np.int32)
    bare = decider == 1
    requests = replace(requests, execution_s=(np.where(bare, 1e9, requests.execution_s[0]), requests.execution_s[1]))

    def decide_for(block: Block) -> LeastTotal:
        here_s, there_s = block.execution_s
        return LeastTotal((np.where(here_s == 1e9, inf, here_s), there_s))

    trail = simulate(
        requests, decide_for, [believing(0.1)] * 2, [Fifo()], local=[Fifo()] * 2, decider=decider, judged_share=1.0
    )
    assert trail.target[bare].all() and not trail.target[~bare].all()
    assert not trail.decision_regret_s[bare].any()
