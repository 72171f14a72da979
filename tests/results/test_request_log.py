"""The truth of requests: which target is best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simnmt.results.requests import Requests, Trail, Truth

REQUESTS = 1_000


def truth_of(seed: int, requests: int = REQUESTS) -> Truth:
    random = np.random.default_rng(seed)
    return Requests(
        node=random.integers(0, 5, requests).astype(np.int32),
        src_len=random.integers(1, 40, requests),
        tgt_len=random.integers(1, 40, requests),
        execution_s=tuple(random.random((3, requests))),
        transfer_s=(np.broadcast_to(0.0, (requests,)), *random.random((2, requests))),
        rtt_time_s=random.random(requests),
    )


def trail_of(seed: int, truth: Truth | None = None, requests: int = REQUESTS) -> Trail:
    random = np.random.default_rng(seed)
    columns = {
        "arrival_s": np.cumsum(random.random(requests)),
        "target": random.integers(0, 3, requests).astype(np.int8),
        "server": random.integers(0, 9, requests).astype(np.int32),
        **{name: random.random(requests) for name in ("queue_s", "estimate_s", "estimate_age_s")},
    }
    return Trail(columns, tgt_len_by_src_len=np.arange(41.0), truth=truth)


def test_the_best_target_is_the_first_of_the_least() -> None:
    truth = truth_of(4)
    total_s = np.stack([truth.total_s(target, truth.all) for target in range(3)])
    np.testing.assert_array_equal(truth.best_target, total_s.argmin(0))
    assert truth.best_target.dtype == np.int8
    tied = replace(truth, execution_s=(np.ones(REQUESTS),) * 3, transfer_s=(np.ones(REQUESTS),) * 3)
    assert not tied.best_target.any()
    picked = np.array([5, 3, 900])
    assert truth.total_s(1, picked).tolist() == total_s[1, picked].tolist()
