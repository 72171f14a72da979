"""The compiled world as Python sees it: the structures that the C in `compiled/` reads, and the library itself.

Names and fields are those of the C; `world.h`, `batch_cost.h` and `streaming_server.h` say what they mean.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.compile import PORTABLE, WORLD_LIBRARY
from simnmt.policies.estimates import QuantileEstimate, TransferEstimate
from simnmt.world.server import Balancer, ByNode, FewestTokens, InTurn, LeastLoadedOfDrawn

BACK_TO_BACK, OPEN_LOOP, CLOSED_LOOP = range(3)
ALWAYS, LEAST_TOTAL = range(2)
DONE, NO_MEMORY, PAUSED = range(3)
FIFO_POOL, LEAST_WORK_POOL, BATCH_POOL, STREAMING_POOL = range(4)
BALANCERS: dict[type[Balancer], int] = {ByNode: 0, InTurn: 1, LeastLoadedOfDrawn: 2, FewestTokens: 3}
ESTIMATES: dict[type[TransferEstimate], int] = {TransferEstimate: 0, QuantileEstimate: 1}
NUMBER, REAL, POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class LengthCost(ctypes.Structure):
    """The seconds of one batch size by length: a line, or a table."""

    _fields_ = [
        *(("knots", NUMBER), ("level", REAL), ("slope", REAL)),
        *((name, POINTER) for name in ("start", "value", "slopes", "before")),
    ]


class BatchCost(ctypes.Structure):
    """The seconds of encoding, joining and decoding batches."""

    _fields_ = [
        *((name, POINTER) for name in ("steps", "encoders", "gap_s")),
        *((name, NUMBER) for name in ("encoder_count", "packs", "weighs_sources", "src_len")),
        *((name, REAL) for name in ("mean_over_usual", "padding_share", "refill_s_fixed", "refill_s_per_sentence", "leave_s")),
        ("s_per_row_src_token", REAL),
    ]


class Batching(ctypes.Structure):
    """The settings of a batcher; 0 for no collection and for no limit of padded tokens."""

    _fields_ = [
        *((name, NUMBER) for name in ("size", "threshold", "collected", "padded_tokens", "together")),
        ("longest_wait_s", REAL),
    ]


class PoolSettings(ctypes.Structure):
    """The boxes of a target."""

    _fields_ = [
        *((name, NUMBER) for name in ("kind", "boxes", "workers", "balancer", "drawn")),
        *(("choices", POINTER), ("cost", POINTER), ("batching", Batching), ("enough", NUMBER), ("streaming", POINTER)),
    ]


class Plans(ctypes.Structure):
    """The streaming plans of one target, by state, between two changes."""

    _fields_ = [
        *((name, REAL) for name in ("begin_s", "fill_s", "within_s", "slowing", "engagement_gap_s", "reclaimed_after_s")),
        *(("engaged_s", REAL), ("fill_bytes", NUMBER), ("offset", NUMBER), ("keeps_preload", NUMBER)),
        *((name, POINTER) for name in ("read_s", "held_bytes", "kept_bytes", "streamed_bytes")),
    ]


class StreamingSettings(ctypes.Structure):
    """The streaming plans of one target."""

    _fields_ = [*((name, NUMBER) for name in ("states", "phases", "columns")), ("plans", POINTER)]


STREAMED_SECONDS = ("free_s", "disk_free_s", "begun_s", "compute_s", "filled_s", "held_byte_s", "deferred_since_s")
STREAMED_COUNTS = ("filled_bytes", "peak_bytes", "peak_shard_bytes", "last_shard_bytes")


class StreamingBox(ctypes.Structure):
    """The state of a box that streams its model."""

    _fields_ = [
        *((name, REAL) for name in STREAMED_SECONDS),
        *((name, NUMBER) for name in ("state", "phase", "is_deferred", "deferred_warm", *STREAMED_COUNTS)),
        ("counts", ctypes.POINTER(NUMBER)),
    ]


class BatchViewSettings(ctypes.Structure):
    """What all views of a target's batches have in common."""

    _fields_ = [
        *((name, NUMBER) for name in ("size", "threshold", "servers")),
        *((name, REAL) for name in ("step_alone_s", "alone_s", "together_s")),
        *((name, POINTER) for name in ("slower_s", "end_s")),
    ]


class AccountCopy(ctypes.Structure):
    """The account of a box that batches."""

    _fields_ = [
        *(("steps", ctypes.POINTER(NUMBER)), ("timeline", ctypes.POINTER(NUMBER)), ("step_s", ctypes.POINTER(REAL))),
        *((name, REAL) for name in ("encode_s", "refill_s")),
        *((name, NUMBER) for name in ("encodings", "refills", "src_tokens", "padded_tokens", "sentences", "changes")),
    ]


class Decoding(ctypes.Structure):
    """Sentences that one server decodes without a clock."""

    _fields_ = [
        *(("cost", POINTER), ("batching", Batching), ("count", NUMBER), ("allocations", NUMBER)),
        *((name, POINTER) for name in ("src_len", "tgt_len", "arrival_s", "begin_s", "finish_s", "first_s")),
    ]


class EstimateSettings(ctypes.Structure):
    """How a decider estimates the transfer time of a target."""

    _fields_ = [
        *((name, REAL) for name in ("initial_s", "weight", "quantile")),
        *((name, NUMBER) for name in ("window", "kind")),
    ]


class Series(ctypes.Structure):
    """The RTT or the bandwidth of a link over time."""

    _fields_ = [("samples", NUMBER), ("lap_s", REAL), ("time_s", POINTER), ("value", POINTER)]


class Link(ctypes.Structure):
    """The series of a link."""

    _fields_ = [("rtt", Series), ("uplink_bps", Series), ("downlink_bps", Series)]


class Hop(ctypes.Structure):
    """The links of a hop, by end node."""

    _fields_ = [("link_count", NUMBER), ("begin_count", NUMBER), ("links", POINTER), ("begin_s", POINTER)]


class Routes(ctypes.Structure):
    """The hops that a run looks up."""

    _fields_ = [
        *((name, POINTER) for name in ("access", "hops", "token_bytes", "src_len", "tgt_len", "moments_s", "half_overhead_s"))
    ]


class Capacity(ctypes.Structure):
    """The bandwidth of a shared line; no samples for a constant one."""

    _fields_ = [
        ("samples", NUMBER),
        *((name, REAL) for name in ("bps", "begin_s", "lap_s", "lap_bits")),
        *((name, POINTER) for name in ("time_s", "rate", "carried")),
    ]


class Paths(ctypes.Structure):
    """The paths of messages that meet each other on shared lines."""

    _fields_ = [
        *(("hops", POINTER), ("uplinks", POINTER), ("lines", NUMBER), ("capacities", POINTER)),
        *((name, POINTER) for name in ("token_bytes", "src_len", "tgt_len", "moments_s", "half_overhead_s")),
    ]


class Clients(ctypes.Structure):
    """The clients of a closed loop."""

    _fields_ = [
        *((name, NUMBER) for name in ("count", "nodes", "first_count", "requests")),
        *((name, POINTER) for name in ("first", "think_s", "client_of", "back_s", "decided_s", "node")),
    ]


TRAIL = (
    *("arrival_s", "queue_s", "estimate_s", "measured_at_s", "lost_s", "execution_s", "first_token_s", "stall_s", "transfer_s"),
    *("target", "state", "deadline_missed", "server"),
)
"""Columns that a run fills, in the order of the C."""


class WorldSettings(ctypes.Structure):
    """All settings of a run, and the columns that it fills."""

    _fields_ = [
        *((name, NUMBER) for name in ("targets", "deciders", "workers", "discipline", "judged_limit")),
        *((name, NUMBER) for name in ("true_transfer", "true_backlog")),
        *((name, POINTER) for name in ("pools", "estimates", "parallel", "batch_views", "plan_views")),
        *(("is_local", NUMBER), ("routes", POINTER), ("clients", POINTER), ("paths", POINTER)),
        *((name, NUMBER) for name in ("allocations", "events_a_look", "pause_after_ms")),
        *((name, POINTER) for name in TRAIL),
    ]


class Block(ctypes.Structure):
    """Consecutive requests, with what the policy prepared for them."""

    _fields_ = [
        *((name, NUMBER) for name in ("first", "count", "choice", "chosen")),
        *((name, POINTER) for name in ("arrival_s", "access_s", "node", "src_len", "tgt_len")),
        *((name, POINTER) for name in ("execution_s", "uplink_s", "downlink_s", "weighed_s", "expected", "factor")),
        *((name, POINTER) for name in ("added", "beyond")),
    ]


STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    *(WorldSettings, PoolSettings, EstimateSettings, Block),
    *(BatchCost, LengthCost, BatchViewSettings, AccountCopy),
    *(StreamingSettings, Plans, StreamingBox),
    *(Series, Link, Hop, Routes, Clients),
    *(Decoding, Capacity, Paths),
)
"""In the order of the C function `simnmt_world_size`."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled world; None if it was not compiled, or from other sources, which a warning says."""
    compiled, sources = WORLD_LIBRARY.compiled()
    path = compiled.get(PORTABLE)
    cdll = None if path is None else WORLD_LIBRARY.opened(path, sources)
    if cdll is None:
        return None
    signatures: dict[str, tuple[Any, ...]] = {
        "new": (POINTER, POINTER),
        "block": (NUMBER, POINTER, POINTER),
        "end": (NUMBER, POINTER),
        "free": (None, POINTER),
        "account": (None, POINTER, NUMBER, NUMBER, POINTER),
        "stream": (None, POINTER, NUMBER, NUMBER, POINTER),
        "decode": (NUMBER, POINTER, POINTER),
        "size": (NUMBER, NUMBER),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(cdll, f"simnmt_world_{name}")
        function.restype, function.argtypes = result, arguments
    for number, structure in enumerate(STRUCTURES):
        assert cdll.simnmt_world_size(number) == ctypes.sizeof(structure), f"{structure.__name__} is not as in C"
    return cdll


def address(column: NDArray[Any] | None, kept: list[Any], dtype: Any = np.float64) -> int | None:
    """Return the address of a column's numbers."""
    if column is None:
        return None
    made = np.ascontiguousarray(column, dtype)
    kept.append(made)
    return made.ctypes.data


def addresses(columns: Sequence[NDArray[Any] | None], kept: list[Any], dtype: Any = np.float64) -> int:
    """Return the address of the addresses of columns."""
    made = (POINTER * len(columns))(*(address(column, kept, dtype) for column in columns))
    kept.append(made)
    return ctypes.addressof(made)
