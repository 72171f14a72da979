"""A misroute is a request that another device would truly have answered sooner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simnmt.results.request_log import Truth, decision_regret_s, misroutes
from simnmt.results.requests import Requests, Trail


def made_up(requests: int, targets: int = 3) -> tuple[Truth, Trail]:
    draw = np.random.default_rng(4)
    truth = Requests(
        node=np.zeros(requests, np.int32),
        src_len=draw.integers(1, 50, requests),
        tgt_len=draw.integers(1, 50, requests),
        execution_s=tuple(draw.exponential(1.0, (targets, requests))),
        transfer_s=(np.zeros(requests), *draw.exponential(0.2, (targets - 1, requests))),
        rtt_time_s=np.zeros(requests),
    )
    columns = {
        "target": draw.integers(0, targets, requests).astype(np.int8),
        "server": np.zeros(requests, np.int32),
        "queue_s": draw.exponential(9.0, requests),
        **dict.fromkeys(("arrival_s", "estimate_s", "estimate_age_s"), np.zeros(requests)),
    }
    return truth, Trail(columns, tgt_len_by_src_len=np.full(51, np.nan))


def test_a_regret_is_the_time_that_the_best_device_would_have_saved() -> None:
    truth, trail = made_up(500)
    judged = misroutes(truth, trail, 500)
    lost = []
    for request in range(500):
        total_s = [e[request] + t[request] for e, t in zip(truth.execution_s, truth.transfer_s, strict=True)]
        best, own = int(np.argmin(total_s)), int(trail.target[request])
        if own != best:
            lengths = int(truth.src_len[request]), int(truth.tgt_len[request])
            lost.append((total_s[own] - total_s[best], *lengths, own, best))
    assert judged.count == len(lost) == int((trail.target != truth.best_target).sum())
    assert judged.regret_s == pytest.approx(sum(entry[0] for entry in lost), rel=1e-6)
    columns = (judged.request_regret_s, judged.src_len, judged.tgt_len, judged.target, judged.best_target)
    assert np.stack(columns, 1) == pytest.approx(np.array(lost))


def test_a_sample_covers_the_run_evenly_and_leaves_the_sums_alone() -> None:
    truth, trail = made_up(20_000)
    truth = replace(truth, src_len=np.arange(20_000))
    everything, sampled = misroutes(truth, trail, 20_000), misroutes(truth, trail, 100)
    assert (sampled.count, sampled.regret_s) == (everything.count, everything.regret_s)
    assert sampled.src_len.size == 100
    assert np.diff(sampled.src_len).max() < 400, "no stretch of the run is left out"


def test_a_trail_with_a_truth_of_its_own_is_judged_by_that() -> None:
    truth, trail = made_up(300)
    own = replace(truth, execution_s=truth.execution_s[::-1])
    assert misroutes(truth, replace(trail, truth=own).with_columns(target=own.best_target), 100).count == 0


@pytest.mark.parametrize("targets", [2, 3])
def test_a_foreseen_misroute_names_the_best_device_of_two_and_of_three_none(targets: int) -> None:
    """Only how much was lost is kept of what was foreseen with queues and batches; of two devices the best is the other one."""
    truth, trail = made_up(300, targets=targets)
    judged = misroutes(truth, trail.with_columns(decision_regret_s=np.full(300, 0.5, np.float32)), 300)
    assert judged.best_target.tolist() == ((1 - trail.target).tolist() if targets == 2 else [3] * 300)


def test_where_two_devices_tie_neither_is_a_misroute() -> None:
    """As where all devices have one profile and nothing lies between them."""
    truth, trail = made_up(300, targets=2)
    tied = replace(truth, execution_s=(truth.execution_s[0],) * 2, transfer_s=(np.zeros(300), np.zeros(300)))
    assert trail.target.any()
    assert not decision_regret_s(tied, trail).any()
    assert misroutes(tied, trail, 100).count == 0
