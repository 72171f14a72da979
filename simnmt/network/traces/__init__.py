"""Import of measurements that other tools recorded: CSV logs, `ping` output, RIPE Atlas, iperf3 and irtt.

To read it, start with the table of formats here, then `trace.py` (what a reader returns) and `summary.py` (figures of a trace).
A new format is a reader and a line in `FORMATS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simnmt.base.errors import shorten
from simnmt.base.suggestions import format_list
from simnmt.network.series import TraceError
from simnmt.network.series_csv import read_text
from simnmt.network.traces.json_tools import RIPE_KEYS, Source, read_iperf3, read_irtt, read_ripe_atlas
from simnmt.network.traces.measured_csv import read_measured_csv
from simnmt.network.traces.ping import decode_code_page, is_ping_text, read_ping
from simnmt.network.traces.trace import ReadOptions, Trace, align_starts


class Format(NamedTuple):
    """A form of file: its name, a test of a file, and the reader."""

    name: str
    sniff: Callable[[Source], bool]
    read: Callable[[Source, ReadOptions], list[Trace]]


FORMATS = (
    Format("JSON of iperf3 -J", lambda source: bool({"intervals", "event"} & source.keys), read_iperf3),
    Format("JSON of irtt -o", lambda source: "round_trips" in source.keys, read_irtt),
    Format("results of RIPE Atlas", lambda source: bool(RIPE_KEYS & source.keys), read_ripe_atlas),
    Format("output of ping", lambda source: not source.keys and is_ping_text(source.text), read_ping),
    Format("a CSV log", lambda source: not source.is_json, read_measured_csv),
)
"""The first format whose test is true is read."""
_MEDIAN_RTT_S = (1e-6, 10.0)
"""Least and greatest median RTT, by any reader: a reply of the same computer takes some microseconds."""


def read_trace(path: str | os.PathLike[str], options: ReadOptions | None = None) -> list[Trace]:
    """Read and repair the traces of a file in any of `FORMATS`: RTTs, bandwidths or both.

    Several quantities of one file begin at one moment. Raises `TraceError` for a file of no known form, and for one that holds
    several series of which `options` chooses none, and for RTTs that no network has.
    """
    path = Path(path)
    source = Source(path, read_text(path, decode_code_page))
    form = next((form for form in FORMATS if form.sniff(source)), None)
    if form is None:
        keys = format_list((shorten(key) for key in source.keys), ",") or "none"
        names = format_list((form.name for form in FORMATS), "or")
        raise source.documents[0].fault(f"is of no known tool, keys: {keys}", f"give {names}")
    if options and options.columns and form.read is not read_measured_csv:
        raise TraceError(f"--column is for CSV logs, and this is {form.name}", path=path, remedy="leave it out")
    traces = form.read(source, options or ReadOptions())
    for trace in traces:
        median_s = float(np.median(trace.value[~trace.lost]))
        if trace.quantity == "rtt" and not _MEDIAN_RTT_S[0] <= median_s <= _MEDIAN_RTT_S[1]:
            what = f"a median RTT of {median_s * 1e3:.3g} ms, which no network has"
            raise TraceError(what, path=path, remedy=f"correct the unit of the values in {form.name}")
    return align_starts(traces)
