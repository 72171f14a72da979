"""One batched server by itself: sentences in, when each was done out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.batching import Batching
from simnmt.results.batches import BatchAccount
from simnmt.world.batch_server import BatchServer, Held
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
    server, done = BatchServer(batching, cost, foretells=True), list[Held]()
    arrive, act = server.arrive, server.act
    for request, now_s in enumerate(arrivals.tolist()):
        while server.next_s < now_s:
            done += act()
        arrive(request, sources[request], targets[request], now_s)
    if sources:
        server.close(float(arrivals[-1]))
    while server.holds:
        done += act()
    done.sort(key=lambda sentence: sentence.request)
    finish_s = np.array([sentence.finish_s for sentence in done])
    return Decoded(
        finish_s,
        np.array([sentence.first_s for sentence in done]) - arrivals,
        np.array([sentence.begin_s for sentence in done]),
        server.account.finished(),
        float(finish_s.max(initial=0.0)),
    )
