"""What a live run tells of the testbed itself: handover, turnaround and overheads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simnmt.live import cell_run
from simnmt.live.cell_run import LiveRun
from simnmt.live.validation import mean_overheads_s
from simnmt.results.live_log import RequestRecord, format_record, read_live_log
from simnmt.service.load import LoadLog

Column = NDArray[np.float64]


def log_of(queue_s: Column, execution_s: Column, decision_s: Column, folder: Path) -> Path:
    path = folder / "gateway.jsonl"
    records = [
        RequestRecord(number, at_s, at_s, 9, 9, 0, "gateway", queue, execution, 0.0, at_s + queue + execution, "done")
        for number, (at_s, queue, execution) in enumerate(zip(decision_s, queue_s, execution_s, strict=True))
    ]
    path.write_text("".join(map(format_record, records)))
    return path


def test_turnaround_and_handover_are_found_in_a_log(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    execution_s = random.gamma(9.0, 0.005, 300)
    decision_s = np.cumsum(random.exponential(0.07, 300))
    queue_s, free_s = np.empty(300), 0.0
    for number in range(300):
        # The engine begins 0.3 ms after a sentence reaches it idle, or 1.2 ms after the execution before.
        begin_s = max(decision_s[number] + 3e-4, free_s + 1.2e-3)
        queue_s[number], free_s = begin_s - decision_s[number], begin_s + execution_s[number]
    requests = read_live_log(log_of(queue_s, execution_s, decision_s, tmp_path)).requests
    handover_s, turnaround_s = cell_run._engine_gaps_s(requests, "gateway")
    assert handover_s == pytest.approx(3e-4, abs=1e-6)
    assert turnaround_s == pytest.approx(1.2e-3, abs=1e-6)


def test_an_engine_without_queues_has_the_handover_as_its_turnaround(tmp_path: Path) -> None:
    path = log_of(np.full(5, 4e-4), np.full(5, 0.02), np.arange(5.0), tmp_path)
    assert cell_run._engine_gaps_s(read_live_log(path).requests, "gateway") == pytest.approx((4e-4, 4e-4))


def run_of(target: NDArray[np.int64], beyond_s: Column, link_s: float = 0.02) -> LiveRun:
    """A run whose requests each have an overhead of `beyond_s`, in an engine with a handover of 1 ms."""
    count = len(target)
    queue_s, execution_s = np.full(count, 0.011), np.full(count, 0.05)
    due_s = np.arange(count) * 1.0
    received_s = due_s + 0.010 + execution_s + np.where(target > 0, link_s, 0.0) + beyond_s
    log = LoadLog(
        begin_s=0.0,
        due_s=due_s,
        sent_s=due_s,
        received_s=received_s,
        status=np.full(count, 200),
        target=target,
        queue_s=queue_s,
        execution_s=execution_s,
        total_s=received_s - due_s,
        client=np.zeros(count, np.int64),
        src_len=np.full(count, 9),
        tgt_len=np.full(count, 9),
        batch=np.ones(count, np.int64),
        estimate_s=np.zeros(count),
        age_s=np.zeros(count),
        tgt_len_predicted=np.full(count, np.nan),
        fell_back=np.zeros(count, np.bool_),
    )
    return LiveRun(
        log=log,
        transfer_s=np.where(target > 0, link_s, 0.0),
        link_s=np.full(count, link_s),
        link_begin_s=0.0,
        begun_s=0.0,
        references={},
        handover_s=(1e-3, 1e-3),
        turnaround_s=(1e-3, 1e-3),
        decisions_identical=True,
        others_cpus=None,
    )


def test_both_paths_have_an_overhead_of_their_own() -> None:
    target = np.array([0, 0, 1, 1])
    run = run_of(target, np.array([0.002, 0.004, 0.007, 0.009]))
    assert run.overhead_s == pytest.approx([0.002, 0.004, 0.007, 0.009])
    assert mean_overheads_s([run]) == pytest.approx((0.003, 0.005))


def test_one_path_alone_has_the_whole_overhead() -> None:
    local, remote = (run_of(np.full(3, target), np.full(3, 0.004)) for target in (0, 1))
    assert mean_overheads_s([local]) == pytest.approx((0.004, 0.0))
    assert mean_overheads_s([remote]) == pytest.approx((0.0, 0.004))
