"""Write a run directory, whole or not at all, and read it again."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base import files
from simnmt.base.errors import InputError
from simnmt.results.columns import Array
from simnmt.results.places import ALL, Place, wholes
from simnmt.results.requests import Columns, RequestLog
from simnmt.results.run import REQUESTS, Cell, LiveMeasurement, Run, placed_logs
from simnmt.results.summary import Device, Row

MANIFEST, RESOLVED, INPUT = "manifest.json", "scenario.resolved.yaml", "scenario.input.yaml"
SUMMARY, TABLE, PAGE = "summary.json", "summary.csv", "report.html"
REPLICATIONS, DEVICES, PACKAGES = "replications", "devices", "packages"
"""Keys of the manifest: numbers of each replication, devices of each workload, and versions of the installed packages whose
kinds the scenario names."""
REPRODUCTION = "reproduction.json"
"""The document of `simnmt reproduce`."""
OUTPUTS = frozenset({RESOLVED, INPUT, SUMMARY, TABLE, REQUESTS, PAGE})
"""Names that a manifest may list; another name could lead anywhere."""
REMEDY = "run the scenario anew"
_ELSEWHERE = "give another output folder"


class RunDirectoryError(InputError):
    """An output folder that cannot be written, or a run directory that cannot be read."""


@contextmanager
def reserved(folder: Path, stem: str) -> Iterator[Path]:
    """Yield an empty folder in `folder`, named after `stem` and the time (UTC), with -2 and so on if that name is taken.

    It is removed if it is empty in the end. Raises `RunDirectoryError` if none can be made.
    """
    # File systems take names of 255 bytes; a scenario's may have 80 characters of any script.
    short = stem.encode()[:100].decode(errors="ignore")
    name = f"{short}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    with _written(folder), files.made_folder(folder) as made:
        for number in itertools.count(1):
            path = folder / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
                break
        made.insert(0, path)
        yield path


@contextmanager
def whole(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to fill, and rename it to `target` at the end; if anything fails, nothing of it is left.

    `replace`: a run directory at `target` gives way at the end. Raises `RunDirectoryError` if `target` is otherwise not empty,
    or cannot be written.
    """
    check_free(target, replace=replace)
    place = Path(os.path.realpath(target))  # a link to an empty folder cannot be renamed over
    old = files.free_name(place.parent)
    with _written(target), files.made_folder(place.parent), files.partial_folder(place.parent) as partial:
        yield partial
        try:
            if place.is_dir() and (replace or os.name == "nt"):
                place.rename(old)
            partial.rename(place)  # over an empty folder, without a moment in which another run could take its name
        finally:
            if old.is_dir() and partial.is_dir():  # a failure or Ctrl-C between the two
                old.rename(place)
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _written(target: Path) -> Iterator[None]:
    """Raise `RunDirectoryError` in place of an `OSError`."""
    try:
        yield
    except OSError as error:
        room = "free some space, " if error.errno in files.NO_ROOM else ""
        what = f"cannot write the run: {error.strerror or error}"
        raise RunDirectoryError(what, path=target, remedy=f"{room}{_ELSEWHERE}; nothing was left behind") from error


def check_free(target: Path, *, replace: bool | None = None) -> None:
    """Refuse a target that is no folder, is not empty, or cannot be made, before a long run rather than after it.

    `replace`: whether a run directory there may be replaced; None: the verb replaces none. Raises `RunDirectoryError`.
    """
    place = Path(os.path.realpath(target))
    with _written(target):
        if files.is_standard(target) or (target.exists() and not target.is_dir()):
            name = "standard output" if files.is_standard(target) else target
            raise RunDirectoryError("the output is no folder", path=name, remedy=_ELSEWHERE)
        if place.is_dir() and (names := {entry.name for entry in place.iterdir()}):
            is_run = bool(names & {RESOLVED, REPRODUCTION}) and names <= OUTPUTS | {MANIFEST, REPRODUCTION}
            if is_run and replace is False:
                remedy = f"{_ELSEWHERE}, or replace it: --force, in Python force=True"
                raise RunDirectoryError("a run is there", path=target, remedy=remedy)
            if not (is_run and replace):
                raise RunDirectoryError("the output folder is not empty", path=target, remedy=_ELSEWHERE)
        # It is replaced as a whole in the end: a mount cannot be, and a shell would stand in a folder that is gone.
        if os.path.ismount(place) or place == Path.cwd():
            what = f"the output folder is {'a mount point' if os.path.ismount(place) else 'the current one'}"
            raise RunDirectoryError(what, path=target, remedy="name a new folder in it")
        # Tried, not asked: what a file system lets be written shows only so.
        with files.made_folder(place), files.partial_folder(place.parent):
            pass


def write_json(path: Path, content: Any) -> None:
    """Write deterministic JSON: same content, same bytes; NaN is refused."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def replications_document(replicated: Mapping[Place, Mapping[str, Sequence[float | None]]]) -> list[Row]:
    """Return the numbers of each replication as the manifest has them."""
    return [place._asdict() | {"values": dict(columns)} for place, columns in replicated.items()]


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write the summary's rows as CSV, with an empty cell for an unknown number."""
    text = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, fieldnames=list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


ROW_GROUP = 131_072
"""Requests written at a time."""


def write_requests(path: Path, cells: Iterable[Cell]) -> None:
    """Write one row per request of replication 0, row groups of one simulated world and policy each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # The file is opened here: pyarrow would take no name that is not UTF-8, and blurs the reason of a failed write.
    with path.open("wb") as file, ExitStack() as stack:
        writer: Any = None
        for log, places in placed_logs(cells):
            named = {
                key: pa.DictionaryArray.from_arrays(_arrow_array(numbers), _arrow_array(names))
                for key, (names, numbers) in places.items()
            }
            table = pa.table(named | {name: _arrow_array(values) for name, values in log.items()})
            if writer is None:
                floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
                others = [name for name in table.schema.names if name not in floats]
                encoding = {"use_dictionary": others, "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT")}
                opened = pq.ParquetWriter(file, table.schema, compression="zstd", compression_level=1, **encoding)
                writer = stack.enter_context(opened)
            writer.write_table(table, row_group_size=ROW_GROUP)


def _arrow_array(values: Array | Sequence[str]) -> Any:
    """Return numbers, flags or texts as an arrow array without `pa.array`, which imports pandas (0.8 s)."""
    import pyarrow as pa

    if isinstance(values, np.ndarray):
        content = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
        return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(content)])
    encoded = [value.encode() for value in values]
    starts = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(starts), pa.py_buffer(b"".join(encoded))])


def sha256(path: Path) -> str:
    """Return the SHA-256 hex digest of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of a run directory; raises `RunDirectoryError` unless the directory is whole."""
    path = directory / MANIFEST
    if not path.is_file():
        what = f"no complete run directory: {MANIFEST} is missing"
        raise RunDirectoryError(what, path=directory, remedy="give a folder that simnmt run wrote")
    try:
        manifest: dict[str, Any] = json.loads(files.read_bounded(path))
        known = (
            all(isinstance(manifest[key], dict) for key in ("inputs", "outputs"))
            and isinstance(manifest[REPLICATIONS], list)
            and {INPUT, RESOLVED} <= {*manifest["outputs"]} <= OUTPUTS
        )
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        known = False
    if not known:
        raise RunDirectoryError("no manifest of a run", path=path, remedy=f"run {directory / RESOLVED} anew")
    return manifest


def check_unchanged(recorded: Mapping[str, str], label: str, locate: Callable[[str], Path], remedy: str) -> None:
    """Refuse files that differ from the digests that a run recorded; raises `RunDirectoryError` for the first of them."""
    for name, digest in recorded.items():
        path = locate(name)
        try:
            files.check_regular(path, files.MOST_DOCUMENT_BYTES if name in (INPUT, RESOLVED) else files.MOST_STREAMED_BYTES)
            present = sha256(path)
        except OSError as error:
            raise RunDirectoryError(f"{label} of that run cannot be read: {error.strerror}", path=path, remedy=remedy) from None
        if present != digest:
            raise RunDirectoryError(f"{label} of that run has changed since", path=path, remedy=remedy)


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Raise `RunDirectoryError` in place of an error of a file that is not what a run writes."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise RunDirectoryError(f"cannot be read: {reason or 'not what a run writes'}", path=path, remedy=REMEDY) from None


def load_run(directory: Path, scenario: Row) -> Run:
    """Return a finished run; `scenario`: the resolved scenario of the directory. Raises `RunDirectoryError`."""
    manifest = read_manifest(directory)
    with _read(directory / SUMMARY):
        summary = json.loads(files.read_bounded(directory / SUMMARY, files.MOST_DOCUMENT_BYTES))
        lists = ("rows", "comparisons", "fits", "recommendations", "gaps", "notes")
        if not (summary["rows"] and isinstance(summary["name"], str) and all(isinstance(summary[key], list) for key in lists)):
            raise TypeError
        workloads = [cell.workload for cell in wholes(summary["rows"])]
    with _read(directory / MANIFEST):
        devices = {name: tuple(_device(**device) for device in manifest[DEVICES][name]) for name in workloads}
        replicated = {Place.of(row): dict(row["values"]) for row in manifest[REPLICATIONS]}
        engines, engine_reasons = dict(manifest["engines"]), dict(manifest["engine_reasons"])
    with _read(directory / SUMMARY):
        copied = ("name", "seed", "comparisons", "fits", "recommendations", "gaps", "notes")
        return Run(
            summary_rows=summary["rows"],
            **{key: summary[key] for key in copied},
            cells=_stored_cells(directory, devices, summary["rows"]),
            replicated=replicated,
            live=LiveMeasurement(**summary["live"]) if "live" in summary else None,
            scenario=scenario,
            directory=directory,
            input_digests=manifest["inputs"],
            engines=engines,
            engine_reasons=engine_reasons,
            manifest=manifest,
        )


def _device(load_s: Sequence[Sequence[float]] = (), **device: Any) -> Device:
    return Device(load_s=tuple((first, second) for first, second in load_s), **device)


def _stored_cells(directory: Path, devices: Mapping[str, tuple[Device, ...]], rows: Iterable[Row]) -> list[Cell]:
    path = directory / REQUESTS
    return [
        Cell(*cell, devices[cell.workload], {row["policy"]: stored_log(path, Place.of(row)) for row in of_cell})
        for cell, of_cell in wholes(rows).items()
    ]


def _row_groups(path: Path, place: Place) -> tuple[Any, list[int]]:
    """Return the opened file, and the numbers of the row groups of a place, each of one simulated world and policy."""
    import pyarrow.parquet as pq

    with _read(path):
        file = pq.ParquetFile(path)
        at = [file.schema_arrow.get_field_index(key) for key in Place._fields]
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        labels = [[group.column(index).statistics.min for index in at] for group in groups]
        # In a group of several sites or workloads, the least name says nothing.
        return file, [
            number
            for number, label in enumerate(labels)
            if all(known in (ALL, name) for known, name in zip(place, label, strict=True))
        ]


def stored_log(path: Path, place: Place) -> RequestLog:
    """Return the log of one policy's requests in requests.parquet, which is opened on the first access."""
    opened = cache(partial(_row_groups, path, place))

    def names() -> list[str]:
        return [name for name in opened()[0].schema_arrow.names if name not in Place._fields]

    def read(name: str) -> Array:
        if name not in names():
            raise KeyError(name)
        file, groups = opened()
        with _read(path):
            values: Array = file.read_row_groups(groups, columns=[name])[name].to_numpy()
            return values

    return RequestLog(Columns(names, read))
