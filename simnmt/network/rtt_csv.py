"""RTT series as CSV: one reader for any file with a time and an RTT column, one writer.

A file may open with `#` lines. `# kind: measured|synthetic|constant|unstated`, `# source: ...` and `# lost: 3` (all lost
samples, those with an empty cell among them) are understood, other comments are kept as notes; the writer adds
`# simnmt rtt series, version 1`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.network.csv_rows import SECONDS_PER, Rows, read_samples, series_text
from simnmt.network.foreign_text import named
from simnmt.network.rtt_series import RttSeries
from simnmt.network.text_files import write_texts
from simnmt.network.units import MOST_RTT_S, check_rtt_unit, like_seconds_read_as_ms


def read_rtt_csv(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    time_column: str = "time_s",
    rtt_column: str = "rtt_ms",
    time_unit: Literal["s", "ms"] = "s",
    rtt_unit: Literal["ms", "s"] | None = None,
) -> RttSeries:
    """Read a series whose first row names the columns; time 0 becomes the first sample that arrived.

    An empty or `nan` RTT is a lost sample: the value before it holds on, and it is counted; those before the
    first that arrived are counted and dropped. A file of one sample is a series of one value. Commas,
    semicolons or tabs separate the cells.

    `rtt_unit` None means ms. Then a median below 0.5 ms, which no wide-area network has, asks for the unit: it raises, unless
    simnmt wrote the file. Raises `TraceError` with line and column where the file says anything else, too.
    """
    rows = Rows(Path(path))
    unit = rtt_unit or "ms"
    samples = read_samples(rows, time_column, rtt_column, means="an RTT", most=MOST_RTT_S / SECONDS_PER[unit])
    time_s = (np.array(samples.time) - samples.time[0]) * SECONDS_PER[time_unit]
    rtt_s = np.array(samples.value) * SECONDS_PER[unit]
    remedy = "set rtt_unit: ms" if unit == "s" else "convert the column to ms"
    check_rtt_unit(rtt_s, unit, f"of {rtt_column}", path, remedy)
    if rtt_unit is None and not rows.ours and (why := like_seconds_read_as_ms(rtt_s)):
        asked = f"state the unit: {{csv: {named(Path(path).name)}, rtt_unit: s}} if they are seconds, rtt_unit: ms if not"
        raise rows.wrong(f"{named(rtt_column)}: {why}", rows.header_line, rows.index(rtt_column), asked)
    return RttSeries(name or Path(path).stem, rows.kind, rows.source, time_s, rtt_s, samples.lost)


def read_notes(path: str | os.PathLike[str]) -> dict[str, str]:
    """The `# key: value` lines at the top of a file, by key in lower case."""
    return dict(Rows(Path(path)).notes)


def write_rtt_csv(
    path: str | os.PathLike[str],
    series: RttSeries,
    *,
    notes: Mapping[str, str] | None = None,
    decimals: int | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> None:
    """Write a series, as `rtt_csv_text` has it, whole or not at all; raises `TraceError` where the file cannot be written."""
    write_texts({Path(path): rtt_csv_text(series, notes=notes, decimals=decimals, lost=lost)})


def rtt_csv_text(
    series: RttSeries,
    *,
    notes: Mapping[str, str] | None = None,
    decimals: int | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> str:
    """What the file of a series holds; `notes` become `# key: value` lines, `decimals` round milliseconds.

    `lost`, shape (samples,), marks samples that were lost: their cells stay empty, and a reader holds and counts them.
    """
    rtt_ms = series.rtt_s * 1e3 if decimals is None else np.round(series.rtt_s * 1e3, decimals)
    return series_text("rtt", series, "time_s,rtt_ms", rtt_ms, notes, lost)
