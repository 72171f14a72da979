"""One result of a RIPE Atlas ping or traceroute of any firmware, as the one RTT that it is worth.

The forms are those of RIPE NCC's description of measurement results (atlas.ripe.net/docs/apis/measurement-result-format),
of firmware 0 to 5080: 0 and 1 give a ping's summary alone, in texts or numbers, and a traceroute as the text of the command;
later ones give every reply.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from simnmt.network.foreign_text import named, quoted
from simnmt.network.traces.how_to_read import Reply

Result = Mapping[str, Any]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_KINDS = ("ping", "traceroute")


class UnknownFormError(Exception):
    """A result of no known form; says what is wrong with it."""

    def __init__(self, what: str, remedy: str = "remove it, or mend it") -> None:
        super().__init__(what)
        self.remedy = remedy


def kind_of(result: Result) -> str:
    """`ping` or `traceroute`. Raises `UnknownFormError` for anything else."""
    said = result.get("type")
    if said in _KINDS:
        return str(said)
    if said is not None:
        raise UnknownFormError(f"is of type {quoted(said)}", "give results of ping or traceroute")
    # Firmware 1 does not say.
    if isinstance(result.get("result"), str) or "paris_id" in result:
        return "traceroute"
    if "sent" in result or "avg" in result:
        return "ping"
    raise UnknownFormError("is no ping and no traceroute of RIPE Atlas")


def round_ms(result: Result, reply: Reply, oddities: Counter[str]) -> float:
    """RTT in ms that a round is worth, NaN where it was lost; what was left out is counted in `oddities`.

    Of a traceroute, replies of the last hop at which the destination itself answered count. Raises `UnknownFormError`.
    """
    counted = _ping_ms(result, reply, oddities) if kind_of(result) == "ping" else _traceroute_ms(result, oddities)
    if not counted:
        return math.nan
    return {"min": min(counted), "mean": sum(counted) / len(counted), "first": counted[0]}[reply]


def number(said: Any) -> float:
    """A number, also one given as a text; NaN for anything else."""
    if isinstance(said, bool) or not isinstance(said, (int, float, str)):
        return math.nan
    try:
        return float(said)
    except (ValueError, OverflowError):
        return math.nan


def _ping_ms(result: Result, reply: Reply, oddities: Counter[str]) -> list[float]:
    replies = result.get("result")
    if isinstance(replies, list) and replies:
        return _counted(replies, oddities)
    if replies not in (None, []):
        raise UnknownFormError("has a `result` that is no list of replies")
    if "error" in result:
        oddities[_error(result)] += 1
        return []
    if reply == "first" and number(result.get("rcvd")) > 0:
        raise UnknownFormError("gives no single replies, as firmware 0 and 1 do not", "take --reply min or mean")
    summary_ms = number(result.get("min" if reply == "min" else "avg"))
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
    found: list[float] = []
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
            found = _counted(theirs, oddities) or found
    if not found:
        oddities["rounds in which the destination did not answer, so lost"] += 1
    return found


def _counted(replies: Iterable[Any], oddities: Counter[str]) -> list[float]:
    """RTTs of the replies that count: neither timeouts and errors nor duplicates and late ones."""
    found = []
    for reply in replies:
        if not isinstance(reply, Mapping):
            raise UnknownFormError("has a reply that is none")
        rtt_ms = number(reply.get("rtt"))
        if "error" in reply:
            oddities[_error(reply)] += 1
        elif reply.get("dup"):
            oddities["duplicate replies left out"] += 1
        elif "late" in reply:
            oddities["late replies left out"] += 1
        elif 0.0 < rtt_ms < math.inf:
            found.append(rtt_ms)
        elif "rtt" in reply:
            oddities["replies with an impossible RTT left out"] += 1
    return found


def _error(part: Mapping[str, Any]) -> str:
    return f"errors ({named(part['error']) or quoted(part['error'])})"


_HEAD = re.compile(r"traceroute to \S+ \(([^)\s]+)\)")
_LINE_END = re.compile(r"NEWLINE|\n")


def _printed_traceroute_ms(text: str, oddities: Counter[str]) -> list[float]:
    head = _HEAD.search(text)
    if head is None:
        raise UnknownFormError("has a `result` that is no traceroute")
    destination = _address(head[1])
    found: list[float] = []
    for line in _LINE_END.split(text[head.end() :])[1:]:
        words = line.split()[1:]
        address = None
        theirs = []
        for word, behind in zip(words, [*words[1:], ""], strict=False):
            if behind == "ms" and address == destination and 0.0 < number(word) < math.inf:
                theirs.append(number(word))
            elif (other := _address(word.strip("()"))) is not None:
                address = other
        found = theirs or found
    if not found:
        oddities["rounds in which the destination did not answer, so lost"] += 1
    return found


def _address(said: Any) -> _Address | None:
    return _parsed_address(said) if isinstance(said, str) else None


@lru_cache(maxsize=4096)
def _parsed_address(text: str) -> _Address | None:
    # A series names the same few routers in every round; parsing them each time took most of its reading.
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
