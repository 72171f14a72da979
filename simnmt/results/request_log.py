"""The request log: one row per request, as columns (DESIGN section 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Log = dict[str, NDArray[Any]]

DONE = 0
"""`outcome` of a request that was answered; other values are for faults."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of each request whatever the policy; shape (requests,), seconds and tokens."""

    node: NDArray[np.int32]
    """The end node that asks."""
    src_len: NDArray[np.int64]
    tgt_len: NDArray[np.int64]
    gateway_s: Column
    cloud_s: Column
    transfer_s: Column
    """Round trip plus payload, at the moment on the trace that belongs to the request."""
    rtt_time_s: Column
    """That moment."""


@dataclass(frozen=True, slots=True)
class Passage:
    """What one policy made of the requests; shape (requests,)."""

    arrival_s: Column
    target: NDArray[np.int8]
    queue_s: Column
    estimate_s: Column
    measured_at_s: Column
    tgt_len_predicted: Column
    own_clock: tuple[Column, Column] | None = None
    """On an own clock: transfer times and moments on the trace, in place of the truth's."""


def request_log(truth: Truth, passage: Passage) -> Log:
    """The columns of a request log, in the order in which they are written."""
    requests = len(truth.src_len)
    transfer_s, rtt_time_s = passage.own_clock or (truth.transfer_s, truth.rtt_time_s)
    offloaded = passage.target != 0
    exe_s = np.where(offloaded, truth.cloud_s, truth.gateway_s)
    tx_s = np.where(offloaded, transfer_s, 0.0)
    return {
        "request_id": np.arange(requests, dtype=np.int32),
        "node": truth.node,
        "arrival_s": passage.arrival_s,
        "src_len": truth.src_len.astype(np.int32),
        "tgt_len": truth.tgt_len.astype(np.int32),
        "tgt_len_predicted": passage.tgt_len_predicted,
        "target": passage.target,
        "t_queue_s": passage.queue_s,
        "t_exe_s": exe_s,
        "t_tx_s": tx_s,
        "latency_s": passage.queue_s + exe_s + tx_s,
        "rtt_time_s": rtt_time_s,
        "rtt_estimate_s": passage.estimate_s,
        "rtt_estimate_age_s": passage.arrival_s - passage.measured_at_s,
        "outcome": np.full(requests, DONE, np.int8),
    }


@dataclass(frozen=True, slots=True)
class Logs(Mapping[str, Log]):
    """Policy -> request log, each assembled when asked for: five logs of 100,000 requests take 60 MB."""

    truth: Truth
    passages: dict[str, Passage]

    def __getitem__(self, policy: str) -> Log:
        return request_log(self.truth, self.passages[policy])

    def __iter__(self) -> Iterator[str]:
        return iter(self.passages)

    def __len__(self) -> int:
        return len(self.passages)
