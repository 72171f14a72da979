"""One batched server by itself: sentences in, when each was done out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.batching import Batching
from simnmt.results.batches import BatchAccount
from simnmt.world.batch_server import BatchServer
from simnmt.world.server_cost import ServerCost

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of the sentences; columns in the order in which they were given, shape (sentences,), seconds."""

    finish_s: Column
    """When each was done."""
    first_token_s: Column
    """From its arrival to the end of its first step; NaN without one."""
    begin_s: Column
    """When its encoding began."""
    account: BatchAccount
    total_s: float
    """When the last was done; 0 without a sentence."""


def decode_all(
    batching: Batching, cost: ServerCost, src_len: ArrayLike, tgt_len: ArrayLike, arrival_s: ArrayLike | None = None
) -> Decoded:
    """Let one server decode sentences, which are all at hand at 0, or arrive at `arrival_s`, in order of time.

    The server knows when no more will come. Lengths in tokens; `tgt_len`: the steps that each takes, 0 or more. Raises
    `ValueError` for columns of different lengths and for arrivals out of order.
    """
    sources, targets = np.asarray(src_len, np.int64).tolist(), np.asarray(tgt_len, np.int64).tolist()
    arrivals = np.zeros(len(sources)) if arrival_s is None else np.asarray(arrival_s, np.float64)
    if not len(sources) == len(targets) == len(arrivals):
        raise ValueError(f"{len(sources)} sources, {len(targets)} targets, {len(arrivals)} arrivals")
    if (np.diff(arrivals) < 0.0).any():
        raise ValueError("arrivals out of order")
    server = BatchServer(batching, cost, foretells=True)
    begin_s, finish_s, first_s = (np.full(len(sources), np.nan).tolist() for _ in range(3))

    def act() -> None:
        for sentence in server.act():
            request = sentence.request
            begin_s[request], finish_s[request], first_s[request] = sentence.begin_s, sentence.finish_s, sentence.first_s

    arrive = server.arrive
    for request, now_s in enumerate(arrivals.tolist()):
        while server.next_s < now_s:
            act()
        arrive(request, sources[request], targets[request], now_s)
    if sources:
        server.close(float(arrivals[-1]))
    while server.holds:
        act()
    return Decoded(
        np.asarray(finish_s, np.float64),
        np.asarray(first_s, np.float64) - arrivals,
        np.asarray(begin_s, np.float64),
        server.account.finished(),
        max(finish_s, default=0.0),
    )
