"""Clients of a unit that try again and give up: what is drawn of them, and what a run counts of them.

That a client gives up changes nothing in the world of an open loop, so that it follows from the latency when the run has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np

from simnmt.base import random_streams
from simnmt.experiment.accounts import Rows
from simnmt.experiment.cases import Unit
from simnmt.results.columns import Array, Executions, executed_on
from simnmt.results.device_accounts import FaultAccount, Log
from simnmt.results.requests import DONE, GAVE_UP, REFUSED, RequestLog, Trail, Truth, were_answered
from simnmt.results.summary import Device, Numbers
from simnmt.workload.configuration import ClientsConfiguration

WAITING = ClientsConfiguration.model_construct()
"""Clients that wait for every answer and never try again."""


def clients_of(part: Unit) -> ClientsConfiguration:
    """Return what the clients of a workload do about refusals and late answers."""
    return part.scenario.workloads[part.case.name].clients or WAITING


def client_columns(unit: Unit, part: Unit, access_s: Array) -> dict[str, Array]:
    """Return the columns of the clients of a workload, with as many tries as those of any workload of the unit.

    A pause begins when the client has received the refusal and ends when it sends the request again, so that the link from the
    end node to its decider and back comes on top. `access_s`: by request, the seconds there and back.
    """
    every, size = [clients_of(one) for one in unit.parts], len(access_s)
    tries = max(len(clients.pauses_s) for clients in every) if unit.refuses else 0
    columns: dict[str, Array] = {}
    if any(clients.timeout_s < inf for clients in every) and (tries or part.case.arrivals.discipline == "closed"):
        columns["patience_s"] = np.full(size, clients_of(part).timeout_s)
    settings, pauses_s = clients_of(part).retries, clients_of(part).pauses_s
    for number in range(tries):
        name = f"retry_after_s {number}"
        if settings is None or number >= len(pauses_s):
            columns[name] = np.full(size, inf)
            continue
        uniform = random_streams.uniform(*part.stream(f"retry {number}"), size)
        columns[name] = pauses_s[number] * (1.0 + settings.jitter * (2.0 * uniform - 1.0)) + access_s
    return columns


def with_given_up(unit: Unit, truth: Truth, trail: Trail, devices: Sequence[Device], boxes: Sequence[int]) -> Trail:
    """Return a trail in which requests whose answers come after their clients have given up are not answered.

    Their executions then count as work that answered no request. `boxes`: of each target, of all deciders together.
    """
    timeouts_s = np.array([clients_of(part).timeout_s for part in unit.parts])
    limits = trail.columns.get("tries") is not None
    if not limits and np.isinf(timeouts_s).all():
        return trail
    log, part = RequestLog.of(truth, trail), trail.columns.get("part", np.zeros(len(trail.target), np.int32))
    outcome = np.full(len(part), DONE, np.int8) if trail.outcome is None else np.array(trail.outcome)
    late = were_answered(outcome) & (log["latency_s"] > timeouts_s[part])
    faults = trail.faults or FaultAccount(0, tuple(np.zeros(count) for count in boxes))
    columns: dict[str, Any] = {"outcome": np.where(late, np.int8(GAVE_UP), outcome)}
    if late.any():
        executions = Executions(log)
        wasted = late[executions["request_id"]]
        work = [
            done + _work_by_box(executions, wasted & (executed_on(executions) == number), number in _batching(trail), len(done))
            for number, done in enumerate(faults.extra_work)
        ]
        faults = replace(faults, extra_work=tuple(work), loads=(*faults.loads, *_loads(trail, devices, part, late)))
        columns["target"] = np.where(late, np.int8(-1), trail.target)
        for name in ("queue_s", "execution_s", "transfer_s", "first_token_s", "decision_regret_s"):
            if (column := trail.columns.get(name)) is not None:
                columns[name] = np.where(late, nan, column)
        if trail.model_load is not None:
            columns["model_load"] = np.where(late, np.int8(0), trail.model_load)
    return replace(trail.with_columns(**columns), faults=faults)


def _batching(trail: Trail) -> list[int]:
    return [number for number, account in enumerate(trail.batches) if account is not None]


def _work_by_box(log: Log, there: Array, in_batches: bool, boxes: int) -> Array:
    """Return the work of some requests by box: seconds, or target tokens with the end of the sentence in batches."""
    work = log["tgt_len"][there] + 1.0 if in_batches else log["t_exe_s"][there]
    return np.bincount(log["server"][there], work, boxes)


def _loads(trail: Trail, devices: Sequence[Device], part: Array, late: Array) -> list[tuple[int, int, int, float]]:
    """Return the loads of models by some requests, as in `FaultAccount`."""
    if trail.model_load is None:
        return []
    return [
        (request, target, int(trail.server[request]), load_s)
        for request in np.flatnonzero(late & (trail.model_load > 0)).tolist()
        for target in (int(trail.target[request]),)
        for bit, load_s in enumerate(devices[target].load_s[part[request]])
        if int(trail.model_load[request]) >> bit & 1
    ]


def client_shares(unit: Unit, trail: Trail, counted: Rows) -> Numbers:
    """Return the shares of the counted requests that were refused and given up; None where that cannot be.

    With limits, also the share of the tries that were refused.
    """
    limited, gives_up = unit.refuses, any(clients_of(part).timeout_s < inf for part in unit.parts)
    outcome, tries = (None if column is None else column[counted] for column in (trail.outcome, trail.tries))

    def share(is_possible: bool, ended: int) -> float | None:
        if not is_possible:
            return None
        return 0.0 if outcome is None else float((outcome == ended).mean())

    numbers = {"refused_share": share(limited, REFUSED), "gave_up_share": share(gives_up, GAVE_UP)}
    return numbers | ({"refused_tries_share": refused_tries_share(outcome, tries)} if limited else {})


def refused_tries_share(outcome: Array | None, tries: Array | None) -> float:
    """Return the share of the tries of some requests that were refused: all before the last one, and the last ones of those
    that ended as refused.
    """
    if outcome is None:
        return 0.0
    total = len(outcome) if tries is None else int(tries.sum(dtype=np.int64))
    return (total - len(outcome) + int((outcome == REFUSED).sum())) / total
