"""Write a shard store, layer by layer; an interrupted run resumes from its journal (STI-05)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from simnmt.base.files import NO_ROOM, sole_writer
from simnmt.nmt.checkpoint import write_tensors
from simnmt.profile.streaming_cost import BITS
from simnmt.streaming.encoder.encoder_configuration import EncoderWeights
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store.index import BESIDE, INDEX, JOURNAL, RESIDENT, SHARDS, VERSION, Index, StoredFile
from simnmt.streaming.store.quantisation import GaussianFit, layer_fit, layer_records
from simnmt.streaming.store.shard_format import Record, check_layout, record_size


def synced(path: Path) -> None:
    """Flush the content of a file, or the names in a folder, to the disk. Raises `OSError`.

    Systems that cannot flush folders are tolerated.
    """
    folder = path.is_dir()
    if folder and sys.platform == "win32":
        return
    file = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        with suppress(*((OSError,) if folder else ())):
            os.fsync(file)
    finally:
        os.close(file)


class Unfinished:
    """Unfinished store in a folder that only this process may write: its shards, and a journal of the finished layers.

    The constructor reads the journal; nothing is written before `begin`. Raises `OSError`, and `StoreError` for a folder that
    holds shards of another model or other files.
    """

    def __init__(self, folder: Path, header: Mapping[str, object], *, resume: bool = True) -> None:
        """Read the journal; `header` holds the settings of the store. Unless `resume`, `begin` drops finished layers."""
        self.folder = folder
        self.fits: list[GaussianFit] = []
        """Gaussians of the finished layers."""
        self.records: list[Record] = []
        self._header, self._end, self._files, self._begun = json.dumps(header).encode() + b"\n", 0, ExitStack(), False
        names = {path.name for path in folder.iterdir()}
        linked = any(path.is_symlink() for path in (folder, *folder.iterdir()))
        if linked or (names and JOURNAL not in names):
            raise StoreError("no unfinished store", path=folder, remedy="remove it, or choose another --out")
        if names and resume:
            self._take_over(header)

    @property
    def size(self) -> int:
        """Bytes of the shards of all finished layers."""
        return self.records[-1].offset + self.records[-1].size if self.records else 0

    def begin(self) -> None:
        """Open the files for writing and drop unfinished layers. Raises `OSError`."""
        self._begun = True
        self._journal, self._shards = self._opened(JOURNAL, self._end), self._opened(SHARDS, self.size)
        if not self._end:
            _write(self._journal, self._header)
        self._remove_all_but(JOURNAL, SHARDS)  # files that an interrupted last step left

    def add(self, fit: GaussianFit, records: Iterable[tuple[Record, bytes]]) -> None:
        """Write the next layer, after `begin`; once this returns, the layer survives any crash. Raises `OSError`."""
        written = []
        for record, content in records:
            _write(self._shards, content)
            written.append(record)
        os.fsync(self._shards.fileno())  # before the journal lists the layer
        line = {"fit": asdict(fit), "records": [asdict(record) for record in written]}
        _write(self._journal, json.dumps(line).encode() + b"\n")
        os.fsync(self._journal.fileno())
        self.fits.append(fit)
        self.records += written

    def close(self) -> None:
        """Close the files; remove them if no layer is finished, so that the folder is free."""
        self._files.close()
        if self._begun and not self.records:
            with suppress(OSError):
                self._remove_all_but()

    def _opened(self, name: str, size: int) -> FileIO:
        path = self.folder / name
        # Unbuffered: closing the file must not repeat a write that found no room.
        file = self._files.enter_context(path.open("r+b" if path.exists() else "w+b", buffering=0))
        file.seek(size)
        file.truncate()
        return file

    def _remove_all_but(self, *names: str) -> None:
        for path in self.folder.iterdir():
            if path.name in names:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _take_over(self, header: Mapping[str, object]) -> None:
        first, *lines = (self.folder / JOURNAL).read_bytes().splitlines(keepends=True) or [b""]
        if not first.endswith(b"\n"):
            return
        self._compare(first, header)
        self._end = len(first)
        with (self.folder / SHARDS).open("a+b") as shards:
            for line in lines:
                try:
                    entry = json.loads(line)
                    fit, records = GaussianFit(**entry["fit"]), [Record(**record) for record in entry["records"]]
                except (ValueError, TypeError, KeyError):
                    break  # cut short by what interrupted it
                if not all(_as_written(shards, record) for record in records):
                    break
                self._end += len(line)
                self.fits.append(fit)
                self.records += records

    def _compare(self, line: bytes, header: Mapping[str, object]) -> None:
        try:
            theirs = dict(json.loads(line))
        except (ValueError, TypeError):
            theirs = {}
        for key, ours in json.loads(json.dumps(header)).items():
            if theirs.get(key) != ours:
                what = "another model" if key == "fingerprint" else f"other {key}: {theirs.get(key)}, not {ours}"
                remedy = "give what it was begun with, remove it, or choose another --out"
                raise StoreError(f"an unfinished store of {what}", path=self.folder, remedy=remedy)


def _as_written(shards: BinaryIO, record: Record) -> bool:
    """Return whether the file holds the record that the journal lists: a crash of the box may have lost it."""
    shards.seek(record.offset)
    content = shards.read(record.size)
    return len(content) == record.size and zlib.crc32(content) == record.crc32


def _write(file: FileIO, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def write_store(
    weights: EncoderWeights,
    path: str | os.PathLike[str],
    *,
    bits: Sequence[int] = BITS,
    beside: Mapping[str, bytes] | None = None,
    label_names: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
    resume: bool = True,
) -> None:
    """Write the shards of a model to the new folder `path`, whole or not at all.

    Unfinished work lies in `path` with `.partial` added.

    Args:
        bits: bitwidths to write.
        beside: small files to store by name, such as a tokenizer.
        label_names: names of the classes.
        progress: called with finished layers and all layers.
        resume: continue an interrupted run.

    Raises:
        StoreError: for a layer that cannot be quantised, for an unfinished store of another model or of other bits, and if the
            disk is too full.
    """
    out = Path(path) if Path(path).name else Path(os.path.realpath(path))
    partial = out.with_name(f"{out.name}.partial")
    bits, geometry = _checked_bits(bits), weights.geometry
    check_layout(geometry)
    with _as_store_errors(out):
        _check_free(out)
    header = {"version": VERSION, "fingerprint": weights.fingerprint, "bits": list(bits)}
    with (
        sole_writer(partial, StoreError, "run"),
        _as_store_errors(partial),
        closing(Unfinished(partial, header, resume=resume)) as unfinished,
    ):
        _check_room(weights, bits, partial, unfinished.size)
        done, layers = len(unfinished.fits), geometry.layers
        # Before the first write: the last layer may be the one that cannot be quantised.
        fits = [layer_fit(geometry, weights.layer(layer), layer) for layer in range(done, layers)]
        unfinished.begin()
        for layer, fit in enumerate(fits, done):
            if progress is not None:
                progress(layer, layers)
            unfinished.add(fit, layer_records(geometry, weights.layer(layer), fit, layer, bits, unfinished.size))
        _write_beside(partial, weights, beside or {})
        names = sorted(str(written.relative_to(partial)) for written in (partial / RESIDENT, *(partial / BESIDE).iterdir()))
        Index(
            fingerprint=weights.fingerprint,
            configuration=weights.configuration,
            origin=weights.origin,
            random=weights.random,
            label_names=tuple(label_names),
            bits=bits,
            layers=tuple(unfinished.fits),
            records=tuple(unfinished.records),
            files={name: StoredFile.of(partial / name) for name in names},
        ).write(partial)
        # Otherwise a crash of the box could leave a store with incomplete files.
        for written in (*(partial / name for name in (*names, INDEX)), partial / BESIDE, partial):
            synced(written)
        partial.replace(out)
        synced(out.parent)
        (out / JOURNAL).unlink()
        if progress is not None:
            progress(layers, layers)


def _write_beside(folder: Path, weights: EncoderWeights, beside: Mapping[str, bytes]) -> None:
    first_names: dict[int, str] = {}
    shared = {name for name, tensor in weights.resident.items() if first_names.setdefault(tensor.data_ptr(), name) != name}
    write_tensors(folder / RESIDENT, {n: tensor.clone() if n in shared else tensor for n, tensor in weights.resident.items()})
    (folder / BESIDE).mkdir()
    for name, content in beside.items():
        (folder / BESIDE / name).write_bytes(content)


def _checked_bits(bits: Sequence[int]) -> tuple[int, ...]:
    unknown = [width for width in bits if width not in BITS]
    if unknown or not bits:
        what = f"no shards of {unknown[0]} bits" if unknown else "no bits"
        raise StoreError(what, remedy=f"choose from {', '.join(map(str, BITS))}")
    return tuple(sorted(set(bits)))


def _check_free(out: Path) -> None:
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise StoreError("is there already", path=out, remedy="remove it, or choose another --out")
    if not out.parent.is_dir():
        raise StoreError("its folder does not exist", path=out, remedy="make it, or choose another --out")


def _check_room(weights: EncoderWeights, bits: Sequence[int], folder: Path, there: int) -> None:
    geometry = weights.geometry
    shards = sum(record_size(geometry.weights_per_shard, width, 0) for width in bits) * geometry.layers * geometry.heads
    needed = shards - there + sum(tensor.nbytes for tensor in weights.resident.values())
    free = shutil.disk_usage(folder).free
    if free < needed:
        remedy = "make room, take fewer --bits, or choose another --out"
        what = f"needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} are free"
        raise StoreError(what, path=folder, remedy=remedy) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def _as_store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        what, number = (error.strerror or str(error), error.errno) if isinstance(error, OSError) else (str(error), None)
        if number in NO_ROOM:
            remedy = "make room, and give the same command again"
        elif number in (errno.EACCES, errno.EPERM):
            remedy = "correct its permissions, or choose another --out"
        else:
            remedy = "choose another --out"
        raise StoreError(f"cannot be written: {what}", path=path, remedy=remedy) from None
