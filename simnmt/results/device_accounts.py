"""Counts of what one device did in a run: its batches (FNI-12), its streamed model (STI-16 to STI-18), and its faults, with the
columns of the first two in the summary.

A request of a streamed model is *cold* if nothing of the model was in memory. Otherwise it meets the buffer that was filled for
its *turn* of an engagement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(slots=True, eq=False)
class BatchAccount:
    """The batches of one target, over all its servers."""

    size: int
    """Most sentences decoded together."""
    steps: NDArray[np.int64]
    """Decode steps with k active sentences, shape (size + 1,)."""
    step_s: NDArray[np.float64]
    """Seconds of these steps, including the gaps between them; shape (size + 1,)."""
    encode_s: float = 0.0
    refill_s: float = 0.0
    encodings: int = 0
    """Calls of the encoder."""
    refills: int = 0
    """Number of times that sentences joined a batch."""
    src_tokens: int = 0
    """Source tokens encoded."""
    padded_tokens: int = 0
    """Source tokens plus the padding to the longest sentence of each call."""
    sentences: int = 0
    """Sentences translated."""

    @classmethod
    def empty(cls, size: int) -> BatchAccount:
        """Return the account of a server before its first batch."""
        return cls(size, np.zeros(size + 1, np.int64), np.zeros(size + 1))

    def encoded(self, src_lens: Sequence[int], seconds: float) -> None:
        """Count one call of the encoder."""
        self.encodings += 1
        self.encode_s += seconds
        self.src_tokens += sum(src_lens)
        self.padded_tokens += max(src_lens) * len(src_lens)

    def refilled(self, joining: int, seconds: float) -> None:
        """Count a refill of `joining` sentences."""
        self.refills += 1
        self.refill_s += seconds
        self.sentences += joining

    def stepped(self, active: int, seconds: float) -> None:
        """Count a step of `active` sentences."""
        self.steps[active] += 1
        self.step_s[active] += seconds

    @property
    def tokens(self) -> int:
        """Target tokens: one per decode step and active sentence."""
        return int(np.dot(self.steps, np.arange(self.size + 1)))

    @property
    def busy_s(self) -> float:
        """Seconds in which a server encoded, refilled or decoded, summed over the servers."""
        return self.encode_s + self.refill_s + float(self.step_s.sum())

    @property
    def mean_active(self) -> float:
        """Mean number of active sentences per step; NaN without a step."""
        return _ratio(self.tokens, int(self.steps.sum()))

    @property
    def share_full(self) -> float:
        """Share of the steps with a full batch; NaN without a step."""
        return _ratio(int(self.steps[self.size]), int(self.steps.sum()))

    def share_below(self, active: int) -> float:
        """Return the share of the steps with fewer than `active` active sentences; NaN without a step."""
        return _ratio(int(self.steps[:active].sum()), int(self.steps.sum()))

    @property
    def padding_share(self) -> float:
        """Share of the encoder's tokens that are padding; NaN if nothing was encoded."""
        return 1.0 - _ratio(self.src_tokens, self.padded_tokens)

    def merged(self, others: Iterable[BatchAccount]) -> BatchAccount:
        """Return the sum of this account and others of the same batch size."""
        accounts = (self, *others)
        summed = (column.name for column in fields(self) if column.name != "size")
        return replace(self, **{name: sum(getattr(other, name) for other in accounts) for name in summed})

    def as_json(self) -> dict[str, Any]:
        """Return the account as JSON."""
        columns = {"steps": self.steps.tolist(), "step_s": self.step_s.tolist()}
        return asdict(self) | columns | {"tokens": self.tokens, "busy_s": self.busy_s}


def _ratio(part: float, whole: float) -> float:
    """Return `part` / `whole`; NaN if `whole` is 0."""
    return part / whole if whole else nan


SMALL_BATCH = 8
"""A batch with fewer active sentences is small, as in the paper (FNI-12, figure 8)."""


def batch_columns(
    device: str,
    servers: int,
    account: BatchAccount | None,
    makespan_s: float,
    queue_s: NDArray[np.floating[Any]],
    first_token_s: NDArray[np.floating[Any]],
) -> dict[str, float | None]:
    """Return the summary columns of one batched device; None without an account or if a number is unknown.

    Args:
        device: its name, with which each column begins.
        servers: boxes of the device.
        account: its batches.
        makespan_s: duration of the run.
        queue_s, first_token_s: waiting time and time to the first token of the requests executed there.
    """
    batches = account or BatchAccount.empty(1)
    begun_s = first_token_s[~np.isnan(first_token_s)]
    numbers = {
        "mean_batch": batches.mean_active,
        "full_share": batches.share_full,
        f"below_{SMALL_BATCH}_share": batches.share_below(SMALL_BATCH),
        "padding_share": batches.padding_share,
        "busy_share": batches.busy_s / (servers * makespan_s),
        "mean_queue_s": float(queue_s.mean()) if queue_s.size else nan,
        "first_token_mean_s": float(begun_s.mean()) if begun_s.size else nan,
        "first_token_p95_s": float(np.quantile(begun_s, 0.95)) if begun_s.size else nan,
        "sentences_per_s": batches.sentences / makespan_s,
        "tokens_per_s": batches.tokens / makespan_s,
        "busy_sentences_per_s": _ratio(batches.sentences, batches.busy_s),
        "busy_tokens_per_s": _ratio(batches.tokens, batches.busy_s),
    }
    return {f"{device}_{name}": None if account is None or isnan(value) else value for name, value in numbers.items()}


COLD = 0
"""State of a request that found nothing in memory. State k is turn k; the last state is that turn and all later ones."""


def state_name(state: int, states: int) -> str:
    """Return the name of a state, such as `cold`, `turn 1` or `turn 3 on`.

    >>> [state_name(state, 4) for state in range(4)]
    ['cold', 'turn 1', 'turn 2', 'turn 3 on']
    """
    return "cold" if state == COLD else f"turn {state}{' on' * (state == states - 1)}"


@dataclass(frozen=True, slots=True)
class PlannedState:
    """The plan for one state of a device, and the prediction for requests of the planned lengths."""

    name: str
    layers: int
    """Bottom layers of the encoder."""
    decoder_layers: int
    """Bottom layers of the decoder; 0 without a decoder."""
    slices: int
    """Slices per layer."""
    bits: tuple[tuple[int, int], ...]
    """(Bitwidth, shards with that bitwidth), rising."""
    held_bytes: int
    """Bytes in memory when the request comes."""
    read_bytes: int
    """Bytes read from the disk during the request."""
    latency_s: float
    stall_s: float
    load: tuple[tuple[float, float], ...]
    """Begin and end of the reads of each layer's shards, seconds."""
    compute: tuple[tuple[float, float], ...]
    """Begin and end of each layer's computation, seconds."""
    before_s: float = 0.0
    """When the embedding is done and the first layer can begin, seconds. A cold start first reads what is in no shard."""
    short_of_io: bool = False
    """True if not even 2 bits for every weight can be read in time, so that the processor stalls (STI-13)."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The plans of a device after a change of its deadline or preload buffer (STI-18)."""

    at_s: float
    deadline_s: float
    preload_bytes: int
    plans: int
    """Different plans among the turns of an engagement."""
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
    """Bytes that a cold start reads in addition to shards, such as embeddings; None if unknown, and then counted as 0."""
    working_bytes: int
    """Size of the buffer for one unpacked layer, in addition to the other buffers."""
    plans: int
    """Different plans among the turns of an engagement, at the start of the run."""
    kind: str
    """How the numbers of the profile's block `sti` are known, such as `measured`."""
    model: str
    all_layers: int
    """Layers of the whole model's encoder."""
    all_decoder_layers: int
    all_slices: int
    states: tuple[PlannedState, ...]
    """The first is cold; the last stands for all further turns."""
    changes: tuple[PlannedChange, ...] = ()
    """Changes during the run, in order of time."""

    @property
    def plannings(self) -> int:
        """Number of plannings: one at the start and one per change (STI-18)."""
        return 1 + len(self.changes)

    @property
    def short(self) -> str:
        """Short description to show after the device's name."""
        first = self.states[0]
        layers = f"{first.layers} + {first.decoder_layers}" if self.all_decoder_layers else str(first.layers)
        return f"streamed, {layers} layers x {first.slices} slices, quality not measured"


@dataclass(frozen=True, slots=True)
class BoxesAccount:
    """Totals of all boxes of one streamed device in a run."""

    boxes: int
    compute_s: float
    """Seconds of computing, without stalls for reads and without the slowing by reads."""
    read_s: float
    """Seconds in which a disk read."""
    read_bytes: int
    peak_buffer_bytes: int
    """Largest size of the buffer of preloaded and cached shards at one box, without the working buffer (STI-23)."""
    peak_shard_bytes: int
    """Most packed shards that one box held, in the buffer and read for requests, if the latter are freed with their request."""
    working_bytes: int
    """Size of the working buffer during a request, in addition to the buffer."""
    buffer_byte_s: float = 0.0
    """Bytes held in these buffers, integrated over time, byte-seconds."""


BoxesUntil = Callable[[float], BoxesAccount]
"""Returns the totals of a device's boxes if the run ended at this moment, in seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamAccount:
    """The requests that one streamed device executed; columns by state, shape (states,)."""

    requests: NDArray[np.int64]
    execution_s: NDArray[np.float64]
    """Total execution time of these requests, stalls included."""
    stall_s: NDArray[np.float64]
    missed: NDArray[np.int64]
    """Requests that the box answered after the deadline, waiting time included."""
    boxes: BoxesAccount
    decision_regret_s: NDArray[np.float64] | None = None
    """Total decision regret of these requests; None if not judged."""

    def mean_decision_regret_s(self, state: int) -> float:
        """Return the mean decision regret of requests in a state; NaN without such requests, or if it is not known."""
        return nan if self.decision_regret_s is None else _ratio(self.decision_regret_s[state], self.requests[state])

    def mean_execution_s(self, states: slice = slice(None)) -> float:
        """Return the mean execution time in some states; NaN without such requests."""
        return _ratio(float(self.execution_s[states].sum()), int(self.requests[states].sum()))

    def as_json(self) -> dict[str, Any]:
        """Return the account for summary.json."""
        columns = {name: getattr(self, name).tolist() for name in ("requests", "execution_s", "stall_s", "missed")}
        columns["decision_regret_s"] = None if self.decision_regret_s is None else self.decision_regret_s.tolist()
        return {"state": [state_name(state, len(self.requests)) for state in range(len(self.requests))], **columns} | asdict(
            self.boxes
        )


def stream_account(
    log: Mapping[str, Array], target: int, states: int, boxes: BoxesAccount, decision_regret_s: Array | None = None
) -> StreamAccount:
    """Sum up one target's executions by state.

    Args:
        log: columns of a request log, by name.
        target: number of the streamed target.
        states: number of states.
        boxes: totals of the target's boxes.
        decision_regret_s: loss of every request as foreseen by an oracle; None if decisions were not judged.
    """
    there = log["target"] == target
    state = log["state"][there].astype(np.int64)

    def summed(weights: Array) -> NDArray[np.float64]:
        return np.bincount(state, weights[there], minlength=states).astype(np.float64)

    requests, late = (np.bincount(counted, minlength=states) for counted in (state, state[log["deadline_missed"][there]]))
    lost = None if decision_regret_s is None else summed(decision_regret_s)
    return StreamAccount(requests, summed(log["t_exe_s"]), summed(log["stall_s"]), late, boxes, lost)


def stream_columns(device: str, account: StreamAccount | None, makespan_s: float) -> dict[str, float | None]:
    """Return the summary columns of one streamed device; None without an account or if a number is unknown.

    `makespan_s`: duration of the run.
    """
    none = np.zeros(1, np.int64)
    streams = account or StreamAccount(none, np.zeros(1), np.zeros(1), none, BoxesAccount(1, 0.0, 0.0, 0, 0, 0, 0))
    requests, boxes = int(streams.requests.sum()), streams.boxes
    box_s = boxes.boxes * makespan_s
    numbers = {
        "cold_share": _ratio(int(streams.requests[COLD]), requests),
        "stall_share": _ratio(float(streams.stall_s.sum()), float(streams.execution_s.sum())),
        "missed_share": _ratio(int(streams.missed.sum()), requests),
        "compute_busy_share": boxes.compute_s / box_s,
        "disk_busy_share": boxes.read_s / box_s,
        "cold_mean_s": streams.mean_execution_s(slice(COLD, COLD + 1)),
        "first_turn_mean_s": streams.mean_execution_s(slice(1, 2)),
        "later_turn_mean_s": streams.mean_execution_s(slice(2, None)),
        "cold_decision_regret_s": streams.mean_decision_regret_s(COLD),
        "read_mean_bytes": _ratio(boxes.read_bytes, requests),
        "peak_buffer_bytes": float(boxes.peak_buffer_bytes),
        "peak_shard_bytes": float(boxes.peak_shard_bytes),
        "mean_buffer_bytes": boxes.buffer_byte_s / box_s,
    }
    return {f"{device}_{name}": None if account is None or isnan(value) else value for name, value in numbers.items()}


@dataclass(frozen=True, slots=True)
class FaultAccount:
    """The faults of one run under one policy: the executions that answered no request."""

    failed_executions: int
    """Requests that a failing box dropped."""
    extra_work: tuple[NDArray[np.float64], ...]
    """By target and box, the work of executions that answered no request: seconds, or target tokens with the end of the
    sentence if the target batches."""
