"""A file of measurements turned into series that a scenario reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import cast, get_args

from simnmt.network.bandwidth_csv import bandwidth_csv_text
from simnmt.network.errors import TraceError
from simnmt.network.rtt_csv import rtt_csv_text
from simnmt.network.rtt_series import Kind
from simnmt.network.text_files import write_texts
from simnmt.network.traces.readings import Trace

_OLDEST_S, _NEWEST_S = 0.5e9, 4e9


def targets(traces: Sequence[Trace], out: str | os.PathLike[str]) -> list[Path]:
    """Where each trace goes: `out` itself for a single one, else `out` with the quantity before its suffix.

    Raises `TraceError` where `out` names no file.
    """
    path = Path(out)
    if not path.name:
        raise TraceError(f"--out {os.fspath(out)!r} names no file", remedy="give the name of a CSV file")
    if len(traces) == 1:
        return [path]
    return [path.with_name(f"{path.stem}.{trace.quantity}{path.suffix or '.csv'}") for trace in traces]


def of_kind(traces: Sequence[Trace], kind: str) -> list[Trace]:
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
    paths = targets(traces, out)
    texts: dict[Path, str] = {}
    for trace, path in zip(traces, paths, strict=True):
        said = {"made": made, **(notes or {})}
        said |= {"began": began} if (began := _began(trace.began_s)) else {}
        said |= {"taken for granted": "; ".join(trace.granted)} if trace.granted else {}
        said |= {"mended": "; ".join(trace.mended)} if trace.mended else {}
        if trace.quantity == "rtt":
            texts[path] = rtt_csv_text(trace.rtt_series(path.stem), notes=said, decimals=6, lost=trace.lost)
        else:
            texts[path] = bandwidth_csv_text(trace.bandwidth_series(path.stem), notes=said, lost=trace.lost)
    write_texts(texts)
    return paths


def _began(unix_s: float) -> str | None:
    """The moment of time 0, where the clock was evidently Unix time."""
    if not _OLDEST_S < unix_s < _NEWEST_S:
        return None
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=unix_s)
    return moment.isoformat(sep=" ", timespec="seconds")
