"""Trace files: read a file of measurements in any known form, and write traces as series."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast, get_args

from simnmt.base.errors import shorten
from simnmt.base.files import is_standard
from simnmt.base.suggestions import format_list
from simnmt.network.errors import TraceError
from simnmt.network.series import Kind
from simnmt.network.series_csv import series_text
from simnmt.network.text_files import read_text, write_texts
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.measured_csv import read_measured_csv
from simnmt.network.traces.ping_text import decode_code_page, is_ping_text, read_ping_text
from simnmt.network.traces.readings import Readings, Trace, align_starts, mended
from simnmt.network.traces.ripe_atlas import is_ripe_atlas, read_ripe_atlas
from simnmt.network.traces.tool_json import (
    Document,
    Placed,
    is_iperf3,
    is_irtt,
    parse_json,
    read_iperf3,
    read_irtt,
)

Reader = Callable[[Path, str, ReadOptions], list[Readings]]
JsonReader = Callable[[Path, Sequence[Placed], ReadOptions], list[Readings]]

_JSON = re.compile(r"\s*(?:\{|\[(?!\d+(?:\.\d+)?\]\s*\S))")  # lines of ping -D begin with a bracket too

JSON_FORMS: list[tuple[Callable[[Document], bool], JsonReader]] = [
    (is_iperf3, read_iperf3),
    (is_irtt, read_irtt),
    (is_ripe_atlas, read_ripe_atlas),
]
"""(test of the first JSON object, reader) of each form."""


def _read_json(path: Path, text: str, how: ReadOptions) -> list[Readings]:
    """Return the readings of a JSON file of a known tool. Raises `TraceError`, with its keys, for the JSON of another."""
    placed = parse_json(path, text)
    fault, first = placed[0]
    for is_form, read in JSON_FORMS:
        if is_form(first):
            return read(path, placed, how)
    remedy = "give results of RIPE Atlas, or the JSON of iperf3 -J or irtt -o"
    keys = format_list((shorten(key) for key in first), ",") or "none"
    raise fault(f"is of no known tool, keys: {keys}", remedy)


FORMS: list[tuple[Callable[[str], bool], Reader]] = [
    (lambda text: _JSON.match(text) is not None, _read_json),
    (is_ping_text, read_ping_text),
    (lambda text: True, read_measured_csv),
]
"""(test of a text, reader) of each form; the first form whose test is true is read."""


def read_trace(path: str | os.PathLike[str], how: ReadOptions | None = None) -> list[Trace]:
    """Read and repair the traces of a file in any of `FORMS`: RTTs, bandwidths or both.

    Several quantities of one file begin at one moment. Raises `TraceError` for a file of no known form, and for one that holds
    several series of which `how` chooses none.
    """
    path = Path(path)
    text = read_text(path, decode_code_page)
    read = next(reader for is_form, reader in FORMS if is_form(text))
    return align_starts([mended(readings, path) for readings in read(path, text, how or ReadOptions())])


_OLDEST_S, _NEWEST_S = 0.5e9, 4e9


def output_paths(traces: Sequence[Trace], out: str | os.PathLike[str]) -> list[Path]:
    """Return the file of each trace: `out` itself for a single one, else `out` with the quantity before its suffix.

    Raises `TraceError` if `out` names no file.
    """
    path = Path(out)
    if not path.name:
        raise TraceError(f"--out {os.fspath(out)!r} names no file", remedy="give the name of a CSV file")
    if len(traces) == 1:
        return [path]
    if is_standard(path):
        what = f"{len(traces)} series, but standard output takes one: {', '.join(trace.quantity for trace in traces)}"
        raise TraceError(what, remedy="give --out the name of a CSV file")
    return [path.with_name(f"{path.stem}.{trace.quantity}{path.suffix or '.csv'}") for trace in traces]


def with_kind(traces: Sequence[Trace], kind: str) -> list[Trace]:
    """Return the traces with `kind` in place of an unstated kind. Raises `TraceError` for an unknown kind."""
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
    """Write each trace as a series to its file, all or none; lost samples stay marked. Raises `TraceError`.

    `made` names the command in the file's header, `notes` become lines of the header.
    """
    paths = output_paths(traces, out)
    texts: dict[Path, str] = {}
    for trace, path in zip(traces, paths, strict=True):
        remarks = {
            "began": _format_unix_time(trace.began_s),
            "taken for granted": "; ".join(trace.granted),
            "mended": "; ".join(trace.mended),
        }
        header_notes = {"made": made, **(notes or {}), **{key: text for key, text in remarks.items() if text}}
        decimals = 6 if trace.quantity == "rtt" else None
        texts[path] = series_text(trace.series(path.stem), notes=header_notes, decimals=decimals, lost=trace.lost)
    write_texts(texts)
    return paths


def _format_unix_time(unix_s: float) -> str:
    """Return the moment in UTC; an empty text if the clock of the tool was evidently not Unix time."""
    if not _OLDEST_S < unix_s < _NEWEST_S:
        return ""
    return datetime.fromtimestamp(int(unix_s), timezone.utc).isoformat(sep=" ")
