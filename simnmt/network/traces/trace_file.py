"""A file of measurements, whatever its form: found out by its content, read, mended."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from simnmt.network.errors import TraceError
from simnmt.network.rtt_series import RttSeries
from simnmt.network.text_files import read_text
from simnmt.network.traces.how_to_read import HowToRead
from simnmt.network.traces.measured_csv import read_measured_csv
from simnmt.network.traces.ping_text import is_ping_text, read_ping_text
from simnmt.network.traces.readings import Readings, Trace, mended, together
from simnmt.network.traces.ripe_atlas import read_ripe_atlas

Reader = Callable[[Path, str, HowToRead], list[Readings]]

_JSON = re.compile(r"\s*(?:\{|\[(?!\d+(?:\.\d+)?\]\s*\S))")  # lines of ping -D begin with a bracket, too

FORMS: list[tuple[Callable[[str], bool], Reader]] = [
    (lambda text: _JSON.match(text) is not None, read_ripe_atlas),
    (is_ping_text, read_ping_text),
    (lambda text: True, read_measured_csv),
]
"""Whether a text is of a form, and what reads it; the first that is one counts."""


def read_trace(path: str | os.PathLike[str], how: HowToRead | None = None) -> list[Trace]:
    """What a file measured, mended: RIPE Atlas results, `ping` output, or CSV with RTTs, bandwidths or both.

    Several quantities of one file begin at one moment. Raises `TraceError` for a file that is of no such form, or that
    holds several series of which `how` chooses none.
    """
    path = Path(path)
    text = read_text(path)
    read = next(reader for is_form, reader in FORMS if is_form(text))
    return together([mended(readings, path) for readings in read(path, text, how or HowToRead())])


def read_rtt(path: str | os.PathLike[str], how: HowToRead | None = None) -> RttSeries:
    """The round-trip times of a file, called by its name. Raises `TraceError` as `read_trace`, and where it has none."""
    for trace in read_trace(path, how):
        if trace.quantity == "rtt":
            return trace.rtt_series(Path(path).stem)
    raise TraceError("no round-trip times, bandwidths only", path=path, remedy="name their column: --column rtt=NAME")
