"""Trace files: read a file of measurements in whatever form it has, and write traces as series."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import cast, get_args

from simnmt.network.errors import TraceError
from simnmt.network.series import Kind, RttSeries
from simnmt.network.series_csv import series_text
from simnmt.network.text_files import read_text, write_texts
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.measured_csv import read_measured_csv
from simnmt.network.traces.ping_text import is_ping_text, read_ping_text
from simnmt.network.traces.readings import Readings, Trace, align_starts, mended
from simnmt.network.traces.ripe_atlas import read_ripe_atlas

Reader = Callable[[Path, str, ReadOptions], list[Readings]]

_JSON = re.compile(r"\s*(?:\{|\[(?!\d+(?:\.\d+)?\]\s*\S))")  # lines of ping -D begin with a bracket, too

FORMS: list[tuple[Callable[[str], bool], Reader]] = [
    (lambda text: _JSON.match(text) is not None, read_ripe_atlas),
    (is_ping_text, read_ping_text),
    (lambda text: True, read_measured_csv),
]
"""Whether a text is of a form, and what reads it; the first that is one counts."""


def read_trace(path: str | os.PathLike[str], how: ReadOptions | None = None) -> list[Trace]:
    """What a file measured, mended: RIPE Atlas results, `ping` output, or CSV with RTTs, bandwidths or both.

    Several quantities of one file begin at one moment. Raises `TraceError` for a file that is of no such form, or that
    holds several series of which `how` chooses none.
    """
    path = Path(path)
    text = read_text(path)
    read = next(reader for is_form, reader in FORMS if is_form(text))
    return align_starts([mended(readings, path) for readings in read(path, text, how or ReadOptions())])


def read_rtt(path: str | os.PathLike[str], how: ReadOptions | None = None) -> RttSeries:
    """The round-trip times of a file, called by its name. Raises `TraceError` as `read_trace`, and where it has none."""
    for trace in read_trace(path, how):
        if isinstance(series := trace.series(Path(path).stem), RttSeries):
            return series
    raise TraceError("no round-trip times, bandwidths only", path=path, remedy="name their column: --column rtt=NAME")


_OLDEST_S, _NEWEST_S = 0.5e9, 4e9


def output_paths(traces: Sequence[Trace], out: str | os.PathLike[str]) -> list[Path]:
    """Where each trace goes: `out` itself for a single one, else `out` with the quantity before its suffix.

    Raises `TraceError` where `out` names no file.
    """
    path = Path(out)
    if not path.name:
        raise TraceError(f"--out {os.fspath(out)!r} names no file", remedy="give the name of a CSV file")
    if len(traces) == 1:
        return [path]
    return [path.with_name(f"{path.stem}.{trace.quantity}{path.suffix or '.csv'}") for trace in traces]


def with_kind(traces: Sequence[Trace], kind: str) -> list[Trace]:
    """The traces of logs that do not say what they hold, said to be of `kind`; the others as they are.

    Raises `TraceError` for a kind that there is not.
    """
    if kind not in get_args(Kind):
        raise TraceError(f"--kind {kind}: no such kind", remedy=f"one of {', '.join(get_args(Kind))}")
    return [replace(trace, kind=cast(Kind, kind)) if trace.kind == "unstated" else trace for trace in traces]


def write_traces(
    traces: Sequence[Trace],
    out: str | os.PathLike[str],
    *,
    made: str = "simnmt trace import",
    notes: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write each trace as a series to its target, all or none; lost samples stay marked. Raises `TraceError`.

    `made` names the command in the file's head, `notes` become lines of it.
    """
    paths = output_paths(traces, out)
    texts: dict[Path, str] = {}
    for trace, path in zip(traces, paths, strict=True):
        header_notes = {"made": made, **(notes or {})}
        header_notes |= {"began": began} if (began := _format_start(trace.began_s)) else {}
        header_notes |= {"taken for granted": "; ".join(trace.granted)} if trace.granted else {}
        header_notes |= {"mended": "; ".join(trace.mended)} if trace.mended else {}
        decimals = 6 if trace.quantity == "rtt" else None
        texts[path] = series_text(trace.series(path.stem), notes=header_notes, decimals=decimals, lost=trace.lost)
    write_texts(texts)
    return paths


def _format_start(unix_s: float) -> str | None:
    """The moment of time 0, where the clock was evidently Unix time."""
    if not _OLDEST_S < unix_s < _NEWEST_S:
        return None
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=unix_s)
    return moment.isoformat(sep=" ", timespec="seconds")
