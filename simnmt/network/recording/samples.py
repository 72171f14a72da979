"""Samples of a recording, the files that hold them, and the lines that summarise them in a terminal."""

from __future__ import annotations

import math
import os
import statistics
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from simnmt.network.errors import TraceError
from simnmt.network.series_csv import series_header
from simnmt.network.text_files import naming_write_errors, write_texts


@dataclass(slots=True)
class RecordingSamples:
    """Growing columns; NaN for a lost probe or transfer."""

    sent_s: array[float] = field(default_factory=lambda: array("d"))
    """When each probe was sent, seconds since the start of the recording."""
    rtt_ms: array[float] = field(default_factory=lambda: array("d"))
    transfer_s: array[float] = field(default_factory=lambda: array("d"))
    """When each pair of transfers began, seconds since the start of the recording."""
    downlink_mbps: array[float] = field(default_factory=lambda: array("d"))
    uplink_mbps: array[float] = field(default_factory=lambda: array("d"))
    lost: int = 0
    """Number of probes whose echo did not come in time."""

    def add(self, sent_s: float, rtt_ms: float) -> None:
        """Append a probe whose fate is known; `rtt_ms` is NaN if it was lost."""
        self.sent_s.append(sent_s)
        self.rtt_ms.append(rtt_ms)
        self.lost += math.isnan(rtt_ms)

    @property
    def arrived(self) -> int:
        """Number of probes whose echo came in time."""
        return len(self.rtt_ms) - self.lost

    @property
    def rates(self) -> bool:
        """Whether any transfer measured a bandwidth."""
        return not all(map(math.isnan, [*self.downlink_mbps, *self.uplink_mbps]))


class RecordingFiles:
    """The series of RTTs at `out` and of bandwidths beside it, written during the recording to files that end in `.partial`.

    Raises `TraceError` if a file cannot be written, or if an earlier recording left such a partial file.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        began_unix_s: float,
        notes: dict[str, str],
        samples: RecordingSamples,
        transfers: bool,
    ) -> None:
        rtt = Path(out)
        if rtt.is_dir():
            raise TraceError("cannot be written: is a folder", path=rtt, remedy="give the name of a CSV file")
        moment = datetime.fromtimestamp(began_unix_s, timezone.utc).isoformat(sep=" ", timespec="milliseconds")
        self._notes = {"kind": "measured", **notes, "made": "simnmt trace record", "began": moment}
        self._samples = samples
        rates = {
            "time_s": samples.transfer_s,
            "downlink_mbps": samples.downlink_mbps,
            "uplink_mbps": samples.uplink_mbps,
        }
        self._columns = {rtt: {"time_s": samples.sent_s, "rtt_ms": samples.rtt_ms}}
        self._columns |= {bandwidth_path(rtt): rates} if transfers else {}
        self._partial: dict[Path, IO[str]] = {}
        self._written = dict.fromkeys(self._columns, 0)
        try:
            for path in self._columns:
                self._begin(path)
        except BaseException:
            self.discard()
            raise

    def add(self) -> None:
        """Append the new samples to the partial files, and flush the files."""
        for path, file in self._partial.items():
            rows = self._rows(path, self._written[path])
            if rows:
                with naming_write_errors(path):
                    file.writelines(rows)
                    file.flush()
            self._written[path] += len(rows)

    def finish(self, closing_notes: dict[str, str]) -> list[Path]:
        """Write the whole files with all notes, remove the partial ones, and return the paths of the whole ones.

        A recording without any bandwidth gets no file of bandwidths.
        """
        rtt, *bandwidth = self._columns
        paths = [rtt, *(bandwidth if self._samples.rates else ())]
        write_texts({path: "".join([self._head(path, closing_notes), *self._rows(path)]) for path in paths})
        self.discard()
        return paths

    def discard(self) -> None:
        """Remove the partial files."""
        for path in self.leave():
            path.unlink(missing_ok=True)
        self._partial.clear()

    def leave(self) -> list[Path]:
        """Close the partial files, keep them, and return their paths."""
        for file in self._partial.values():
            with suppress(OSError):
                file.close()
        return [_partial(path) for path in self._partial]

    def _begin(self, path: Path) -> None:
        partial = _partial(path)
        with naming_write_errors(path):
            try:
                file = partial.open("x", encoding="utf-8", newline="\n")
            except FileExistsError:
                what = "is left of a recording that was cut off, or belongs to one that is under way"
                raise TraceError(what, path=partial, remedy="rename it to keep it: it is a series; or remove it") from None
            self._partial[path] = file
            file.write(self._head(path, {}))
            file.flush()

    def _head(self, path: Path, closing_notes: dict[str, str]) -> str:
        columns = list(self._columns[path])
        return series_header("rtt" if "rtt_ms" in columns else "bandwidth", self._notes | closing_notes, columns)

    def _rows(self, path: Path, start: int = 0) -> list[str]:
        def cell(value: float) -> str:
            return "" if math.isnan(value) else repr(round(value, 6))

        columns = [column[start:] for column in self._columns[path].values()]
        return [f"{time_s!r},{','.join(map(cell, values))}\n" for time_s, *values in zip(*columns, strict=True)]


def bandwidth_path(out: str | os.PathLike[str]) -> Path:
    """Return `office-bandwidth.csv` for `office.csv`. Raises `TraceError` if `out` names no file."""
    path = Path(out)
    if not path.name:
        raise TraceError(f"--out {os.fspath(out)!r} names no file", remedy="give the name of a CSV file")
    return path.with_name(f"{path.stem}-bandwidth{path.suffix or '.csv'}")


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def describe_rtts(samples: RecordingSamples) -> str:
    """Return a line on the RTTs of a recording with at least one echo."""
    arrived = [ms for ms in samples.rtt_ms if not math.isnan(ms)]
    typical = f"median {statistics.median(arrived):.4g} ms, from {min(arrived):.4g} to {max(arrived):.4g}"
    return f"RTT, measured; {_probes(samples)}; {typical}"


def describe_bandwidths(samples: RecordingSamples) -> str:
    """Return a line on the bandwidths of both directions."""
    ways = []
    for name, column in (("downlink", samples.downlink_mbps), ("uplink", samples.uplink_mbps)):
        arrived = [mbps for mbps in column if not math.isnan(mbps)]
        ways.append(f"{name} median {statistics.median(arrived):.4g} Mbit/s" if arrived else f"{name} all lost")
    transfers = len(samples.transfer_s)
    return f"bandwidth, measured; {transfers:,} transfer{'s' * (transfers != 1)} each way; {', '.join(ways)}"


def describe_progress(samples: RecordingSamples) -> str:
    """Return a line for the progress of a recording."""
    last = samples.rtt_ms[-1] if samples.rtt_ms else math.nan
    return _probes(samples) + ("" if math.isnan(last) else f", last {last:.4g} ms")


def _probes(samples: RecordingSamples) -> str:
    return f"{len(samples.rtt_ms):,} probes, {samples.lost:,} lost"
