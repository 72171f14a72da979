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
from simnmt.world.batch_pools import Batched, BatchPool
from simnmt.world.clock import ARRIVAL, Clock
from simnmt.world.closed_loop import Clients, ClosedLoop
from simnmt.world.deciders import Beliefs
from simnmt.world.open_loop import arrivals
from simnmt.world.pools import Pool
from simnmt.world.requests import Block, Requests, Route
from simnmt.world.streamed import Streamed
from simnmt.world.streamed_pools import StreamedPool
from simnmt.world.traffic import Beyond, Predicted, Traffic
from simnmt.world.trail import Trail

__all__ = ["Beliefs", "Clients", "DecideFor", "Trail", "simulate"]

DecideFor = Callable[[Block], Decide]
"""Prepares a policy for one block of requests."""


def simulate(
    requests: Requests[AnyColumn],
    decide_for: DecideFor,
    beliefs: Beliefs,
    pools: Sequence[Pool | BatchPool | StreamedPool],
    *,
    deciders: int = 1,
    workers: int = 1,
    predicted_for: Callable[[Block], Predicted] | None = None,
    route: Route | None = None,
    clients: Clients | None = None,
    own: Batched | Streamed | None = None,
    predicted_tgt_len_for: Callable[[Block], Sequence[float]] | None = None,
    plan_beyond_for: Callable[[Block], Beyond] | None = None,
    judged_share: float = 0.0,
) -> Trail:
    """Run every request through the world.

    `pools`: the servers of every target but the first, new for each run. `deciders`: devices that decide; end node n's is n
    modulo their number; each executes `workers` requests side by side. `predicted_for`: the seconds of execution per target
    that the policy expects of a block, where it sees backlogs. `route`: the links as time goes by, where the requests' own
    columns do not hold them. `clients`: closed loop; it needs a `route`. With queues the true delays handed to an oracle hold
    unless a later request overtakes this one on the uplink or joins its batch.

    A target batches where its pool does, and the first where `own` says how each decider's device does, which then has no
    `workers`. The requests need a `tgt_len`, their `execution_s` is that of a sentence alone; back to back nothing meets, so
    nothing batches. `predicted_tgt_len_for`: the tokens that the policy expects of a block, where it sees batches.
    `judged_share`: of the requests, for which the trail holds `lost_s`, each as dear as an oracle's decision; back to back all
    or none, and only where a target streams.

    A target streams its model where its pool does, and the first where `own` says how, which then has one worker. Of such a
    target `execution_s` is the time of its plan with nothing to be read; an oracle's beliefs must hold the true backlog, back
    to back as well, as what a state costs beyond that is told with it. `plan_beyond_for`: by state, the seconds that the policy
    expects beyond its plane, where it views states.
    """
    clock = Clock()

    def prepare(block: Block) -> None:
        traffic.decide = decide_for(block)
        if predicted_for is not None:
            traffic.predicted = predicted_for(block)
        if predicted_tgt_len_for is not None:
            traffic.predicted_tgt_len = predicted_tgt_len_for(block)
        if plan_beyond_for is not None:
            traffic.beyond = plan_beyond_for(block)

    loop = None if clients is None else ClosedLoop(clock, clients, requests, prepare)
    answered = None if loop is None else loop.answered
    own_pool = None if own is None else StreamedPool(own, deciders) if isinstance(own, Streamed) else BatchPool(own, deciders)
    has_lengths = requests.tgt_len is not None
    traffic = Traffic(clock, len(requests), pools, deciders, workers, beliefs, answered, own_pool, judged_share, has_lengths)
    if loop is not None:
        assert route is not None
        loop.begin(traffic, route)
    elif requests.arrival_s is None:
        clock.follow(requests_in_turn(traffic, requests, prepare, beliefs, route), ARRIVAL)
    else:
        clock.follow(arrivals(traffic, requests, prepare), ARRIVAL)
    clock.run()
    while traffic.close():
        clock.run()
    trail = traffic.finished()
    return trail if loop is None else loop.completed(trail)
