"""The request log is the same whole and in parts, in memory and in files."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simnmt.base import columns, random_streams
from simnmt.results.request_log import COLUMNS, RequestLog, Truth
from simnmt.results.requests import Requests, Trail

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
    return Trail(
        arrival_s=np.cumsum(random.random(requests)),
        target=random.integers(0, 3, requests).astype(np.int8),
        server=random.integers(0, 9, requests).astype(np.int32),
        queue_s=random.random(requests),
        estimate_s=random.random(requests),
        estimate_age_s=random.random(requests),
        tgt_len_by_src_len=np.arange(41.0),
        truth=truth,
    )


CASES = {"one truth for all": (truth_of(1), trail_of(2)), "a truth of its own": (truth_of(1), trail_of(2, truth_of(3)))}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Truth, Trail]:
    return CASES[request.param]


def same(one: RequestLog, other: RequestLog) -> bool:
    return all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name], equal_nan=True) for name in COLUMNS
    )


@pytest.mark.parametrize("block", [1, 7, 256, REQUESTS - 1, REQUESTS])
def test_columns_do_not_depend_on_how_many_requests_are_made_at_a_time(
    case: tuple[Truth, Trail], monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    whole = dict(RequestLog(*case))
    monkeypatch.setattr(random_streams, "BLOCK", block)
    for name, column in RequestLog(*case).items():
        np.testing.assert_array_equal(column, whole[name])


@pytest.mark.parametrize("requests", [1, 300, REQUESTS, 2 * REQUESTS])
def test_parts_are_the_log_cut_into_pieces(case: tuple[Truth, Trail], requests: int) -> None:
    log = RequestLog(*case)
    parts = list(log.parts(requests))
    assert [len(part["node"]) for part in parts] == [min(requests, REQUESTS - start) for start in range(0, REQUESTS, requests)]
    for name in COLUMNS:
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), log[name])


def test_a_part_may_be_cut_again(case: tuple[Truth, Trail]) -> None:
    log = RequestLog(*case)
    (_, second, *_) = log.parts(300)
    assert isinstance(second, RequestLog)
    cut = [part["request_id"] for part in second.parts(128)]
    assert [len(ids) for ids in cut] == [128, 128, 44]
    assert np.concatenate(cut).tolist() == list(range(300, 600))


def test_in_files_it_is_the_same_and_needs_no_names(case: tuple[Truth, Trail], tmp_path: Path) -> None:
    truth, trail = case
    for name in ("truth", "trail"):
        (tmp_path / name).mkdir()
    stored = truth.stored(tmp_path / "truth"), trail.stored(tmp_path / "trail")
    assert isinstance(stored[1].queue_s, columns.Column)
    shutil.rmtree(tmp_path)
    assert same(RequestLog(*stored), RequestLog(*case))
    np.testing.assert_array_equal(stored[0].best_target, truth.best_target)


def test_what_lies_in_files_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns.Column, "FILES_FROM_BYTES", 1)
    truth = truth_of(1).stored(tmp_path)
    (tmp_path / "own").mkdir()
    trail = trail_of(2, replace(truth, rtt_time_s=np.zeros(REQUESTS))).stored(tmp_path / "own")
    assert trail.truth is not None
    assert trail.truth.src_len is truth.src_len
    written = {path.name for path in (tmp_path / "own").iterdir()}
    assert written == {"arrival_s", "target", "server", "queue_s", "estimate_s", "estimate_age_s", "rtt_time_s"}


def test_logs_travel_between_processes(case: tuple[Truth, Trail]) -> None:
    truth, trail = case
    logs = {"a": RequestLog(truth, trail)}
    back = pickle.loads(pickle.dumps(logs))
    assert same(back["a"], logs["a"])


def test_the_best_target_is_the_first_of_the_least() -> None:
    truth = truth_of(4)
    total_s = np.stack([truth.total_s(target, truth.all) for target in range(3)])
    np.testing.assert_array_equal(truth.best_target, total_s.argmin(0))
    assert truth.best_target.dtype == np.int8
    tied = replace(truth, execution_s=(np.ones(REQUESTS),) * 3, transfer_s=(np.ones(REQUESTS),) * 3)
    assert not tied.best_target.any()
    picked = np.array([5, 3, 900])
    assert truth.total_s(1, picked).tolist() == total_s[1, picked].tolist()
