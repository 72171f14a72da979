"""Logs of single requests to language models, recognised by their content: AIPerf, GuideLLM and LiteLLM.

| tool | file | its description |
|---|---|---|
| `aiperf` | profile_export.jsonl, a record a line | working-with-profile-exports.md of ai-dynamo/aiperf |
| `guidellm` | benchmarks.json, a report of one or several benchmarks | schemas/request_stats.py of vllm-project/guidellm |
| `litellm` | standard logging payloads, or spend logs: an array, or one a line | docs.litellm.ai/docs/proxy/logging_spec |

A log gives arrivals (`arrivals.recording`), lengths (`configuration.RequestLogFile`) and measurements (`service.load_logs`).
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import short_repr, shorten
from simnmt.base.files import MOST_TEXT_BYTES, is_standard, peek_standard_input, read_bounded
from simnmt.base.json_values import read_json_values
from simnmt.base.suggestions import format_list
from simnmt.workload.errors import RequestLogError

Tool = Literal["aiperf", "guidellm", "litellm"]
Entry = Mapping[str, Any]
Floats = NDArray[np.float64]

TOOL_NAMES: Mapping[Tool, str] = {"aiperf": "AIPerf", "guidellm": "GuideLLM", "litellm": "LiteLLM"}
KNOWN_FORMS = "give AIPerf's profile_export.jsonl, GuideLLM's benchmarks.json or LiteLLM's standard logging payloads"
_COPY_AGAIN = "the file is damaged or cut off: copy it again"
_HEAD_BYTES = 1 << 16
_HEADS = re.compile(rb'"(?:request_start_ns|benchmarks|startTime|standard_logging_object)"\s*:')
_MOST_UNIX_S = 1e11
_MOST_TOKENS = 1e9
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_OTHER_CALLS = re.compile("embedding|image|transcription|speech|rerank|moderation")


@dataclass(frozen=True, slots=True, eq=False)
class RequestLog:
    """Columns of single requests, in the order of their begin; shape (requests,)."""

    tool: Tool
    begin_s: Floats
    """Seconds from the first request."""
    latency_s: Floats
    """Seconds; NaN if no answer came."""
    status: NDArray[np.int64]
    """HTTP status; 0 if none is known of a failed request."""
    src_tokens: Floats
    """Tokens of the prompt; NaN if unknown."""
    tgt_tokens: Floats
    """Generated tokens; NaN if unknown."""
    sampled_from: int | None
    """Number of requests of which the file lists a sample; None if it lists all."""
    notes: tuple[str, ...]
    """What was skipped, and what is uncertain, a sentence each."""


class _Request(NamedTuple):
    begin_ns: int
    latency_s: float
    status: int
    src_tokens: float
    tgt_tokens: float


class _Fault(Exception):
    """A fault of an entry, whose path and line the caller knows."""

    def __init__(self, what: str, remedy: str = KNOWN_FORMS) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(what)


def starts_like_request_log(path: str | os.PathLike[str]) -> bool:
    """Return whether the start of a regular file or standard input, plain or gzip, has a key by which a log is known."""
    if not is_standard(path) and not Path(path).is_file():
        return False
    try:
        if is_standard(path):
            head = peek_standard_input()
        else:
            with Path(path).open("rb") as file:
                head = file.read(_HEAD_BYTES)
        if head.startswith(b"\x1f\x8b"):
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except (OSError, zlib.error):
        return False
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") and _HEADS.search(head) is not None


def read_request_log(path: str | os.PathLike[str], benchmark: int | None = None) -> RequestLog:
    """Read a log; of several benchmarks of GuideLLM, `benchmark` is the number of the one to read, from 1.

    An entry within which the file ends is skipped and counted. Raises `RequestLogError`, with line or JSON path, for a file of
    none of the tools, for values that no request has, and for several benchmarks of which none is chosen.
    """
    text = _read_text(path)
    requests: list[_Request] = []
    skipped: Counter[str] = Counter()
    sampled_from: int | None = None
    line: int | None = None
    try:
        whole, entries = _parse(text, path, skipped)
        if isinstance(whole, Mapping) and "benchmarks" in whole:
            tool: Tool = "guidellm"
            requests, sampled_from = _guidellm(whole, benchmark, skipped)
        else:
            line = entries[0][0] if entries else None
            tool, read = _reader(entries)
            if benchmark is not None:
                what = f"a log of {TOOL_NAMES[tool]}, which has no benchmarks"
                raise _Fault(what, "leave benchmark out")
            for line, place, entry in entries:  # noqa: B007 - the line is that of a fault
                try:
                    request = read(entry, skipped)
                except _Fault as fault:
                    raise _Fault(f"{place}{fault.what}", fault.remedy) from None
                if request is not None:
                    requests.append(request)
    except _Fault as fault:
        raise RequestLogError(fault.what, path=path, line=line, remedy=fault.remedy) from None
    if not requests:
        why = f": {_format_counts(skipped)}" * bool(skipped)
        raise RequestLogError(f"no requests of {TOOL_NAMES[tool]}{why}", path=path, remedy="give a log of at least one request")
    requests.sort(key=lambda request: request.begin_ns)
    first_ns = requests[0].begin_ns
    begin_s = np.array([request.begin_ns - first_ns for request in requests], np.float64) * 1e-9
    latency_s, src, tgt = (np.array([request[at] for request in requests], np.float64) for at in (1, 3, 4))
    status = np.array([request.status for request in requests], np.int64)
    notes = [f"{what}: {count:,}" for what, count in skipped.items()]
    if sampled_from is not None:
        notes.append(f"a sample of {len(requests):,} of {sampled_from:,} requests")
    return RequestLog(tool, begin_s, latency_s, status, src, tgt, sampled_from, tuple(notes))


def _format_counts(skipped: Counter[str]) -> str:
    return "; ".join(f"{what}: {count:,}" for what, count in skipped.items())


def _read_text(path: str | os.PathLike[str]) -> str:
    try:
        raw = read_bounded(path, MOST_TEXT_BYTES, pipes=True)
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MOST_TEXT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "broken gzip data"
        raise RequestLogError(f"cannot be read: {reason}", path=path, remedy="check the path and the file") from None
    if len(raw) > MOST_TEXT_BYTES:
        raise RequestLogError(f"more than {MOST_TEXT_BYTES:,} bytes", path=path, remedy="cut it into several files")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RequestLogError("no UTF-8 text", path=path, line=line, remedy=KNOWN_FORMS) from None


_Entries = list[tuple[int | None, str, Entry]]
"""(line, prefix of messages that names the place, entry) of each."""


def _parse(text: str, path: str | os.PathLike[str], skipped: Counter[str]) -> tuple[Any, _Entries]:
    """Return (the document if the file is a single one, else None; the entries)."""
    values, wrong = read_json_values(text)
    if wrong is not None and values and wrong.in_last_line and not text.endswith("\n"):
        skipped["entries skipped, since the file ends within them"] += 1
    elif wrong is not None:
        raise RequestLogError(wrong.what, path=path, line=wrong.line, column=wrong.column, remedy=_COPY_AGAIN)
    elif not values:
        raise RequestLogError("empty", path=path, remedy=KNOWN_FORMS)
    if len(values) == 1 and wrong is None:
        line, whole = values[0]
        if isinstance(whole, list):
            return None, [(None, f"entry {number}: ", _entry(entry, None, path)) for number, entry in enumerate(whole, 1)]
        return whole, [(line, "", _entry(whole, line, path))]
    return None, [(line, "", _entry(entry, line, path)) for line, entry in values]


def _entry(entry: object, line: int | None, path: str | os.PathLike[str]) -> Entry:
    if not isinstance(entry, Mapping):
        raise RequestLogError("an entry is no JSON object", path=path, line=line, remedy=KNOWN_FORMS)
    return entry


def _reader(entries: _Entries) -> tuple[Tool, Callable[[Entry, Counter[str]], _Request | None]]:
    """Return the tool by the keys of the first entry, and the reader of its entries."""
    first = entries[0][2] if entries else {}
    if "metadata" in first and "startTime" not in first:
        return "aiperf", _aiperf
    if "startTime" in first or "standard_logging_object" in first:
        return "litellm", _litellm
    keys = format_list((shorten(key) for key in first), ",") or "none"
    raise _Fault(f"no log of requests that is known, keys: {keys}")


def _value(entry: Entry, *keys: str) -> Any:
    """Return the value under a path of keys; None if there is none."""
    value: Any = entry
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _number(entry: Entry, *keys: str, most: float = math.inf) -> float:
    """Return a finite number from 0 to `most`, NaN if there is none. Raises `_Fault` with the path for anything else."""
    value = _value(entry, *keys)
    if value is None:
        return math.nan
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if 0 <= number <= most and number < 1e300:
        return float(number)
    raise _Fault(
        f"{'.'.join(keys)} is {short_repr(value)}, no number {'from 0' if math.isinf(most) else f'from 0 to {most:g}'}"
    )


def _tokens(entry: Entry, *keys: str) -> float:
    """Return a number of tokens, NaN for none and for 0, which stands for unknown where a request failed."""
    tokens = _number(entry, *keys, most=_MOST_TOKENS)
    if not math.isnan(tokens) and not tokens.is_integer():
        raise _Fault(f"{'.'.join(keys)} is {tokens:g}, no whole number")
    return tokens or math.nan


def _aiperf(record: Entry, skipped: Counter[str]) -> _Request | None:
    what = "not a record of AIPerf's profile_export.jsonl: "
    begin_ns, end_ns = (_value(record, "metadata", key) for key in ("request_start_ns", "request_end_ns"))
    if not (isinstance(begin_ns, int) and isinstance(end_ns, int) and 0 <= begin_ns <= end_ns < 1 << 63):
        raise _Fault(f"{what}metadata.request_start_ns is {short_repr(begin_ns)}, request_end_ns {short_repr(end_ns)}")
    if _value(record, "metadata", "benchmark_phase") == "warmup":
        skipped["requests of the warm-up skipped"] += 1
        return None
    try:
        src, tgt = (_tokens(record, "metrics", f"{side}_sequence_length", "value") for side in ("input", "output"))
        if record.get("error") is not None or _value(record, "metadata", "was_cancelled"):
            return _Request(begin_ns, math.nan, _status(_value(record, "error", "code")), src, tgt)
        if not isinstance(record.get("metrics"), Mapping):
            raise _Fault("metrics is missing")
        latency = _number(record, "metrics", "request_latency", "value")
        unit = _value(record, "metrics", "request_latency", "unit")
        if not math.isnan(latency) and (not isinstance(unit, str) or unit not in _SECONDS):
            raise _Fault(f"metrics.request_latency.unit is {short_repr(unit)}")
    except _Fault as fault:
        raise _Fault(f"{what}{fault.what}") from None
    # Nanoseconds of the epoch exceed the precision of a float: differences are taken of whole numbers.
    latency_s = (end_ns - begin_ns) * 1e-9 if math.isnan(latency) else latency * _SECONDS[unit]
    return _Request(begin_ns, latency_s, 200, src, tgt)


def _status(code: object) -> int:
    """Return the status of a failed request, given as a number or a text; 0 for one that is none or that of success."""
    digits = str(code)
    return int(digits) if re.fullmatch(r"[1345]\d\d", digits) else 0


def _litellm(entry: Entry, skipped: Counter[str]) -> _Request | None:
    payload = entry.get("standard_logging_object", entry)
    if not isinstance(payload, Mapping):
        raise _Fault("standard_logging_object is no JSON object")
    if _OTHER_CALLS.search(str(payload.get("call_type") or "")):
        skipped["calls skipped that generate no text"] += 1
        return None
    begin_s, end_s = _moment_s(payload, "startTime"), _moment_s(payload, "endTime")
    src, tgt = _tokens(payload, "prompt_tokens"), _tokens(payload, "completion_tokens")
    begin_ns = round(begin_s * 1e9)
    if payload.get("status", "success") == "failure":
        code = _value(payload, "error_information", "error_code")
        return _Request(begin_ns, math.nan, _status(code), src, tgt)
    if end_s < begin_s:
        raise _Fault("endTime is before startTime", "correct the entry or remove it")
    if payload.get("cache_hit") in (True, "True", "true"):
        skipped["answers from LiteLLM's cache, which reached no model"] += 1
    return _Request(begin_ns, end_s - begin_s, 200, src, tgt)


def _moment_s(payload: Entry, key: str) -> float:
    """Return a Unix time, given in seconds or as a date, in UTC unless it names a zone."""
    value = payload.get(key)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
            moment_s = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            raise _Fault(f"{key} is {short_repr(value)}, no date", "write 2026-01-31T12:00:00, or Unix seconds") from None
        return moment_s
    moment_s = _number(payload, key)
    if math.isnan(moment_s):
        raise _Fault(f"{key} is missing")
    if moment_s > _MOST_UNIX_S:
        raise _Fault(f"{key} is {moment_s:g}, which is no Unix time in seconds", "give seconds")
    return moment_s


_STATES: Mapping[str, int] = {"successful": 200, "errored": 0, "incomplete": 0}
"""Lists of a benchmark's requests, and the status of the requests in each."""


def _guidellm(report: Entry, benchmark: int | None, skipped: Counter[str]) -> tuple[list[_Request], int | None]:
    """Return (requests of one benchmark, the number of all requests if the report lists a sample)."""
    benchmarks = report["benchmarks"]
    if not isinstance(benchmarks, Sequence) or isinstance(benchmarks, str) or not benchmarks:
        raise _Fault("benchmarks holds no benchmark of GuideLLM")
    if benchmark is None and len(benchmarks) > 1:
        names = format_list((f"{number} {_strategy(run)}".strip() for number, run in enumerate(benchmarks, 1)), ",")
        what = f"benchmarks holds {len(benchmarks)} benchmarks: {names}"
        raise _Fault(what, f"choose one by its number, --benchmark 1 (in a scenario benchmark: 1), up to {len(benchmarks)}")
    index = 0 if benchmark is None else benchmark - 1
    if not 0 <= index < len(benchmarks):
        raise _Fault(f"no benchmark {benchmark} among {len(benchmarks)}", f"give a number from 1 to {len(benchmarks)}")
    run = benchmarks[index]
    groups = _value(run, "requests") if isinstance(run, Mapping) else None
    if not isinstance(groups, Mapping):
        raise _Fault(f"benchmarks[{index}].requests lists no requests", "run GuideLLM without --sample-requests")
    requests: list[_Request] = []
    for state, status in _STATES.items():
        for place, entry in _listed(groups, state, f"benchmarks[{index}].requests"):
            try:
                request = _guidellm_request(entry, status)
            except _Fault as fault:
                raise _Fault(f"{place}.{fault.what}", "correct the report or remove the request") from None
            if request is None:
                skipped["requests skipped that never began"] += 1
            else:
                requests.append(request)
    totals = _value(run, "metrics", "request_totals") or _value(run, "request_totals")
    counts = [_value(totals, state) for state in _STATES] if isinstance(totals, Mapping) else []
    total = sum(count for count in counts if isinstance(count, int))
    listed = len(requests) + skipped.total()
    return requests, total if total > listed else None


def _strategy(run: object) -> str:
    """Return the name of a benchmark's strategy, such as `constant`; empty if it has none."""
    if not isinstance(run, Mapping):
        return ""
    return shorten(_value(run, "config", "strategy", "type_") or _value(run, "args", "strategy", "type_"), 40)


def _listed(groups: Entry, state: str, place: str) -> Iterator[tuple[str, Entry]]:
    entries = groups.get(state)
    if entries is None:
        return
    if not isinstance(entries, list):
        raise _Fault(f"{place}.{state} is no list")
    for number, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise _Fault(f"{place}.{state}[{number}] is no JSON object")
        yield f"{place}.{state}[{number}]", entry


def _guidellm_request(entry: Entry, status: int) -> _Request | None:
    """Return a request in the form of GuideLLM 0.4 and later, or of 0.2 and 0.3; None if it never began."""
    begin_s = _first(entry, ("request_start_time",), ("start_time",), ("info", "timings", "request_start"))
    if math.isnan(begin_s):
        if status == 200:
            raise _Fault("request_start_time is missing")
        return None
    if begin_s > _MOST_UNIX_S:
        raise _Fault(f"request_start_time is {begin_s:g}, which is no Unix time in seconds")
    src, tgt = _tokens(entry, "prompt_tokens"), _tokens(entry, "output_tokens")
    if status != 200:
        return _Request(round(begin_s * 1e9), math.nan, status, src, tgt)
    latency_s = _number(entry, "request_latency")
    if math.isnan(latency_s):
        latency_s = _first(entry, ("request_end_time",), ("end_time",), ("info", "timings", "request_end")) - begin_s
        if not latency_s >= 0.0:
            raise _Fault("request_latency is missing")
    return _Request(round(begin_s * 1e9), latency_s, status, src, tgt)


def _first(entry: Entry, *paths: tuple[str, ...]) -> float:
    """Return the number under the first path that has one; NaN if none has."""
    numbers = (_number(entry, *path) for path in paths)
    return next((number for number in numbers if not math.isnan(number)), math.nan)
