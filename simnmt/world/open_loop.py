"""Open loop: requests arrive by themselves and wait in first-in first-out queues (CNMT-02)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from simnmt.columns import AnyColumn
from simnmt.world.requests import Block, Requests
from simnmt.world.traffic import Traffic


def arrivals(traffic: Traffic, requests: Requests[AnyColumn], prepare: Callable[[Block], None]) -> Iterator[float]:
    """One decision per arrival, in one re-armed event for all end nodes; a source for each would cost 60 % more at 1,000.

    What a decider keeps needs no event, since nothing else hears of it.
    """
    handle = traffic.handler()
    assert requests.arrival_s is not None
    np.frombuffer(traffic.trail.arrival_s)[:] = requests.arrival_s
    for block in requests.blocks():
        prepare(block)
        first = block.first
        for in_block, row in enumerate(traffic.rows(block)):
            now_s = row[0]
            yield now_s
            handle(first + in_block, in_block, row, now_s)
