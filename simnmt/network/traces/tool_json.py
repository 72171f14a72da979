"""Readers of the JSON of measuring tools: iperf3 and irtt. RIPE Atlas has a module of its own.

| tool | file | its description |
|---|---|---|
| iperf3 | `iperf3 -J`, also `--json-stream` | iperf_api.c of esnet/iperf |
| irtt | `irtt client -o FILE`, unpacked | man irtt-client(1) |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base.errors import short_repr, shorten
from simnmt.network.errors import TraceError
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.readings import Quantity, Readings

Document = Mapping[str, Any]
Placed = tuple[Callable[..., TraceError], Document]
"""A function that makes the error at a JSON object, from what is wrong and the remedy, and the object."""

_BLANKS = re.compile(r"\s*")
_COPY_AGAIN = "the file is damaged or cut off: copy or download it again"


def parse_json(path: Path, text: str) -> list[Placed]:
    """Return the objects of an array, of one object, or of several that follow each other, such as one a line.

    The last of several is left out if the file ends within it and the others are entries of a log (`is_log_entry`). Raises
    `TraceError` with line and column for what is no JSON.
    """

    def fault(name: str, line: int | None, what: str, remedy: str = "remove it, or correct it") -> TraceError:
        return TraceError(f"{name} {what}", path=path, line=line, remedy=remedy)

    decoder = json.JSONDecoder(object_pairs_hook=_with_both_sums if '"sum"' in text else None)
    documents: list[tuple[int, Any]] = []
    at, line = 0, 1
    try:
        while (start := _BLANKS.match(text, at).end()) < len(text):  # type: ignore[union-attr]
            line += text.count("\n", at, start)
            value, at = decoder.raw_decode(text, start)
            documents.append((line, value))
            line += text.count("\n", start, at)
    except json.JSONDecodeError as error:
        if "\n" in text[start:].rstrip() or not documents or not is_log_entry(documents[0][1]):
            what = f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}"
            raise TraceError(what, path=path, line=error.lineno, column=error.colno, remedy=_COPY_AGAIN) from None
        documents.append((error.lineno, {CUT: True}))
    except (RecursionError, ValueError):  # nested too deeply, or a number too long
        raise TraceError("no JSON that could hold results", path=path, line=line, remedy=_COPY_AGAIN) from None
    placed: list[Placed]
    if len(documents) == 1:
        whole = documents[0][1]
        results = whole if isinstance(whole, list) else [whole]
        placed = [(partial(fault, f"result {index}", None), result) for index, result in enumerate(results, 1)]
    else:
        placed = [(partial(fault, "the result", line), result) for line, result in documents]
    if not placed:
        raise TraceError("no results", path=path, remedy="give at least one round")
    for fault_at, result in placed:
        if not isinstance(result, Mapping):
            raise fault_at("is no JSON object")
    return placed


def _with_both_sums(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; older versions of iperf3 write `sum` twice for `--bidir`."""
    sums = [value for key, value in pairs if key == "sum"]
    return dict(pairs) if len(sums) != 2 else dict(pairs) | {"sum": sums[0], "sum_bidir_reverse": sums[1]}


CUT = "\0cut"
"""Key of the object that stands for an entry within which the file ends."""


def is_log_entry(document: object) -> bool:
    """Return whether an object is an entry that a tool writes while it measures, so that the last may be half written."""
    return isinstance(document, Mapping) and "event" in document


def number_at(fault: Callable[..., TraceError], document: Any, *keys: str | int, least: float = 0.0) -> float:
    """Return the finite number of at least `least` under a path of keys. Raises the error with the path otherwise."""
    value = document
    for depth, key in enumerate(keys):
        known = isinstance(value, Mapping) if isinstance(key, str) else isinstance(value, list) and key < len(value)
        if not known or (isinstance(key, str) and key not in value):
            raise fault(f"has no {json_path(keys[: depth + 1])}", _COPY_AGAIN)
        value = value[key]
    number = parse_number(value)
    if not (math.isfinite(number) and number >= least):
        raise fault(f"has {json_path(keys)} {short_repr(value)}, which is no number from {least:g}", "correct it or remove it")
    return number


def json_path(keys: Sequence[str | int]) -> str:
    """Return keys and positions as a path such as `intervals[3].sum`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")


def parse_number(value: object) -> float:
    """Return a number, or a text that is one; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _mapping(document: Document, key: str) -> Document:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def is_iperf3(document: Document) -> bool:
    """Return whether an object is the result of `iperf3 -J` or an event of `--json-stream`."""
    return ("intervals" in document and "start" in document) or ("event" in document and "data" in document)


def read_iperf3(path: Path, placed: Sequence[Placed], how: ReadOptions) -> list[Readings]:
    """Return the bandwidths of one run by direction, an interval each; downlink is from the server to the client.

    Raises `TraceError` for several runs, and with the message of iperf3 for a run without intervals.
    """
    fault, run, cut = _iperf3_run(path, placed)
    start = _mapping(run, "start")
    test, stamp = _mapping(start, "test_start"), _mapping(start, "timestamp")
    began_s = number_at(fault, stamp, "timesecs") if "timesecs" in stamp else 0.0
    client, reverse = "accepted_connection" not in start, parse_number(test.get("reverse")) > 0
    times: dict[Quantity, list[float]] = {}
    rates: dict[Quantity, list[float]] = {}
    sent: set[Quantity] = set()
    omitted = 0
    intervals = run.get("intervals")
    for index, interval in enumerate(intervals if isinstance(intervals, list) else ()):
        for key in ("sum", "sum_bidir_reverse"):
            part = interval.get(key) if isinstance(interval, Mapping) else None
            if not isinstance(part, Mapping):
                if key == "sum":
                    number_at(fault, run, "intervals", index, "sum", "bits_per_second")
                continue
            place: tuple[str | int, ...] = ("intervals", index, key)
            sender = part.get("sender", (reverse != client) is (key == "sum"))
            quantity: Quantity = "uplink" if bool(sender) is client else "downlink"
            rate = number_at(fault, run, *place, "bits_per_second")
            begin_s = number_at(fault, run, *place, "start")
            if part.get("omitted") is True:
                omitted += 1
                continue
            times.setdefault(quantity, []).append(began_s + begin_s)
            rates.setdefault(quantity, []).append(rate if rate > 0.0 else math.nan)
            if sender:
                sent.add(quantity)
    why = shorten(run.get("error"))
    if not rates:
        remedy = "give a run that sent something" if why else "run iperf3 -J with -i 1: -i 0 writes the mean of the run alone"
        raise fault(f"has no interval of iperf3{f': {why}' * bool(why)}", remedy)
    protocol = shorten(test.get("protocol")) or "TCP"
    host = shorten(_mapping(start, "connecting_to" if client else "accepted_connection").get("host")) or "an unnamed host"
    source = f"iperf3, {protocol}, {'to' if client else 'from'} {host}"
    repairs = [f"intervals omitted by iperf3 -O: {omitted:,}"] * (omitted > 0) + _cut_repairs(cut)
    repairs += [f"copies of the run left out: {len(placed) - 1:,}"] * ("event" not in placed[0][1] and len(placed) > 1)
    ended = [f"iperf3 ended with an error: {why}"] * bool(why)
    return [
        Readings(
            quantity,
            np.array(times[quantity]),
            np.array(values),
            "measured",
            source,
            tuple(repairs + _zeros(values)),
            tuple(ended + _sent_remark(protocol, quantity in sent)),
            unit="bps",
        )
        for quantity, values in rates.items()
    ]


def _iperf3_run(path: Path, placed: Sequence[Placed]) -> tuple[Callable[..., TraceError], Document, int]:
    """Return (function that makes an error, the run as `iperf3 -J` writes it, number of entries cut off)."""
    fault, first = placed[0]
    if "event" not in first:
        if others := sum(document != first for _, document in placed):
            what = f"{1 + others} different runs of iperf3"
            raise TraceError(what, path=path, remedy="give each run a file of its own: --logfile appends to one that exists")
        return fault, first, 0
    run: dict[str, Any] = {"intervals": []}
    cut = 0
    for place, event in placed:
        kind, data = event.get("event"), event.get("data")
        if CUT in event:
            cut += 1
        elif kind == "start" and "start" in run:
            raise place("begins a second run of iperf3", "give each run a file of its own")
        elif kind == "interval":
            run["intervals"].append(data)
        elif isinstance(kind, str):
            run[kind] = data
    return partial(_stream_fault, path), run, cut


def _stream_fault(path: Path, what: str, remedy: str) -> TraceError:
    return TraceError(f"the stream {what}", path=path, remedy=remedy)


def _zeros(values: Sequence[float]) -> list[str]:
    zeros = sum(map(math.isnan, values))
    return [f"zero values, so lost: {zeros:,}"] * (zeros > 0)


def _sent_remark(protocol: str, sent: bool) -> list[str]:
    if not sent:
        return []
    if protocol == "UDP":
        return ["counted by the sender of UDP, lost datagrams included; the JSON of the receiver holds the rate that arrived"]
    return ["counted by the sender: the first interval also fills the buffers"]


def _cut_repairs(cut: int) -> list[str]:
    return [f"entries skipped, since the file ends within them: {cut:,}"] * (cut > 0)


def is_irtt(document: Document) -> bool:
    """Return whether an object is the result of `irtt client -o`."""
    return "round_trips" in document


def read_irtt(path: Path, placed: Sequence[Placed], how: ReadOptions) -> list[Readings]:
    """Return the RTTs of one run of irtt, one per packet at the time at which it was sent; lost packets are lost."""
    fault, run = placed[0]
    if len(placed) > 1:
        raise TraceError(f"{len(placed)} runs of irtt", path=path, remedy="give each run a file of its own")
    trips = run.get("round_trips")
    if not isinstance(trips, list) or not trips:
        raise fault("has no round_trips of irtt", "run irtt client -o FILE, without -n")
    times_ns, rtts_s = [], []
    clock = "wall"
    for index, trip in enumerate(trips):
        sent: tuple[str | int, ...] = ("round_trips", index, "timestamps", "client", "send")
        if index == 0 and isinstance(trip, Mapping):
            stamps = _mapping(_mapping(_mapping(trip, "timestamps"), "client"), "send")
            clock = "wall" if "wall" in stamps else "monotonic"
        times_ns.append(number_at(fault, run, *sent, clock))
        # irtt writes texts: false, true, true_up (lost on the way there) and true_down; its manual shows false alone.
        lost = trip.get("lost") not in (False, "false")
        rtts_s.append(math.nan if lost else number_at(fault, run, "round_trips", index, "delay", "rtt") * 1e-9)
    config = _mapping(run, "config")
    host = shorten(_mapping(config, "supplied").get("remote_address")) or shorten(config.get("remote_address"))
    values = [rtt_s if rtt_s > 0.0 else math.nan for rtt_s in rtts_s]
    source = f"irtt to {host or 'an unnamed host'}"
    return [Readings("rtt", np.array(times_ns) * 1e-9, np.array(values), "measured", source, unit="ns")]
