"""A queue before one device whose capacity theory knows, as a scenario for plans."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import simnmt

SECONDS_A_TOKEN = 1e-4


@cache
def service_lengths(kind: str) -> simnmt.LengthTable:
    """Return target lengths of mean 100 with the distribution of the service times."""
    shares = (np.arange(5_000) + 0.5) / 5_000
    tokens = np.full(len(shares), 100) if kind == "constant" else np.maximum(np.rint(-100 * np.log1p(-shares)), 1)
    return simnmt.LengthTable.of_pairs("queue", "made up", "word", "word", np.ones(len(tokens), int), tokens.astype(int))


def queue_of(workers: int, kind: str, rate_rps: float = 1.0, requests: int = 32_000) -> dict[str, Any]:
    """A gateway that takes 10 ms for a request on average, with service times of one distribution."""
    return {
        "version": 1,
        "name": "queue",
        "requests": requests,
        "workloads": {"w": {"lengths": service_lengths(kind), "arrivals": {"kind": "poisson", "rate_rps": rate_rps}}},
        "networks": {"n": {"rtt": {"constant_ms": 0.001}, "uplink_mbps": 1e5, "downlink_mbps": 1e5}},
        "devices": {"gateway": {"profile": lambda src_len, tgt_len: SECONDS_A_TOKEN * tgt_len, "workers": workers}},
        "fit": {"inferences": 0},
        "policies": {"edge": {}},
    }
