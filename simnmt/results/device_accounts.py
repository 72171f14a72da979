"""What the devices did in a run: batches (FNI-12), streamed models (STI-16 to STI-18), faults, energy and money, and backlog.

A request of a streamed model is *cold* if nothing of the model was in memory. Otherwise it meets the buffer that was filled for
its *turn* of an engagement.

The model of energy is LEAF's (P. Wiesner and L. Thamsen, ICFEC 2021, doi:10.1109/ICFEC51620.2021.00012). A box draws `idle_w`
from the begin of the run to its last answer, and costs its price: all requests share that evenly. Above it a box draws power by
its busy workers, `busy_w` in all with all of them, or while it batches: the requests of its device share that in proportion to
their execution times. A request is charged for the bytes of its tokens on every link between its end node and its target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.profile.power import SECONDS_PER_HOUR, BoxPower
from simnmt.results.columns import Array, Executions, executed_on, occupied_s

Log = Mapping[str, Array]
"""Columns of requests by name, all of shape (requests,)."""
Numbers = dict[str, float | None]


def _ratio(part: float, whole: float) -> float:
    """Return `part` / `whole`; NaN if `whole` is 0."""
    return part / whole if whole else nan


def _columns_of(device: str, numbers: Mapping[str, float], *, known: bool) -> Numbers:
    """Return numbers as columns of the summary; None for NaN, and for all unless they are known."""
    return {f"{device}_{name}": value if known and not isnan(value) else None for name, value in numbers.items()}


SMALL_BATCH = 8
"""A batch with fewer active sentences is small, as in the paper (FNI-12, figure 8)."""


@dataclass(slots=True, eq=False)
class BatchAccount:
    """The batches of one target, over all its servers."""

    size: int
    """Most sentences decoded together."""
    steps: NDArray[np.int64]
    """Decode steps with k active sentences, shape (size + 1,)."""
    step_s: Floats
    """Seconds of these steps, including the gaps between them; shape (size + 1,)."""
    encode_s: float = 0.0
    refill_s: float = 0.0
    encodings: int = 0
    refills: int = 0
    src_tokens: int = 0
    padded_tokens: int = 0
    """Source tokens plus the padding to the longest sentence of each call."""
    sentences: int = 0

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

    def shares(self) -> dict[str, float]:
        """Return the shares of steps with a full and with a small batch, and of the encoder's tokens that are padding."""
        steps = int(self.steps.sum())
        return {
            "full_share": _ratio(int(self.steps[self.size]), steps),
            f"below_{SMALL_BATCH}_share": _ratio(int(self.steps[:SMALL_BATCH].sum()), steps),
            "padding_share": 1.0 - _ratio(self.src_tokens, self.padded_tokens),
        }

    def merged(self, others: Iterable[BatchAccount]) -> BatchAccount:
        """Return the sum of this account and others, as of boxes of the largest batch size."""
        accounts = (self, *others)
        size = max(account.size for account in accounts)

        def total(name: str) -> Any:
            values = (getattr(account, name) for account in accounts)
            if name not in ("steps", "step_s"):
                return sum(values)
            return sum(np.pad(column, (0, size + 1 - len(column))) for column in values)

        return replace(self, size=size, **{field.name: total(field.name) for field in fields(self) if field.name != "size"})

    def as_json(self) -> dict[str, Any]:
        """Return the account for summary.json."""
        columns = {"steps": self.steps.tolist(), "step_s": self.step_s.tolist()}
        return asdict(self) | columns | {"tokens": self.tokens, "busy_s": self.busy_s}


def batch_columns(
    device: str, servers: int, account: BatchAccount | None, makespan_s: float, queue_s: Array, first_s: Array
) -> Numbers:
    """Return the summary columns of one batched device; None without an account or if a number is unknown.

    `makespan_s`: duration of the run. `queue_s`, `first_s`: waiting time, and time to the first token, of the requests there.
    """
    batches = account or BatchAccount.empty(1)
    begun_s = first_s[~np.isnan(first_s)]
    numbers = {
        "mean_batch": batches.mean_active,
        **batches.shares(),
        "busy_share": batches.busy_s / (servers * makespan_s),
        "mean_queue_s": float(queue_s.mean()) if queue_s.size else nan,
        "first_token_mean_s": float(begun_s.mean()) if begun_s.size else nan,
        "first_token_p95_s": float(np.quantile(begun_s, 0.95)) if begun_s.size else nan,
        "sentences_per_s": batches.sentences / makespan_s,
        "tokens_per_s": batches.tokens / makespan_s,
        "busy_sentences_per_s": _ratio(batches.sentences, batches.busy_s),
        "busy_tokens_per_s": _ratio(batches.tokens, batches.busy_s),
    }
    return _columns_of(device, numbers, known=account is not None)


def loads_of(model_load: Array) -> Array:
    """Return which of its two models were loaded for each request, 1 or 0; shape (requests, 2)."""
    return np.asarray(model_load)[:, None] >> np.arange(2) & 1


def model_columns(device: str, model_load: Array, load_wait_s: Array, extra_loads: int = 0) -> Numbers:
    """Return the summary columns of one device that loads models, by its requests; None if it executed none.

    `extra_loads`: by requests that it did not answer.
    """
    requests = len(model_load)
    numbers = {
        "model_loads": float(loads_of(model_load).sum()) + extra_loads,
        "miss_share": _ratio(float(np.count_nonzero(model_load)), requests),
        "delayed_share": _ratio(float(np.count_nonzero(load_wait_s)), requests),
        "mean_load_wait_s": _ratio(float(load_wait_s.sum()), requests),
    }
    return _columns_of(device, numbers, known=True)


def state_name(state: int, states: int) -> str:
    """Return the name of a state: state 0 is cold, state k is turn k, and the last one also all later turns."""
    return f"turn {state}{' on' * (state == states - 1)}" if state else "cold"


@dataclass(frozen=True, slots=True)
class PlannedState:
    """The plan for one state of a device, and the prediction for requests of the planned lengths. Times are seconds."""

    name: str
    layers: int
    decoder_layers: int
    slices: int
    bits: tuple[tuple[int, int], ...]
    """(Bitwidth, shards with that bitwidth), rising."""
    held_bytes: int
    read_bytes: int
    latency_s: float
    stall_s: float
    load: tuple[tuple[float, float], ...]
    compute: tuple[tuple[float, float], ...]
    before_s: float = 0.0
    """When the embedding is done and the first layer can begin. A cold start first reads what is in no shard."""
    short_of_io: bool = False
    """True if not even 2 bits for every weight can be read in time, so that the processor stalls (STI-13)."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The plans of a device after a change of its deadline or preload buffer (STI-18)."""

    at_s: float
    deadline_s: float
    preload_bytes: int
    plans: int
    states: tuple[PlannedState, ...]


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """The plans of one streamed device for one workload."""

    deadline_s: float
    src_len: int
    tgt_len: int
    preload_bytes: int
    cache_bytes: int
    cold_read_bytes: int | None
    """Bytes that a cold start reads in addition to shards, such as embeddings; None if unknown, and then counted as 0."""
    working_bytes: int
    plans: int
    """Different plans among the turns of an engagement, at the start of the run."""
    kind: str
    """How the numbers of the profile's block `sti` are known, such as `measured`."""
    model: str
    all_layers: int
    all_decoder_layers: int
    all_slices: int
    states: tuple[PlannedState, ...]
    """The first is cold; the last stands for all further turns."""
    changes: tuple[PlannedChange, ...] = ()

    @property
    def short(self) -> str:
        """Short description to show after the device's name."""
        first = self.states[0]
        layers = f"{first.layers} + {first.decoder_layers}" if self.all_decoder_layers else str(first.layers)
        return f"streamed, {layers} layers x {first.slices} slices, quality not measured"

    def as_json(self) -> dict[str, Any]:
        """Return the plans for summary.json; `plannings`: one at the start and one per change (STI-18)."""
        return asdict(self) | {"plannings": 1 + len(self.changes)}


@dataclass(frozen=True, slots=True)
class BoxesAccount:
    """Totals of all boxes of one streamed device in a run."""

    boxes: int
    compute_s: float
    """Without stalls for reads and without the slowing by reads."""
    read_s: float
    read_bytes: int
    peak_buffer_bytes: int
    """Largest size of the buffer of preloaded and cached shards at one box, without the working buffer (STI-23)."""
    peak_shard_bytes: int
    """Most packed shards that one box held, in the buffer and read for requests, if the latter are freed with their request."""
    working_bytes: int
    buffer_byte_s: float = 0.0
    """Bytes held in these buffers, integrated over time, byte-seconds."""


BoxesUntil = Callable[[float], BoxesAccount]
"""Returns the totals of a device's boxes if the run ended at this moment, in seconds."""


def merged_until(untils: Sequence[BoxesUntil]) -> BoxesUntil:
    """Return the function that sums up the totals of several groups of boxes."""

    def until(end_s: float) -> BoxesAccount:
        accounts = [asdict(of_group(end_s)) for of_group in untils]
        largest = ("peak_buffer_bytes", "peak_shard_bytes", "working_bytes")
        return BoxesAccount(
            **{name: (max if name in largest else sum)(account[name] for account in accounts) for name in accounts[0]}
        )

    return until


@dataclass(frozen=True, slots=True, eq=False)
class StreamAccount:
    """The requests that one streamed device executed; columns by state, shape (states,)."""

    requests: NDArray[np.int64]
    execution_s: Floats
    stall_s: Floats
    missed: NDArray[np.int64]
    """Requests that the box answered after the deadline, waiting time included."""
    boxes: BoxesAccount
    decision_regret_s: Floats | None = None
    """Total decision regret of these requests; None if not judged."""

    @classmethod
    def of(
        cls, log: Log, target: int, states: int, boxes: BoxesAccount, decision_regret_s: Array | None = None
    ) -> StreamAccount:
        """Sum up one target's executions by state; `decision_regret_s`: of every request, None if decisions were not judged."""
        there = log["target"] == target
        state = log["state"][there].astype(np.int64)

        def summed(weights: Array) -> Floats:
            return np.bincount(state, weights[there], minlength=states).astype(np.float64)

        requests, late = (np.bincount(counted, minlength=states) for counted in (state, state[log["deadline_missed"][there]]))
        lost = None if decision_regret_s is None else summed(decision_regret_s)
        return cls(requests, summed(log["t_exe_s"]), summed(log["stall_s"]), late, boxes, lost)

    def as_json(self) -> dict[str, Any]:
        """Return the account for summary.json."""
        states = len(self.requests)
        columns = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "boxes"}
        return (
            {"state": [state_name(state, states) for state in range(states)]}
            | {name: None if column is None else column.tolist() for name, column in columns.items()}
            | asdict(self.boxes)
        )


def stream_columns(device: str, account: StreamAccount | None, makespan_s: float) -> Numbers:
    """Return the summary columns of one streamed device; None without an account or if a number is unknown."""
    none = np.zeros(1, np.int64)
    streams = account or StreamAccount(none, np.zeros(1), np.zeros(1), none, BoxesAccount(1, 0.0, 0.0, 0, 0, 0, 0))
    requests, boxes, regret_s = int(streams.requests.sum()), streams.boxes, streams.decision_regret_s
    box_s = boxes.boxes * makespan_s

    def mean_s(states: slice) -> float:
        return _ratio(float(streams.execution_s[states].sum()), int(streams.requests[states].sum()))

    numbers = {
        "cold_share": _ratio(int(streams.requests[0]), requests),
        "stall_share": _ratio(float(streams.stall_s.sum()), float(streams.execution_s.sum())),
        "missed_share": _ratio(int(streams.missed.sum()), requests),
        "compute_busy_share": boxes.compute_s / box_s,
        "disk_busy_share": boxes.read_s / box_s,
        "cold_mean_s": mean_s(slice(0, 1)),
        "first_turn_mean_s": mean_s(slice(1, 2)),
        "later_turn_mean_s": mean_s(slice(2, None)),
        "cold_decision_regret_s": nan if regret_s is None else _ratio(regret_s[0], streams.requests[0]),
        "read_mean_bytes": _ratio(boxes.read_bytes, requests),
        "peak_buffer_bytes": float(boxes.peak_buffer_bytes),
        "peak_shard_bytes": float(boxes.peak_shard_bytes),
        "mean_buffer_bytes": boxes.buffer_byte_s / box_s,
    }
    return _columns_of(device, numbers, known=account is not None)


@dataclass(frozen=True, slots=True)
class FaultAccount:
    """The faults of one run under one policy: the executions that answered no request, and the devices that were left out."""

    failed_executions: int
    extra_work: tuple[Floats, ...]
    """By target and box, the work of executions that answered no request: seconds, or target tokens with the end of the
    sentence if the target batches."""
    left_out: tuple[tuple[float, float], ...] = ()
    """By target, the times and the seconds that deciders left it out, in the mean over the deciders; empty if they do not."""
    loads: tuple[tuple[int, int, int, float], ...] = ()
    """Loads of models by requests that got no answer from their target: the request, the target, the box, and the seconds."""


HEADS = {
    "mean_energy_j": "J",
    "mean_static_j": "static J",
    "mean_dynamic_j": "executing J",
    "mean_transfer_j": "links J",
    "energy_j_per_thousand_tokens": "J/1000 tokens",
    "mean_cost": "money",
    "cost_per_thousand_tokens": "money/1000 tokens",
    "cost_per_million_characters": "money/million characters",
}
"""Heads of a table by the columns of the summary (`RunEnergy.numbers`)."""


@dataclass(frozen=True, slots=True)
class TargetCosts:
    """What energy and money of one target depend on: power (None if unknown) and price of each box, and the links to it.

    Of several links that are dealt to end nodes, the mean counts.
    """

    device: str
    boxes: int
    workers: int
    power: BoxPower | None
    price_per_hour: float = 0.0
    token: tuple[Any, ...] = (0.0, 0.0, 0.0)
    """Bytes, joules and money of a token on all links together; in a mix, arrays by part."""


@dataclass(frozen=True, slots=True, eq=False)
class RunEnergy:
    """Joules and money of one run."""

    requests: int
    tgt_tokens: int
    sums: Mapping[str, float]
    """Joules by kind and together, and money; NaN if a part of the joules is unknown, or nothing has a price."""
    parts: Sequence[Mapping[str, Any]]
    """A record of the boxes of each device, and one of all links; None for what is unknown."""
    execution_w: Floats
    """Dynamic joules for each second of an execution, by target; NaN where the power is unknown."""
    token_j: Floats
    """Joules of a token, shape (targets, parts of a mix), as is the next."""
    token_price: Floats
    characters_by_part: Floats
    """Mean characters of the source of a request, by part of a mix; NaN if unknown."""
    characters: float
    """Characters of all requests; NaN if unknown."""

    def of_some(self, log: Log) -> RunEnergy:
        """Return the joules and the money of some requests of the run, by their log."""
        target, requests = log["target"], len(log["target"])
        part = log["part"] if self.token_j.shape[1] > 1 else 0
        tokens, share = log["src_len"] + log["tgt_len"], requests / self.requests
        static_j, moved = share * self.sums["static_j"], float(self.token_price[target, part] @ tokens)
        executions = Executions(log)
        dynamic_j = float(self.execution_w[executions["target"]] @ occupied_s(executions))
        transfer_j = float(self.token_j[target, part] @ tokens)
        boxes_price = self.sums["cost"] - self.parts[-1]["price"]
        sums = {"energy_j": static_j + dynamic_j + transfer_j, "static_j": static_j, "dynamic_j": dynamic_j}
        sums |= {"transfer_j": transfer_j, "cost": share * boxes_price + moved}
        characters = _characters(log, self.characters_by_part)
        return replace(self, requests=requests, tgt_tokens=int(log["tgt_len"].sum()), sums=sums, characters=characters)

    def request_j(self, log: Log) -> Floats:
        """Return the joules of each request by its log; NaN if unknown. They add up to `energy_j`."""
        token_j = self.token_j[log["target"], log["part"] if self.token_j.shape[1] > 1 else 0]
        joules: Floats = self.execution_w[log["target"]] * occupied_s(log) + token_j * (log["src_len"] + log["tgt_len"])
        if "deferred_exe_s" in log:
            joules += self.execution_w[0] * np.nan_to_num(log["deferred_exe_s"])
        return joules + self.sums["static_j"] / self.requests

    def numbers(self) -> Numbers:
        """Return the columns of the summary; of money only if the scenario has prices."""
        numbers = {f"mean_{name}": value / self.requests for name, value in self.sums.items()}
        for name in ("energy_j", "cost"):
            numbers[f"{name}_per_thousand_tokens"] = _ratio(self.sums[name], self.tgt_tokens / 1e3)
        if not isnan(self.characters):
            numbers["cost_per_million_characters"] = _ratio(self.sums["cost"], self.characters / 1e6)
        shown = (column for column in HEADS if column in numbers and ("cost" not in column or not isnan(self.sums["cost"])))
        return {column: None if isnan(numbers[column]) else numbers[column] for column in shown}


def _characters(log: Log, by_part: Floats) -> float:
    return float(by_part[log["part"]].sum()) if len(by_part) > 1 else float(by_part[0]) * len(log["target"])


def account_energy(
    log: Log,
    costs: Sequence[TargetCosts],
    batches: Sequence[BatchAccount | None] = (),
    unanswered_s: Sequence[float] = (),
    characters: Sequence[float] = (nan,),
) -> RunEnergy:
    """Return joules and money of one run from the log of its answered requests.

    `characters`: the mean of a request by part of a mix, NaN if unknown. The rest is by target. `batches`: None for a target
    that executes requests one by one; empty if none batches. `unanswered_s`: seconds of executions that answered no request;
    empty for none. The account of batches has them already.
    """
    target, span_s = log["target"], float((log["arrival_s"] + log["latency_s"]).max())
    executions = Executions(log)
    requests = np.bincount(executed_on(executions) + 1, minlength=len(costs) + 1)[1:]  # place 0 is that of no device
    execution_s = np.bincount(executions["target"], occupied_s(executions), len(costs))
    parts, execution_w = list[dict[str, Any]](), np.full(len(costs), nan)
    for number, cost in enumerate(costs):
        account, executed_s = batches[number] if batches else None, float(execution_s[number])
        worked_s = executed_s + (unanswered_s[number] if unanswered_s else 0.0)
        busy_s = worked_s / cost.workers if account is None else account.busy_s
        power = cost.power or BoxPower(nan, nan, "unknown")
        dynamic_j = (power.busy_w - power.idle_w) * busy_s
        execution_w[number] = dynamic_j / executed_s if executed_s else 0.0
        box = {"device": cost.device, "power_kind": power.kind, "boxes": cost.boxes, "requests": int(requests[number])}
        spent = {"static_j": power.idle_w * cost.boxes * span_s, "dynamic_j": dynamic_j}
        price = cost.price_per_hour * cost.boxes * span_s / SECONDS_PER_HOUR
        parts.append({**box, "idle_w": power.idle_w, "busy_w": power.busy_w, **spent, "price": price, "bytes": 0})
    token = np.array([cost.token for cost in costs], np.float64).reshape(len(costs), 3, -1)
    token_bytes, token_j, token_price = token.transpose(1, 0, 2)
    link = target if token.shape[2] == 1 else target * np.int64(token.shape[2]) + log["part"]
    tokens = np.bincount(link, log["src_len"] + log["tgt_len"], token_j.size)
    joules = {name: float(sum(part[name] for part in parts)) for name in ("static_j", "dynamic_j")}
    joules["transfer_j"] = float(token_j.ravel() @ tokens)
    links = {"device": "links", "power_kind": "given", "boxes": 0, "requests": 0, "idle_w": nan, "busy_w": nan}
    price, size_bytes = float(token_price.ravel() @ tokens), int(token_bytes.ravel() @ tokens)
    parts.append({**links, "static_j": nan, "dynamic_j": joules["transfer_j"], "price": price, "bytes": size_bytes})
    sums = {"energy_j": sum(joules.values()), **joules, "cost": sum(part["price"] for part in parts) or nan}
    known = [{name: None if value != value else value for name, value in part.items()} for part in parts]
    by_part = np.array(characters, np.float64)
    of_tokens = int(log["tgt_len"].sum()), sums, known, execution_w, token_j, token_price
    return RunEnergy(len(target), *of_tokens, by_part, _characters(log, by_part))
