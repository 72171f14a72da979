"""Read a shard store: any shard at any number of bits by one positioned read; statistics of a store (STI-03 to STI-05)."""

from __future__ import annotations

import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from simnmt.base.files import MOST_MODEL_BYTES, check_regular, read_bounded
from simnmt.nmt.checkpoint import TensorFileError, read_tensors
from simnmt.profile.streaming_cost import ShardGeometry
from simnmt.streaming import page_cache
from simnmt.streaming.encoder.tokenizer import Tokenizer, tokenizer_from
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store.index import AGAIN, BESIDE, RESIDENT, SHARDS, Index, StoredFile
from simnmt.streaming.store.shard_format import FULL, Record, aligned_bytes, header, record_size

_seek_lock = Lock()


def read_at(file: int, out: memoryview, offset: int) -> int:
    """Read from `offset` of an open file into `out`; return the bytes read, 0 at the end of the file. Raises `OSError`.

    `out` must not be empty. The read makes no copy if the system supports positioned reads.
    """
    if sys.platform != "win32" and hasattr(os, "preadv"):
        return os.preadv(file, [out], offset)
    with _seek_lock:
        os.lseek(file, offset, os.SEEK_SET)
        content = os.read(file, len(out))
    out[: len(content)] = content
    return len(content)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", path=path, remedy=AGAIN) from None


class ShardStore:
    """A store that `write_store` wrote. Reads of several threads may overlap: they share no file position."""

    def __init__(self, path: Path, index: Index, file: int) -> None:
        """Wrap an open file; callers use `ShardStore.open`."""
        self.path, self.index, self.file = path, index, file
        self.configuration, self.kind = index.configuration, index.configuration.kind
        self.geometry: ShardGeometry = self.configuration.geometry
        self.fingerprint, self.label_names, self.bits = index.fingerprint, index.label_names, index.bits
        self._records = {(record.layer, record.slice, record.bits): record for record in index.records}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ShardStore:
        """Open a store; raises `StoreError` if it is missing, or if files have wrong sizes; `check` reads all contents."""
        folder = Path(path)
        index = Index.read(folder)
        expected = {SHARDS: sum(record.size for record in index.records)} | {n: f.size for n, f in index.files.items()}
        for name, size in expected.items():
            _check_size(folder / name, size)
        try:
            file = os.open(folder / SHARDS, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", path=folder / SHARDS, remedy="make it readable") from None
        try:
            page_cache.disable_read_ahead(file)
            return cls(folder, index, file)
        except BaseException:
            os.close(file)
            raise

    def record(self, layer: int, index: int, bits: int) -> Record:
        """Return the record of a shard; raises `StoreError` for bits that were not stored, `IndexError` for a missing shard."""
        record = self._records.get((layer, index, bits))
        if record is None:
            if bits in self.bits:
                raise IndexError((layer, index))
            stored = ", ".join(map(str, self.bits))
            raise StoreError(f"no shards of {bits} bits, but of {stored}", path=self.path, remedy="shard it with --bits")
        return record

    def mean_size(self, bits: int) -> float:
        """Return the mean bytes of a record at `bits` bits; raises `StoreError` for bits that were not stored."""
        self.record(0, 0, bits)
        return float(np.mean([record.size for record in self.index.records if record.bits == bits]))

    def read(self, record: Record) -> NDArray[np.uint8]:
        """Return the bytes of a record, aligned to 64, for `decode`. Raises `StoreError` if they are damaged."""
        out = aligned_bytes(record.size)
        self.read_into(record, out)
        self.verify(record, out)
        return out

    def read_into(self, record: Record, out: NDArray[np.uint8]) -> None:
        """Read the bytes of a record into `out` by positioned reads, without verification.

        Raises `StoreError` if the file cannot be read or ends too early.
        """
        rest, offset = out.data[: record.size], record.offset
        while rest:
            try:
                read = read_at(self.file, rest, offset)
            except OSError as error:
                what = f"{_called(record)} cannot be read: {error.strerror}"
                raise StoreError(what, path=self.path / SHARDS, remedy=AGAIN) from None
            if not read:
                raise StoreError(f"ends within {_called(record)}", path=self.path / SHARDS, remedy=AGAIN)
            rest, offset = rest[read:], offset + read

    def verify(self, record: Record, read: NDArray[np.uint8]) -> None:
        """Raise `StoreError` with the shard's name if the bytes of `read` are damaged or belong to another shard."""
        if zlib.crc32(read.data[: record.size]) != record.crc32:
            what = f"{_called(record)} is not what was written: its checksum differs"
            raise StoreError(what, path=self.path / SHARDS, remedy=AGAIN)
        head = header(read[: record.size])
        wanted = (record.layer, record.slice, record.bits, self.geometry.weights_per_shard, record.outliers)
        if head != wanted or record.size != record_size(head.weights, head.bits, head.outliers):
            raise StoreError(f"{_called(record)}: another one lies in its place", path=self.path / SHARDS, remedy=AGAIN)

    def resident(self) -> dict[str, Tensor]:
        """Return the verified tensors that stay in memory, float32: embeddings, norms, biases and the classifier."""
        self._check_file(RESIDENT)
        path = self.path / RESIDENT
        try:
            with _readable(path):
                return read_tensors(path)[0]
        except TensorFileError:  # the digest detects accidents, not forged files
            raise StoreError("not a safetensors file", path=path, remedy=AGAIN) from None

    def beside(self) -> dict[str, bytes]:
        """Return the files stored beside the shards by name, such as a tokenizer. Raises `StoreError` for a damaged file."""
        contents: dict[str, bytes] = {}
        for name in self.index.files:
            if name.startswith(f"{BESIDE}/"):
                self._check_file(name)
                with _readable(self.path / name):
                    contents[name.removeprefix(f"{BESIDE}/")] = read_bounded(self.path / name, MOST_MODEL_BYTES)
        return contents

    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer; raises `StoreError` if none was stored, as for random weights."""
        tokenizer = tokenizer_from(self.beside())
        if tokenizer is None:
            raise StoreError("a store without a tokenizer", path=self.path, remedy="shard a model that has one")
        return tokenizer

    def check_model(self, fingerprint: str) -> None:
        """Raise `StoreError` unless the store belongs to the model with this fingerprint."""
        if fingerprint != self.fingerprint:
            what = f"shards of another model, {self.index.origin or self.fingerprint[:12]}"
            raise StoreError(what, path=self.path, remedy="give this model's store")

    def check(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Read all files; raises `StoreError` for the first damaged record or file. `progress`: bytes read, of all."""
        for name in self.index.files:
            self._check_file(name)
        total = sum(record.size for record in self.index.records)
        done = 0
        buffer = aligned_bytes(max(record.size for record in self.index.records))
        for record in self.index.records:
            self.read_into(record, buffer)
            self.verify(record, buffer)
            done += record.size
            if progress is not None:
                progress(done, total)

    def close(self) -> None:
        """Close the file."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def _check_file(self, name: str) -> None:
        path = self.path / name
        with _readable(path):
            actual = StoredFile.of(path)
        if actual != self.index.files[name]:
            raise StoreError("damaged: its content is not what was written", path=path, remedy=AGAIN)

    def __enter__(self) -> ShardStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_size(path: Path, size: int) -> None:
    with _readable(path):
        check_regular(path, sys.maxsize)  # the index limits sizes; a pipe has size 0, which the index may also hold
        actual_bytes = path.stat().st_size
    if actual_bytes != size:
        what = "cut short" if actual_bytes < size else "too long"
        raise StoreError(f"{what}: {actual_bytes:,} bytes where {size:,} were written", path=path, remedy=AGAIN)


def _called(record: Record) -> str:
    return f"shard {record.slice} of layer {record.layer} at {record.bits} bits"


def describe_store(store: ShardStore) -> dict[str, Any]:
    """Return the model, sizes and errors by bitwidth, and the Gaussian and the outliers of each layer, as JSON.

    `rmse_over_s`: root mean square of the rounding error in standard deviations of the layer's weights. Shares are of weights.
    """
    geometry, index = store.geometry, store.index
    outliers = [0] * geometry.layers
    for record in index.records:
        if record.bits == min(store.bits):
            outliers[record.layer] += record.outliers
    return {
        "model": index.origin,
        "random": index.random,
        "kind": store.kind,
        "fingerprint": store.fingerprint,
        "layers": geometry.layers,
        "slices": geometry.heads,
        "width": geometry.width,
        "ffn": geometry.ffn,
        "weights_per_shard": geometry.weights_per_shard,
        "records": len(index.records),
        "shards_bytes": sum(record.size for record in index.records),
        "low_bits_bytes": sum(record.size for record in index.records if record.bits != FULL),
        "resident_bytes": index.files[RESIDENT].size,
        "outlier_share": None if store.bits == (FULL,) else sum(outliers) / (geometry.layers * geometry.weights_per_layer),
        "by_bits": [_describe_bits(store, bits) for bits in store.bits],
        "by_layer": [
            {
                "layer": layer,
                "mean": fit.mean,
                "deviation": fit.deviation,
                "outlier_share": None if store.bits == (FULL,) else outliers[layer] / geometry.weights_per_layer,
            }
            for layer, fit in enumerate(index.layers)
        ],
    }


def _describe_bits(store: ShardStore, bits: int) -> dict[str, Any]:
    geometry, deviations = store.geometry, [fit.deviation for fit in store.index.layers]
    records = [record for record in store.index.records if record.bits == bits]
    total = sum(record.size for record in records)
    error = sum(record.squared_error / deviations[record.layer] ** 2 for record in records)
    return {
        "bits": bits,
        "bytes": total,
        "shard_bytes": total / len(records),
        "smaller": 4 * geometry.weights_per_layer * geometry.layers / total,
        "rmse_over_s": math.sqrt(error / (geometry.layers * geometry.weights_per_layer)),
    }
