"""C-NMT before a server that batches: what it gains by what answers report of the batch, and where there is nothing to gain."""

from __future__ import annotations

from typing import Any

import simnmt


def run(rate_rps: float, batching: dict[str, Any] | None, **gateway: Any) -> simnmt.RunResult:
    """A gateway of many slow workers, which never fills, and a server that batches, which does."""
    cloud = {"profile": "@cpu1-gru"} | ({} if batching is None else {"batching": batching})
    return simnmt.run(
        {
            "version": 1,
            "name": "batched",
            "requests": 2_000,
            "replications": 1,
            "workloads": {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": rate_rps}}},
            "networks": {"lan": {"rtt": {"constant_ms": 40}}},
            "devices": {"gateway": {"profile": "@tx2-gru", "workers": 64, **gateway}, "cloud": cloud},
            "policies": {"plain": {"kind": "cnmt"}, "reported": {"kind": "cnmt", "batch": "reported"}, "oracle": {}},
        }
    )


def mean_s(result: simnmt.RunResult, policy: str) -> float:
    return float(result.cells[0].logs[policy]["latency_s"].mean())


def test_the_plain_plane_sends_too_much_to_a_batch_in_flight() -> None:
    """It believes each request alone there; told of the batch, C-NMT gains a fifth or more, and comes near the oracle."""
    result = run(40.0, {"kind": "top_up", "size": 32})
    plain, reported = (result.cells[0].logs[policy]["target"].mean() for policy in ("plain", "reported"))
    assert reported < 0.7 * plain
    assert mean_s(result, "reported") < 0.85 * mean_s(result, "plain")
    assert mean_s(result, "reported") < 1.05 * mean_s(result, "oracle")


def test_a_batch_that_is_not_refilled_is_waited_for_and_that_is_seen_too() -> None:
    result = run(20.0, {"kind": "mini", "size": 32})
    assert mean_s(result, "reported") < 0.8 * mean_s(result, "plain")
    assert mean_s(result, "reported") < 1.05 * mean_s(result, "oracle")


def test_without_batches_there_is_nothing_to_hear() -> None:
    result = run(20.0, None)
    assert (result.cells[0].logs["plain"]["target"] == result.cells[0].logs["reported"]["target"]).all()
