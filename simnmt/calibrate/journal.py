"""The journal: every measurement is appended as soon as it is made, so that an interrupted calibration resumes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from time import monotonic
from typing import Any

from simnmt.base.files import MOST_TEXT_BYTES, check_regular, lock_journal
from simnmt.calibrate.samples import Reading, Sample
from simnmt.calibrate.settings import CalibrationError

VERSION = 2
SYNC_S = 5.0
"""Seconds of measuring that a crash of the whole box may cost."""


def journal_path(out: str | os.PathLike[str]) -> Path:
    """Where the journal of a profile lies."""
    return Path(f"{os.fspath(out)}.journal.jsonl")


class Journal:
    """Samples and readings by what they are of, and findings by name; new ones go to the file at once.

    Opened with a header, which tells settings and box: a file with another header is refused, for its numbers would not
    belong to this profile. A line that an interruption cut short is dropped, and so is what memory had no room for: it is tried
    again. Raises `CalibrationError` for a journal that
    is another's, or in use, or that cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.samples: dict[tuple[str, int, int, int], Sample] = {}
        """By (bench, attempt, stretch, index)."""
        self.readings: dict[tuple[str, int, int], Reading] = {}
        """By (bench, attempt, position)."""
        self.findings: dict[str, Any] = {}
        """Results of parts that are measured in one go."""
        self.sessions: list[dict[str, Any]] = []
        """The state of the box at each beginning, this one's too once it is told."""
        self._synced = monotonic()
        self._file = self._open(dict(header) | {"journal": VERSION})

    def __len__(self) -> int:
        """Measurements that it holds."""
        return len(self.samples) + len(self.readings) + len(self.findings)

    def sample(self, sample: Sample) -> None:
        """Keep a sample."""
        self._append(sample.as_json())
        self.samples[sample.bench, sample.attempt, sample.stretch, sample.index] = sample

    def reading(self, reading: Reading) -> None:
        """Keep a reading of the reference cell."""
        self._append(reading.as_json())
        self.readings[reading.bench, reading.attempt, reading.position] = reading

    def finding(self, name: str, result: Any) -> None:
        """Keep the result of a part."""
        self._append({"finding": name, "result": result})
        self.findings[name] = result

    def session(self, state: dict[str, Any]) -> None:
        """Note that measuring begins, and the box's state."""
        self.sessions.append(state)
        self._append({"session": state})

    def close(self) -> None:
        """Let go of the file and keep it, unless nothing was measured: then it must stand in nobody's way."""
        if self._file.closed:
            return
        with suppress(OSError):
            if not len(self):
                self.remove()
                return
            self._sync()
        self._file.close()

    def remove(self) -> None:
        """The profile is written: all that is here stands there."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _open(self, header: dict[str, Any]) -> FileIO:
        try:
            if self.path.exists():
                check_regular(self.path, MOST_TEXT_BYTES)
            # Unbuffered: what found no room must not be tried once more when the file is closed.
            file = open(self.path, "r+b" if self.path.exists() else "w+b", buffering=0)  # noqa: SIM115, PTH123
        except OSError as error:
            remedy = "choose another --out"
            raise CalibrationError(f"cannot be written: {error.strerror}", path=self.path, remedy=remedy) from None
        try:
            lock_journal(file.fileno(), self.path, CalibrationError, "calibration")
            end = self._read(file, header)
            file.seek(end)
            file.truncate()
            if end == 0:
                self._write(file, header)
        except BaseException:
            file.close()
            raise
        return file

    def _read(self, file: FileIO, header: dict[str, Any]) -> int:
        """Take over what was measured; returns the bytes of whole lines."""
        end = 0
        content = file.read()
        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break
            try:
                self._take(json.loads(line), number, header)
            except (ValueError, KeyError, TypeError, AttributeError):
                if number > 1 and end + len(line) == len(content):
                    break  # the last line alone may be damaged, by a crash of the box
                raise CalibrationError(
                    "not a journal of a calibration", path=self.path, line=number, remedy="remove it, or choose another --out"
                ) from None
            end += len(line)
        return end

    def _take(self, line: dict[str, Any], number: int, header: dict[str, Any]) -> None:
        if number == 1:
            line["journal"]
            self._compare(line, header)
        elif "session" in line:
            self.sessions.append(line["session"])
        elif "finding" in line:
            self.findings[line["finding"]] = line["result"]
        elif "reading" in line:
            reading = Reading.of_json(line)
            self.readings[reading.bench, reading.attempt, reading.position] = reading
        else:
            sample = Sample.of_json(line)
            if sample.timing is None:
                return  # there may be room in this sitting
            self.samples[sample.bench, sample.attempt, sample.stretch, sample.index] = sample

    def _compare(self, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
        flat_theirs, flat_ours = _flat(theirs), _flat(json.loads(json.dumps(ours)))
        for key in dict.fromkeys([*flat_ours, *flat_theirs]):
            if flat_theirs.get(key) != flat_ours.get(key):
                theirs_text, ours_text = (json.dumps(flat.get(key)) for flat in (flat_theirs, flat_ours))
                raise CalibrationError(
                    f"the journal has {key} {theirs_text}, this calibration {ours_text}",
                    path=self.path,
                    remedy="give what it was begun with, choose another --out, or remove the journal",
                )

    def _append(self, line: dict[str, Any]) -> None:
        self._write(self._file, line)
        if monotonic() - self._synced > SYNC_S:
            with self._blamed():
                self._sync()

    def _write(self, file: FileIO, line: Mapping[str, Any]) -> None:
        rest = memoryview(json.dumps(line).encode() + b"\n")
        with self._blamed():
            while rest:
                rest = rest[file.write(rest) :]

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = "make room and give the same command again"
            raise CalibrationError(f"cannot be written: {error.strerror}", path=self.path, remedy=remedy) from None

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = monotonic()


def _flat(header: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Settings and box by single keys, so that a complaint names the one that differs."""
    flat: dict[str, Any] = {}
    for key, value in header.items():
        flat.update(_flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value})
    return flat
