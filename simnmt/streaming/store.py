"""Shard store: every shard of a model at every number of bits, in one file that is read by positions (STI-05).

A store is a folder: `store.json` (the index), `shards.bin`, the tensors that stay in memory, and files such as a tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from simnmt.base.errors import describe_error
from simnmt.base.files import MOST_MODEL_BYTES, MOST_TENSOR_BYTES, partial_folder, read_bounded
from simnmt.kernels.native_library import aligned_bytes
from simnmt.kernels.unpack import PackedWeights
from simnmt.nmt.checkpoint import read_tensors, write_tensors
from simnmt.profile.streaming_block import BITS
from simnmt.streaming import page_cache
from simnmt.streaming.encoder import EncoderConfiguration, EncoderWeights
from simnmt.streaming.errors import StoreError
from simnmt.streaming.shards import FULL, GaussianFit, decode, layer_shards, quantise, record_size, segment_rows
from simnmt.streaming.texts import PIECES_FILE, TOKENIZER_FILE, HuggingFaceTokenizer, Pieces

VERSION = 4
INDEX, SHARDS, RESIDENT, BESIDE = "store.json", "shards.bin", "resident.safetensors", "beside"
MOST_INDEX_BYTES = 256 << 20
AGAIN = "shard the model again with simnmt sti shard"
Count = Annotated[int, Field(ge=0, lt=1 << 32)]


class Record(NamedTuple):
    """A shard at one bitwidth, and its place in the file."""

    layer: int
    slice: int
    bits: int
    offset: int
    """Bytes from the beginning of the file, a multiple of 64."""
    size: int
    outliers: int
    crc32: int
    squared_error: float
    """Sum of the squared rounding errors of all weights."""


@dataclass(frozen=True, slots=True)
class LayerIndex:
    """What `store.json` holds of a layer."""

    fit: GaussianFit
    """Gaussian fit of the original weights (STI-03)."""
    outliers: tuple[Count, ...]
    crc32: tuple[tuple[Count, ...], ...]
    """Checksum of each record, by bits and slice."""
    squared_error: tuple[tuple[float, ...], ...]
    """Sum of the squared rounding errors of each record, by bits and slice."""


@dataclass(frozen=True, slots=True)
class Index:
    """Content of `store.json`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    fingerprint: str
    configuration: EncoderConfiguration
    origin: str
    random: bool
    label_names: tuple[str, ...]
    """Names of the classes, in their order; empty if they have no names."""
    bits: tuple[int, ...]
    layers: tuple[LayerIndex, ...]
    resident_sha256: str
    beside: Mapping[Annotated[str, Field(pattern=r"^[\w.-]+$")], str]

    @property
    def records(self) -> list[Record]:
        """All records in file order: by layer, then bits, then slice. Raises `ValueError` for an index of another shape."""
        if not set(self.bits) <= set(BITS):
            raise ValueError(self.bits)
        geometry, records, offset = self.configuration.geometry, list[Record](), 0
        for layer, of_layer in zip(range(geometry.layers), self.layers, strict=True):
            for bits, sums, errors in zip(self.bits, of_layer.crc32, of_layer.squared_error, strict=True):
                columns = zip(range(geometry.heads), of_layer.outliers, sums, errors, strict=True)
                for piece, outliers, crc32, error in columns:
                    count = 0 if bits == FULL else outliers
                    size = record_size(geometry.weights_per_shard, bits, count)
                    records.append(Record(layer, piece, bits, offset, size, count, crc32, error))
                    offset += size
        return records


_INDEX = TypeAdapter(Index)


class ShardStore:
    """A store that `write_store` wrote. Several threads may read it; their reads take turns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a store; raises `StoreError` if it is missing, of another version or damaged; `check` reads all contents."""
        self.path = Path(path)
        try:
            self.index = index = _INDEX.validate_json(read_bounded(self.path / INDEX, MOST_INDEX_BYTES), strict=True)
            self.records = index.records
            self._content = (self.path / SHARDS).open("rb", buffering=0)
        except OSError as error:
            remedy = "give what simnmt sti shard wrote"
            raise StoreError(f"no shard store: {error.strerror}", path=self.path, remedy=remedy) from None
        except (ValidationError, ValueError, RecursionError):
            raise StoreError("no index of shards, or of another version", path=self.path / INDEX, remedy=AGAIN) from None
        self.file, self._lock = self._content.fileno(), Lock()
        actual, size = os.fstat(self.file).st_size, sum(record.size for record in self.records)
        if actual != size:
            self._content.close()
            what = f"damaged: {actual:,} bytes where {size:,} were written"
            raise StoreError(what, path=self.path / SHARDS, remedy=AGAIN)
        page_cache.disable_read_ahead(self.file)
        self.configuration, self.geometry = index.configuration, index.configuration.geometry
        self.name = index.origin or index.configuration.kind
        self.fingerprint, self.label_names, self.bits = index.fingerprint, index.label_names, index.bits
        self._records = {(record.layer, record.slice, record.bits): record for record in self.records}

    def record(self, layer: int, index: int, bits: int) -> Record:
        """Return the record of a shard; raises `StoreError` for bits that were not stored."""
        if bits not in self.bits:
            stored = ", ".join(map(str, self.bits))
            raise StoreError(f"no shards of {bits} bits, but of {stored}", path=self.path, remedy="shard it with --bits")
        return self._records[layer, index, bits]

    def mean_size(self, bits: int) -> float:
        """Return the mean bytes of a record at `bits` bits; raises `StoreError` for bits that were not stored."""
        self.record(0, 0, bits)
        return float(np.mean([record.size for record in self.records if record.bits == bits]))

    def read(self, record: Record) -> PackedWeights:
        """Return a shard, aligned to 64; the read makes no copy.

        Raises `StoreError` with the shard's name if the file cannot be read or ends too early, or if the bytes are damaged.
        """
        out = aligned_bytes(record.size)
        rest, what = out.data, "is not what was written: its checksum differs"
        try:
            with self._lock:
                self._content.seek(record.offset)
                while rest and (count := self._content.readinto(rest)):
                    rest = rest[count:]
        except OSError as error:
            rest, what = out.data, f"cannot be read: {error.strerror}"
        if rest or zlib.crc32(out.data) != record.crc32:
            called = f"shard {record.slice} of layer {record.layer} at {record.bits} bits"
            raise StoreError(f"{called} {what}", path=self.path / SHARDS, remedy=AGAIN)
        return decode(out, self.geometry.weights_per_shard, record.bits, record.outliers)

    def resident(self) -> dict[str, Tensor]:
        """Return the verified tensors that stay in memory, float32: embeddings, norms, biases and the classifier."""
        path = self.path / RESIDENT
        self._check_file(path, self.index.resident_sha256, MOST_TENSOR_BYTES)
        try:
            return read_tensors(path)[0]
        except ValueError:  # the digest detects accidents, not forged files
            raise StoreError("not a safetensors file", path=path, remedy=AGAIN) from None

    def beside(self) -> dict[str, bytes]:
        """Return the files stored beside the shards by name, such as a tokenizer. Raises `StoreError` for a damaged file."""
        folder = self.path / BESIDE
        return {name: self._check_file(folder / name, sha256) for name, sha256 in self.index.beside.items()}

    def tokenizer(self) -> Pieces | HuggingFaceTokenizer:
        """Return the model's tokenizer; raises `StoreError` if none was stored, as for random weights."""
        files = self.beside()
        if PIECES_FILE in files:
            return Pieces(files[PIECES_FILE])
        if TOKENIZER_FILE in files:
            return HuggingFaceTokenizer(files[TOKENIZER_FILE])
        raise StoreError("a store without a tokenizer", path=self.path, remedy="shard a model that has one")

    def check_model(self, fingerprint: str) -> None:
        """Raise `StoreError` unless the store belongs to the model with this fingerprint."""
        if fingerprint != self.fingerprint:
            what = f"shards of another model, {self.index.origin or self.fingerprint[:12]}"
            raise StoreError(what, path=self.path, remedy="give this model's store")

    def check(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Read all files; raises `StoreError` for the first damaged record or file. `progress`: records read, of all."""
        self.resident()
        self.beside()
        for done, record in enumerate(self.records, start=1):
            self.read(record)
            progress(done, len(self.records))

    def _check_file(self, path: Path, sha256: str, most_bytes: int = MOST_MODEL_BYTES) -> bytes:
        try:
            content = read_bounded(path, most_bytes)
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}", path=path, remedy=AGAIN) from None
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StoreError("damaged: its content is not what was written", path=path, remedy=AGAIN)
        return content

    def __enter__(self) -> ShardStore:
        return self

    def __exit__(self, *error: object) -> None:
        self._content.close()


def describe_store(store: ShardStore) -> dict[str, Any]:
    """Return the model, sizes and errors by bitwidth, and the Gaussian and the outliers of each layer, as JSON.

    `rmse_over_s`: root mean square of the rounding error in standard deviations of the layer's weights. Shares are of weights.
    """
    geometry, index = store.geometry, store.index
    outliers = [sum(layer.outliers) for layer in index.layers]
    weights, by_bits = geometry.layers * geometry.weights_per_layer, []
    for bits in store.bits:
        records = [record for record in store.records if record.bits == bits]
        total = sum(record.size for record in records)
        error = sum(record.squared_error / index.layers[record.layer].fit.deviation ** 2 for record in records)
        sizes = {"bytes": total, "shard_bytes": total / len(records), "smaller": 4 * weights / total}
        by_bits.append({"bits": bits, **sizes, "rmse_over_s": math.sqrt(error / weights)})
    return {
        "model": index.origin,
        "random": index.random,
        "kind": store.configuration.kind,
        "fingerprint": store.fingerprint,
        "layers": geometry.layers,
        "slices": geometry.heads,
        "width": geometry.width,
        "ffn": geometry.ffn,
        "weights_per_shard": geometry.weights_per_shard,
        "records": len(store.records),
        "shards_bytes": sum(row["bytes"] for row in by_bits),
        "low_bits_bytes": sum(row["bytes"] for row in by_bits if row["bits"] != FULL),
        "resident_bytes": (store.path / RESIDENT).stat().st_size,
        "outlier_share": sum(outliers) / weights,
        "by_bits": by_bits,
        "by_layer": [
            {"layer": number, **asdict(layer.fit), "outlier_share": count / geometry.weights_per_layer}
            for number, (layer, count) in enumerate(zip(index.layers, outliers, strict=True))
        ],
    }


def write_store(
    weights: EncoderWeights,
    path: str | os.PathLike[str],
    *,
    bits: Sequence[int] = BITS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write the shards of a model to the new folder `path`, whole or not at all.

    `progress` is called with finished and all layers. Raises `StoreError` for a layer that cannot be quantised, for something
    else at `path`, and if the disk is too full.
    """
    out, geometry, widths = Path(path), weights.geometry, tuple(sorted(set(bits)))
    if not widths or not set(widths) <= set(BITS):
        what = f"no shards of {', '.join(map(str, bits)) or 'no'} bits"
        raise StoreError(what, remedy=f"choose from {', '.join(map(str, BITS))}")
    if any(rows * geometry.width % 8 for rows in segment_rows(geometry).values()):
        what = f"a segment of a shard of width {geometry.width} would end inside a byte"
        raise StoreError(what, remedy="take a width that 8 divides")
    layers: list[LayerIndex] = []
    try:
        if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
            raise StoreError("is there already", path=out, remedy="remove it, or choose another --out")
        with partial_folder(out.absolute().parent) as partial:
            with (partial / SHARDS).open("wb") as file:
                for at in range(geometry.layers):
                    progress(at, geometry.layers)
                    shards = layer_shards(geometry, weights.layer(at))
                    fit = GaussianFit.of(shards.reshape(-1), f"layer {at}")
                    outliers = fit.outliers(shards)
                    rows = list(quantise(shards, outliers, widths))
                    file.writelines(content for row in rows for content, _ in row)
                    sums = tuple(tuple(zlib.crc32(content) for content, _ in row) for row in rows)
                    errors = tuple(tuple(error for _, error in row) for row in rows)
                    layers.append(LayerIndex(fit, tuple(outliers.sum(1).tolist()), sums, errors))
            # Copies: no two tensors of the file may share memory.
            write_tensors(partial / RESIDENT, {name: tensor.clone() for name, tensor in weights.resident.items()})
            (partial / BESIDE).mkdir()
            for name, content in weights.files.items():
                (partial / BESIDE / name).write_bytes(content)
            index = Index(
                version=VERSION,
                fingerprint=weights.fingerprint,
                configuration=weights.configuration,
                origin=weights.origin,
                random=weights.random,
                label_names=weights.label_names,
                bits=widths,
                layers=tuple(layers),
                resident_sha256=hashlib.sha256((partial / RESIDENT).read_bytes()).hexdigest(),
                beside={name: hashlib.sha256(content).hexdigest() for name, content in sorted(weights.files.items())},
            )
            (partial / INDEX).write_text(json.dumps(asdict(index), ensure_ascii=False), encoding="utf-8")
            partial.replace(out)
    except (OSError, SafetensorError) as error:
        remedy = "make room, or choose another --out"
        raise StoreError(f"cannot be written: {describe_error(error)}", path=out, remedy=remedy) from None
