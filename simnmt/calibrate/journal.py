"""The journal: a file that gets every finding at once, so that an interrupted measurement goes on from there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simnmt.base.files import MOST_TEXT_BYTES, check_regular
from simnmt.calibrate.settings import CalibrationError

if sys.platform != "win32":
    import fcntl

VERSION = 2


def journal_path(out: str | os.PathLike[str]) -> Path:
    """Return the path of the journal of a profile."""
    return Path(f"{os.fspath(out)}.journal.jsonl")


class Journal:
    """Findings by name, plain JSON, in a file of one line each; a new one goes to the file at once.

    The first line is the header: settings and box, which must be the same for all measurements of one profile. A file of
    another version or with another header is refused: its numbers do not belong to this measurement. A truncated last line is
    dropped. Raises `CalibrationError` for a journal of another header unless `replaces`, for a file that is no journal, and for
    one that cannot be written, or that another process writes.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any], *, replaces: bool = False) -> None:
        self.path = Path(path)
        self.remark = ""
        """What was removed of a journal of other settings; empty: nothing."""
        header = {"journal": VERSION, **json.loads(json.dumps(header))}
        try:
            if self.path.exists():
                check_regular(self.path, MOST_TEXT_BYTES)
            # Unbuffered: bytes that did not fit on the disk must not be written again when the file is closed.
            self._file = open(self.path, "r+b" if self.path.exists() else "x+b", buffering=0)  # noqa: SIM115, PTH123
            if sys.platform != "win32":
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the file is closed, or the process ends
            lines = self._lines(header, replaces=replaces)
        except BlockingIOError:
            self._file.close()
            what, remedy = "another calibration is writing this journal", "let it end, or choose another --out"
            raise CalibrationError(what, path=self.path, remedy=remedy) from None
        except OSError as error:
            raise self._unwritable(error, "choose another --out") from None
        except CalibrationError:
            self._file.close()
            raise
        if not lines:
            self._write(header)

    def _lines(self, header: dict[str, Any], *, replaces: bool) -> list[bytes]:
        """Read the findings of the file, and cut off what does not count; return the lines that do."""
        lines = [line for line in self._file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        if lines and (difference := self._difference(lines[0], header)):
            if not replaces:
                remedy = "give what it was begun with, choose another --out, or remove the journal, as --force does"
                raise CalibrationError(difference, path=self.path, remedy=remedy)
            lines, self.remark = [], f"{self.path}: the measurements there are removed, since {difference}"
        self.findings = dict(self._finding(number, line) for number, line in enumerate(lines[1:], start=2))
        self._file.seek(self._file.truncate(sum(map(len, lines))))
        return lines

    def finding(self, name: str, result: Any) -> None:
        """Keep a finding."""
        self._write([name, result])
        self.findings[name] = result

    def close(self) -> None:
        """Close the file and keep it; remove it if nothing was measured."""
        if not self._file.closed and not self.findings:
            self.remove()
        self._file.close()

    def remove(self) -> None:
        """Remove the file: its measurements are in the profile."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _difference(self, line: bytes, header: dict[str, Any]) -> str:
        """Return the first difference of the file's header from this one, in words."""
        try:
            theirs, ours = _flat(json.loads(line)), _flat(header)
        except (ValueError, AttributeError):
            theirs = {}
        if "journal" not in theirs:
            raise self._no_journal(1)
        if theirs["journal"] != ours["journal"]:
            return f"the journal is of version {theirs['journal']}, this simnmt writes version {ours['journal']}"
        for key in {**ours, **theirs}:
            if theirs.get(key) != ours.get(key):
                return f"the journal has {key} {json.dumps(theirs.get(key))}, this measurement {json.dumps(ours.get(key))}"
        return ""

    def _finding(self, number: int, line: bytes) -> tuple[str, Any]:
        try:
            name, result = json.loads(line)
        except (ValueError, TypeError):
            raise self._no_journal(number) from None
        if not isinstance(name, str):
            raise self._no_journal(number)
        return name, result

    def _no_journal(self, line: int) -> CalibrationError:
        what, remedy = "not a journal of a measurement", "remove it, or choose another --out"
        return CalibrationError(what, path=self.path, line=line, remedy=remedy)

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
