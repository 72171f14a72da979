"""A store while it is being written: what is done, layer by layer, so that an interrupted run goes on (STI-05)."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any

from simnmt.elastic.errors import StoreError
from simnmt.elastic.quantisation import GaussianFit
from simnmt.elastic.store.index_file import JOURNAL, SHARDS
from simnmt.elastic.store.record import Record
from simnmt.files import is_still_at, try_lock


class Unfinished:
    """The folder of an unfinished store, held alone by one process: shards so far, and a journal that tells which.

    What lies there is read at once, and what is done of it stays until `begin`, whatever refuses before. Raises `StoreError`
    where the folder holds another model's shards or another run writes to it, and `OSError`.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any], *, resume: bool = True) -> None:
        """`header`: what tells one run from another, JSON. Unless `resume`, what lies there counts for nothing."""
        self.folder = folder
        self.fits: list[GaussianFit] = []
        """Of the layers that are done."""
        self.records: list[Record] = []
        folder.mkdir(exist_ok=True)
        there = {path.name for path in folder.iterdir()}
        if there and JOURNAL not in there:
            raise StoreError("no unfinished store", path=folder, remedy="remove it, or choose another --out")
        self._header, self._end, self._ours = json.dumps(header).encode() + b"\n", 0, False
        self._journal = _opened(folder / JOURNAL)
        try:
            self._lock()
            self._shards = _opened(folder / SHARDS)
        except BaseException:
            self._journal.close()
            raise
        try:
            if resume:
                self._take_over(header)
            # What is done for another run that nothing here begins is not ours to take away.
            self._ours = resume or not os.fstat(self._journal.fileno()).st_size
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of shards so far."""
        return self.records[-1].offset + self.records[-1].size if self.records else 0

    def begin(self) -> None:
        """Drop what is not done. Raises `OSError`."""
        self._ours = True
        for file, whole in ((self._journal, self._end), (self._shards, self.size)):
            file.seek(whole)
            file.truncate()
        if not self._end:
            _write(self._journal, self._header)
        self._remove_all_but(JOURNAL, SHARDS)  # what an interrupted last step left

    def add(self, fit: GaussianFit, records: Iterable[tuple[Record, bytes]]) -> None:
        """Write the next layer, after `begin`; it is done once this returns, whatever happens then. Raises `OSError`."""
        written = []
        for record, content in records:
            _write(self._shards, content)
            written.append(record)
        os.fsync(self._shards.fileno())  # before the journal says so
        line = {"fit": asdict(fit), "records": [asdict(record) for record in written]}
        _write(self._journal, json.dumps(line).encode() + b"\n")
        os.fsync(self._journal.fileno())
        self.fits.append(fit)
        self.records += written

    def close(self) -> None:
        """Let go of the files and keep them, unless no layer is done: then they must stand in nobody's way."""
        if self._ours and not self.records:
            with suppress(OSError):
                # The journal last: as long as it is there and locked, nobody else begins to write.
                self._remove_all_but(JOURNAL)
                (self.folder / JOURNAL).unlink()
                self.folder.rmdir()
        self._journal.close()
        self._shards.close()

    def _remove_all_but(self, *names: str) -> None:
        for path in self.folder.iterdir():
            if path.name in names:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _lock(self) -> None:
        # Between our opening it and locking it, the run that held it may have ended and taken its folder away.
        held = try_lock(self._journal.fileno())
        if held is False or (held and not is_still_at(self._journal.fileno(), self.folder / JOURNAL)):
            raise StoreError(
                "another run is writing this store", path=self.folder, remedy="let it end, or choose another --out"
            )

    def _take_over(self, header: Mapping[str, Any]) -> None:
        lines = self._journal.read().splitlines(keepends=True)
        self._end = self._compare(lines[0], header) if lines and lines[0].endswith(b"\n") else 0
        for line in lines[1:] if self._end else ():
            try:
                said = json.loads(line)
                fit, records = GaussianFit(**said["fit"]), [Record(**record) for record in said["records"]]
            except (ValueError, TypeError, KeyError):
                break  # cut short by what interrupted it
            if not self._as_written(records):
                break
            self._end += len(line)
            self.fits.append(fit)
            self.records += records

    def _compare(self, line: bytes, header: Mapping[str, Any]) -> int:
        try:
            theirs = dict(json.loads(line))
        except (ValueError, TypeError):
            theirs = {}
        for key, ours in json.loads(json.dumps(header)).items():
            if theirs.get(key) != ours:
                what = (
                    "another model"
                    if key in ("fingerprint", "configuration")
                    else f"other {key}: {theirs.get(key)}, not {ours}"
                )
                remedy = "give what it was begun with, remove it, or choose another --out"
                raise StoreError(f"an unfinished store of {what}", path=self.folder, remedy=remedy)
        return len(line)

    def _as_written(self, records: Iterable[Record]) -> bool:
        """Whether the file holds what the journal says: a crash of the whole box may have cost it."""
        for record in records:
            self._shards.seek(record.offset)
            content = self._shards.read(record.size)
            if len(content) != record.size or zlib.crc32(content) != record.crc32:
                return False
        return True


def _opened(path: Path) -> FileIO:
    # Made or opened in one step, and never cut: another run may have made it and be writing it since.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    # Unbuffered: what found no room must not be tried once more when the file is closed.
    return open(os.open(path, flags, 0o666), "r+b", buffering=0)  # noqa: PTH123


def _write(file: FileIO, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
