"""The journal: a file that gets every finding at once, so that an interrupted measurement goes on from there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simnmt.base.files import MOST_TEXT_BYTES, check_regular
from simnmt.calibrate.settings import CalibrationError

Header = Mapping[str, Any]
"""Settings and box, which must be the same for all measurements of one profile."""
VERSION = 2
SESSION = "session"
"""Beginning of the names of findings that are no measurements: the state of the box before each session."""


def journal_path(out: str | os.PathLike[str]) -> Path:
    """Return the path of the journal of a profile."""
    return Path(f"{os.fspath(out)}.journal.jsonl")


class _OtherSettings(CalibrationError):
    """A journal of other settings or of another box."""


class Journal:
    """Findings by name, plain JSON, in a file of one line each; a new one goes to the file at once.

    A file of another version or with another header (settings, box) is refused: its numbers do not belong to this measurement.
    A truncated last line is dropped. Raises `CalibrationError` for a journal of other settings unless `replaces`, for a file
    that is no journal, and for one that cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any], *, replaces: bool = False) -> None:
        self.path = Path(path)
        self.remark = ""
        """What was removed of a journal of other settings; empty: nothing."""
        self.findings: dict[str, Any] = {}
        line = {"journal": VERSION, **json.loads(json.dumps(header))}
        try:
            if self.path.exists():
                check_regular(self.path, MOST_TEXT_BYTES)
            end = self._read(line)
        except _OtherSettings as other:
            if not replaces:
                raise
            end, self.remark = 0, f"{self.path}: the measurements there are removed, since {other.what}"
        except OSError as error:
            raise self._unwritable(error, "choose another --out") from None
        try:
            # Unbuffered: bytes that did not fit on the disk must not be written again when the file is closed.
            self._file = open(self.path, "r+b" if self.path.exists() else "w+b", buffering=0)  # noqa: SIM115, PTH123
            self._file.truncate(end)
            self._file.seek(end)
        except OSError as error:
            raise self._unwritable(error, "choose another --out") from None
        if end == 0:
            self._write(line)

    def finding(self, name: str, result: Any) -> None:
        """Keep a finding."""
        self._write([name, result])
        self.findings[name] = result

    @property
    def measured(self) -> bool:
        """True if it holds a measurement."""
        return not all(name.startswith(SESSION) for name in self.findings)

    def close(self) -> None:
        """Close the file and keep it; remove it if nothing was measured."""
        if not self._file.closed and not self.measured:
            self.remove()
        self._file.close()

    def remove(self) -> None:
        """Remove the file: its measurements are in the profile."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _read(self, header: dict[str, Any]) -> int:
        """Read the findings; return the bytes of whole lines."""
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        end = 0
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                if number == 1:
                    self._compare(json.loads(line), header)
                else:
                    name, result = json.loads(line)
                    self.findings[name] = result
            except (ValueError, KeyError, TypeError, AttributeError):
                what, remedy = "not a journal of a measurement", "remove it, or choose another --out"
                raise CalibrationError(what, path=self.path, line=number, remedy=remedy) from None
            end += len(line)
        return end

    def _compare(self, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
        flat_theirs, flat_ours = _flat(theirs), _flat(ours)
        flat_theirs["journal"]
        for key in [*flat_ours, *flat_theirs]:
            if flat_theirs.get(key) != flat_ours.get(key):
                values = json.dumps(flat_theirs.get(key)), json.dumps(flat_ours.get(key))
                raise _OtherSettings(
                    f"the journal has {key} {values[0]}, this measurement {values[1]}",
                    path=self.path,
                    remedy="give what it was begun with, choose another --out, or remove the journal, as --force does",
                )

    def _write(self, line: object) -> None:
        rest = memoryview(json.dumps(line).encode() + b"\n")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise self._unwritable(error, "make room and give the same command again") from None

    def _unwritable(self, error: OSError, remedy: str) -> CalibrationError:
        return CalibrationError(f"cannot be written: {error.strerror}", path=self.path, remedy=remedy)


def _flat(header: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return settings and box as a flat mapping, so that a message can name the key that differs."""
    flat: dict[str, Any] = {}
    for key, value in header.items():
        flat.update(_flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value})
    return flat
