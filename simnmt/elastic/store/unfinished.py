"""A store while it is being written: what is done, layer by layer, so that an interrupted run goes on (STI-05)."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any

from simnmt.elastic.errors import StoreError
from simnmt.elastic.quantisation import GaussianFit
from simnmt.elastic.store.index_file import JOURNAL, SHARDS
from simnmt.elastic.store.record import Record


class Unfinished:
    """The folder of an unfinished store, held alone by one process: shards so far, and a journal that tells which.

    Raises `StoreError` where the folder holds another model's shards or another run writes to it, and `OSError`.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        """`header`: what tells one run from another, JSON."""
        self.folder = folder
        self.fits: list[GaussianFit] = []
        """Of the layers that are done."""
        self.records: list[Record] = []
        folder.mkdir(exist_ok=True)
        self._journal = _opened(folder / JOURNAL)
        self._shards = _opened(folder / SHARDS)
        self._ours = False
        try:
            _lock(self._journal, folder)
            self._take_over(dict(header))
            self._ours = True
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of shards so far."""
        return self.records[-1].offset + self.records[-1].size if self.records else 0

    def add(self, fit: GaussianFit, records: Iterable[tuple[Record, bytes]]) -> None:
        """Write the next layer; it is done once this returns, whatever happens then. Raises `OSError`."""
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
            shutil.rmtree(self.folder, ignore_errors=True)
        self._journal.close()
        self._shards.close()

    def _take_over(self, header: dict[str, Any]) -> None:
        lines = self._journal.read().splitlines(keepends=True)
        end = self._compare(lines[0], header) if lines and lines[0].endswith(b"\n") else 0
        for line in lines[1:] if end else ():
            try:
                said = json.loads(line)
                fit, records = GaussianFit(**said["fit"]), [Record(**record) for record in said["records"]]
            except (ValueError, TypeError, KeyError):
                break  # cut short by what interrupted it
            if not self._as_written(records):
                break
            end += len(line)
            self.fits.append(fit)
            self.records += records
        for file, whole in ((self._journal, end), (self._shards, self.size)):
            file.seek(whole)
            file.truncate()
        if not end:
            _write(self._journal, json.dumps(header).encode() + b"\n")

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
            content = os.pread(self._shards.fileno(), record.size, record.offset)
            if len(content) != record.size or zlib.crc32(content) != record.crc32:
                return False
        return True


def _opened(path: Path) -> FileIO:
    # Unbuffered: what found no room must not be tried once more when the file is closed.
    return open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: PTH123


def _write(file: FileIO, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _lock(file: FileIO, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        remedy = "let it end, or choose another --out"
        raise StoreError("another run is writing this store", path=folder, remedy=remedy) from None
    except OSError:
        return  # a file system without locks, as some network ones are
