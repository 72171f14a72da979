"""Worlds of batched targets for tests: batchings of every kind, and requests of several end nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from simnmt.batching import mini, top_up
from simnmt.results.requests import Requests
from tests.world.decoding import cost

COST = cost()
BATCHINGS = {
    "mini": mini(4, longest_wait_s=0.05),
    "half-empty": top_up(8, 4),
    "immediate": top_up(8, 7),
    "one": top_up(1, 0),
    "company for ever": mini(4),
}
CLOUD = 1
"""Number of the target beside the gateway."""


def asked(n: int = 400, rate_rps: float = 15.0, seed: int = 1, nodes: int = 5) -> Requests:
    """Requests of several end nodes that a gateway of twice the cloud's time decides on."""
    random = np.random.default_rng(seed)
    src_len = random.integers(1, 40, n)
    tgt_len = random.integers(0, 40, n)
    arrival_s = np.cumsum(random.exponential(1 / rate_rps, n))
    alone_s = COST.solo_s(src_len, tgt_len)
    uplink_s, downlink_s = 0.02 * random.lognormal(0.0, 1.0, (2, n))
    execution_s = (2 * alone_s, alone_s)
    return Requests(src_len, execution_s, (uplink_s,), (downlink_s,), arrival_s, np.arange(n) % nodes, tgt_len=tgt_len)


def split(requests: Requests) -> Any:
    """Even requests stay, odd ones go."""
    return lambda block: lambda in_block, delay_s: (block.first + in_block) % 2
