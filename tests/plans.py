"""A queue before one device whose capacity theory knows, as a scenario for plans."""

from __future__ import annotations

from typing import Any

import numpy as np

import simnmt

SECONDS_A_TOKEN = 1e-5


def queue_of(workers: int, kind: str, rate_rps: float = 1.0, requests: int = 40_000) -> dict[str, Any]:
    """A gateway that takes 10 ms for a request on average, with service times of one distribution."""
    shares = (np.arange(50_000) + 0.5) / 50_000
    tokens = np.full(len(shares), 1000) if kind == "constant" else np.maximum(np.rint(-1000 * np.log1p(-shares)), 1)
    table = simnmt.LengthTable.of_pairs("queue", "made up", "word", "word", np.ones(len(tokens), int), tokens.astype(int))
    return {
        "version": 1,
        "name": "queue",
        "requests": requests,
        "workloads": {"w": {"lengths": table, "arrivals": {"kind": "poisson", "rate_rps": rate_rps}}},
        "networks": {"n": {"rtt": {"constant_ms": 0.001}, "uplink_mbps": 1e5, "downlink_mbps": 1e5}},
        "devices": {"gateway": {"profile": lambda src_len, tgt_len: SECONDS_A_TOKEN * tgt_len, "workers": workers}},
        "fit": {"inferences": 0},
        "policies": {"edge": {}},
    }
