"""Index of a shard store: one JSON document with the model, the place of every shard, and size and digest of every file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from simnmt.base.files import read_bounded, written_whole
from simnmt.profile.streaming_cost import BITS
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store.quantisation import GaussianFit
from simnmt.streaming.store.shard_format import Record

VERSION = 1
INDEX, SHARDS, RESIDENT, BESIDE = "store.json", "shards.bin", "resident.safetensors", "beside"
JOURNAL = "journal.jsonl"
"""What of an unfinished store is done."""
MOST_INDEX_BYTES = 256 << 20
"""Some 250 bytes a shard, so for a million shards."""
AGAIN = "shard the model again with simnmt sti shard"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What a file beside the shards must be."""

    size: int
    """Bytes."""
    sha256: str

    @classmethod
    def of(cls, path: Path) -> StoredFile:
        """Of a file as it is; raises `OSError`."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
        return cls(path.stat().st_size, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Index:
    """What `store.json` says."""

    fingerprint: str
    """SHA-256 of the model: `EncoderWeights.fingerprint`."""
    configuration: Mapping[str, Any]
    """The encoder's, as `EncoderConfiguration.as_json` gives it."""
    origin: str
    """What the model is called."""
    random: bool
    """Whether nobody has trained it."""
    label_names: tuple[str, ...]
    """Of the classes, in their order; empty where nobody named them."""
    bits: tuple[int, ...]
    layers: tuple[GaussianFit, ...]
    """Of each layer's weights, as they were (STI-03)."""
    records: tuple[Record, ...]
    """In the order in which they lie in the file: by layer, then bits, then slice."""
    files: Mapping[str, StoredFile]
    """The others, by their path in the store."""

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
            remedy = "mend its rights" if isinstance(error, PermissionError) else "give what simnmt sti shard wrote"
            raise StoreError(what, path=folder, remedy=remedy) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise StoreError("damaged, or no index of shards", path=path, remedy=AGAIN) from None
        if version != VERSION:
            raise StoreError(f"a store of version {version}, where {VERSION} is known", path=path, remedy=AGAIN)
        if digest != _digest(document | {"format": "simnmt shards"}):
            raise StoreError("damaged: its content is not what was written", path=path, remedy=AGAIN)
        del document["version"]
        try:
            index = cls(
                **document
                | {
                    "label_names": tuple(document["label_names"]),
                    "bits": tuple(document["bits"]),
                    "layers": tuple(GaussianFit(**fit) for fit in document["layers"]),
                    "records": tuple(Record(**record) for record in document["records"]),
                    "files": {name: StoredFile(**file) for name, file in document["files"].items()},
                }
            )
            makes_sense = _of_their_types(index) and _makes_sense(index)
        except (KeyError, TypeError, AttributeError, OverflowError):
            makes_sense = False
        if not makes_sense:
            # The digest detects accidents only: anybody can write one that fits.
            raise StoreError("no index of shards", path=path, remedy=AGAIN)
        return index


def _of_their_types(index: Index) -> bool:
    counts = [
        value
        for record in index.records
        for value in (record.layer, record.slice, record.bits, record.offset, record.size, record.outliers, record.crc32)
    ]
    counts += [file.size for file in index.files.values()] + [index.configuration[name] for name in ("layers", "heads")]
    measured = [value for fit in index.layers for value in (fit.mean, fit.deviation)] + [
        record.squared_error for record in index.records
    ]
    texts = (index.fingerprint, index.origin, *index.label_names, *(file.sha256 for file in index.files.values()))
    return (
        all(type(value) is int and value >= 0 for value in counts)
        and all(isinstance(value, (int, float)) and math.isfinite(value) for value in measured)
        and all(fit.deviation > 0.0 for fit in index.layers)
        and all(isinstance(value, str) for value in texts)
        and isinstance(index.random, bool)
    )


def _makes_sense(index: Index) -> bool:
    """Whether its records fill one file, each shard at each of the bits once, and its files lie in the store."""
    slices = index.configuration["heads"]
    if len(index.records) != len(index.layers) * len(index.bits) * slices:
        return False
    every = [(layer, bits, piece) for layer in range(len(index.layers)) for bits in index.bits for piece in range(slices)]
    ends = accumulate(record.size for record in index.records)
    return (
        len(index.layers) == index.configuration["layers"] > 0
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
