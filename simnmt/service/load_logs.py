"""Logs of load tools as measurements: hey, locust, and the logs of `workload.request_logs`, recognised by their content.

| tool | file | formats |
|---|---|---|
| hey | `hey -o csv` | https://pkg.go.dev/github.com/rakyll/hey/requester |
| locust | `--csv PREFIX`: PREFIX_stats.csv | https://docs.locust.io/en/stable/retrieving-stats.html |
| locust | `--json` | https://github.com/locustio/locust/pull/2269 |

hey, AIPerf, GuideLLM and LiteLLM list requests; locust only counts them, in milliseconds of two significant digits, failed ones
included.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.base.csv_table import parse_number
from simnmt.base.errors import InputError, short_repr
from simnmt.base.files import MOST_TEXT_BYTES, read_bounded
from simnmt.base.text_tables import format_pairs
from simnmt.workload.errors import RequestLogError
from simnmt.workload.request_logs import KNOWN_FORMS, read_request_log, starts_like_request_log

Floats = NDArray[np.float64]

_FORMS = f"{KNOWN_FORMS}, hey -o csv, or locust's PREFIX_stats.csv or --json output"


class LoadLogError(InputError):
    """A log of a load tool that cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadRequests:
    """Columns of single requests, shape (requests,)."""

    begin_s: Floats
    """Seconds from the first request."""
    latency_s: Floats
    """Seconds; NaN if no answer came."""
    status: NDArray[np.int64]
    """HTTP status; 0 if none came."""

    @property
    def done(self) -> NDArray[np.bool_]:
        """A mask of the requests that were answered with a status of success."""
        done: NDArray[np.bool_] = (self.status >= 200) & (self.status < 300) & np.isfinite(self.latency_s)
        return done


class LoadSummary(NamedTuple):
    """Measurement of one load test; None for what the log does not tell."""

    tool: str
    requests: int
    failures: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    throughput_rps: float | None
    """Successful requests a second."""
    failures_in_latency: bool
    """True if the latencies include those of failed requests."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadLog:
    """A read log: its summary, and its requests if the tool lists them."""

    summary: LoadSummary
    requests: LoadRequests | None
    notes: tuple[str, ...] = ()
    """What was skipped, and what is uncertain, a sentence each."""


def read_load_log(path: str | os.PathLike[str], benchmark: int | None = None) -> LoadLog:
    """Read a log of hey, locust, AIPerf, GuideLLM or LiteLLM; `benchmark` is the number of one, of several of GuideLLM.

    Raises `LoadLogError` with file and line, or JSON path, for anything else.
    """
    try:
        if starts_like_request_log(path):
            return _request_log(path, benchmark)
        text = read_bounded(path, MOST_TEXT_BYTES).decode("utf-8-sig")
        if text.lstrip()[:1] == "{":
            return _request_log(path, benchmark)
        if benchmark is not None:
            raise _Fault("benchmark is for a report of GuideLLM", remedy="leave --benchmark out")
        return _locust_json(text) if text.lstrip()[:1] == "[" else _table(text)
    except OSError as error:
        raise LoadLogError(f"cannot be read: {error.strerror}", path=path, remedy=_FORMS) from None
    except UnicodeDecodeError:
        raise LoadLogError("no UTF-8 text", path=path, remedy=_FORMS) from None
    except RequestLogError as error:
        remedy = _FORMS if error.remedy == KNOWN_FORMS else error.remedy
        raise LoadLogError(error.what, path=path, line=error.line, column=error.column, remedy=remedy) from None
    except _Fault as fault:
        raise LoadLogError(fault.what, path=path, line=fault.line, remedy=fault.remedy) from None


class _Fault(Exception):
    """A fault at a line of a log, whose path the caller knows."""

    def __init__(self, what: str, line: int | None = None, remedy: str = _FORMS) -> None:
        self.what, self.line, self.remedy = what, line, remedy
        super().__init__(what)


def summarise(tool: str, requests: LoadRequests) -> LoadSummary:
    """Return the summary of single requests; latencies are those of successful ones, which end within the throughput's time."""
    done = requests.done
    latency_s, begin_s = requests.latency_s[done], requests.begin_s
    many = int(done.sum())
    p50_s, p95_s, p99_s = np.quantile(latency_s, (0.5, 0.95, 0.99)).tolist() if many else (None, None, None)
    span_s = float((begin_s[done] + latency_s).max() - begin_s.min()) if many else 0.0
    throughput = many / span_s if span_s > 0.0 else None
    mean_s = float(latency_s.mean()) if many else None
    return LoadSummary(tool, int(begin_s.size), int(begin_s.size) - many, mean_s, p50_s, p95_s, p99_s, throughput, False)


def format_load_log(log: LoadLog) -> str:
    """Return the summary of a log as aligned lines, and its notes below."""
    return "\n".join([format_load_summary(log.summary), *(f"  note: {note}" for note in log.notes)])


def format_load_summary(summary: LoadSummary) -> str:
    """Return a summary as aligned lines."""
    quantities = {"mean": summary.mean_s, "p50": summary.p50_s, "p95": summary.p95_s, "p99": summary.p99_s}
    pairs = [("tool", summary.tool), ("requests", f"{summary.requests:,} requests, {summary.failures:,} failed")]
    pairs += [(name, "not known" if seconds is None else f"{1e3 * seconds:,.1f} ms") for name, seconds in quantities.items()]
    if summary.throughput_rps is not None:
        pairs.append(("throughput", f"{summary.throughput_rps:,.2f} successful requests a second"))
    if summary.failures_in_latency and summary.failures:
        pairs.append(("latencies", "of all requests, failed ones included"))
    return format_pairs(pairs)


def load_document(log: LoadLog) -> dict[str, Any]:
    """Return a log as a JSON document in SI units; `requests` is null if the tool lists none."""
    requests = log.requests
    columns = requests and {
        "begin_s": requests.begin_s.tolist(),
        "latency_s": [None if math.isnan(latency_s) else latency_s for latency_s in requests.latency_s.tolist()],
        "status": requests.status.tolist(),
    }
    return {"summary": log.summary._asdict(), "requests": columns, "notes": list(log.notes)}


def _requests(tool: str, begin_s: Sequence[float], latency_s: Sequence[float], status: Sequence[int]) -> LoadLog:
    begin = np.array(begin_s, np.float64)
    order = np.argsort(begin, kind="stable")
    begin = begin[order] - (begin.min() if begin.size else 0.0)
    requests = LoadRequests(begin, np.array(latency_s, np.float64)[order], np.array(status, np.int64)[order])
    return LoadLog(summarise(tool, requests), requests)


def _table(text: str) -> LoadLog:
    rows = list(csv.reader(text.splitlines()))
    names = [name.strip() for name in rows[0]] if rows else []
    readers: dict[tuple[str, ...], Callable[[list[dict[str, str]]], LoadLog]] = {
        ("response-time", "status-code", "offset"): _hey,
        ("Name", "Request Count", "Failure Count", "Average Response Time"): _locust_csv,
    }
    for columns, reader in readers.items():
        if set(columns) <= set(names):
            table = list[dict[str, str]]()
            for line, cells in enumerate(rows[1:], 2):
                if len(cells) == len(names):
                    table.append(dict(zip(names, cells, strict=True), line=str(line)))
                elif cells:
                    raise _Fault(f"{len(cells)} cells, but the first row names {len(names)} columns", line)
            return reader(table)
    raise _Fault("not a log of a load tool that is known", 1)


def _number(row: Mapping[str, str], name: str) -> float:
    value = parse_number(row[name])
    if value is None or not (math.isfinite(value) and value >= 0.0):
        raise _Fault(f"{name}: {short_repr(row[name])} is not a number from 0", int(row["line"]))
    return value


def _hey(rows: list[dict[str, str]]) -> LoadLog:
    """Read the rows of `hey -o csv`, in seconds; requests without an answer are missing there."""
    columns = [[_number(row, name) for row in rows] for name in ("offset", "response-time", "status-code")]
    return _requests("hey", columns[0], columns[1], [int(status) for status in columns[2]])


def _locust_csv(rows: list[dict[str, str]]) -> LoadLog:
    """Read the row `Aggregated` of locust's statistics, in milliseconds."""
    total = next((row for row in rows if row["Name"] == "Aggregated"), None)
    if total is None:
        raise _Fault("no row Aggregated")
    requests, failures = (int(_number(total, name)) for name in ("Request Count", "Failure Count"))

    def seconds(name: str) -> float | None:
        return _number(total, name) / 1e3 if requests and total.get(name, "N/A") != "N/A" else None

    rates = [_number(total, name) if name in total else None for name in ("Requests/s", "Failures/s")]
    throughput = rates[0] - rates[1] if rates[0] is not None and rates[1] is not None else None
    p50_s, p95_s, p99_s = (seconds(name) for name in ("50%", "95%", "99%"))
    mean_s = seconds("Average Response Time")
    return LoadLog(LoadSummary("locust", requests, failures, mean_s, p50_s, p95_s, p99_s, throughput, True), None)


def _locust_json(text: str) -> LoadLog:
    """Read the list of statistics that `locust --json` prints: counts of rounded milliseconds."""
    try:
        entries = json.loads(text)
        counts: dict[float, int] = {}
        for entry in entries:
            for milliseconds, many in entry["response_times"].items():
                counts[float(milliseconds)] = counts.get(float(milliseconds), 0) + int(many)
        requests, failures = (sum(int(entry[key]) for entry in entries) for key in ("num_requests", "num_failures"))
        total_s = sum(float(entry["total_response_time"]) for entry in entries) / 1e3
        begin_s = min((float(entry["start_time"]) for entry in entries), default=0.0)
        end_s = max((float(entry["last_request_timestamp"] or 0.0) for entry in entries), default=0.0)
    except json.JSONDecodeError as error:
        raise _Fault(f"no JSON: {error.msg}", error.lineno) from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        raise _Fault(f"not the statistics of locust --json: {short_repr(error)}") from None
    values = np.array(sorted(counts))
    ranks = np.cumsum([counts[value] for value in values.tolist()])
    timed = int(ranks[-1]) if ranks.size else 0
    p50_s, p95_s, p99_s = (
        float(values[np.searchsorted(ranks, math.ceil(share * timed))]) / 1e3 if timed else None for share in (0.5, 0.95, 0.99)
    )
    throughput = (requests - failures) / (end_s - begin_s) if end_s > begin_s else None
    mean_s = total_s / timed if timed else None
    return LoadLog(LoadSummary("locust", requests, failures, mean_s, p50_s, p95_s, p99_s, throughput, True), None)


def _request_log(path: str | os.PathLike[str], benchmark: int | None) -> LoadLog:
    log = read_request_log(path, benchmark)
    requests = LoadRequests(log.begin_s, log.latency_s, log.status)
    return LoadLog(summarise(log.tool, requests), requests, log.notes)
