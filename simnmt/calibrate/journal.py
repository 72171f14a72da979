"""The journal: a file that gets every measurement at once, so that an interrupted calibration resumes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from time import monotonic
from typing import Any

from pydantic import TypeAdapter

from simnmt.base.files import MOST_TEXT_BYTES, check_regular
from simnmt.calibrate.samples import Reading, Sample
from simnmt.calibrate.settings import CalibrationError
from simnmt.profile.origin import MeasuringConditions

Header = Mapping[str, object]
"""Settings and box, which must be the same for all measurements of one profile."""
_SAMPLE, _READING = TypeAdapter(Sample), TypeAdapter(Reading)
VERSION = 1
SYNC_S = 5.0
"""Most seconds of measuring that a crash of the box may lose."""
MEMORY, MEMORY_TOLERANCE = "box.memory_bytes", 64 << 20
"""Two starts of one box may leave it a few kilobytes more or less."""


def journal_path(out: str | os.PathLike[str]) -> Path:
    """Return the path of the journal of a profile."""
    return Path(f"{os.fspath(out)}.journal.jsonl")


class _OtherSettings(CalibrationError):
    """A journal of other settings or of another box."""


class Journal:
    """Samples and readings by place in the plan, and findings by name; new ones go to the file at once.

    A file with another header (settings, box) is refused: its numbers do not belong to this profile. A truncated last line is
    dropped, and so are works that did not fit into memory, which are tried again. Raises `CalibrationError` for a journal of
    other settings unless `replaces`, one in use, and one that cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, object], *, replaces: bool = False) -> None:
        self.path = Path(path)
        self.remark = ""
        """What was removed of a journal of other settings; empty: nothing."""
        self._replaces = replaces
        self.samples: dict[tuple[str, int, int, int], Sample] = {}
        """By (bench, attempt, stretch, index)."""
        self.readings: dict[tuple[str, int, int], Reading] = {}
        """By (bench, attempt, position)."""
        self.findings: dict[str, Any] = {}
        """Results of parts that are measured as a whole."""
        self.sessions: list[MeasuringConditions] = []
        """The state of the box before each session."""
        self._synced = monotonic()
        self._file = self._open(dict(header) | {"journal": VERSION})

    def __len__(self) -> int:
        """Return the number of measurements."""
        return len(self.samples) + len(self.readings) + len(self.findings)

    def sample(self, sample: Sample) -> None:
        """Keep a sample."""
        self._append("sample", _SAMPLE.dump_python(sample, mode="json"))
        self.samples[sample.bench, sample.attempt, sample.stretch, sample.index] = sample

    def reading(self, reading: Reading) -> None:
        """Keep a reading of the reference cell."""
        self._append("reading", _READING.dump_python(reading, mode="json"))
        self.readings[reading.bench, reading.attempt, reading.position] = reading

    def finding(self, name: str, result: Any) -> None:
        """Keep the result of a part, which is plain JSON."""
        self._append("finding", [name, result])
        self.findings[name] = result

    def session(self, state: MeasuringConditions) -> None:
        """Keep the state of the box before a session."""
        self._append("session", state.model_dump(mode="json", exclude_unset=True))
        self.sessions.append(state)

    def close(self) -> None:
        """Close the file and keep it; remove it if nothing was measured."""
        if self._file.closed:
            return
        with suppress(OSError):
            if not len(self):
                self.remove()
                return
            self._sync()
        self._file.close()

    def remove(self) -> None:
        """Remove the file: its measurements are in the profile."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _open(self, header: Header) -> FileIO:
        try:
            if self.path.exists():
                check_regular(self.path, MOST_TEXT_BYTES)
            # Unbuffered: bytes that did not fit on the disk must not be written again when the file is closed.
            file = open(self.path, "r+b" if self.path.exists() else "w+b", buffering=0)  # noqa: SIM115, PTH123
        except OSError as error:
            remedy = "choose another --out"
            raise CalibrationError(f"cannot be written: {error.strerror}", path=self.path, remedy=remedy) from None
        try:
            try:
                end = self._read(file, header)
            except _OtherSettings as other:
                if not self._replaces:
                    raise
                end, self.remark = 0, f"{self.path}: the measurements there are removed, since {other.what}"
            file.seek(end)
            file.truncate()
            if end == 0:
                self._write(file, header)
        except BaseException:
            file.close()
            raise
        return file

    def _read(self, file: FileIO, header: Header) -> int:
        """Read the measurements; return the bytes of whole lines."""
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

    def _take(self, line: Any, number: int, header: Header) -> None:
        if number == 1:
            line["journal"]
            self._compare(line, header)
        elif "session" in line:
            self.sessions.append(MeasuringConditions.model_validate_json(json.dumps(line["session"])))
        elif "finding" in line:
            name, result = line["finding"]
            self.findings[name] = result
        elif "reading" in line:
            reading = _READING.validate_python(line["reading"])
            self.readings[reading.bench, reading.attempt, reading.position] = reading
        else:
            sample = _SAMPLE.validate_python(line["sample"])
            if sample.timing is not None:  # else it may fit into memory in this session
                self.samples[sample.bench, sample.attempt, sample.stretch, sample.index] = sample

    def _compare(self, theirs: Any, ours: Header) -> None:
        flat_theirs, flat_ours = _flat(theirs), _flat(json.loads(json.dumps(ours)))
        for key in dict.fromkeys([*flat_ours, *flat_theirs]):
            values = flat_theirs.get(key), flat_ours.get(key)
            if not _is_same(key, *values):
                theirs_text, ours_text = map(json.dumps, values)
                raise _OtherSettings(
                    f"the journal has {key} {theirs_text}, this calibration {ours_text}",
                    path=self.path,
                    remedy="give what it was begun with, choose another --out, or remove the journal, as --force does",
                )

    def _append(self, kind: str, record: Any) -> None:
        self._write(self._file, {kind: record})
        if monotonic() - self._synced > SYNC_S:
            with self._blamed():
                self._sync()

    def _write(self, file: FileIO, line: Header) -> None:
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


def _is_same(key: str, theirs: Any, ours: Any) -> bool:
    if key == MEMORY and None not in (theirs, ours):
        return bool(abs(theirs - ours) < MEMORY_TOLERANCE)
    return bool(theirs == ours)


def _flat(header: Header, above: str = "") -> dict[str, object]:
    """Return settings and box as a flat mapping, so that a message can name the key that differs."""
    flat: dict[str, object] = {}
    for key, value in header.items():
        flat.update(_flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value})
    return flat
