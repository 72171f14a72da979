"""The columns of requests: name and type of each array in the world, name in requests.parquet, unit and meaning.

The table in `docs/reference/results.md` repeats names, units and meanings; `tests/results/test_requests.py` compares them. The
compiled engine declares the arrays that it fills a second time, in `world/compiled/settings.h`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    doc: str
    log: str = ""
    """Name in requests.parquet; empty if it is not written."""
    filled: Literal["always", "on_request", "later"] = "later"
    """`always`: by the world in every run. `on_request`: by the world, if an execution kind names it in `records`, or the run
    judges decisions or has faults. `later`: when the world has ended."""
    unset: float = 0

    def array(self, requests: int) -> Array:
        """Return the column of so many requests, nothing of which is known."""
        return np.full(requests, self.unset, self.dtype) if self.unset else np.zeros(requests, self.dtype)


COLUMNS = {
    column.name: column
    for column in (
        RequestColumn("request_id", "i4", "", "number of the request", "request_id"),
        RequestColumn("node", "i4", "", "its end node", "node"),
        RequestColumn("arrival_s", "f8", "s", "time of issue", "arrival_s", "always"),
        RequestColumn("decided_s", "f8", "s", "when its decider had it"),
        RequestColumn("src_len", "i4", "tokens", "source length", "src_len"),
        RequestColumn("tgt_len", "i4", "tokens", "target length", "tgt_len"),
        RequestColumn("tgt_len_predicted", "f8", "tokens", "target length that the policy assumed", "tgt_len_predicted"),
        RequestColumn("target", "i1", "", "number of the device, 0 for the first; -1 without an answer", "target", "always"),
        RequestColumn("server", "i2", "", "which box of the device", "server", "always"),
        RequestColumn("queue_s", "f8", "s", "queueing time", "t_queue_s", "always"),
        RequestColumn(
            "execution_s", "f8", "s", "execution time; in a batch, from the begin of the encoding to the end", "t_exe_s",
            "on_request", nan,
        ),
        RequestColumn(
            "transfer_s", "f8", "s", "transfer time there and back, with the [overheads](scenario.md#overhead) of the path",
            "t_tx_s", "on_request", nan,
        ),
        RequestColumn("latency_s", "f8", "s", "sum of these three times", "latency_s"),
        RequestColumn(
            "first_token_s", "f8", "s",
            "in a batch or on a streamed model: from the arrival at the box to the end of the first step; else empty",
            "first_token_s", "on_request", nan,
        ),
        RequestColumn("rtt_time_s", "f8", "s", "time on the trace of the last link", "rtt_time_s"),
        RequestColumn("estimate_s", "f8", "s", "estimated transfer time to the last device", "rtt_estimate_s", "always"),
        RequestColumn("measured_at_s", "f8", "s", "when the estimate was measured, 0 for the initial one", "", "always"),
        RequestColumn("estimate_age_s", "f8", "s", "age of the estimate at the decision", "rtt_estimate_age_s"),
        RequestColumn(
            "outcome", "i1", "",
            "0: answered, always in a simulation without [faults](faults.md); other values there and in a live replay "
            "([live.md](live.md))",
            "outcome", "on_request",
        ),
        RequestColumn(
            "energy_j", "f8", "J",
            "its execution, its bytes on links, and its even share of the idle power of all boxes "
            "([energy.md](energy.md#what-a-request-is-charged)); empty if a power is unknown",
            "energy_j",
        ),
        RequestColumn(
            "load_wait_s", "f8", "s",
            "only if a device loads models: part of the queueing time, from the arrival at the box until the model of the "
            "request is loaded",
            "load_wait_s", "on_request",
        ),
        RequestColumn(
            "model_load", "i1", "",
            "likewise: 1 if its model was not in memory and was loaded for it, else 0; of two models of a pivot, 2 stands for "
            "the second one, and 3 for both",
            "model_load", "on_request",
        ),
        RequestColumn(
            "decision_regret_s", "f8", "s",
            "by how much the chosen device takes longer than the best one, as foreseen at the decision",
            "", "on_request", nan,
        ),
        RequestColumn(
            "state", "i1", "",
            "only if a device streams its model: 0 cold, 1 first turn, 2 second turn and so on (the last value for all further "
            "turns), -1 on other devices",
            "state", "on_request", -1,
        ),
        RequestColumn("stall_s", "f8", "s", "likewise: time that the processor waited for reads", "stall_s", "on_request"),
        RequestColumn("deadline_missed", "?", "", "likewise: true if it missed its deadline", "deadline_missed", "on_request"),
    )
}  # fmt: skip
MODEL_COLUMNS = ("load_wait_s", "model_load")
STREAMED_COLUMNS = ("state", "stall_s", "deadline_missed")


def recorder(requests: int, wanted: Collection[str] = ()) -> Recorder:
    """Return empty columns for a run of `requests` requests; `wanted`: names of those that are filled on request."""
    if unknown := [name for name in wanted if name not in COLUMNS or COLUMNS[name].filled != "on_request"]:
        raise ValueError(f"no columns that are filled on request: {', '.join(unknown)}")
    return {
        column.name: column.array(requests) for column in COLUMNS.values() if column.filled == "always" or column.name in wanted
    }
