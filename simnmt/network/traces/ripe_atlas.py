"""Reader of RIPE Atlas results of one probe and one measurement: an array, one object per line, or a single object.

A result of ping or traceroute becomes one RTT. The forms are those of firmware 0 to 5080 in RIPE NCC's description of
measurement results (atlas.ripe.net/docs/apis/measurement-result-format): firmware 0 and 1 give only the summary of a ping, as
texts or numbers, and a traceroute as the text of the command; later firmware gives every reply.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base.errors import short_repr, shorten
from simnmt.base.suggestions import format_list
from simnmt.network.errors import TraceError
from simnmt.network.trace_options import ReadOptions, Reply
from simnmt.network.traces.readings import Readings
from simnmt.network.traces.tool_json import Placed, parse_number

Result = Mapping[str, Any]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

KINDS = ("ping", "traceroute")
ATLAS_TYPES = (*KINDS, "dns", "sslcert", "http", "ntp", "wifi", "connection")
"""Types of measurements; only `KINDS` are read."""
RESULT_KEYS = frozenset(("prb_id", "msm_id", "msm_name", "paris_id", "dst_addr", "fw", "sent", "avg", "lts", "rcvd"))
"""Keys of which a result has at least one, unless it states its type."""


class UnknownFormError(Exception):
    """A result of no known form; the text names its fault."""

    def __init__(self, what: str, remedy: str = "remove it, or correct it") -> None:
        super().__init__(what)
        self.remedy = remedy


def kind_of(result: Result) -> str:
    """Return `ping` or `traceroute`. Raises `UnknownFormError` for anything else."""
    stated_type = result.get("type")
    if stated_type in KINDS:
        return str(stated_type)
    if stated_type is not None:
        raise UnknownFormError(f"is of type {short_repr(stated_type)}", "give results of ping or traceroute")
    # Firmware 1 names no type.
    if isinstance(result.get("result"), str) or "paris_id" in result:
        return "traceroute"
    if "sent" in result or "avg" in result:
        return "ping"
    raise UnknownFormError("is no ping and no traceroute of RIPE Atlas")


def round_ms(result: Result, reply: Reply, oddities: Counter[str]) -> float:
    """Return the RTT of a round in ms, NaN if the round was lost; `oddities` counts the replies that were left out.

    In a traceroute, the replies of the last hop at which the destination itself answered count. Raises `UnknownFormError`.
    """
    counted = _ping_ms(result, reply, oddities) if kind_of(result) == "ping" else _traceroute_ms(result, oddities)
    if not counted:
        return math.nan
    return {"min": min(counted), "mean": sum(counted) / len(counted), "first": counted[0]}[reply]


def _ping_ms(result: Result, reply: Reply, oddities: Counter[str]) -> list[float]:
    replies = result.get("result")
    if isinstance(replies, list) and replies:
        return _counted(replies, oddities)
    if replies not in (None, []):
        raise UnknownFormError("has a `result` that is no list of replies")
    if "error" in result:
        oddities[_error(result)] += 1
        return []
    if reply == "first" and parse_number(result.get("rcvd")) > 0:
        raise UnknownFormError("gives no single replies, as firmware 0 and 1 do not", "take --reply min or mean")
    summary_ms = parse_number(result.get("min" if reply == "min" else "avg"))
    if summary_ms > 0.0:
        return [summary_ms] if math.isfinite(summary_ms) else []
    if summary_ms < 0.0:
        oddities["rounds with a negative RTT, so lost"] += 1
    return []


def _traceroute_ms(result: Result, oddities: Counter[str]) -> list[float]:
    hops = result.get("result")
    if isinstance(hops, str):
        return _printed_traceroute_ms(hops, oddities)
    if hops is not None and not isinstance(hops, list):
        raise UnknownFormError("has a `result` that is no list of hops")
    if "error" in result:
        oddities[_error(result)] += 1
    destination = _address(result.get("dst_addr", result.get("addr")))
    rtts_ms: list[float] = []
    for hop in hops or []:
        if not isinstance(hop, Mapping):
            raise UnknownFormError("has a hop that is none")
        if "error" in hop:
            oddities[_error(hop)] += 1
        replies = hop.get("result")
        if not isinstance(replies, list):
            continue
        for part in replies:
            if isinstance(part, Mapping) and "error" in part and "from" not in part:
                oddities[_error(part)] += 1
        theirs = [part for part in replies if isinstance(part, Mapping) and _address(part.get("from")) == destination]
        if destination is not None and theirs:
            rtts_ms = _counted(theirs, oddities) or rtts_ms
    if not rtts_ms:
        oddities["rounds in which the destination did not answer, so lost"] += 1
    return rtts_ms


def _counted(replies: Iterable[Any], oddities: Counter[str]) -> list[float]:
    """Return the RTTs of valid replies, without timeouts, errors, duplicates and late ones."""
    rtts_ms = []
    for reply in replies:
        if not isinstance(reply, Mapping):
            raise UnknownFormError("has a reply that is none")
        rtt_ms = parse_number(reply.get("rtt"))
        if "error" in reply:
            oddities[_error(reply)] += 1
        elif reply.get("dup"):
            oddities["duplicate replies left out"] += 1
        elif "late" in reply:
            oddities["late replies left out"] += 1
        elif 0.0 < rtt_ms < math.inf:
            rtts_ms.append(rtt_ms)
        elif "rtt" in reply:
            oddities["replies with an impossible RTT left out"] += 1
    return rtts_ms


def _error(part: Mapping[str, Any]) -> str:
    return f"errors ({shorten(part['error']) or short_repr(part['error'])})"


_HEAD = re.compile(r"traceroute to \S+ \(([^)\s]+)\)")
_LINE_END = re.compile(r"NEWLINE|\n")


def _printed_traceroute_ms(text: str, oddities: Counter[str]) -> list[float]:
    head = _HEAD.search(text)
    if head is None:
        raise UnknownFormError("has a `result` that is no traceroute")
    destination = _address(head[1])
    rtts_ms: list[float] = []
    for line in _LINE_END.split(text[head.end() :])[1:]:
        words = line.split()[1:]
        address = None
        theirs = []
        for word, behind in zip(words, [*words[1:], ""], strict=False):
            if behind == "ms" and address == destination and 0.0 < parse_number(word) < math.inf:
                theirs.append(parse_number(word))
            elif (other := _address(word.strip("()"))) is not None:
                address = other
        rtts_ms = theirs or rtts_ms
    if not rtts_ms:
        oddities["rounds in which the destination did not answer, so lost"] += 1
    return rtts_ms


def _address(value: Any) -> _Address | None:
    return _parsed_address(value) if isinstance(value, str) else None


@lru_cache(maxsize=4096)
def _parsed_address(text: str) -> _Address | None:
    # Every round names the same few routers; parsing the addresses each time took most of the reading time.
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


_WORTH: dict[Reply, str] = {
    "min": "the least of each round's replies",
    "mean": "the mean of each round's replies",
    "first": "the first of each round's replies",
}
_IN_STEP_S = 3600.0
"""The clock of a probe that was synchronised within this time is off by far less than a round."""
_NO_UNIX_TIME_S = 1e11


def is_ripe_atlas(result: Result) -> bool:
    """Return whether a JSON object looks like a result of RIPE Atlas."""
    return not RESULT_KEYS.isdisjoint(result) or result.get("type") in ATLAS_TYPES


def read_ripe_atlas(path: Path, placed: Sequence[Placed], how: ReadOptions) -> list[Readings]:
    """Return the RTTs of results, each with its place in the file: one value per round.

    Raises `TraceError` for another file, and for several probes or measurements of which `how` chooses none.
    """
    results = _chosen(placed, how, path)
    oddities: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    times, rtts_ms, adrift = [], [], 0
    for fault, result in results:
        time_s = parse_number(result.get("timestamp"))
        try:
            kinds[kind_of(result)] += 1
            rtts_ms.append(round_ms(result, how.reply, oddities))
        except UnknownFormError as error:
            raise fault(str(error), error.remedy) from None
        if not 0.0 < time_s < _NO_UNIX_TIME_S:
            raise fault(f"has the timestamp {short_repr(result.get('timestamp'))}, which is no Unix time")
        times.append(time_s)
        adrift += "lts" in result and not 0.0 <= parse_number(result["lts"]) <= _IN_STEP_S
    if len(kinds) > 1:
        what = f"results of {len(kinds)} kinds: {_listed(kinds)}"
        raise TraceError(what, path=path, remedy="keep those of one kind in the file")
    granted = [f"rounds of a probe whose clock was not known to be right (lts): {adrift:,}"] if adrift else []
    repairs = [f"{what}: {count:,}" for what, count in oddities.items()]
    addresses = Counter(address for _, result in results if (address := _destination(result)))
    if len(addresses) > 1:
        granted.append(f"{len(addresses)} destination addresses: {_listed(addresses)}")
    first = results[0][1]
    goal = (
        shorten(first.get("dst_name")) or shorten(first.get("name")) or shorten(next(iter(addresses), "an unnamed destination"))
    )
    source = f"RIPE Atlas probe {_id(first, 'probe')}, measurement {_id(first, 'measurement')}, {next(iter(kinds))} to {goal}"
    source += f"; {_WORTH[how.reply]}"
    return [Readings("rtt", np.array(times), np.array(rtts_ms) / 1e3, "measured", source, tuple(repairs), tuple(granted))]


def _chosen(results: Sequence[Placed], how: ReadOptions, path: Path) -> Sequence[Placed]:
    """Return the results of the one probe and the one measurement that are meant."""
    wanted = {"probe": how.probe, "measurement": how.measurement}
    held = {noun: Counter(_id(result, noun) for _, result in results) for noun in wanted}
    for noun, identity in wanted.items():
        if identity is not None and str(identity) not in held[noun]:
            what = f"no {noun} {identity} among {_listed(held[noun])}"
            raise TraceError(what, path=path, remedy=f"choose another by --{noun}")
    chosen = [
        (fault, result)
        for fault, result in results
        if all(identity is None or _id(result, noun) == str(identity) for noun, identity in wanted.items())
    ]
    if not chosen:
        what = f"probe {how.probe} has no results of measurement {how.measurement}"
        raise TraceError(what, path=path, remedy="choose another by --probe or --measurement")
    left = {noun: Counter(_id(result, noun) for _, result in chosen) for noun in wanted}
    several = [noun for noun in wanted if len(left[noun]) > 1]
    if several:
        what = "; ".join(f"results of {len(left[noun])} {noun}s: {_listed(left[noun])}" for noun in several)
        raise TraceError(what, path=path, remedy=f"choose one by {' and '.join(f'--{noun}' for noun in several)}")
    return chosen


def _id(result: Mapping[str, Any], noun: str) -> str:
    identity = result.get("prb_id" if noun == "probe" else "msm_id", "unnamed")
    return shorten(identity) if isinstance(identity, str) else short_repr(identity)


def _listed(held: Counter[str]) -> str:
    return format_list((f"{name} ({count:,})" for name, count in held.most_common()), ",")


def _destination(result: Mapping[str, Any]) -> str | None:
    address = result.get("dst_addr", result.get("addr"))
    return shorten(address) or None
