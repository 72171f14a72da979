"""A misroute is a request that another device would truly have answered sooner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simnmt.results.requests import Requests, Trail, Truth, decision_regret_s


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
    lost_s = decision_regret_s(truth, trail)
    for request in range(500):
        total_s = [e[request] + t[request] for e, t in zip(truth.execution_s, truth.transfer_s, strict=True)]
        assert lost_s[request] == pytest.approx(total_s[int(trail.target[request])] - min(total_s), rel=1e-6)
    assert (decision_regret_s(truth, trail) > 0.0).sum() == int((trail.target != truth.best_target).sum())


def test_who_errs_never_has_nothing_to_show() -> None:
    truth, trail = made_up(300)
    assert not decision_regret_s(truth, trail.with_columns(target=truth.best_target)).any()


def test_a_trail_with_a_truth_of_its_own_is_judged_by_that() -> None:
    truth, trail = made_up(300)
    own = replace(truth, execution_s=truth.execution_s[::-1])
    assert not decision_regret_s(truth, replace(trail, truth=own).with_columns(target=own.best_target)).any()


def test_where_two_devices_tie_neither_is_a_misroute() -> None:
    """As where all devices have one profile and nothing lies between them."""
    truth, trail = made_up(300, targets=2)
    tied = replace(truth, execution_s=(truth.execution_s[0],) * 2, transfer_s=(np.zeros(300), np.zeros(300)))
    assert trail.target.any()
    assert not decision_regret_s(tied, trail).any()
