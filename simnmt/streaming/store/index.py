"""Index of a shard store: one JSON document with the model, the place of every shard, and size and digest of every file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from simnmt.base.files import read_bounded, written_whole
from simnmt.profile.streaming_cost import BITS
from simnmt.streaming.encoder.encoder_configuration import EncoderConfiguration
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store.quantisation import GaussianFit
from simnmt.streaming.store.shard_format import Record

VERSION = 1
INDEX, SHARDS, RESIDENT, BESIDE = "store.json", "shards.bin", "resident.safetensors", "beside"
JOURNAL = "journal.jsonl"
"""File that lists the finished layers of an unfinished store."""
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

    def write(self, folder: Path) -> None:
        """Write the index atomically; raises `OSError`."""
        document = asdict(self) | {"format": "simnmt shards", "version": VERSION}
        with written_whole(folder / INDEX) as partial:
            partial.write_text(json.dumps(document | {"sha256": _digest(document)}, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Index:
        """Read the index of a store's folder; raises `StoreError` if there is none, or it is damaged or of another version."""
        path = folder / INDEX
        try:
            document = json.loads(read_bounded(path, MOST_INDEX_BYTES))
            digest, version = document.pop("sha256"), document["version"]
            if document.pop("format") != "simnmt shards":
                raise ValueError
        except OSError as error:
            absent = isinstance(error, (FileNotFoundError, NotADirectoryError))
            what = "no shard store" if absent else f"cannot be read: {error.strerror}"
            remedy = "correct its permissions" if isinstance(error, PermissionError) else "give what simnmt sti shard wrote"
            raise StoreError(what, path=folder, remedy=remedy) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise StoreError("damaged, or no index of shards", path=path, remedy=AGAIN) from None
        if version != VERSION:
            raise StoreError(f"a store of version {version}, where {VERSION} is known", path=path, remedy=AGAIN)
        if digest != _digest(document | {"format": "simnmt shards"}):
            raise StoreError("damaged: its content is not what was written", path=path, remedy=AGAIN)
        del document["version"]
        try:
            index = _INDEX.validate_json(json.dumps(document), strict=True)
        except ValidationError:
            index = None
        if index is None or not _makes_sense(index):
            # The digest detects accidents, not forged files.
            raise StoreError("no index of shards", path=path, remedy=AGAIN)
        return index


_INDEX = TypeAdapter(Index)


def _makes_sense(index: Index) -> bool:
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
        and RESIDENT in index.files
        and [(record.layer, record.bits, record.slice) for record in index.records] == every
        and all(record.size > 0 and record.offset == end - record.size for record, end in zip(index.records, ends, strict=True))
        and all(name == RESIDENT or _lies_beside(name) for name in index.files)
    )


def _lies_beside(name: str) -> bool:
    folder, _, plain = name.partition("/")
    return folder == BESIDE and plain not in ("", ".", "..") and not set(plain) & set("/\\\0")


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
