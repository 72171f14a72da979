"""Log of a live gateway: one JSON object a line, written while it serves; the reader tolerates a half-written last line.

The events are `begin` (what serves), `request` (one for each request that ended), `reference` (a fixed execution that shows
the speed of the box), and all that a gateway's decider did and learnt, in that order: `decision`, `heard`, `lost` and
`handshake`, which `read_decider_events` reads. `LiveLogReader` reads a log that may still grow, `read_live_log` all of
it. Both ignore unknown keys and count unknown events, so that a log of a later version can be read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError, short_repr
from simnmt.base.files import MOST_STREAMED_BYTES, check_regular

Outcome = Literal["done", "fallback", "timeout", "refused", "failed"]
"""How a request ended live: `done` on the chosen target, `fallback` on the gateway after the chosen target did not answer."""
LIVE_OUTCOMES: tuple[str, ...] = get_args(Outcome)
OUTCOMES = (*LIVE_OUTCOMES, "lost")
"""How requests end, live or in a simulation; there a request may also be `lost`."""
MOST_LINE_BYTES = 1 << 20
"""Longest line of a log; a record takes about 300 bytes."""
_PIECE_BYTES = 4 << 20
_REMEDY = "correct or remove the line; a gateway writes one JSON object a line"

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class LiveLogError(InputError):
    """A log of a live gateway that cannot be read."""


class BeginRecord(NamedTuple):
    """First line of a log: what serves."""

    policy: str
    devices: tuple[str, ...]
    """Names of the targets, the gateway first; `RequestRecord.target` is an index into them."""
    scenario: str | None = None
    model_hashes: Mapping[str, str] = {}
    """Hash of the model by device."""
    clock: str = "monotonic"
    begin_s: float = 0.0
    """The moment that the decider's clock counts from."""
    initial_s: tuple[float, ...] = ()
    """First measured transfer time of each target but the first."""


class RequestRecord(NamedTuple):
    """One request that ended; None for what did not happen or is not known. Times are seconds of one monotonic clock."""

    request: int
    ingress_s: float
    """The gateway had read the request."""
    decision_s: float | None
    """The policy had chosen."""
    src_len: int | None
    """Source tokens, the end of the sentence included."""
    tgt_len: int | None
    """Decode steps, the one of the end-of-sentence token included."""
    target: int | None
    """The policy's choice."""
    device: str | None
    """Where the answer was computed."""
    queue_s: float | None
    execution_s: float | None
    transfer_s: float | None
    egress_s: float
    """The gateway had handed its answer over."""
    outcome: Outcome
    batch: int = 1
    """Most sentences with which this one was decoded at once."""
    sender: str = ""
    """The client's number of the request."""


class DecisionRecord(NamedTuple):
    """A decision; `at_s` is of the decider's clock, as in the next three."""

    request: int
    at_s: float
    src_len: int
    unreachable: tuple[int, ...]
    """Targets that did not answer at that time."""
    delay_s: tuple[float, ...]
    """The delays that the policy was shown, by target."""
    target: int


class HeardRecord(NamedTuple):
    """What a decider learnt from an answer, or at the gateway itself from the begin of an execution."""

    request: int
    at_s: float
    transfer_s: float
    wait_s: float
    report: tuple[int, ...]


class LostRecord(NamedTuple):
    """A request that its target did not answer."""

    request: int
    at_s: float


class HandshakeRecord(NamedTuple):
    """The first round trip to a target that answers again."""

    target: int
    at_s: float
    rtt_s: float


class ReferenceRecord(NamedTuple):
    """One execution of the fixed reference work of a device."""

    device: str
    at_s: float
    execution_s: float
    busy_s: float = 0.0
    """From `at_s` on, with what the engine executed before and did not measure; 0 if unknown."""


DeciderRecord = DecisionRecord | HeardRecord | LostRecord | HandshakeRecord
Record = BeginRecord | RequestRecord | ReferenceRecord | DeciderRecord
_DECIDER: dict[str, type[DeciderRecord]] = {
    "decision": DecisionRecord,
    "heard": HeardRecord,
    "lost": LostRecord,
    "handshake": HandshakeRecord,
}
_EVENTS: dict[type, str] = {BeginRecord: "begin", RequestRecord: "request", ReferenceRecord: "reference"}
_EVENTS |= {kind: event for event, kind in _DECIDER.items()}


_ENCODE = json.JSONEncoder(allow_nan=False).encode


def format_record(record: Record) -> str:
    """Return the line of a record, its line break included.

    Example:
        >>> format_record(ReferenceRecord("gateway", 12.5, 0.0051, 0.0074))
        '{"event": "reference", "device": "gateway", "at_s": 12.5, "execution_s": 0.0051, "busy_s": 0.0074}\\n'
    """
    return _ENCODE({"event": _EVENTS[type(record)], **record._asdict()}) + "\n"


@dataclass(frozen=True, slots=True, eq=False)
class LiveRequests:
    """Columns of the requests of a log, in the order of its lines; all of shape (requests,).

    Times in seconds; NaN where the log has null. `target` is -1 where none was chosen.
    """

    line: Integers
    """Line in the file; 1 for the first."""
    request: Integers
    ingress_s: Floats
    decision_s: Floats
    src_len: Floats
    tgt_len: Floats
    target: Integers
    device: NDArray[np.str_]
    """Empty where no device computed an answer."""
    queue_s: Floats
    execution_s: Floats
    transfer_s: Floats
    egress_s: Floats
    outcome: NDArray[np.str_]
    batch: Integers
    sender: NDArray[np.str_]
    """Empty where the client gave no number."""

    def __len__(self) -> int:
        return int(self.line.size)

    def at(self, chosen: NDArray[np.bool_] | Integers) -> LiveRequests:
        """Return the rows of a mask or of indices."""
        return LiveRequests(*(getattr(self, column.name)[chosen] for column in fields(self)))


@dataclass(frozen=True, slots=True, eq=False)
class LiveReferences:
    """Columns of the reference executions of a log; all of shape (references,)."""

    line: Integers
    device: NDArray[np.str_]
    at_s: Floats
    execution_s: Floats
    busy_s: Floats
    """0 where the log has none."""

    def __len__(self) -> int:
        return int(self.line.size)


@dataclass(frozen=True, slots=True, eq=False)
class LiveLog:
    """Content of a log, or of the part of it that is new."""

    requests: LiveRequests
    references: LiveReferences
    begin: BeginRecord | None = None
    """The last `begin` among these lines; a restarted gateway may append to its log."""
    torn_lines: int = 0
    """1 if the last line was half written, and left out."""
    unknown_events: int = 0
    """Lines of events that this version does not know."""

    @staticmethod
    def joined(parts: Sequence[LiveLog]) -> LiveLog:
        """Return consecutive parts of a log as one; no parts give an empty log."""
        parts = parts or [_columns([], [], Path())]
        return LiveLog(
            LiveRequests(*_concatenated([part.requests for part in parts], LiveRequests)),
            LiveReferences(*_concatenated([part.references for part in parts], LiveReferences)),
            next((part.begin for part in reversed(parts) if part.begin is not None), None),
            sum(part.torn_lines for part in parts),
            sum(part.unknown_events for part in parts),
        )


def _concatenated(parts: Sequence[Any], kind: type[LiveRequests] | type[LiveReferences]) -> Iterable[NDArray[Any]]:
    return (np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(kind))


def read_live_log(path: str | os.PathLike[str]) -> LiveLog:
    """Read a whole log. Raises `LiveLogError` with file and line for a wrong line, or if the file cannot be read.

    A last line without its line break counts if it is complete, and is otherwise left out and counted in `torn_lines`.
    """
    reader = LiveLogReader(path)
    parts = list[LiveLog]()
    while reader.has_more():
        parts.append(reader.read())
    return LiveLog.joined([*parts, reader.finish()])


def read_decider_events(path: str | os.PathLike[str]) -> list[DeciderRecord]:
    """Return what a gateway's decider did and learnt, in that order.

    Raises `LiveLogError` with file and line for a wrong line; a half-written last line is left out.
    """
    try:
        check_regular(path, MOST_STREAMED_BYTES)
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise LiveLogError(
            f"cannot read the log: {error.strerror}", path=path, remedy="name the gateway's --log file"
        ) from None
    events = list[DeciderRecord]()
    for number, content in enumerate(_documents(lines[:-1], 1, path), 1):
        kind = None if content is None else _DECIDER.get(str(content.get("event")))
        if kind is None or content is None:
            continue
        try:
            values: dict[str, Any] = {name: content[name] for name in kind._fields}
        except KeyError as error:
            raise LiveLogError(f"{error.args[0]}: missing", path=path, line=number, remedy=_REMEDY) from None
        fields_of_event: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        events.append(kind(**fields_of_event))
    return events


@dataclass(slots=True)
class LiveLogReader:
    """Reads a log piece by piece, also while it grows: `read` returns what is new, `finish` the rest."""

    path: str | os.PathLike[str]
    _offset: int = field(default=0, init=False)
    """Bytes read."""
    _lines: int = field(default=0, init=False)
    """Complete lines read."""
    _rest: bytes = field(default=b"", init=False)
    """Bytes after the last line break."""

    def __post_init__(self) -> None:
        self._checked_size()

    def has_more(self) -> bool:
        """Return whether the file holds bytes that were not read yet. Raises `LiveLogError` if it became shorter."""
        size = self._checked_size()
        if size < self._offset:
            remedy = "watch the new log; a log is only appended to"
            raise LiveLogError("became shorter while it was read", path=self.path, remedy=remedy)
        return size > self._offset

    def read(self) -> LiveLog:
        """Return the records of the complete lines that are new, of at most a few MB; empty if there are none."""
        if not self.has_more():
            return LiveLog.joined([])
        try:
            with Path(self.path).open("rb") as file:
                file.seek(self._offset)
                piece = file.read(_PIECE_BYTES)
        except OSError as error:
            raise self._unreadable(error) from None
        self._offset += len(piece)
        whole, line_break, self._rest = (self._rest + piece).rpartition(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            raise LiveLogError(
                f"a line of more than {MOST_LINE_BYTES:,} bytes", path=self.path, line=self._lines + 1 + whole.count(b"\n")
            )
        return self._parsed(whole.split(b"\n")) if line_break else LiveLog.joined([])

    def finish(self) -> LiveLog:
        """Return the last line if it is complete but for its line break; a half-written line is counted."""
        rest, self._rest = self._rest.strip(), b""
        if not rest:
            return LiveLog.joined([])
        try:
            complete = isinstance(json.loads(rest), dict)
        except ValueError:
            complete = False
        if complete:
            return self._parsed([rest])
        empty = LiveLog.joined([])
        return LiveLog(empty.requests, empty.references, torn_lines=1)

    def _parsed(self, lines: Sequence[bytes]) -> LiveLog:
        first, self._lines = self._lines + 1, self._lines + len(lines)
        requests, references = list[_Numbered](), list[_Numbered]()
        begin, unknown = None, 0
        for number, content in enumerate(_documents(lines, first, self.path), first):
            if content is None:
                continue
            event = content.get("event")
            if event == "request":
                requests.append((number, content))
            elif event == "reference":
                references.append((number, content))
            elif event == "begin":
                begin = _begin(content, number, self.path)
            elif isinstance(event, str):
                unknown += event not in _DECIDER
            else:
                raise LiveLogError("event: missing, or not a text", path=self.path, line=number, remedy=_REMEDY)
        columns = _columns(requests, references, self.path)
        return LiveLog(columns.requests, columns.references, begin, 0, unknown)

    def _checked_size(self) -> int:
        try:
            check_regular(self.path, MOST_STREAMED_BYTES)
            return Path(self.path).stat().st_size
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError) -> LiveLogError:
        return LiveLogError(f"cannot read the log: {error.strerror}", path=self.path, remedy="name the gateway's --log file")


_Numbered = tuple[int, Mapping[str, Any]]
"""Number and content of a line."""


def _documents(lines: Sequence[bytes], first: int, path: str | os.PathLike[str]) -> list[Mapping[str, Any] | None]:
    """Return the JSON object of each line, None for a blank one."""
    filled = [line for line in lines if line.strip()]
    try:
        # One call for all lines takes half the time of a call for each. Lines that are no objects are found below.
        together = json.loads(b"[" + b",".join(filled) + b"]")
    except (ValueError, RecursionError):
        together = []
    if len(filled) == len(lines) == len(together) and set(map(type, together)) <= {dict}:
        return together  # type: ignore[no-any-return]
    documents = list[Mapping[str, Any] | None]()
    for number, line in enumerate(lines, first):
        if not line.strip():
            documents.append(None)
            continue
        try:
            content = json.loads(line)
        except UnicodeDecodeError:
            raise LiveLogError("no UTF-8 text", path=path, line=number, remedy=_REMEDY) from None
        except RecursionError:
            raise LiveLogError("nested too deeply", path=path, line=number, remedy=_REMEDY) from None
        except ValueError as error:
            what = f"no JSON: {getattr(error, 'msg', 'a number of too many digits')}"
            raise LiveLogError(what, path=path, line=number, column=getattr(error, "colno", None), remedy=_REMEDY) from None
        if not isinstance(content, dict):
            raise LiveLogError("not a JSON object", path=path, line=number, remedy=_REMEDY)
        documents.append(content)
    return documents


def _begin(content: Mapping[str, Any], line: int, path: str | os.PathLike[str]) -> BeginRecord:
    devices, hashes = content.get("devices"), content.get("model_hashes") or {}
    if not isinstance(devices, list) or not devices or not all(isinstance(name, str) and name for name in devices):
        raise LiveLogError("devices: a list of names is needed", path=path, line=line, remedy=_REMEDY)
    if not isinstance(hashes, dict):
        raise LiveLogError("model_hashes: not an object of hashes by device", path=path, line=line, remedy=_REMEDY)
    policy, scenario, clock = (content.get(key) for key in ("policy", "scenario", "clock"))
    return BeginRecord(
        str(policy or ""),
        tuple(devices),
        None if scenario is None else str(scenario),
        hashes,
        str(clock or "monotonic"),
        _number(content.get("begin_s")),
        tuple(map(_number, content.get("initial_s") or ())),
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


_WHOLE_FROM = {"request": 0, "src_len": 0, "tgt_len": 0, "target": 0, "batch": 1}
"""Least value of each whole number."""
_MOST_WHOLE = 2**53
_CLOCKS = ("ingress_s", "decision_s", "egress_s", "at_s")
_ALWAYS = ("request", "ingress_s", "egress_s")
_OF_DONE = ("src_len", "tgt_len", "execution_s")
"""Numbers that a request with the outcome `done` has."""
_OPTIONAL_WHOLE = {"target": -1, "batch": 1}
"""Value of a column of whole numbers where the log has null."""


def _columns(requests: Sequence[_Numbered], references: Sequence[_Numbered], path: str | os.PathLike[str]) -> LiveLog:
    table, checks = _Table(requests, path), _Table(references, path)
    names, outcome = table.texts("device", optional=True), table.texts("outcome")
    table.refuse(~np.isin(outcome, LIVE_OUTCOMES), "outcome", f"none of {', '.join(LIVE_OUTCOMES)}")
    done = outcome == "done"
    table.refuse(done & (names == ""), "device", "a request that is done has a device")
    numbers = {key: table.numbers(key) for key in RequestRecord._fields if key not in ("device", "outcome", "sender")}
    for key in _ALWAYS:
        table.refuse(np.isnan(numbers[key]), key, "missing")
    for key in _OF_DONE:
        table.refuse(done & np.isnan(numbers[key]), key, "a request that is done has one")
    whole = {key: np.where(np.isnan(numbers[key]), other, numbers[key]) for key, other in _OPTIONAL_WHOLE.items()}
    integers = {key: column.astype(np.int64) for key, column in ({"request": numbers["request"]} | whole).items()}
    texts = {"device": names, "outcome": outcome, "sender": table.texts("sender", optional=True)}
    columns: dict[str, Any] = {"line": table.line, **texts, **numbers, **integers}
    of_references = {key: checks.numbers(key) for key in ("at_s", "execution_s", "busy_s")}
    for key in ("at_s", "execution_s"):
        checks.refuse(np.isnan(of_references[key]), key, "missing")
    of_references["busy_s"] = np.nan_to_num(of_references["busy_s"])
    return LiveLog(
        LiveRequests(**columns),
        LiveReferences(checks.line, checks.texts("device"), **of_references),
    )


class _Table:
    """Checked columns of the records of one event."""

    def __init__(self, records: Sequence[_Numbered], path: str | os.PathLike[str]) -> None:
        self.line = np.fromiter((number for number, _ in records), np.int64, len(records))
        self._contents = [content for _, content in records]
        self._path = path

    def texts(self, key: str, *, optional: bool = False) -> NDArray[np.str_]:
        """Return a column of texts, empty where an optional one is null."""
        values = [content.get(key) for content in self._contents]
        if optional:
            values = ["" if value is None else value for value in values]
        if not set(map(type, values)) <= {str}:
            self.refuse(np.array([not isinstance(value, str) for value in values]), key, "not a text")
        return np.array(values, np.str_) if values else np.empty(0, np.str_)

    def numbers(self, key: str) -> Floats:
        """Return a column of numbers, NaN where the log has null."""
        values = [content.get(key) for content in self._contents]
        if not set(map(type, values)) <= {int, float, type(None)}:
            # bool is a subclass of int, and no number.
            self.refuse(np.array([type(value) not in (int, float, type(None)) for value in values]), key, "not a number")
        missing = np.array([value is None for value in values], np.bool_)
        try:
            column = np.array(values, np.float64)
        except OverflowError:
            column = np.array([None if value is None else min(value, 2**1000) for value in values], np.float64)
        self.refuse(~missing & ~(np.abs(column) < _MOST_WHOLE), key, "not a finite number in range")
        if key in _WHOLE_FROM:
            self.refuse(~missing & ((column < _WHOLE_FROM[key]) | (column % 1 != 0)), key, "not a whole number in range")
        elif key not in _CLOCKS:
            self.refuse(column < 0.0, key, "a duration is not negative")
        return column

    def refuse(self, wrong: NDArray[np.bool_], key: str, fault: str) -> None:
        """Raise `LiveLogError` at the first wrong record, if there is one."""
        if wrong.any():
            first = int(np.argmax(wrong))
            value = self._contents[first].get(key)
            what = f"{key}: {fault}" + ("" if value is None else f" ({short_repr(value)})")
            raise LiveLogError(what, path=self._path, line=int(self.line[first]), remedy=_REMEDY)
