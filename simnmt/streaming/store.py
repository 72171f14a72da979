"""Shard store: every shard of a model at every number of bits, in one file that is read by positions (STI-05).

A store is a folder: `store.json` (the index), `shards.bin`, the tensors that stay in memory, and files such as a tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from simnmt.base.files import MOST_MODEL_BYTES, NO_ROOM, check_regular, partial_folder, read_bounded
from simnmt.nmt.checkpoint import TensorFileError, read_tensors, write_tensors
from simnmt.profile.streaming_cost import BITS, ShardGeometry
from simnmt.streaming import page_cache
from simnmt.streaming.encoder import EncoderConfiguration, EncoderWeights
from simnmt.streaming.errors import StoreError
from simnmt.streaming.shards import (
    FULL,
    GaussianFit,
    Packed,
    Record,
    aligned_bytes,
    check_layout,
    decode,
    layer_records,
    layer_shards,
)
from simnmt.streaming.texts import Tokenizer, tokenizer_from

VERSION = 2
INDEX, SHARDS, RESIDENT, BESIDE = "store.json", "shards.bin", "resident.safetensors", "beside"
MOST_INDEX_BYTES = 256 << 20
"""Room for a million shards of some 250 bytes each."""
AGAIN = "shard the model again with simnmt sti shard"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Size and digest of a file beside the shards."""

    size: int
    """Bytes."""
    sha256: str

    @classmethod
    def of(cls, path: Path) -> StoredFile:
        """Return size and digest of a file; raises `OSError`."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
        return cls(path.stat().st_size, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Index:
    """Content of `store.json`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    version: int
    fingerprint: str
    """SHA-256 of the model: `EncoderWeights.fingerprint`."""
    configuration: EncoderConfiguration
    origin: str
    """Name of the model."""
    random: bool
    """True if the weights are random."""
    label_names: tuple[str, ...]
    """Names of the classes, in their order; empty if they have no names."""
    bits: tuple[int, ...]
    layers: tuple[GaussianFit, ...]
    """Gaussian fit of the original weights of each layer (STI-03)."""
    records: tuple[Record, ...]
    """In file order: by layer, then bits, then slice."""
    files: Mapping[str, StoredFile]
    """All other files, by their path in the store."""

    @classmethod
    def read(cls, folder: Path) -> Index:
        """Read the index of a store's folder; raises `StoreError` if there is none, or it is damaged or of another version."""
        path = folder / INDEX
        try:
            index = _INDEX.validate_json(read_bounded(path, MOST_INDEX_BYTES), strict=True)
        except OSError as error:
            absent = isinstance(error, (FileNotFoundError, NotADirectoryError))
            what = "no shard store" if absent else f"cannot be read: {error.strerror}"
            raise StoreError(what, path=folder, remedy="give what simnmt sti shard wrote") from None
        except (ValidationError, RecursionError):
            raise StoreError("no index of shards", path=path, remedy=AGAIN) from None
        if index.version != VERSION:
            raise StoreError(f"a store of version {index.version}, where {VERSION} is known", path=path, remedy=AGAIN)
        if not _is_consistent(index):
            raise StoreError("damaged: its records do not fill the file of shards", path=path, remedy=AGAIN)
        return index


_INDEX = TypeAdapter(Index)


def _is_consistent(index: Index) -> bool:
    """Return whether the records fill one file, each shard at each of the bits once, and the other files lie in the store."""
    geometry = index.configuration.geometry
    if len(index.records) != geometry.layers * len(index.bits) * geometry.heads:  # before a list of that length is made
        return False
    every = [(layer, bits, piece) for layer in range(geometry.layers) for bits in index.bits for piece in range(geometry.heads)]
    ends = accumulate(record.size for record in index.records)
    return (
        len(index.layers) == geometry.layers
        and all(fit.deviation > 0.0 for fit in index.layers)
        and set(index.bits) <= set(BITS)
        and [(record.layer, record.bits, record.slice) for record in index.records] == every
        and all(record.size > 0 and record.offset == end - record.size for record, end in zip(index.records, ends, strict=True))
        and RESIDENT in index.files
        and all(name == RESIDENT or _lies_beside(name) for name in index.files)
    )


def _lies_beside(name: str) -> bool:
    folder, _, plain = name.partition("/")
    return folder == BESIDE and plain not in ("", ".", "..") and not set(plain) & set("/\\\0")


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
        sizes = {SHARDS: sum(record.size for record in index.records)} | {n: f.size for n, f in index.files.items()}
        for name, size in sizes.items():
            with _readable(folder / name):
                check_regular(folder / name, sys.maxsize)
                actual = (folder / name).stat().st_size
            if actual != size:
                what = "cut short" if actual < size else "too long"
                raise StoreError(f"{what}: {actual:,} bytes where {size:,} were written", path=folder / name, remedy=AGAIN)
        with _readable(folder / SHARDS):
            file = os.open(folder / SHARDS, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
        page_cache.disable_read_ahead(file)
        return cls(folder, index, file)

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

    def read(self, record: Record) -> Packed:
        """Return a shard by positioned reads, aligned to 64.

        Raises `StoreError` with the shard's name if the file cannot be read or ends too early, or if the bytes are damaged or
        belong to another shard.
        """
        called, path = f"shard {record.slice} of layer {record.layer} at {record.bits} bits", self.path / SHARDS
        out = aligned_bytes(record.size)
        rest, offset = out.data, record.offset
        while rest:
            try:
                count = read_at(self.file, rest, offset)
            except OSError as error:
                raise StoreError(f"{called} cannot be read: {error.strerror}", path=path, remedy=AGAIN) from None
            if not count:
                raise StoreError(f"ends within {called}", path=path, remedy=AGAIN)
            rest, offset = rest[count:], offset + count
        if zlib.crc32(out.data) != record.crc32:
            raise StoreError(f"{called} is not what was written: its checksum differs", path=path, remedy=AGAIN)
        packed = decode(out)
        expected = (record.layer, record.slice, record.bits, self.geometry.weights_per_shard, record.outliers, record.size)
        if (packed.layer, packed.slice, packed.bits, packed.weights, len(packed.outlier_at), packed.size) != expected:
            raise StoreError(f"{called}: another one lies in its place", path=path, remedy=AGAIN)
        return packed

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
            if name != RESIDENT:
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
        """Read all files; raises `StoreError` for the first damaged record or file. `progress`: records read, of all."""
        for name in self.index.files:
            self._check_file(name)
        for done, record in enumerate(self.index.records, start=1):
            self.read(record)
            if progress is not None:
                progress(done, len(self.index.records))

    def close(self) -> None:
        """Close the file."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def _check_file(self, name: str) -> None:
        with _readable(self.path / name):
            actual = StoredFile.of(self.path / name)
        if actual != self.index.files[name]:
            raise StoreError("damaged: its content is not what was written", path=self.path / name, remedy=AGAIN)

    def __enter__(self) -> ShardStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", path=path, remedy=AGAIN) from None


def describe_store(store: ShardStore) -> dict[str, Any]:
    """Return the model, sizes and errors by bitwidth, and the Gaussian and the outliers of each layer, as JSON.

    `rmse_over_s`: root mean square of the rounding error in standard deviations of the layer's weights. Shares are of weights.
    """
    geometry, index = store.geometry, store.index
    outliers = [0] * geometry.layers
    for record in index.records:
        if record.bits == min(store.bits):
            outliers[record.layer] += record.outliers
    quantised = store.bits != (FULL,)
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
        "outlier_share": sum(outliers) / (geometry.layers * geometry.weights_per_layer) if quantised else None,
        "by_bits": [_describe_bits(store, bits) for bits in store.bits],
        "by_layer": [
            {
                "layer": layer,
                **asdict(fit),
                "outlier_share": outliers[layer] / geometry.weights_per_layer if quantised else None,
            }
            for layer, fit in enumerate(index.layers)
        ],
    }


def _describe_bits(store: ShardStore, bits: int) -> dict[str, Any]:
    weights = store.geometry.layers * store.geometry.weights_per_layer
    records = [record for record in store.index.records if record.bits == bits]
    total = sum(record.size for record in records)
    error = sum(record.squared_error / store.index.layers[record.layer].deviation ** 2 for record in records)
    return {
        "bits": bits,
        "bytes": total,
        "shard_bytes": total / len(records),
        "smaller": 4 * weights / total,
        "rmse_over_s": math.sqrt(error / weights),
    }


def write_store(
    weights: EncoderWeights,
    path: str | os.PathLike[str],
    *,
    bits: Sequence[int] = BITS,
    beside: Mapping[str, bytes] | None = None,
    label_names: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the shards of a model to the new folder `path`, whole or not at all.

    Args:
        bits: bitwidths to write.
        beside: small files to store by name, such as a tokenizer.
        label_names: names of the classes.
        progress: called with finished layers and all layers.

    Raises:
        StoreError: for a layer that cannot be quantised, for something else at `path`, and if the disk is too full.
    """
    out, geometry, widths = Path(path), weights.geometry, tuple(sorted(set(bits)))
    if not widths or not set(widths) <= set(BITS):
        raise StoreError(
            f"no shards of {', '.join(map(str, bits)) or 'no'} bits", remedy=f"choose from {', '.join(map(str, BITS))}"
        )
    check_layout(geometry)
    fits: list[GaussianFit] = []
    records: list[Record] = []
    try:
        if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
            raise StoreError("is there already", path=out, remedy="remove it, or choose another --out")
        with partial_folder(out.absolute().parent) as partial:
            with (partial / SHARDS).open("wb") as file:
                for layer in range(geometry.layers):
                    if progress is not None:
                        progress(layer, geometry.layers)
                    shards = layer_shards(geometry, weights.layer(layer))
                    fits.append(GaussianFit.of(shards.reshape(-1), f"layer {layer}"))
                    for record, content in layer_records(shards, fits[-1], layer, widths, file.tell()):
                        file.write(content)
                        records.append(record)
            # Copies: no two tensors of the file may share memory.
            write_tensors(partial / RESIDENT, {name: tensor.clone() for name, tensor in weights.resident.items()})
            (partial / BESIDE).mkdir()
            for name, content in (beside or {}).items():
                (partial / BESIDE / name).write_bytes(content)
            names = [RESIDENT, *(f"{BESIDE}/{name}" for name in sorted(beside or {}))]
            index = Index(
                version=VERSION,
                fingerprint=weights.fingerprint,
                configuration=weights.configuration,
                origin=weights.origin,
                random=weights.random,
                label_names=tuple(label_names),
                bits=widths,
                layers=tuple(fits),
                records=tuple(records),
                files={name: StoredFile.of(partial / name) for name in names},
            )
            (partial / INDEX).write_text(json.dumps(asdict(index), ensure_ascii=False), encoding="utf-8")
            partial.replace(out)
    except (OSError, SafetensorError) as error:
        number = error.errno if isinstance(error, OSError) else None
        remedy = "make room, and give the same command again" if number in NO_ROOM else "choose another --out"
        what = os.strerror(number) if number else str(error)
        raise StoreError(f"cannot be written: {what}", path=out, remedy=remedy) from None
