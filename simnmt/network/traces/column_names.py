"""What a column of a log is about, guessed from its name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from simnmt.network.traces.how_to_read import Reply

_UNITS = ("gbps", "mbps", "kbps", "bps", "ns", "us", "ms", "s")
_SPELT: Mapping[str, str] = {
    "gbit/s": "gbps",
    "mbit/s": "mbps",
    "kbit/s": "kbps",
    "bit/s": "bps",
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "msec": "ms",
    "milliseconds": "ms",
    "µs": "us",
    "usec": "us",
}
_BEHIND = re.compile(r"^(.*?)(?:[\s_]*[(\[]\s*([^)\]]+?)\s*[)\]]|[\s_.]([A-Za-zµ/]+))\s*$")

TIME = ("epoch", "unixtime", "unix", "timestamp", "datetime", "time", "date", "ts", "t")
RTT = ("rtt", "roundtriptime", "roundtrip", "latency", "ping", "pingtime", "responsetime", "delay")
_RTT_OF: Mapping[Reply, tuple[str, ...]] = {
    "min": ("rttmin", "minrtt", "pingmin", "minping", "min", "rttavg", "avgrtt", "pingavg", "avgping", "avg", "mean"),
    "mean": ("rttavg", "avgrtt", "pingavg", "avgping", "avg", "mean"),
    "first": (),
}
LOSS = ("pingloss", "pinglosspct", "loss", "losspct", "packetloss")
DOWNLINK = ("dl", "dlbitrate", "dlthroughput", "downlink", "download", "downlinkbitrate", "down", "rxrate")
UPLINK = ("ul", "ulbitrate", "ulthroughput", "uplink", "upload", "uplinkbitrate", "up", "txrate")
BANDWIDTH = ("bandwidth", "throughput", "bitrate", "")
"""The empty name stands for a column called by its unit alone, such as `mbps`."""

_RATES = ("gbps", "mbps", "kbps", "bps")


def rtt_names(reply: Reply) -> tuple[str, ...]:
    """Names of an RTT, the likeliest first."""
    return RTT + _RTT_OF[reply]


def split_unit(column: str) -> tuple[str, str | None]:
    """(what it is about in small letters and digits, its unit or None): `Ping RTT (ms)` gives `pingrtt` and `ms`."""
    lowered = column.strip().lower()
    if lowered in _RATES:
        return "", lowered
    found = _BEHIND.fullmatch(lowered)
    unit = None if found is None else found[2] or found[3]
    unit = _SPELT.get(unit, unit) if unit else None
    if found is None or unit not in _UNITS:
        return re.sub(r"[^a-z0-9]", "", lowered), None
    return re.sub(r"[^a-z0-9]", "", found[1]), unit


def find(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns that go by the likeliest of the names that any goes by."""
    bare = {column: split_unit(column)[0] for column in columns}
    for name in names:
        found = [column for column in columns if bare[column] == name]
        if found:
            return found
    return []
