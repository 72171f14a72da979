"""Short forms of what runs a world in one engine or in both, and the paper's world of two devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import pytest

from simnmt.base.arrays import Floats
from simnmt.devices import Fifo, Kind
from simnmt.policies import Decide, Fixed, TransferEstimate
from simnmt.results.columns import deferred_s
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.requests import Block, Requests, Trail
from simnmt.world import engine as engines
from simnmt.world.compiled_world import simulate_compiled
from simnmt.world.deciders import Beliefs
from simnmt.world.inputs import DecideFor, PolicySetup, Route, World
from simnmt.world.reference import simulate_reference
from simnmt.world.structures import library
from tests.campaigns.harness import SCALE

needs_compiled = pytest.mark.skipif(library() is None, reason="the compiled world was not compiled")
"""Marks tests of the compiled engine, which is missing where there was no C compiler."""


def inputs(
    requests: Requests,
    decide_for: DecideFor,
    beliefs: Beliefs | Sequence[Beliefs],
    kinds: Sequence[Kind],
    *,
    expected_for: Any = None,
    plan_beyond_for: Any = None,
    second_for: Any = None,
    judged_share: float = 0.0,
    deciders: int = 1,
    workers: int = 1,
    local: Sequence[Kind] | Kind | None = None,
    **world: Any,
) -> tuple[World, PolicySetup, float]:
    """The inputs of a run from its parts; `deciders`, `workers`: first in, first out, unless `local` is given."""
    groups = [Fifo(deciders, workers)] if local is None else local if isinstance(local, Sequence) else [local]
    of_groups = [beliefs] if isinstance(beliefs, Beliefs) else beliefs
    policy = PolicySetup(decide_for, of_groups, expected_for, plan_beyond_for, second_for)
    return World(requests, kinds, groups, **world), policy, judged_share


def in_reference(*parts: Any, **more_parts: Any) -> Trail:
    return simulate_reference(*inputs(*parts, **more_parts))


def in_compiled(*parts: Any, pause_after_ms: int = 100, **more_parts: Any) -> Trail:
    return simulate_compiled(*inputs(*parts, **more_parts), pause_after_ms=pause_after_ms)


def in_engine(*parts: Any, engine: Any, **more_parts: Any) -> Trail:
    return engines.simulate(*inputs(*parts, **more_parts), engine)


def assert_agree(one: Trail, other: Trail) -> None:
    """Assert that two trails have the same choices, times that agree to 1e-9, and accounts that do."""
    assert one.columns.keys() == other.columns.keys()
    for name, column in one.columns.items():
        assert column.dtype == other.columns[name].dtype, name
        if column.dtype.kind == "f":
            np.testing.assert_allclose(column, other.columns[name], 1e-9, 1e-9, err_msg=name)
        else:
            np.testing.assert_array_equal(column, other.columns[name], err_msg=name)
    for field in fields(Trail):
        first, second = getattr(one, field.name), getattr(other, field.name)
        if field.name == "batches":
            assert_equal_accounts(first, second)
        elif field.name == "streamed":
            for until, other_until in zip(first, second, strict=True):
                assert (until is None) == (other_until is None)
                if until is not None:
                    assert astuple(until(1e3)) == pytest.approx(astuple(other_until(1e3)), rel=1e-9, abs=1e-9)
        elif field.name not in ("engine", "engine_reason", "columns"):
            assert first == second, field.name


def assert_equal_accounts(one: Sequence[BatchAccount | None], other: Sequence[BatchAccount | None]) -> None:
    """Assert that the accounts of batches agree."""
    assert len(one) == len(other)
    for first, second in zip(one, other, strict=True):
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            for field in fields(BatchAccount):
                columns = getattr(first, field.name), getattr(second, field.name)
                np.testing.assert_allclose(*columns, 1e-9, 1e-9, err_msg=field.name)


def simulate(requests: Any, decide_for: Any, beliefs: Any, kinds: Any, **settings: Any) -> Trail:
    """Return the trail of a world after both engines agreed on it; without the compiled one, that of the reference.

    Raises `UncompiledError` for a world that only the reference covers, so that no test holds for one engine unnoticed.
    """
    trail = in_reference(requests, decide_for, beliefs, kinds, **settings)
    if library() is not None:
        assert_agree(trail, in_compiled(requests, decide_for, beliefs, kinds, **settings))
    return trail


def simulate_replication(replication: int, requests: Any, decide_for: Any, beliefs: Any, kinds: Any, **settings: Any) -> Trail:
    """Return the trail of one replication of a world, the first one after both engines agreed on it.

    `make check-deep` compares both engines in every replication; otherwise the further ones run in the compiled engine alone.
    """
    if replication == 0 or SCALE > 1.0 or library() is None:
        return simulate(requests, decide_for, beliefs, kinds, **settings)
    return in_compiled(requests, decide_for, beliefs, kinds, **settings)


GATEWAY, CLOUD = 0, 1
"""The targets of the paper's deployment."""


def two_devices(
    src_len: Any, gateway_s: Any, cloud_s: Any, uplink_s: Any, downlink_s: Any, arrival_s: Floats | None = None
) -> Requests:
    """Requests that a gateway keeps or sends over one link to a cloud."""
    return Requests(src_len, (gateway_s, cloud_s), (uplink_s,), (downlink_s,), arrival_s)


def columns(*rows: tuple[float, ...]) -> Requests:
    """The same from rows of (arrival, gateway, cloud, uplink, downlink), numbered in `src_len`."""
    arrival_s, *times_s = np.array(rows, np.float64).T
    return two_devices(np.arange(len(rows)), *times_s, arrival_s)


def believing(initial_s: float, clairvoyant: bool = False, **options: Any) -> Beliefs:
    """The last transfer time that was measured, and this before any; `clairvoyant`: the truth instead, as for an oracle."""
    return Beliefs(
        lambda decider, target: TransferEstimate(initial_s), true_transfer=clairvoyant, true_backlog=clairvoyant, **options
    )


def run(
    requests: Requests,
    decide_for: DecideFor,
    initial_s: float = 0.1,
    *,
    clairvoyant: bool = False,
    workers: int = 1,
    pool: Kind | None = None,
    route: Route | None = None,
) -> Trail:
    """One gateway, one cloud of so many workers. Back to back nothing waits, so a clairvoyant policy sees no backlog there."""
    beliefs = believing(initial_s)
    if clairvoyant:
        queues = requests.arrival_s is not None
        beliefs = Beliefs(beliefs.estimate, true_transfer=True, true_backlog=queues)
    return in_reference(requests, decide_for, beliefs, [pool or Fifo(workers=workers)], route=route)


def away_s(requests: Requests, target: int = CLOUD) -> Floats:
    """Execution on a remote target and the way there and back."""
    return requests.execution_s[target] + requests.uplink_s[target - 1] + requests.downlink_s[target - 1]


def latency_s(requests: Requests, trail: Trail) -> Floats:
    """From arrival at the decider to the answer there."""
    here_s, *elsewhere_s = [requests.execution_s[0], *(away_s(requests, k) for k in range(1, len(requests.execution_s)))]
    return trail.queue_s + np.choose(trail.target, [here_s, *elsewhere_s]) + deferred_s(trail.columns)


def fixed(*target: int) -> DecideFor:
    """Requests to targets, as told; `src_len` holds the request's number."""
    return lambda block: lambda request, delay_s: target[block.src_len[request]]


def everything_to(target: int) -> DecideFor:
    """All requests to one target."""
    return lambda block: Fixed(target)


def alternately(block: Block) -> Decide:
    """Even requests stay, odd ones go to the second target."""
    return lambda in_block, delay_s: (block.first + in_block) % 2


def recording(decide_for: DecideFor) -> tuple[list[tuple[float, ...]], DecideFor]:
    """The delays that each decision gets, filled as a policy decides."""
    delays: list[tuple[float, ...]] = []

    def recorded_for(block: Requests) -> Decide:
        decide = decide_for(block)
        return lambda request, delay_s: (delays.append(tuple(delay_s)), decide(request, delay_s))[1]  # type: ignore[operator]

    return delays, recorded_for


def link_of(requests: Requests, rtt_s: Callable[[float], float]) -> Route:
    """A link as time goes by: the requests' own seconds there and back, and half of the RTT of the moment each way."""
    (uplink_s,), (downlink_s,) = requests.uplink_s, requests.downlink_s

    def route(request: int, node: int, moment_s: float) -> tuple[tuple[float], tuple[float], float, float]:
        half_s = rtt_s(moment_s) / 2
        return (float(uplink_s[request]) + half_s,), (float(downlink_s[request]) + half_s,), 0.0, 0.0

    return route
