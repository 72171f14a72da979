"""The servers that a unit's requests meet: those of every target but the first behind their balancers, idle at first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt import streams
from simnmt.scenario.build import Case
from simnmt.scenario.model import Scenario
from simnmt.world.batch_balancers import Balancer, ByNode, FewestTokens, InTurn, OfDrawn
from simnmt.world.batch_pools import Batched, BatchPool
from simnmt.world.pools import Attached, DrawnChoices, LeastWork, OneServer, Pool, RoundRobin
from simnmt.world.streamed import Streamed
from simnmt.world.streamed_pools import StreamedPool


def decider_server(case: Case) -> Batched | Streamed | None:
    """How each decider's own device batches or streams its model; None where it executes one by one, or nothing meets."""
    return case.streamed_at(0) or (case.decoding[0] if case.batches else None)


def pools(scenario: Scenario, case: Case, replication: int) -> Sequence[Pool | BatchPool | StreamedPool]:
    """The servers of every target but the first."""
    found: list[Pool | BatchPool | StreamedPool] = []
    for target, (name, decoding) in list(enumerate(zip(scenario.devices, case.decoding, strict=True)))[1:]:
        streamed = case.streamed_at(target)
        if streamed is not None:
            balancer = _balancer(scenario, case, replication, name)
            found.append(StreamedPool(streamed, scenario.count_of(name, case.name), balancer))
        elif decoding is None or not case.batches:
            found.append(_pool(scenario, case, replication, name))
        else:
            balancer = _balancer(scenario, case, replication, name)
            found.append(BatchPool(decoding, scenario.count_of(name, case.name), balancer))
    return found


def _balancer(scenario: Scenario, case: Case, replication: int, name: str) -> Balancer:
    count, balancer = scenario.count_of(name, case.name), scenario.balancer_of(name)
    if count == 1 or balancer == "attached":
        return ByNode()
    if balancer == "round_robin":
        return InTurn()
    if balancer == "least_work":
        return FewestTokens()
    return OfDrawn(_choices(scenario, case, replication, name, count, 2 if balancer == "two_choices" else 1))


def _pool(scenario: Scenario, case: Case, replication: int, name: str) -> Pool:
    count, balancer = scenario.count_of(name, case.name), scenario.balancer_of(name)
    workers = scenario.devices[name].workers
    if count == 1:
        return OneServer(workers)
    if balancer == "attached":
        return Attached(count, workers)
    if balancer == "round_robin":
        return RoundRobin(count, workers)
    if balancer == "least_work":
        return LeastWork(count, workers)
    choices = _choices(scenario, case, replication, name, count, 2 if balancer == "two_choices" else 1)
    return DrawnChoices(choices, count, workers)


def _choices(scenario: Scenario, case: Case, replication: int, device: str, count: int, drawn: int) -> NDArray[np.int16]:
    """Different servers for each request, one or two, shape (requests, drawn): the same for every policy."""
    chosen = np.empty((scenario.requests, drawn), np.int16)
    for block, rows in streams.blocks(len(chosen)):
        uniform = [
            streams.stream(scenario.seed, replication, f"{case.name}/{device} choices {number}", block).random(
                rows.stop - rows.start
            )
            for number in range(drawn)
        ]
        chosen[rows, 0] = first = (uniform[0] * count).astype(np.int64)
        if drawn == 2:
            # One of the others: a step of 1 to count - 1 around.
            chosen[rows, 1] = (first + 1 + (uniform[1] * (count - 1)).astype(np.int64)) % count
    return chosen
