"""The world: requests in, what became of them out.

A request is issued at an end node, decided on by the first device on its way (the end node's own, or the gateway), and
executed on exactly one device: there, or on a server of a tier behind it (CNMT-01). Three disciplines: back to back, the
paper's (CNMT-02); open loop, where requests arrive by themselves; closed loop, where clients think between requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simnmt.columns import AnyColumn
from simnmt.policies.decision import Decide
from simnmt.world.back_to_back import requests_in_turn
from simnmt.world.clock import ARRIVAL, Clock
from simnmt.world.closed_loop import Clients, ClosedLoop
from simnmt.world.deciders import Beliefs
from simnmt.world.open_loop import arrivals
from simnmt.world.pools import Pool
from simnmt.world.requests import Block, Requests, Route
from simnmt.world.traffic import Predicted, Traffic, Trail

__all__ = ["Beliefs", "Clients", "DecideFor", "Trail", "simulate"]

DecideFor = Callable[[Block], Decide]
"""Prepares a policy for one block of requests."""


def simulate(
    requests: Requests[AnyColumn],
    decide_for: DecideFor,
    beliefs: Beliefs,
    pools: Sequence[Pool],
    *,
    deciders: int = 1,
    workers: int = 1,
    predicted_for: Callable[[Block], Predicted] | None = None,
    route: Route | None = None,
    clients: Clients | None = None,
) -> Trail:
    """Run every request through the world.

    `pools`: the servers of every target but the first, new for each run. `deciders`: devices that decide; end node n's is n
    modulo their number; each executes `workers` requests side by side. `predicted_for`: the seconds of execution per target
    that the policy expects of a block, where it sees backlogs. `route`: the links as time goes by, where the requests' own
    columns do not hold them. `clients`: closed loop; it needs a `route`. With queues the true delays handed to an oracle hold
    unless a later request overtakes this one on the uplink.
    """
    clock = Clock()

    def prepare(block: Block) -> None:
        traffic.decide = decide_for(block)
        if predicted_for is not None:
            traffic.predicted = predicted_for(block)

    loop = None if clients is None else ClosedLoop(clock, clients, requests, prepare)
    answered = None if loop is None else loop.answered
    traffic = Traffic(clock, len(requests), pools, deciders, workers, beliefs, answered)
    if loop is not None:
        assert route is not None
        loop.begin(traffic, route)
    elif requests.arrival_s is None:
        clock.follow(requests_in_turn(traffic, requests, prepare, beliefs, route), ARRIVAL)
    else:
        clock.follow(arrivals(traffic, requests, prepare), ARRIVAL)
    clock.run()
    trail = traffic.trail.finished(traffic.deciders)
    return trail if loop is None else loop.completed(trail)
