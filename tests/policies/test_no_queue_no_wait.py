"""What the way to a server takes is no queue, however unlike the way back."""

from __future__ import annotations

import numpy as np

import simnmt


def test_where_nothing_waits_seeing_queues_changes_no_decision_even_on_a_thin_uplink() -> None:
    """Most of the transfer is uplink, so half of the estimate is no time of entry; only durations may count (CNMT-11)."""
    result = simnmt.run(
        {
            "version": 1,
            "name": "thin",
            "requests": 3_000,
            "replications": 1,
            "workloads": {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 0.01}}},
            "networks": {"thin": {"rtt": {"constant_ms": 40}, "uplink_mbps": 0.02, "downlink_mbps": 100}},
            "devices": {"gateway": {"profile": "@tx2-bilstm"}, "cloud": {"profile": "@titan-xp-bilstm"}},
            "policies": {"cnmt": {}, "queue-aware": {"kind": "cnmt", "sees_backlog": True}},
        }
    )
    plain, aware = (result.cells[0].logs[policy] for policy in ("cnmt", "queue-aware"))
    nobody_waits = np.maximum(plain["t_queue_s"], aware["t_queue_s"]) == 0.0
    assert nobody_waits.mean() > 0.99
    assert 0.02 < plain["target"].mean() < 0.98
    # A wait at the gateway itself may still turn one or the other away.
    assert (plain["target"] != aware["target"]).mean() < 0.01
