"""What one device did in a run: its batches (FNI-12) or its streamed model (STI-16 to STI-18), and their summary columns.

Sizes, times and padding of batches, the first steps one by one. A request finds a streamed model *cold*, nothing of it in
memory, or in the *turn* of an engagement for which its buffer was filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.columns import Array

TIMELINE = 2_000
"""Changes of the batch that a timeline holds at most."""


def _no_changes() -> NDArray[np.int64]:
    return np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class BatchAccount:
    """The batches of one target, over all its servers. Raises `ValueError` where the histograms do not fit `size`."""

    size: int
    """Most sentences decoded together."""
    steps: NDArray[np.int64]
    """Decode steps with k sentences active, shape (size + 1,)."""
    step_s: NDArray[np.float64]
    """Seconds in these steps, with the gaps between them; shape (size + 1,)."""
    encode_s: float
    refill_s: float
    encodings: int
    """Calls of the encoder."""
    refills: int
    """Times that sentences joined."""
    src_tokens: int
    """Source tokens encoded."""
    padded_tokens: int
    """The same with the padding to each call's longest sentence."""
    sentences: int
    """Translated."""
    tokens: int
    """Target tokens, a decode step of one sentence each."""
    busy_s: float
    """In which a server encoded, refilled or decoded, all servers together."""
    timeline: NDArray[np.int64] = field(default_factory=_no_changes)
    """(steps taken before, active from there on) at each change of the first server's batch, shape (changes, 2); the first
    `TIMELINE` changes."""

    def __post_init__(self) -> None:
        for name in ("steps", "step_s"):
            if getattr(self, name).shape != (self.size + 1,):
                raise ValueError(f"{name}: {getattr(self, name).shape} for batches of up to {self.size}")

    @property
    def mean_active(self) -> float:
        """Sentences active in a step, on average; NaN without a step."""
        steps = int(self.steps.sum())
        return float(np.dot(self.steps, np.arange(self.size + 1)) / steps) if steps else float("nan")

    @property
    def share_full(self) -> float:
        """Share of the steps with a full batch; NaN without a step."""
        steps = int(self.steps.sum())
        return float(self.steps[self.size] / steps) if steps else float("nan")

    def share_below(self, active: int) -> float:
        """Return the share of the steps with fewer than so many active; NaN without a step."""
        steps = int(self.steps.sum())
        return float(self.steps[:active].sum() / steps) if steps else float("nan")

    @property
    def padding_share(self) -> float:
        """Share of the encoder's tokens that are padding; NaN where nothing was encoded."""
        return 1.0 - self.src_tokens / self.padded_tokens if self.padded_tokens else float("nan")

    def merged(self, others: Iterable[BatchAccount]) -> BatchAccount:
        """Return this account merged with others of the same batch size, with this timeline. Raises `ValueError`."""
        accounts = (self, *others)
        if any(other.size != self.size for other in accounts):
            raise ValueError(f"batches of {sorted({other.size for other in accounts})} together")
        summed = (account_field.name for account_field in fields(self) if account_field.name not in ("size", "timeline"))
        values: dict[str, Any] = {name: sum(getattr(other, name) for other in accounts) for name in summed}
        return BatchAccount(size=self.size, timeline=self.timeline, **values)

    def as_json(self) -> dict[str, Any]:
        """Return the account as JSON, without the timeline."""
        return {
            account_field.name: value.tolist() if isinstance(value, np.ndarray) else value
            for account_field in fields(self)
            if account_field.name != "timeline"
            for value in (getattr(self, account_field.name),)
        }


SMALL_BATCH = 8
"""Active sentences below which the paper calls a batch small (FNI-12, figure 8)."""
BATCH_SHARES = ("full", f"below_{SMALL_BATCH}", "padding", "busy")
"""What is said as `DEVICE_..._share`."""


class RunningBatchAccount:
    """What one server has done so far, in plain numbers."""

    __slots__ = (
        "_encode_s",
        "_encodings",
        "_last_active",
        "_padded_tokens",
        "_refill_s",
        "_refills",
        "_sentences",
        "_src_tokens",
        "_step_s",
        "_steps",
        "_timeline",
        "_tokens",
    )

    def __init__(self, size: int) -> None:
        self._steps, self._step_s = [0] * (size + 1), [0.0] * (size + 1)
        self._encode_s, self._refill_s = 0.0, 0.0
        self._encodings, self._refills = 0, 0
        self._src_tokens, self._padded_tokens = 0, 0
        self._sentences, self._tokens = 0, 0
        self._timeline: list[tuple[int, int]] = []
        self._last_active = 0

    def encoded(self, src_lens: Sequence[int], seconds: float) -> None:
        """Count one call of the encoder."""
        self._encodings += 1
        self._encode_s += seconds
        self._src_tokens += sum(src_lens)
        self._padded_tokens += max(src_lens) * len(src_lens)

    def refilled(self, joining: int, seconds: float) -> None:
        """Count a refill by which `joining` sentences joined."""
        self._refills += 1
        self._refill_s += seconds
        self._sentences += joining

    def stepped(self, before: int, active: int, steps: int, seconds: float) -> None:
        """Count `steps` steps of an unchanged batch, after the first `before` steps."""
        self._steps[active] += steps
        self._step_s[active] += seconds
        self._tokens += active * steps
        if active != self._last_active and len(self._timeline) < TIMELINE:
            self._last_active = active
            self._timeline.append((before, active))

    def finished(self) -> BatchAccount:
        """Return the account as columns."""
        return BatchAccount(
            size=len(self._steps) - 1,
            steps=np.asarray(self._steps, np.int64),
            step_s=np.asarray(self._step_s, np.float64),
            encode_s=self._encode_s,
            refill_s=self._refill_s,
            encodings=self._encodings,
            refills=self._refills,
            src_tokens=self._src_tokens,
            padded_tokens=self._padded_tokens,
            sentences=self._sentences,
            tokens=self._tokens,
            busy_s=self._encode_s + self._refill_s + sum(self._step_s),
            timeline=np.asarray(self._timeline, np.int64).reshape(-1, 2),
        )


def batch_columns(
    device: str,
    servers: int,
    account: BatchAccount | None,
    makespan_s: float,
    queue_s: NDArray[np.floating[Any]],
    first_token_s: NDArray[np.floating[Any]],
) -> dict[str, float | None]:
    """Return the numbers of one batched device in one run; None without an account or where a number is unknown.

    `makespan_s`: how long the run lasted; `queue_s`, `first_token_s`: of the requests that were executed there.
    """
    known: Mapping[str, float] = {} if account is None else _batch_numbers(account, servers, makespan_s, queue_s, first_token_s)
    return {f"{device}_{name}": _none_if_nan(known.get(name, float("nan"))) for name in BATCH_COLUMNS}


BATCH_COLUMNS = (
    "mean_batch",
    *(f"{kind}_share" for kind in BATCH_SHARES),
    "mean_queue_s",
    "first_token_mean_s",
    "first_token_p95_s",
    "sentences_per_s",
    "tokens_per_s",
    "busy_sentences_per_s",
    "busy_tokens_per_s",
)
"""Names behind that of the device."""


def _batch_numbers(
    account: BatchAccount,
    servers: int,
    makespan_s: float,
    queue_s: NDArray[np.floating[Any]],
    first_token_s: NDArray[np.floating[Any]],
) -> dict[str, float]:
    begun = first_token_s[~np.isnan(first_token_s)]
    return {
        "mean_batch": account.mean_active,
        "full_share": account.share_full,
        f"below_{SMALL_BATCH}_share": account.share_below(SMALL_BATCH),
        "padding_share": account.padding_share,
        "busy_share": account.busy_s / (servers * makespan_s),
        "sentences_per_s": account.sentences / makespan_s,
        "tokens_per_s": account.tokens / makespan_s,
        "busy_sentences_per_s": account.sentences / account.busy_s if account.busy_s else float("nan"),
        "busy_tokens_per_s": account.tokens / account.busy_s if account.busy_s else float("nan"),
        **({"mean_queue_s": float(queue_s.mean())} if queue_s.size else {}),
        **(
            {"first_token_mean_s": float(begun.mean()), "first_token_p95_s": float(np.quantile(begun, 0.95))}
            if begun.size
            else {}
        ),
    }


def _none_if_nan(value: float) -> float | None:
    return None if isnan(value) else value


COLD = 0
"""State of a request that found nothing in memory; turn k is state k, and the last stands for all further ones."""
STREAMING_SHARES = ("cold", "stall", "missed", "compute_busy", "disk_busy")
"""What is said as `DEVICE_..._share`."""
STREAMING_COLUMNS = (
    *(f"{kind}_share" for kind in STREAMING_SHARES),
    "cold_mean_s",
    "first_turn_mean_s",
    "later_turn_mean_s",
    "cold_lost_mean_s",
    "read_mean_bytes",
    "peak_buffer_bytes",
    "peak_shard_bytes",
    "mean_buffer_bytes",
)
"""Names behind that of the device."""


def state_name(state: int, states: int) -> str:
    """Return the name of a state, such as `cold`, `turn 1` or `turn 3 on`.

    >>> [state_name(state, 4) for state in range(4)]
    ['cold', 'turn 1', 'turn 2', 'turn 3 on']
    """
    return "cold" if state == COLD else f"turn {state}{' on' * (state == states - 1)}"


@dataclass(frozen=True, slots=True)
class PlannedState:
    """What was planned for one state of a device, and what that predicts for requests of the planned lengths."""

    name: str
    layers: int
    """Of the encoder, the bottom ones."""
    decoder_layers: int
    """Likewise; 0 without a decoder."""
    slices: int
    """Of each layer."""
    bits: tuple[tuple[int, int], ...]
    """Bitwidth and how many shards have it, rising."""
    held_bytes: int
    """In memory when the request comes."""
    read_bytes: int
    """Read from the disk while it is executed."""
    latency_s: float
    stall_s: float
    load: tuple[tuple[float, float], ...]
    """When each layer's shards are read, begin and end in seconds."""
    compute: tuple[tuple[float, float], ...]
    """When each layer is computed."""
    before_s: float = 0.0
    """When the embedding is done, ahead of the first layer; a cold start's waits for what is in no shard."""
    short_of_io: bool = False
    """Whether not even 2 bits everywhere can be read in time, so that the plan stays there and stalls (STI-13)."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The plans of a device from a moment of the run on, at which its deadline or preload buffer changed (STI-18)."""

    at_s: float
    deadline_s: float
    preload_bytes: int
    plans: int
    """One for each turn of an engagement that differs from the one before."""
    states: tuple[PlannedState, ...]


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """The plans of one streamed device for one workload."""

    deadline_s: float
    src_len: int
    """Source tokens that the plans are made for."""
    tgt_len: int
    """Target tokens; 0 without a decoder."""
    preload_bytes: int
    cache_bytes: int
    cold_read_bytes: int | None
    """What a cold start reads beside shards: embeddings and the like; None: not known, and counted as nothing."""
    working_bytes: int
    """Of the buffer in which one layer lies unpacked; beside the others."""
    plans: int
    """At the start: one for each turn of an engagement that differs from the one before."""
    kind: str
    """How the numbers of the profile's block `sti` are known."""
    model: str
    all_layers: int
    """Of the whole model's encoder."""
    all_decoder_layers: int
    all_slices: int
    states: tuple[PlannedState, ...]
    """The first is cold; the last stands for all further turns."""
    changes: tuple[PlannedChange, ...] = ()
    """During the run, in order of time."""

    @property
    def plannings(self) -> int:
        """How often the model was planned: once, and once at each change (STI-18)."""
        return 1 + len(self.changes)

    @property
    def short(self) -> str:
        """A few words beside the device's name."""
        first = self.states[0]
        layers = f"{first.layers} + {first.decoder_layers}" if self.all_decoder_layers else str(first.layers)
        return f"streamed, {layers} layers x {first.slices} slices, quality not measured"


@dataclass(frozen=True, slots=True)
class BoxesAccount:
    """What all boxes of one streamed device did together in a run."""

    boxes: int
    compute_s: float
    """Of computing, as long as it takes with nothing to be read: neither waits nor what reads slow it by."""
    read_s: float
    """In which a disk read."""
    read_bytes: int
    peak_buffer_bytes: int
    """Most that the buffer of preloaded and cached shards held at one box; the working buffer is beside it (STI-23)."""
    peak_shard_bytes: int
    """Most that one box held of packed shards, in the buffer and read for requests, if these go when their request ends."""
    working_bytes: int
    """Beside the buffer, while a request is computed."""
    buffer_byte_s: float = 0.0
    """Bytes held in these buffers times the seconds that they were."""


@dataclass(frozen=True, slots=True)
class StreamingAccount:
    """What the boxes of one target that streams its model did, as the world counts it."""

    by_state: tuple[int, ...]
    """Requests by state: cold, first turn and so on."""
    stall_s: float
    """By which executions took longer than with nothing to be read."""
    totals: BoxesAccount
    """Of all boxes together; bytes held are counted by `until`."""
    preload_byte_s: Callable[[float], float] = field(repr=False)
    """Bytes held in the buffers times seconds, until a moment at which all requests have been answered."""

    def until(self, end_s: float) -> BoxesAccount:
        """Return the totals of a run that ended at a moment."""
        return replace(self.totals, buffer_byte_s=self.preload_byte_s(end_s))


@dataclass(frozen=True, slots=True, eq=False)
class StreamAccount:
    """What became of the requests that one streamed device executed; columns by state, of shape (states,)."""

    requests: NDArray[np.int64]
    execution_s: NDArray[np.float64]
    """Of all of them together, stalls included."""
    stall_s: NDArray[np.float64]
    missed: NDArray[np.int64]
    """Answered by the box after the deadline, waiting for others included."""
    boxes: BoxesAccount
    lost_s: NDArray[np.float64] | None = None
    """By how much requests took longer here than at the best device, as an oracle foresaw it; None: not asked for."""

    def mean_lost_s(self, state: int) -> float:
        """Return the mean loss of requests in a state; NaN without such requests, or if losses are not known."""
        return (
            float(self.lost_s[state]) / int(self.requests[state]) if self.lost_s is not None and self.requests[state] else nan
        )

    def mean_execution_s(self, states: slice = slice(None)) -> float:
        """Return the mean execution time in some states; NaN without such requests."""
        requests = int(self.requests[states].sum())
        return float(self.execution_s[states].sum()) / requests if requests else nan

    def as_json(self) -> dict[str, Any]:
        """Return the account for summary.json."""
        columns = {name: getattr(self, name).tolist() for name in ("requests", "execution_s", "stall_s", "missed")}
        columns["lost_s"] = None if self.lost_s is None else self.lost_s.tolist()
        return {"state": [state_name(state, len(self.requests)) for state in range(len(self.requests))], **columns} | asdict(
            self.boxes
        )


def stream_account(
    log: Mapping[str, Array], target: int, states: int, boxes: BoxesAccount, lost_s: Array | None = None
) -> StreamAccount:
    """Sum up one target's executions; `log`: a request log's columns by name; `states`: how many there are; `lost_s`:
    of every request, where it was foreseen."""
    there = log["target"] == target
    state, missed = log["state"][there].astype(np.int64), log["deadline_missed"][there]

    def summed(name: str) -> NDArray[np.float64]:
        return np.bincount(state, log[name][there], minlength=states).astype(np.float64)

    requests, late = (np.bincount(request_states, minlength=states) for request_states in (state, state[missed]))
    lost = None if lost_s is None else np.bincount(state, lost_s[there], minlength=states).astype(np.float64)
    return StreamAccount(requests, summed("t_exe_s"), summed("stall_s"), late, boxes, lost)


def stream_columns(device: str, account: StreamAccount | None, makespan_s: float) -> dict[str, float | None]:
    """Return the numbers of one streamed device in one run of `makespan_s`; None where nothing was executed."""
    known = {} if account is None else _streaming_numbers(account, makespan_s)
    return {f"{device}_{name}": None if isnan(known.get(name, nan)) else known[name] for name in STREAMING_COLUMNS}


def _streaming_numbers(account: StreamAccount, makespan_s: float) -> dict[str, float]:
    requests, execution_s, boxes = int(account.requests.sum()), float(account.execution_s.sum()), account.boxes
    box_s = boxes.boxes * makespan_s
    return {
        "cold_share": int(account.requests[COLD]) / requests if requests else nan,
        "stall_share": float(account.stall_s.sum()) / execution_s if execution_s else nan,
        "missed_share": int(account.missed.sum()) / requests if requests else nan,
        "compute_busy_share": boxes.compute_s / box_s,
        "disk_busy_share": boxes.read_s / box_s,
        "cold_mean_s": account.mean_execution_s(slice(COLD, COLD + 1)),
        "first_turn_mean_s": account.mean_execution_s(slice(1, 2)),
        "later_turn_mean_s": account.mean_execution_s(slice(2, None)),
        "cold_lost_mean_s": account.mean_lost_s(COLD),
        "read_mean_bytes": boxes.read_bytes / requests if requests else nan,
        "peak_buffer_bytes": float(boxes.peak_buffer_bytes),
        "peak_shard_bytes": float(boxes.peak_shard_bytes),
        "mean_buffer_bytes": boxes.buffer_byte_s / box_s,
    }
