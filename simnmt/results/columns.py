"""The columns of requests: name and type of each array in the world, unit, and name in requests.parquet.

The table in `docs/reference/results.md` says what each column means; `tests/results/test_requests.py` compares the names. The
compiled engine declares the arrays that it fills a second time, in `world/compiled/settings.h`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Recorder = Mapping[str, Array]
"""Columns that the world is filling, by name."""


@dataclass(frozen=True, slots=True)
class RequestColumn:
    """A number for each request."""

    name: str
    """Name of the array and of the attribute of a `Trail`."""
    dtype: str
    unit: str
    log: str = ""
    """Name in requests.parquet; empty if it is not written."""
    filled: Literal["always", "on_request", "later"] = "later"
    """`always`: by the world in every run. `on_request`: by the world, if an execution kind names it in `records`, or the run
    judges decisions, or has faults, limits, caches or a policy that decides again. `later`: when the world has ended."""
    unset: float = 0

    def array(self, requests: int) -> Array:
        """Return the column of so many requests, nothing of which is known."""
        return np.full(requests, self.unset, self.dtype) if self.unset else np.zeros(requests, self.dtype)


COLUMNS = {
    column.name: column
    for column in (
        RequestColumn("request_id", "i4", "", "request_id"),
        RequestColumn("node", "i4", "", "node"),
        RequestColumn("document", "i4", "", "document"),
        RequestColumn("text_row", "i4", "", "text_row"),
        RequestColumn("arrival_s", "f8", "s", "arrival_s", "always"),
        RequestColumn("decided_s", "f8", "s"),  # when its decider had it
        RequestColumn("src_len", "i4", "tokens", "src_len"),
        RequestColumn("tgt_len", "i4", "tokens", "tgt_len"),
        RequestColumn("tgt_len_predicted", "f8", "tokens", "tgt_len_predicted"),
        RequestColumn("target", "i1", "", "target", "always"),  # 0 for the first device, -1 without an answer
        RequestColumn("server", "i2", "", "server", "always"),  # which box of the device
        RequestColumn("queue_s", "f8", "s", "t_queue_s", "always"),
        RequestColumn("execution_s", "f8", "s", "t_exe_s", "on_request", nan),  # in a batch, from the encoding to the end
        RequestColumn("deferred_queue_s", "f8", "s", "deferred_queue_s", "on_request"),
        # At the first device, before it sent the request on to its target; NaN if it did not.
        RequestColumn("deferred_exe_s", "f8", "s", "deferred_exe_s", "on_request", nan),
        RequestColumn("deferred_server", "i4", "", "deferred_server"),  # which box of the first device
        RequestColumn("transfer_s", "f8", "s", "t_tx_s", "on_request", nan),
        RequestColumn("latency_s", "f8", "s", "latency_s"),
        RequestColumn("first_token_s", "f8", "s", "first_token_s", "on_request", nan),
        RequestColumn("rtt_time_s", "f8", "s", "rtt_time_s"),
        RequestColumn("estimate_s", "f8", "s", "rtt_estimate_s", "always"),
        RequestColumn("measured_at_s", "f8", "s", "", "always"),  # when the estimate was measured, 0 for the initial one
        RequestColumn("estimate_age_s", "f8", "s", "rtt_estimate_age_s"),
        RequestColumn("hit", "i1", "", "hit", "on_request"),  # 1 if a cache had the answer, 2 if it waited for one under way
        RequestColumn("outcome", "i1", "", "outcome", "on_request"),
        RequestColumn("tries", "i1", "", "tries", "on_request", 1),  # of its client
        RequestColumn("retry_s", "f8", "s", "retry_s", "on_request"),  # lost by refusals before the last try
        RequestColumn("energy_j", "f8", "J", "energy_j"),
        RequestColumn("load_wait_s", "f8", "s", "load_wait_s", "on_request"),
        RequestColumn("model_load", "i1", "", "model_load", "on_request"),
        # By how much the chosen device takes longer than the best one, as foreseen at the decision.
        RequestColumn("decision_regret_s", "f8", "s", "", "on_request", nan),
        RequestColumn("state", "i1", "", "state", "on_request", -1),
        RequestColumn("stall_s", "f8", "s", "stall_s", "on_request"),
        RequestColumn("deadline_missed", "?", "", "deadline_missed", "on_request"),
    )
}
MODEL_COLUMNS = ("load_wait_s", "model_load")
STREAMED_COLUMNS = ("state", "stall_s", "deadline_missed")
DEFERRED_COLUMNS = ("deferred_queue_s", "deferred_exe_s")
"""Columns that the world fills for policies that decide again."""


def recorder(requests: int, wanted: Collection[str] = ()) -> Recorder:
    """Return empty columns for a run of `requests` requests; `wanted`: names of those that are filled on request."""
    if unknown := [name for name in wanted if name not in COLUMNS or COLUMNS[name].filled != "on_request"]:
        raise ValueError(f"no columns that are filled on request: {', '.join(unknown)}")
    return {
        column.name: column.array(requests) for column in COLUMNS.values() if column.filled == "always" or column.name in wanted
    }


NO_DEVICE = -1


def executed_on(log: Mapping[str, Array]) -> Array:
    """Return the number of the device that executed each request; `NO_DEVICE` for those that a cache answered."""
    return np.where(log["hit"] > 0, NO_DEVICE, log["target"]) if "hit" in log else log["target"]


EARLIER = {"t_queue_s": "deferred_queue_s", "t_exe_s": "deferred_exe_s", "server": "deferred_server"}
"""By column of an execution, that of the execution at the first device before a request was sent on."""
_OF_FIRST = {"target": 0, "t_tx_s": 0.0, "first_token_s": nan, "deferred_queue_s": 0.0, "deferred_exe_s": nan}


def deferred_s(log: Mapping[str, Array]) -> Array | float:
    """Return how long each request was at the first device before that sent it on; 0 for one that was not."""
    return log["deferred_queue_s"] + np.nan_to_num(log["deferred_exe_s"]) if "deferred_exe_s" in log else 0.0


def first_executions(columns: Mapping[str, Array], decider: Array) -> dict[str, Array]:
    """Return the columns of executions before a request was sent on, also of a policy that sends none on."""
    known = {name: columns[name] if name in columns else COLUMNS[name].array(len(decider)) for name in DEFERRED_COLUMNS}
    return {**known, "deferred_server": decider.astype(np.int32)}


class Executions(Mapping[str, Array]):
    """The columns of a log by execution: first the rows of the log, then the first executions of requests that were sent on."""

    def __init__(self, log: Mapping[str, Array]) -> None:
        self._log = log
        self._rows = np.flatnonzero(~np.isnan(log["deferred_exe_s"])) if "deferred_exe_s" in log else np.empty(0, np.int64)

    def __getitem__(self, name: str) -> Array:
        column = self._log[name]
        if not self._rows.size:
            return column
        first = self._log[EARLIER.get(name, name)][self._rows]
        return np.concatenate([column, np.full_like(first, _OF_FIRST[name]) if name in _OF_FIRST else first])

    def __contains__(self, name: object) -> bool:
        return name in self._log

    def __iter__(self) -> Iterator[str]:
        return iter(self._log)

    def __len__(self) -> int:
        return len(self._log)


def occupied_s(log: Mapping[str, Array]) -> Array:
    """Return the seconds for which each request occupied a device."""
    return np.where(log["hit"] > 0, 0.0, log["t_exe_s"]) if "hit" in log else log["t_exe_s"]
