"""Samples of a recording, the files that hold them, and the lines that summarise them."""

from __future__ import annotations

import math
import os
import statistics
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from simnmt.base.errors import shorten
from simnmt.network.errors import TraceError
from simnmt.network.series_csv import VERSION
from simnmt.network.text_files import naming_write_errors, write_texts

_RTT_COLUMNS = ("time_s", "rtt_ms")
_BANDWIDTH_COLUMNS = ("time_s", "downlink_mbps", "uplink_mbps")


@dataclass(slots=True)
class RecordingSamples:
    """Columns that grow; NaN where a probe or a transfer was lost."""

    sent_s: array[float] = field(default_factory=lambda: array("d"))
    """Of each probe, since the start of the recording."""
    rtt_ms: array[float] = field(default_factory=lambda: array("d"))
    transfer_s: array[float] = field(default_factory=lambda: array("d"))
    """When each pair of transfers began."""
    downlink_mbps: array[float] = field(default_factory=lambda: array("d"))
    uplink_mbps: array[float] = field(default_factory=lambda: array("d"))
    lost: int = 0
    """Probes whose echo did not come in time."""

    def add(self, sent_s: float, rtt_ms: float) -> None:
        """A probe that is decided."""
        self.sent_s.append(sent_s)
        self.rtt_ms.append(rtt_ms)
        self.lost += math.isnan(rtt_ms)

    @property
    def arrived(self) -> int:
        """Probes whose echo came in time."""
        return len(self.rtt_ms) - self.lost

    @property
    def rates(self) -> bool:
        """Whether any transfer found a bandwidth."""
        return not all(map(math.isnan, [*self.downlink_mbps, *self.uplink_mbps]))


class RecordingFiles:
    """The series of RTTs at `out` and that of bandwidths beside it, written as they come under names that end in `.partial`.

    Raises `TraceError` where they cannot be written, or where such a partial file is left of an earlier recording.
    """

    def __init__(self, out: str | os.PathLike[str], began_unix_s: float, notes: dict[str, str], transfers: bool) -> None:
        self.rtt = Path(out)
        if self.rtt.is_dir():
            raise TraceError("cannot be written: is a folder", path=self.rtt, remedy="give the name of a CSV file")
        self.bandwidth = bandwidth_path(self.rtt)
        self._began = datetime.fromtimestamp(began_unix_s, timezone.utc).isoformat(sep=" ", timespec="milliseconds")
        self._notes = notes
        self._partial: dict[Path, IO[str]] = {}
        self._written = {self.rtt: 0, self.bandwidth: 0}
        try:
            self._begin(self.rtt, self._head("rtt", {}, _RTT_COLUMNS))
            if transfers:
                self._begin(self.bandwidth, self._head("bandwidth", {}, _BANDWIDTH_COLUMNS))
        except BaseException:
            self.discard()
            raise

    def add(self, samples: RecordingSamples) -> None:
        """Append what has come since, and hand it to the system."""
        for path, columns in _columns(self, samples).items():
            file, done = self._partial.get(path), self._written[path]
            if file is None or len(columns[0]) == done:
                continue
            rows = "".join(_rows([column[done:] for column in columns]))
            with naming_write_errors(path):
                file.write(rows)
                file.flush()
            self._written[path] = len(columns[0])

    def finish(self, samples: RecordingSamples, closing_notes: dict[str, str]) -> list[Path]:
        """Write the whole files with all their notes, remove the partial ones, and return the written paths."""
        texts = {self.rtt: self._whole("rtt", samples, closing_notes, _RTT_COLUMNS)}
        if samples.rates:
            texts[self.bandwidth] = self._whole("bandwidth", samples, closing_notes, _BANDWIDTH_COLUMNS)
        write_texts(texts)
        self.discard()
        return list(texts)

    def discard(self) -> None:
        """Remove the partial files."""
        for path, file in self._partial.items():
            with suppress(OSError):
                file.close()
            _partial(path).unlink(missing_ok=True)
        self._partial.clear()

    def leave(self) -> list[Path]:
        """Close the partial files and let them stand; returns them."""
        for file in self._partial.values():
            with suppress(OSError):
                file.close()
        return [_partial(path) for path in self._partial]

    def _begin(self, path: Path, head: str) -> None:
        partial = _partial(path)
        with naming_write_errors(path):
            try:
                file = partial.open("x", encoding="utf-8", newline="\n")
            except FileExistsError:
                what = "is left of a recording that was cut off, or belongs to one that is under way"
                raise TraceError(what, path=partial, remedy="rename it to keep it: it is a series; or remove it") from None
            self._partial[path] = file
            file.write(head)
            file.flush()

    def _head(self, what: str, closing_notes: dict[str, str], columns: Sequence[str]) -> str:
        notes = {"kind": "measured", **self._notes, "made": "simnmt trace record", "began": self._began, **closing_notes}
        lines = [
            f"# simnmt {what} series, version {VERSION}",
            *(f"# {key}: {shorten(text, 1000)}" for key, text in notes.items()),
        ]
        return "\n".join([*lines, ",".join(columns)]) + "\n"

    def _whole(self, what: str, samples: RecordingSamples, closing_notes: dict[str, str], columns: Sequence[str]) -> str:
        path = self.rtt if what == "rtt" else self.bandwidth
        return self._head(what, closing_notes, columns) + "".join(_rows(_columns(self, samples)[path]))


def bandwidth_path(out: str | os.PathLike[str]) -> Path:
    """`office-bandwidth.csv` of `office.csv`. Raises `TraceError` where `out` names no file."""
    path = Path(out)
    if not path.name:
        raise TraceError(f"--out {os.fspath(out)!r} names no file", remedy="give the name of a CSV file")
    return path.with_name(f"{path.stem}-bandwidth{path.suffix or '.csv'}")


def _columns(files: RecordingFiles, samples: RecordingSamples) -> dict[Path, list[array[float]]]:
    return {
        files.rtt: [samples.sent_s, samples.rtt_ms],
        files.bandwidth: [samples.transfer_s, samples.downlink_mbps, samples.uplink_mbps],
    }


def _rows(columns: Sequence[Iterable[float]]) -> Iterator[str]:
    for time_s, *values in zip(*columns, strict=True):
        cells = ["" if math.isnan(value) else repr(round(value, 6)) for value in values]
        yield f"{time_s!r},{','.join(cells)}\n"


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def describe_rtts(samples: RecordingSamples) -> str:
    """Of a recording of which a probe came back."""
    arrived = [ms for ms in samples.rtt_ms if not math.isnan(ms)]
    typical = f"median {statistics.median(arrived):.4g} ms, from {min(arrived):.4g} to {max(arrived):.4g}"
    return f"RTT, measured; {_probes(samples)}; {typical}"


def describe_bandwidths(samples: RecordingSamples) -> str:
    """Of both directions."""
    ways = []
    for name, column in (("downlink", samples.downlink_mbps), ("uplink", samples.uplink_mbps)):
        arrived = [mbps for mbps in column if not math.isnan(mbps)]
        ways.append(f"{name} median {statistics.median(arrived):.4g} Mbit/s" if arrived else f"{name} all lost")
    transfers = len(samples.transfer_s)
    return f"bandwidth, measured; {transfers:,} transfer{'s' * (transfers != 1)} each way; {', '.join(ways)}"


def describe_progress(samples: RecordingSamples) -> str:
    """While it runs."""
    last = samples.rtt_ms[-1] if samples.rtt_ms else math.nan
    return _probes(samples) + ("" if math.isnan(last) else f", last {last:.4g} ms")


def _probes(samples: RecordingSamples) -> str:
    return f"{len(samples.rtt_ms):,} probes, {samples.lost:,} lost"
