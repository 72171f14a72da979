"""Back to back: each request is issued when the one before it has been answered, so that nothing ever waits (CNMT-02)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from simnmt.columns import AnyColumn
from simnmt.world.deciders import Beliefs
from simnmt.world.requests import Block, Places, Requests, Route
from simnmt.world.traffic import Traffic


def requests_in_turn(
    traffic: Traffic, requests: Requests[AnyColumn], prepare: Callable[[Block], None], beliefs: Beliefs, route: Route | None
) -> Iterator[float]:
    """An estimate is one request old at best. `route`: on an own clock, the links as time goes by.

    Nothing waits, but a box that streams its model remembers when it last had something to do.
    """
    trail, deciders, count = traffic.trail, traffic.deciders, len(traffic.deciders)
    places = Places(len(requests.execution_s))
    plain, last = beliefs.only_heard, places.targets - 1
    streamed = traffic.streaming.enter
    foresees = traffic.totals_s if streamed and traffic.judged_share > 0.0 else None
    now_s = 0.0
    for block in requests.blocks():
        prepare(block)
        decide = traffic.decide
        access_s = None if block.access_s is None else block.access_s.tolist()
        for in_block, row in enumerate(traffic.rows(block)):
            request = block.first + in_block
            on_access_s = 0.0 if access_s is None else access_s[in_block]
            if route is not None:
                uplink_s, downlink_s, there_s, back_s = route(request, row[1], now_s)
                row = (*places.routed(row, now_s, uplink_s, downlink_s), *row[places.lengths :])
                on_access_s = there_s + back_s
            decider = deciders[row[1] % count]
            foreseen_s = None if foresees is None else foresees(decider, request, row, now_s)
            delay_s = decider.delay_s if plain else traffic.delays(decider, request, in_block, row, now_s)
            target = decide(in_block, delay_s)
            estimate = decider.estimates[last]
            trail.arrival_s[request] = now_s
            trail.target[request] = target
            trail.estimate_s[request] = estimate.value_s
            trail.measured_at_s[request] = estimate.measured_at_s
            if foreseen_s is not None:
                trail.lost_s[request] = foreseen_s[target] - min(foreseen_s)
            if target in streamed:
                entry_s = now_s + row[places.uplink(target)] if target else now_s
                decider.sends(target, request, now_s + decider.estimates[target].value_s / 2)
                _, finish_s, _ = streamed[target](entry_s, request, row)
                now_s = finish_s + on_access_s
                if target:
                    transfer_s = row[places.uplink(target)] + row[places.downlink(target)]
                    now_s += row[places.downlink(target)]
                    decider.told(target, request, trail.state[request], now_s - on_access_s - transfer_s / 2)
                    decider.learn(target, transfer_s, now_s)
            elif target == 0:
                now_s += row[2] + on_access_s
            else:
                transfer_s = row[places.uplink(target)] + row[places.downlink(target)]
                now_s += row[places.execution(target)] + transfer_s + on_access_s
                decider.learn(target, transfer_s, now_s)
            yield now_s
