"""Log of a live gateway: one JSON object a line, written while it serves; the reader tolerates a half-written last line.

The events are `begin` (what serves), `request` (one for each request that ended), `reference` (a fixed execution that shows
the speed of the box), and all that a gateway's decider did and learnt, in that order: `decision`, `heard`, `lost` and
`handshake`. The reader ignores unknown keys and events, so that a log of a later version can be read. None stands for what did
not happen or is not known. Times are seconds of one monotonic clock; `at_s` of a decider is of its own clock.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from simnmt.base.errors import InputError, short_repr
from simnmt.base.files import MOST_STREAMED_BYTES, check_regular

Outcome = Literal["done", "fallback", "timeout", "refused", "failed"]
"""How a request ended live: `done` on the chosen target, `fallback` on the gateway after the chosen target did not answer."""
LIVE_OUTCOMES: tuple[str, ...] = get_args(Outcome)
OUTCOMES = (*LIVE_OUTCOMES, "lost")
"""How requests end, live or in a simulation; there a request may also be `lost`."""

Clock = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, lt=2**53)]


class LiveLogError(InputError):
    """A log of a live gateway that cannot be read."""


@dataclass(frozen=True, slots=True)
class BeginRecord:
    """First line of a log: what serves."""

    event: Literal["begin"] = field(default="begin", kw_only=True)
    policy: str
    devices: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    """Names of the targets, the gateway first; `RequestRecord.target` is an index into them."""
    scenario: str | None = None
    model_hashes: Mapping[str, str] = field(default_factory=dict)
    clock: str = "monotonic"
    begin_s: Clock = 0.0
    """The moment that the decider's clock counts from."""
    initial_s: tuple[Clock, ...] = ()
    """First measured transfer time of each target but the first."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that ended: read by the gateway at `ingress_s`, decided at `decision_s`, handed over at `egress_s`.

    Lengths count the end of the sentence. `target` is the policy's choice, `device` where the answer was computed, `batch` the
    most sentences with which it was decoded at once, `sender` the client's number of the request, `model` the languages whose
    model it needs, such as `de-en`, `model_load` whether the request asked for the load of that model, `request_class` its
    class, empty if the service has none, and `document` the number of the first text of the list that it was sent in. `hit` is
    1 if a cache had the answer, and 2 if the request waited for a translation of the same text; then nothing was decided.
    `deferred_queue_s` and `deferred_exe_s` are wait and execution at the gateway of a request that it then sent on.
    """

    event: Literal["request"] = field(default="request", kw_only=True)
    request: Whole
    ingress_s: Clock
    decision_s: Clock | None
    src_len: Whole | None
    tgt_len: Whole | None
    target: Whole | None
    device: str | None
    queue_s: Seconds | None
    execution_s: Seconds | None
    transfer_s: Seconds | None
    egress_s: Clock
    outcome: Outcome
    batch: Annotated[Whole, Field(ge=1)] = 1
    sender: str = ""
    model: str = ""
    model_load: bool = False
    hit: Annotated[Whole, Field(le=2)] = 0
    request_class: str = ""
    document: Whole | None = None
    deferred_queue_s: Seconds | None = None
    deferred_exe_s: Seconds | None = None


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision: the targets that did not answer at that time, the delays that the policy was shown, and its choice.

    `held`: it is that on the first sentence of the document. `again`: the gateway has translated the request, and target 0
    means that it is answered. `gain`: the expected gain in quality, if the policy weighs that.
    """

    event: Literal["decision"] = field(default="decision", kw_only=True)
    request: Whole
    at_s: Clock
    src_len: Whole
    unreachable: tuple[Whole, ...]
    delay_s: tuple[float, ...]
    target: Whole
    held: bool = False
    again: bool = False
    gain: float | None = None


@dataclass(frozen=True, slots=True)
class HeardRecord:
    """What a decider learnt from an answer, or at the gateway itself from the begin of an execution."""

    event: Literal["heard"] = field(default="heard", kw_only=True)
    request: Whole
    at_s: Clock
    transfer_s: float
    wait_s: float
    report: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A request that its target did not answer."""

    event: Literal["lost"] = field(default="lost", kw_only=True)
    request: Whole
    at_s: Clock


@dataclass(frozen=True, slots=True)
class HandshakeRecord:
    """The first round trip to a target that answers again."""

    event: Literal["handshake"] = field(default="handshake", kw_only=True)
    target: Whole
    at_s: Clock
    rtt_s: Seconds


@dataclass(frozen=True, slots=True)
class ReferenceRecord:
    """One execution of the fixed reference work of a device."""

    event: Literal["reference"] = field(default="reference", kw_only=True)
    device: str
    at_s: Clock
    execution_s: Seconds


DeciderRecord = DecisionRecord | HeardRecord | LostRecord | HandshakeRecord
Record = BeginRecord | RequestRecord | ReferenceRecord | DeciderRecord


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Annotated[Record, Field(discriminator="event")])


def format_record(record: Record) -> str:
    """Return the line of a record, its line break included.

    Example:
        >>> format_record(ReferenceRecord("gateway", 12.5, 0.0051))
        '{"event":"reference","device":"gateway","at_s":12.5,"execution_s":0.0051}\\n'
    """
    return _adapter().dump_json(record).decode() + "\n"


@dataclass(slots=True, eq=False)
class LiveLog:
    """Content of a log."""

    requests: list[RequestRecord] = field(default_factory=list)
    references: list[ReferenceRecord] = field(default_factory=list)
    decider_events: list[DeciderRecord] = field(default_factory=list)
    begin: BeginRecord | None = None
    """The last one; a restarted gateway may append to its log."""


def read_live_log(path: str | os.PathLike[str]) -> LiveLog:
    """Read a log. Raises `LiveLogError` with file and line for a wrong line, or if the file cannot be read.

    A last line without its line break counts if it is complete, and is otherwise left out.
    """
    try:
        check_regular(path, MOST_STREAMED_BYTES)
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise LiveLogError(f"cannot read the log: {error.strerror}", path=path) from None
    log = LiveLog()
    lists: dict[str, list[Any]] = {"request": log.requests, "reference": log.references}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = _adapter().validate_json(line, strict=True)
        except ValidationError as error:
            fault = error.errors()[0]
            is_torn = fault["type"] == "json_invalid" and number == len(lines)
            if is_torn or fault["type"] == "union_tag_invalid":
                continue
            raise LiveLogError(_describe(fault), path=path, line=number) from None
        if isinstance(record, BeginRecord):
            log.begin = record
        else:
            lists.get(record.event, log.decider_events).append(record)
    return log


def _describe(fault: Any) -> str:
    key = ".".join(map(str, fault["loc"][1:2]))
    return f"{key}: {fault['msg']} ({short_repr(fault['input'])})" if key else fault["msg"]
