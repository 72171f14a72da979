"""The journal: a file that gets every finding at once, so that an interrupted measurement goes on from there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from simnmt.base.files import MOST_TEXT_BYTES, read_bounded
from simnmt.calibrate.settings import CalibrationError

VERSION = 2


def journal_path(out: str | os.PathLike[str]) -> Path:
    """Return the path of the journal of a profile."""
    return Path(f"{os.fspath(out)}.journal.jsonl")


class Journal:
    """Findings by name, plain JSON, in a file of one line each; a new one goes to the file at once.

    The first line is the header: settings and box, which must be the same for all measurements of one profile. A file of
    another version or with another header is refused: its numbers do not belong to this measurement. A truncated last line is
    dropped. Raises `CalibrationError` for a journal of another header unless `replaces`, for a file that is no journal, and for
    one that cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any], *, replaces: bool = False) -> None:
        self.path, self.findings = Path(path), dict[str, Any]()
        self.remark = ""
        """What was removed of a journal of other settings; empty: nothing."""
        header = {"journal": VERSION, **json.loads(json.dumps(header))}
        try:
            content = read_bounded(self.path, MOST_TEXT_BYTES) if self.path.exists() else b""
        except OSError as error:
            raise self._unwritable(error) from None
        lines = [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
        if lines and (difference := self._difference(lines[0], header)):
            if not replaces:
                remedy = "give what it was begun with, choose another --out, or remove the journal, as --force does"
                raise CalibrationError(difference, path=self.path, remedy=remedy)
            lines, self.remark = [], f"{self.path}: the measurements there are removed, since {difference}"
        try:
            for line in lines[1:]:
                name, result = json.loads(line)
                self.findings[name] = result
        except (ValueError, TypeError):
            raise self._no_journal(2 + len(self.findings)) from None
        if lines:
            os.truncate(self.path, sum(map(len, lines)))
        else:
            self._write(header, "wb")

    def finding(self, name: str, result: Any) -> None:
        """Keep a finding."""
        self._write([name, result])
        self.findings[name] = result

    def close(self) -> None:
        """Remove the file if nothing was measured."""
        if not self.findings:
            self.remove()

    def remove(self) -> None:
        """Remove the file: its measurements are in the profile."""
        self.path.unlink(missing_ok=True)

    def _difference(self, line: bytes, header: dict[str, Any]) -> str:
        """Return the first difference of the file's header from this one, in words."""
        try:
            theirs, ours = (pd.json_normalize(content).to_dict("records")[0] for content in (json.loads(line), header))
        except (ValueError, TypeError, NotImplementedError, IndexError):
            theirs = {}
        if "journal" not in theirs:
            raise self._no_journal(1)
        if theirs["journal"] != ours["journal"]:
            return f"the journal is of version {theirs['journal']}, this simnmt writes version {ours['journal']}"
        for key in {**ours, **theirs}:
            if theirs.get(key) != ours.get(key):
                return f"the journal has {key} {json.dumps(theirs.get(key))}, this measurement {json.dumps(ours.get(key))}"
        return ""

    def _no_journal(self, line: int) -> CalibrationError:
        what, remedy = "not a journal of a measurement", "remove it, or choose another --out"
        return CalibrationError(what, path=self.path, line=line, remedy=remedy)

    def _write(self, line: object, mode: str = "ab") -> None:
        try:
            with self.path.open(mode) as file:
                file.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> CalibrationError:
        remedy = "make room, or choose another --out"
        return CalibrationError(f"cannot be written: {error.strerror}", path=self.path, remedy=remedy)
