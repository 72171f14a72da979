"""Live and simulated runs of known truth: columns that nothing measured, for the statistics of a validation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.live.cell_comparison import Cell, CellResult, Rules, compare_cell
from simnmt.live.cell_run import LiveRun, References
from simnmt.live.matched_simulation import SimulatedRun, Simulations
from simnmt.service.load import LoadLog

REQUESTS = 40
STEADY = np.full(20, 0.01)


def references(execution_s: NDArray[np.float64]) -> References:
    """Return reference executions that follow each other by 0.2 s."""
    return References(0.2 * np.arange(execution_s.size), 1.5 * execution_s, execution_s)


def live_run(
    mean_s: float,
    *,
    offloaded: float = 0.0,
    others_cpus: float | None = 0.0,
    reference_s: NDArray[np.float64] = STEADY,
    refused: int = 0,
    identical: bool = True,
    requests: int = REQUESTS,
    begun_s: float = 0.0,
) -> LiveRun:
    """Return a run of that mean latency: half execution, a quarter queue, the rest transfer and overhead."""
    due_s = np.arange(requests) * 0.1
    latency_s = mean_s * np.linspace(0.8, 1.2, requests)
    status = np.full(requests, 200)
    status[:refused] = 429
    unknown = np.full(requests, np.nan)
    log = LoadLog(
        begin_s=0.0,
        due_s=due_s,
        sent_s=due_s,
        received_s=np.where(status == 200, due_s + latency_s, np.nan),
        status=status,
        target=(np.arange(requests) < round(offloaded * requests)).astype(np.int64),
        queue_s=latency_s / 4,
        execution_s=latency_s / 2,
        total_s=latency_s,
        client=np.zeros(requests, np.int64),
        src_len=np.full(requests, 5),
        tgt_len=np.full(requests, 5),
        batch=np.ones(requests, np.int64),
        estimate_s=unknown,
        age_s=unknown,
        tgt_len_predicted=unknown,
        fell_back=np.zeros(requests, np.bool_),
    )
    return LiveRun(
        log=log,
        transfer_s=latency_s / 5,
        link_s=latency_s / 6,
        link_begin_s=3.5,
        begun_s=begun_s,
        references={"gateway": references(reference_s), "cloud": references(STEADY)},
        handover_s=(0.0, 0.0),
        turnaround_s=(0.0, 0.0),
        decisions_identical=identical,
        others_cpus=others_cpus,
    )


def simulated_run(mean_s: float, *, offloaded: float = 0.0, execution_share: float = 0.5) -> SimulatedRun:
    """Return a simulated run of that mean latency with the parts of `live_run`, or with more execution and less queue."""
    latency_s = mean_s * np.linspace(0.8, 1.2, REQUESTS)
    target = (np.arange(REQUESTS) < round(offloaded * REQUESTS)).astype(np.int64)
    queue_s = (0.75 - execution_share) * latency_s
    return SimulatedRun(target, queue_s, execution_share * latency_s, latency_s / 5, latency_s / 20)


def result(
    live_s: Sequence[float],
    simulated_s: float,
    *,
    policy: str = "cnmt",
    load: float = 0.4,
    link: str = "constant",
    predicted_s: Sequence[float] | None = None,
    structural_s: float | None = None,
    rules: Rules = Rules(),  # noqa: B008 - frozen
    others_cpus: float = 0.0,
    identical: bool = True,
) -> CellResult:
    """Return the result of a cell with these live means, one for each repeat, and these simulated ones."""
    simulations = Simulations(
        simulated_run(simulated_s if structural_s is None else structural_s),
        [simulated_run(simulated_s)] * 2,
        [simulated_run(simulated_s)] * 2,
        [simulated_run(one) for one in predicted_s or (0.95 * simulated_s, simulated_s, 1.05 * simulated_s) * 10],
    )
    runs = [live_run(one, others_cpus=others_cpus, identical=identical) for one in live_s]
    return compare_cell(Cell(policy, "alone", load, link), runs, [simulations] * len(runs), rules)
