"""Log of a live gateway: one JSON object a line, written while it serves; the reader tolerates a half-written last line.

The events are `begin` (what serves), `request` (one for each request that ended), `reference` (a fixed execution that shows
the speed of the box), and all that a gateway's decider did and learnt, in that order: `decision`, `heard`, `lost` and
`handshake`. The reader ignores unknown keys and counts unknown events, so that a log of a later version can be read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, TypeAdapter, ValidationError

from simnmt.base.errors import InputError, short_repr
from simnmt.base.files import MOST_STREAMED_BYTES, check_regular

Outcome = Literal["done", "fallback", "timeout", "refused", "failed"]
"""How a request ended live: `done` on the chosen target, `fallback` on the gateway after the chosen target did not answer."""
LIVE_OUTCOMES: tuple[str, ...] = get_args(Outcome)
OUTCOMES = (*LIVE_OUTCOMES, "lost")
"""How requests end, live or in a simulation; there a request may also be `lost`."""
_REMEDY = "correct or remove the line; a gateway writes one JSON object a line"

Clock = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Seconds = Annotated[float, Strict(), Field(ge=0.0, allow_inf_nan=False)]
Whole = Annotated[int, Strict(), Field(ge=0, lt=2**53)]
Name = Annotated[str, Strict()]


class LiveLogError(InputError):
    """A log of a live gateway that cannot be read."""


@dataclass(frozen=True, slots=True)
class BeginRecord:
    """First line of a log: what serves."""

    policy: Name
    devices: Annotated[tuple[Annotated[str, Strict(), Field(min_length=1)], ...], Field(min_length=1)]
    """Names of the targets, the gateway first; `RequestRecord.target` is an index into them."""
    scenario: Name | None = None
    model_hashes: Mapping[Name, Name] = field(default_factory=dict)
    """Hash of the model by device."""
    clock: Name = "monotonic"
    begin_s: Clock = 0.0
    """The moment that the decider's clock counts from."""
    initial_s: tuple[Clock, ...] = ()
    """First measured transfer time of each target but the first."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that ended; None for what did not happen or is not known. Times are seconds of one monotonic clock."""

    request: Whole
    ingress_s: Clock
    """The gateway had read the request."""
    decision_s: Clock | None
    """The policy had chosen."""
    src_len: Whole | None
    """Source tokens, the end of the sentence included."""
    tgt_len: Whole | None
    """Decode steps, the one of the end-of-sentence token included."""
    target: Whole | None
    """The policy's choice."""
    device: Name | None
    """Where the answer was computed."""
    queue_s: Seconds | None
    execution_s: Seconds | None
    transfer_s: Seconds | None
    egress_s: Clock
    """The gateway had handed its answer over."""
    outcome: Outcome
    batch: Annotated[Whole, Field(ge=1)] = 1
    """Most sentences with which this one was decoded at once."""
    sender: Name = ""
    """The client's number of the request."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision; `at_s` is of the decider's clock, as in the next three."""

    request: Whole
    at_s: Clock
    src_len: Whole
    unreachable: tuple[Whole, ...]
    """Targets that did not answer at that time."""
    delay_s: tuple[float, ...]
    """The delays that the policy was shown, by target."""
    target: Whole


@dataclass(frozen=True, slots=True)
class HeardRecord:
    """What a decider learnt from an answer, or at the gateway itself from the begin of an execution."""

    request: Whole
    at_s: Clock
    transfer_s: float
    wait_s: float
    report: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A request that its target did not answer."""

    request: Whole
    at_s: Clock


@dataclass(frozen=True, slots=True)
class HandshakeRecord:
    """The first round trip to a target that answers again."""

    target: Whole
    at_s: Clock
    rtt_s: Seconds


@dataclass(frozen=True, slots=True)
class ReferenceRecord:
    """One execution of the fixed reference work of a device."""

    device: Name
    at_s: Clock
    execution_s: Seconds
    busy_s: Seconds = 0.0
    """From `at_s` on, with what the engine executed before and did not measure; 0 if unknown."""


DeciderRecord = DecisionRecord | HeardRecord | LostRecord | HandshakeRecord
Record = BeginRecord | RequestRecord | ReferenceRecord | DeciderRecord
_KINDS: dict[str, type[Record]] = {
    kind.__name__.removesuffix("Record").lower(): kind
    for kind in (BeginRecord, RequestRecord, ReferenceRecord, *get_args(DeciderRecord))
}
_EVENTS = {kind: (event, tuple(part.name for part in fields(kind))) for event, kind in _KINDS.items()}
_ENCODE = json.JSONEncoder(allow_nan=False).encode


def format_record(record: Record) -> str:
    """Return the line of a record, its line break included.

    Example:
        >>> format_record(ReferenceRecord("gateway", 12.5, 0.0051, 0.0074))
        '{"event": "reference", "device": "gateway", "at_s": 12.5, "execution_s": 0.0051, "busy_s": 0.0074}\\n'
    """
    event, names = _EVENTS[type(record)]
    return _ENCODE({"event": event} | {name: getattr(record, name) for name in names}) + "\n"


_UNSET: dict[str, float | str] = {"request": 0, "target": -1, "batch": 1, "device": "", "outcome": "", "sender": ""}
"""Values of a column where the log has null, whose type is that of the column; NaN in other columns."""


class LiveColumns:
    """Columns of the records of one kind by the names of its fields, in the order of their lines; `line` is 1 for the first."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = columns

    @classmethod
    def of(cls, kind: type[Record], numbered: Sequence[tuple[int, Record]]) -> LiveColumns:
        """Return the columns of records with the numbers of their lines."""
        columns = {"line": np.array([number for number, _ in numbered], np.int64)}
        for name in _EVENTS[kind][1]:
            unset = _UNSET.get(name, np.nan)
            values = [getattr(record, name) for _, record in numbered]
            columns[name] = np.array([unset if value is None else value for value in values], type(unset))
        return cls(columns)

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("_") or name not in self._columns:
            raise AttributeError(name)
        return self._columns[name]

    def __len__(self) -> int:
        return int(self.line.size)

    def at(self, chosen: NDArray[np.bool_]) -> LiveColumns:
        """Return the rows of a mask."""
        return LiveColumns({name: column[chosen] for name, column in self._columns.items()})


@dataclass(frozen=True, slots=True, eq=False)
class LiveLog:
    """Content of a log."""

    requests: LiveColumns
    references: LiveColumns
    decider_events: list[DeciderRecord]
    """What a gateway's decider did and learnt, in that order."""
    begin: BeginRecord | None = None
    """The last one; a restarted gateway may append to its log."""
    torn_lines: int = 0
    """1 if the last line was half written, and left out."""
    unknown_events: int = 0
    """Lines of events that this version does not know."""


def read_live_log(path: str | os.PathLike[str]) -> LiveLog:
    """Read a log. Raises `LiveLogError` with file and line for a wrong line, or if the file cannot be read.

    A last line without its line break counts if it is complete, and is otherwise left out and counted in `torn_lines`.
    """
    try:
        check_regular(path, MOST_STREAMED_BYTES)
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise LiveLogError(
            f"cannot read the log: {error.strerror}", path=path, remedy="name the gateway's --log file"
        ) from None
    requests, references = list[tuple[int, Record]](), list[tuple[int, Record]]()
    events, begin, torn, unknown = list[DeciderRecord](), None, 0, 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                torn = 1
                continue
            what = f"no JSON: {getattr(error, 'msg', 'nested too deeply, or no UTF-8')}"
            column = getattr(error, "colno", None)
            raise LiveLogError(what, path=path, line=number, column=column, remedy=_REMEDY) from None
        if not isinstance(content, dict) or not isinstance(content.get("event"), str):
            raise LiveLogError("no JSON object with an event", path=path, line=number, remedy=_REMEDY)
        record = _record(content, number, path)
        if isinstance(record, RequestRecord):
            requests.append((number, record))
        elif isinstance(record, ReferenceRecord):
            references.append((number, record))
        elif isinstance(record, BeginRecord):
            begin = record
        elif record is None:
            unknown += 1
        else:
            events.append(record)
    columns = LiveColumns.of(RequestRecord, requests), LiveColumns.of(ReferenceRecord, references)
    return LiveLog(*columns, events, begin, torn, unknown)


def read_decider_events(path: str | os.PathLike[str]) -> list[DeciderRecord]:
    """Return what a gateway's decider did and learnt, in that order. Raises `LiveLogError`."""
    return read_live_log(path).decider_events


@cache
def _adapter(event: str) -> TypeAdapter[Record]:
    return TypeAdapter(_KINDS[event])


def _record(content: Mapping[str, Any], line: int, path: str | os.PathLike[str]) -> Record | None:
    """Return the record of a line; None for an unknown event. Raises `LiveLogError`."""
    if content["event"] not in _KINDS:
        return None
    try:
        record = _adapter(content["event"]).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{'.'.join(map(str, first['loc'][:1]))}: {first['msg']} ({short_repr(first['input'])})"
        raise LiveLogError(what, path=path, line=line, remedy=_REMEDY) from None
    if isinstance(record, RequestRecord) and record.outcome == "done":
        for name in ("device", "src_len", "tgt_len", "execution_s"):
            if getattr(record, name) is None:
                raise LiveLogError(f"{name}: a request that is done has one", path=path, line=line, remedy=_REMEDY)
    return record
