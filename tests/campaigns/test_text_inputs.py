"""Texts and tables with damaged bytes: every reader takes them or refuses them in one line, and what it takes is finite."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.base.errors import InputError
from simnmt.network.series import BandwidthSeries, RttSeries
from simnmt.network.series_csv import read_series
from simnmt.network.traces import read_trace
from simnmt.report.traffic_page import render_traffic
from simnmt.workload.arrivals.recording import Recording, read_recording
from simnmt.workload.arrivals.traffic import read_traffic
from simnmt.workload.corpus import read_corpus
from simnmt.workload.length_table import read_table
from tests.campaigns.harness import assert_short_lines, mutate_bytes, run_cases

Inputs = dict[str, tuple[bytes, Callable[[Path], Any]]]

RTT = b"# source: made\n# kind: measured\ntime_s,rtt_ms\n0,50\n1,60.5\n2,\n3,nan\n4,55\n5,80\n"
PING = b"""PING example.org (192.0.2.1) 56(84) bytes of data.
[1600000000.123456] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=12.3 ms
[1600000001.123456] no answer yet for icmp_seq=2
[1600000003.123456] 64 bytes from 192.0.2.1: icmp_seq=4 ttl=57 time=13.1 ms
--- example.org ping statistics ---
4 packets transmitted, 2 received, 50% packet loss, time 3004ms
rtt min/avg/max/mdev = 12.3/12.7/13.1/0.4 ms
"""
ATLAS = json.dumps([
    {"fw": 4900, "type": "ping", "prb_id": 6222, "msm_id": 1437285, "timestamp": 1_525_305_600 + 240 * probe,
     "dst_name": "probe.example", "result": [{"rtt": 70.0 + probe}, {"x": "*"}, {"rtt": 71.5, "ttl": 50}]}
    for probe in range(4)
]).encode()  # fmt: skip
TABLE = b"""# simnmt length table, version 1
# name: made
# source: made
# src_unit: word
# tgt_unit: word
# filtered: cnmt: 15 pairs read, 2 dropped (empty 0, too_long 0, ratio 2)
src_len,tgt_len,count
3,4,10
5,6,2
17,12,1
"""
AZURE = b"""TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2225600,879,55
"""
MOONCAKE = b'{"timestamp": 0, "input_length": 67}\n{"timestamp": 3000, "input_length": 7, "hash_ids": [1]}\n'
COUNTS = b"time_s,requests\n0,5\n60,0\n120,17\n300,2\n"
PAIRS = "Guten Tag .\tGood day .\nEin Satz mit Umlauten \u00e4\u00f6\u00fc\tA sentence\nx y z\ta b c\n".encode()
ROWS = b'{"translation": {"de": "Guten Tag", "en": "Good day"}}\n{"de": "x y", "en": "a b"}\n'
UNITS = {"src_unit": "word", "tgt_unit": "word"}

IPERF3 = json.dumps({
    "start": {"timestamp": {"timesecs": 1_700_000_000}, "test_start": {"protocol": "TCP", "reverse": 0}},
    "intervals": [{"sum": {"start": at, "bits_per_second": 2e7 + at, "omitted": False, "sender": True}} for at in range(4)],
}).encode()  # fmt: skip
IRTT = json.dumps({"round_trips": [
    {"seqno": at, "lost": "false", "delay": {"rtt": 12_000_000 + at},
     "timestamps": {"client": {"send": {"wall": 1_700_000_000_000_000_000 + at * 10**9}}}}
    for at in range(4)
]}).encode()  # fmt: skip
GERMAN = "Ping wird ausgeführt für b [192.0.2.1]:\nAntwort von 192.0.2.1: Bytes=32 Zeit=12ms TTL=57\n".encode("cp850")
LOG = "t_s,text,source,target,src_len,bytes\n" + "".join(
    f"{t / 3},{'w ' * (t % 7)},d{t % 2},en,{t % 7},{t}\n" for t in range(40)
)


def read_log(path: Path) -> Recording:
    """Read a log, and describe its traffic."""
    recording = read_recording(path)
    traffic = read_traffic(path)
    json.dumps(traffic.document(), allow_nan=False)
    render_traffic(traffic)
    return recording


INPUTS: Inputs = {
    "iperf3": (IPERF3, read_trace),
    "irtt": (IRTT, read_trace),
    "German ping": (GERMAN, read_trace),
    "round trips": (RTT, partial(read_series, RttSeries)),
    "bandwidths": (b"time_s,mbps\n0,20\n1,\n2,0\n3,15.5\n4,1e3\n", partial(read_series, BandwidthSeries)),
    "trace as CSV": (RTT.replace(b"time_s,rtt_ms", b"Timestamp;RTT (ms)").replace(b",", b";"), read_trace),
    "ping": (PING, read_trace),
    "atlas": (ATLAS, read_trace),
    "length table": (TABLE, read_table),
    "corpus": (PAIRS, lambda path: read_corpus(path, **UNITS)[0]),
    "gzip corpus": (gzip.compress(PAIRS * 20, mtime=0), lambda path: read_corpus(path, **UNITS)[0]),
    "JSON Lines": (ROWS, lambda path: read_corpus(path, keys=("de", "en"), **UNITS)[0]),
    "logged requests": (LOG.encode(), read_log),
    "azure arrivals": (AZURE, read_log),
    "mooncake arrivals": (MOONCAKE, read_log),
    "counted arrivals": (COUNTS, read_log),
    "rates": (b"time_s,rate_rps\n0,1.5\n60,\n120,0\n180,4\n", read_recording),
}


def check(content: bytes, read: Callable[[Path], Any], path: Path, generator: random.Random) -> None:
    path.write_bytes(mutate_bytes(content, generator))
    try:
        parsed = read(path)
    except InputError as error:
        assert_short_lines(error)
        assert error.remedy, f"without a remedy: {error}"
        return
    for value in parsed if isinstance(parsed, list) else [parsed]:
        for name in getattr(type(value), "__slots__", ()):
            column = getattr(value, name)
            is_float = isinstance(column, np.ndarray) and column.dtype.kind == "f"
            if is_float and (name != "value" or isinstance(value, Recording)):
                assert np.isfinite(column).all(), f"{name} is not finite"


@pytest.mark.parametrize("kind", INPUTS)
def test_damaged_text_is_read_or_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    content, read = INPUTS[kind]
    (tmp_path / "whole").write_bytes(content)
    read(tmp_path / "whole")
    run_cases(f"text {kind}", 250, lambda generator: check(content, read, tmp_path / "damaged", generator))
