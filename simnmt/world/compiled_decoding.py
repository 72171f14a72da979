"""Decode sentences on one batching server without a clock, in C where that covers it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simnmt.batching import Batching
from simnmt.results.device_accounts import TIMELINE, BatchAccount
from simnmt.results.requests import Engine
from simnmt.world import batch_pool
from simnmt.world import compiled_library as c
from simnmt.world.batch_pool import BatchServerSpec, Decoded
from simnmt.world.compiled_library import library
from simnmt.world.compiled_settings import (
    NoLibraryError,
    UncompiledError,
    batch_cost,
    batching_settings,
    counts_of,
    refuse_if_chosen,
)


def decode_all(
    batching: Batching,
    cost: Any,
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    arrival_s: ArrayLike | None = None,
    *,
    engine: Engine | None = None,
) -> Decoded:
    """Let one server decode sentences, as `batch_pool.decode_all` does with these arguments; `engine` as of `simulate`."""
    if engine != "simpy":
        try:
            return decode_all_compiled(batching, cost, src_len, tgt_len, arrival_s)
        except UncompiledError as error:
            refuse_if_chosen(engine, error)
    return batch_pool.decode_all(batching, cost, src_len, tgt_len, arrival_s)


def decode_all_compiled(
    batching: Batching,
    cost: Any,
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    arrival_s: ArrayLike | None = None,
    allocations: int = -1,
) -> Decoded:
    """Let one compiled server decode sentences; arguments and errors as of `batch_pool.decode_all` and `simulate_compiled`."""
    cdll = library()
    if cdll is None:
        raise NoLibraryError
    sources, targets, arrivals = batch_pool.checked_sentences(src_len, tgt_len, arrival_s)
    kept = list[Any]()
    begin_s, finish_s, first_s = (np.full(len(sources), np.nan) for _ in range(3))
    settings = c.Decoding(
        batch_cost(BatchServerSpec(batching, cost), kept), batching_settings(batching), len(sources), allocations
    )
    settings.src_len, settings.tgt_len = c.address(sources, kept, np.int64), c.address(targets, kept, np.int64)
    settings.arrival_s = c.address(arrivals, kept)
    settings.begin_s, settings.finish_s, settings.first_s = (c.address(column, kept) for column in (begin_s, finish_s, first_s))
    copied = c.AccountCopy()
    steps, step_s, timeline = (
        np.zeros(batching.size + 1, np.int64),
        np.zeros(batching.size + 1),
        np.zeros((TIMELINE, 2), np.int64),
    )
    for name, column in (("steps", steps), ("step_s", step_s), ("timeline", timeline)):
        setattr(copied, name, column.ctypes.data_as(type(getattr(copied, name))))
    if cdll.simnmt_world_decode(ctypes.byref(settings), ctypes.byref(copied)):
        raise MemoryError
    account = BatchAccount(batching.size, steps, step_s, timeline=timeline[: copied.changes].copy(), **counts_of(copied))
    return Decoded(finish_s, first_s - arrivals, begin_s, account, float(finish_s.max(initial=0.0)))
