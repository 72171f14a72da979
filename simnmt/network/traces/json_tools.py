"""Readers of the JSON of measuring tools.

| tool | file | its description |
|---|---|---|
| iperf3 | `iperf3 -J`, also `--json-stream` | iperf_api.c of esnet/iperf |
| irtt | `irtt client -o FILE`, unpacked | man irtt-client(1) |
| RIPE Atlas | results of ping or traceroute of one probe | atlas.ripe.net/docs/apis/measurement-result-format |
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base.arrays import Floats
from simnmt.base.errors import short_repr, shorten
from simnmt.base.suggestions import format_list
from simnmt.network.series import TraceError
from simnmt.network.traces.trace import Quantity, ReadOptions, Trace, mend

_JSON = re.compile(r"\s*(?:\{|\[(?! *\d+(?:\.\d+)?\] *\S))")  # lines of ping -D and iperf3 begin with a bracket too
_BLANKS = re.compile(r"\s*")
_COPY_AGAIN = "the file is damaged or cut off: copy or download it again"


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object of a file, and its place."""

    path: Path
    name: str
    line: int | None
    content: Mapping[str, Any]

    def fault(self, what: str, remedy: str = "remove it, or correct it") -> TraceError:
        """Return an error about the object."""
        return TraceError(f"{self.name} {what}", path=self.path, line=self.line, remedy=remedy)

    def rows(self, key: str) -> list[Mapping[str, Any]]:
        """Return the objects of the list under a key. Raises `TraceError` for anything else, an empty list included."""
        rows = self.content.get(key)
        if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
            raise self.fault(f"has no objects in {key}", _COPY_AGAIN)
        return rows

    def numbers(self, key: str, rows: Sequence[Mapping[str, Any]], path: str) -> Floats:
        """Return the number under a path such as `delay.rtt` of each row. Raises `TraceError` for anything but 0 or more."""
        numbers = np.array([as_number(dig(row, path)) for row in rows], np.float64)
        is_good = (numbers >= 0.0) & np.isfinite(numbers)
        if not is_good.all():
            row = int(np.argmin(is_good))
            what = f"{key}[{row}].{path} is {short_repr(dig(rows[row], path))}, which is no number from 0"
            raise self.fault(f"has a fault: {what}", "correct it, or copy the file again if it is damaged")
        return numbers


def dig(value: Any, path: str) -> Any:
    """Return what lies under a path of keys such as `timestamps.client.send`; None if nothing does."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def as_number(value: object) -> float:
    """Return a number, or a text that is one, as old probes write it; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


class Source:
    """The text of a file, and its JSON objects, if it is JSON: an array, a single object, or several that follow each other.

    Raises `TraceError` with line and column for what begins like JSON and is none.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self.is_json = _JSON.match(text) is not None
        self.documents: list[Document] = []
        self.cut_remarks: list[str] = []
        """A remark if the file ends within an object that follows others on its own line, as of a tool that was stopped."""
        if not self.is_json:
            return
        parts: list[tuple[int | None, Any]] = [*self._parts()]
        if len(parts) == 1 and isinstance(parts[0][1], list):
            parts = [(None, result) for result in parts[0][1]]
        self.documents = [Document(path, f"result {number}", *part) for number, part in enumerate(parts, 1)]
        if not self.documents:
            raise TraceError("no results", path=path, remedy="give at least one round")
        for document in self.documents:
            if not isinstance(document.content, Mapping):
                raise document.fault("is no JSON object")

    @property
    def keys(self) -> set[str]:
        """The keys of the first JSON object; empty for another text."""
        return set(self.documents[0].content) if self.documents else set()

    def _parts(self) -> list[tuple[int, Any]]:
        """Return the JSON values, each with the line on which it begins."""
        decoder = json.JSONDecoder(object_pairs_hook=_with_both_sums if '"sum"' in self.text else None)
        parts: list[tuple[int, Any]] = []
        at, line = 0, 1
        try:
            while (start := _BLANKS.match(self.text, at).end()) < len(self.text):  # type: ignore[union-attr]
                line += self.text.count("\n", at, start)
                value, at = decoder.raw_decode(self.text, start)
                parts.append((line, value))
                line += self.text.count("\n", start, at)
        except json.JSONDecodeError as error:
            if not parts or "\n" in self.text[start:].rstrip():
                what = f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}"
                raise TraceError(what, path=self.path, line=error.lineno, column=error.colno, remedy=_COPY_AGAIN) from None
            self.cut_remarks = ["entries skipped, since the file ends within them: 1"]
        except (RecursionError, ValueError):  # nested too deeply, or a number too long
            raise TraceError("no JSON that could hold results", path=self.path, line=line, remedy=_COPY_AGAIN) from None
        return parts


def _with_both_sums(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; older versions of iperf3 write `sum` twice for `--bidir`."""
    sums = [value for key, value in pairs if key == "sum"]
    return dict(pairs) if len(sums) != 2 else dict(pairs) | {"sum": sums[0], "sum_bidir_reverse": sums[1]}


def read_iperf3(source: Source, options: ReadOptions) -> list[Trace]:
    """Return the bandwidths of one run by direction, an interval each; downlink is from the server to the client.

    Raises `TraceError` for several runs, and with the message of iperf3 for a run without intervals.
    """
    run, *others = source.documents
    remarks = list(source.cut_remarks)
    if "event" in run.content:
        events = [(event.content.get("event"), event.content.get("data")) for event in source.documents]
        if sum(kind == "start" for kind, _ in events) > 1:
            raise TraceError("several runs of iperf3", path=source.path, remedy="give each run a file of its own")
        intervals = [data for kind, data in events if kind == "interval"]
        whole = {kind: data for kind, data in events if isinstance(kind, str)} | {"intervals": intervals}
        run = Document(source.path, "the stream", None, whole)
    elif different := sum(other.content != run.content for other in others):
        remedy = "give each run a file of its own: --logfile appends to one that exists"
        raise TraceError(f"{1 + different} different runs of iperf3", path=source.path, remedy=remedy)
    elif others:
        remarks.append(f"copies of the run left out: {len(others):,}")
    error = shorten(run.content.get("error"))
    if not run.content.get("intervals"):
        remedy = "give a run that sent something" if error else "run iperf3 -J with -i 1: -i 0 writes the mean of the run alone"
        raise run.fault(f"has no interval of iperf3{f': {error}' if error else ''}", remedy)
    if error:
        remarks.append(f"iperf3 ended with an error: {error}")
    start = run.content.get("start")
    is_client = dig(start, "accepted_connection") is None
    is_reverse = as_number(dig(start, "test_start.reverse")) > 0
    protocol = shorten(dig(start, "test_start.protocol")) or "TCP"
    host = shorten(dig(start, "connecting_to.host" if is_client else "accepted_connection.host")) or "an unnamed host"
    traces = []
    for key in ("sum", "sum_bidir_reverse"):
        parts = [interval for interval in run.rows("intervals") if key == "sum" or key in interval]
        if not parts:
            continue
        is_kept = np.array([dig(part, f"{key}.omitted") is not True for part in parts])
        began_s = as_number(dig(start, "timestamp.timesecs"))
        time_s = run.numbers("intervals", parts, f"{key}.start") + (began_s if math.isfinite(began_s) else 0.0)
        rate_bps = run.numbers("intervals", parts, f"{key}.bits_per_second")
        # Before 3.7, iperf3 did not write who sent.
        is_sent = bool(parts[0][key].get("sender", (is_reverse != is_client) is (key == "sum")))
        notes = list(remarks)
        if not is_kept.all():
            notes.append(f"intervals omitted by iperf3 -O: {int((~is_kept).sum()):,}")
        if is_sent:
            what = "lost datagrams are included" if protocol == "UDP" else "the first interval also fills the buffers"
            notes.append(f"counted by the sender: {what}")
        end = f"end.{key.replace('sum', 'sum_sent' if is_sent else 'sum_received')}.bits_per_second"
        whole_bps, count = as_number(dig(run.content, end)), is_kept.sum()
        if abs(rate_bps[is_kept].sum() - count * whole_bps) > 0.1 * count * whole_bps:
            notes.append(f"the report ends with a rate of {whole_bps / 1e6:.4g} Mbit/s, unlike the mean of its intervals")
        quantity: Quantity = "uplink" if is_sent is is_client else "downlink"
        origin = f"iperf3, {protocol}, {'to' if is_client else 'from'} {host}"
        traces.append(mend(quantity, time_s[is_kept], rate_bps[is_kept], "measured", origin, notes, path=source.path))
    return traces


def read_irtt(source: Source, options: ReadOptions) -> list[Trace]:
    """Return the RTTs of one run of irtt, one per packet at the time at which it was sent; lost packets are lost."""
    run, *others = source.documents
    if others:
        raise TraceError(f"{1 + len(others)} runs of irtt", path=source.path, remedy="give each run a file of its own")
    trips = run.rows("round_trips")
    clock = "monotonic" if dig(trips[0], "timestamps.client.send.wall") is None else "wall"
    time_s = 1e-9 * run.numbers("round_trips", trips, f"timestamps.client.send.{clock}")
    # irtt writes texts: false, true, true_up (lost on the way there) and true_down; its manual shows false alone.
    is_lost = np.array([trip.get("lost") not in (False, "false") for trip in trips])
    answered = [{"delay": {"rtt": 0.0}} if lost else trip for trip, lost in zip(trips, is_lost, strict=True)]
    rtt_s = np.where(is_lost, math.nan, 1e-9 * run.numbers("round_trips", answered, "delay.rtt"))
    remarks = []
    for what, count in (("sent", len(trips)), ("received", int((~is_lost).sum()))):
        stated = as_number(dig(run.content, f"stats.packets_{what}"))
        if abs(stated - count) > 0:
            remarks.append(f"packets {what} by the statistics of irtt: {stated:,.0f}, in the file: {count:,}")
    config = run.content.get("config")
    host = shorten(dig(config, "supplied.remote_address")) or shorten(dig(config, "remote_address")) or "an unnamed host"
    return [mend("rtt", time_s, rtt_s, "measured", f"irtt to {host}", remarks, path=source.path)]


RIPE_KEYS = frozenset(("type", "prb_id", "msm_id", "msm_name", "paris_id", "dst_addr", "fw", "sent", "avg", "lts", "rcvd"))
"""Keys of which a result of RIPE Atlas has at least one."""


def read_ripe_atlas(source: Source, options: ReadOptions) -> list[Trace]:
    """Return the RTTs of the results of one probe and one measurement: one value per round.

    The forms are those of firmware 0 to 5080, of which 0 and 1 give only the summary of a ping, as texts or numbers. Raises
    `TraceError` for several probes of which `options` chooses none, and for several measurements.
    """
    documents = _chosen(source, options.probe)
    kinds = Counter(map(_type_of, documents))
    if len(kinds) > 1:
        what = f"results of {len(kinds)} kinds: {_format_counts(kinds)}"
        raise TraceError(what, path=source.path, remedy="keep those of one kind in the file")
    (kind,) = kinds
    counts: Counter[str] = Counter()
    times_s, rtts_s = [], []
    for document in documents:
        result = document.content
        times_s.append(as_number(result.get("timestamp")))
        if not 0.0 < times_s[-1] < 1e11:
            raise document.fault(f"has the timestamp {short_repr(result.get('timestamp'))}, which is no Unix time")
        rtts_ms = _ping_ms(document, options.reply, counts) if kind == "ping" else _traceroute_ms(document, counts)
        value_ms = math.nan if not rtts_ms else min(rtts_ms) if options.reply == "min" else sum(rtts_ms) / len(rtts_ms)
        rtts_s.append(value_ms / 1e3)
        if "error" in result:
            counts[_describe_error(result)] += 1
    remarks = [f"{what}: {count:,}" for what, count in counts.items()] + source.cut_remarks
    addresses = Counter(address for document in documents if (address := _destination(document)))
    if len(addresses) > 1:
        remarks.append(f"{len(addresses)} destination addresses: {_format_counts(addresses)}")
    goal = shorten(result.get("dst_name")) or shorten(result.get("name")) or next(iter(addresses), "an unnamed destination")
    identity = f"probe {_identity(result.get('prb_id'))}, measurement {_identity(result.get('msm_id'))}"
    value = "least" if options.reply == "min" else "mean"
    origin = f"RIPE Atlas {identity}, {kind} to {goal}; the {value} of each round's replies"
    return [mend("rtt", np.array(times_s), np.array(rtts_s), "measured", origin, remarks, path=source.path)]


def _chosen(source: Source, probe: int | None) -> Sequence[Document]:
    """Return the results of the one probe and the one measurement that are meant."""
    documents = [document for document in source.documents if probe is None or document.content.get("prb_id") == probe]
    remedies = {"probe": ("prb_id", "choose one by --probe"), "measurement": ("msm_id", "give each a file of its own")}
    for noun, (key, remedy) in remedies.items():
        counts = Counter(_identity(document.content.get(key)) for document in documents or source.documents)
        if not documents or len(counts) > 1:
            what = f"results of {len(counts)} {noun}s" if documents else f"no probe {probe} among"
            raise TraceError(f"{what}: {_format_counts(counts)}", path=source.path, remedy=remedy)
    return documents


def _type_of(document: Document) -> str:
    # Firmware 1 names no type.
    kind = document.content.get("type", "traceroute" if "paris_id" in document.content else "ping")
    if kind not in ("ping", "traceroute") or not isinstance(document.content.get("result", []), (list, type(None))):
        raise document.fault(f"is of type {short_repr(kind)}, or of an unknown form", "give results of ping or traceroute")
    return str(kind)


def _ping_ms(document: Document, reply: str, counts: Counter[str]) -> list[float]:
    """Return the RTTs of the replies that count, or of the summary, which is all that firmware 0 and 1 give."""
    if document.content.get("result"):
        return _valid_ms(document.rows("result"), counts)
    summary_ms = as_number(document.content.get("min" if reply == "min" else "avg"))
    return [summary_ms] if 0.0 < summary_ms < math.inf else []


def _traceroute_ms(document: Document, counts: Counter[str]) -> list[float]:
    """Return the RTTs of the replies of the last hop at which the destination itself answered."""
    destination = _address(_destination(document))
    rtts_ms: list[float] = []
    for hop in document.rows("result") if document.content.get("result") else []:
        parts = hop.get("result")
        parts = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
        counts.update(_describe_error(part) for part in (hop, *parts) if "error" in part and "from" not in part)
        answers = [part for part in parts if destination is not None and _address(str(part.get("from"))) == destination]
        rtts_ms = _valid_ms(answers, counts) or rtts_ms
    if not rtts_ms:
        counts["rounds in which the destination did not answer, so lost"] += 1
    return rtts_ms


def _valid_ms(replies: Iterable[Mapping[str, Any]], counts: Counter[str]) -> list[float]:
    """Return the RTTs of valid replies, without timeouts, errors, duplicates and late ones, which are counted."""
    rtts_ms = []
    for reply in replies:
        rtt_ms = as_number(reply.get("rtt"))
        if "error" in reply:
            counts[_describe_error(reply)] += 1
        elif reply.get("dup"):
            counts["duplicate replies left out"] += 1
        elif "late" in reply:
            counts["late replies left out"] += 1
        elif 0.0 < rtt_ms < math.inf:
            rtts_ms.append(rtt_ms)
        elif "rtt" in reply:
            counts["replies with an impossible RTT left out"] += 1
    return rtts_ms


def _describe_error(part: Mapping[str, Any]) -> str:
    return f"errors ({shorten(part['error']) or short_repr(part['error'])})"


def _destination(document: Document) -> str:
    return shorten(document.content.get("dst_addr", document.content.get("addr")))


@lru_cache(maxsize=4096)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    # Every round names the same few routers; parsing the addresses each time took most of the reading time.
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _identity(value: object) -> str:
    return shorten(value) if isinstance(value, str) else short_repr(value)


def _format_counts(counts: Counter[str]) -> str:
    return format_list((f"{name} ({count:,})" for name, count in counts.most_common()), ",")
