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
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base import files
from simnmt.base.errors import InputError
from simnmt.results.columns import Array, arrow_array
from simnmt.results.device_accounts import BatchAccount, Log
from simnmt.results.requests import RequestLog
from simnmt.results.run import Cell, LiveMeasurement, Run
from simnmt.results.summary import Device, Place, Row, by_cell

MANIFEST, RESOLVED, INPUT = "manifest.json", "scenario.resolved.yaml", "scenario.input.yaml"
SUMMARY, TABLE, REQUESTS, PAGE = "summary.json", "summary.csv", "requests.parquet", "report.html"
REPLICATIONS, DEVICES = "replications", "devices"
"""Keys of the manifest that hold the numbers of each replication, and the devices of each workload."""
PACKAGES = "packages"
"""Key of the manifest that holds the versions of the installed packages whose kinds the scenario names."""
REPRODUCTION = "reproduction.json"
"""The document of `simnmt reproduce`."""
OUTPUTS = frozenset({RESOLVED, INPUT, SUMMARY, TABLE, REQUESTS, PAGE})
"""Names that a manifest may list; another name could lead anywhere."""

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
    path = first = folder / f"{short}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    with ExitStack() as stack:
        try:
            made = stack.enter_context(files.made_folder(folder))
            for number in itertools.count(2):
                with suppress(FileExistsError):
                    path.mkdir()
                    break
                path = first.with_name(f"{first.name}-{number}")
        except OSError as error:
            raise _unwritable(folder, error) from None
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
    try:
        with files.made_folder(place.parent), files.partial_folder(place.parent) as partial:
            yield partial
            try:
                if replace and place.is_dir():
                    place.rename(old)
                elif os.name == "nt" and place.is_dir():
                    place.rmdir()
                partial.rename(place)  # over an empty folder, without a moment in which another run could take its name
            finally:
                if old.is_dir() and partial.is_dir():  # a failure or Ctrl-C between the two
                    old.rename(place)
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        if old.is_dir():
            raise RunDirectoryError(f"cannot write the run: {error.strerror}; the old one is now {old}", path=target) from error
        raise _unwritable(target, error) from error


def check_free(target: Path, *, replace: bool | None = None) -> None:
    """Refuse a target that is no folder, is not empty, or cannot be made, before a long run rather than after it.

    `replace`: whether a run directory there may be replaced; None: the verb replaces none. Raises `RunDirectoryError`.
    """
    place = Path(os.path.realpath(target))
    try:
        if files.is_standard(target) or (target.exists() and not target.is_dir()):
            name = "standard output" if files.is_standard(target) else target
            raise RunDirectoryError("the output is no folder", path=name, remedy=_ELSEWHERE)
        if place.is_dir() and (names := {entry.name for entry in place.iterdir()}):
            is_run = bool(names & {RESOLVED, REPRODUCTION}) and names <= OUTPUTS | {MANIFEST, REPRODUCTION}
            if not (replace and is_run):
                what = "a run is there" if is_run and replace is False else "the output folder is not empty"
                replacing = ", or replace it: --force, in Python force=True" if is_run and replace is False else ""
                raise RunDirectoryError(what, path=target, remedy=f"{_ELSEWHERE}{replacing}")
        if os.path.ismount(place) or place == Path.cwd():
            # It is replaced as a whole in the end: a mount cannot be, and a shell would stand in a folder that is gone.
            what = "the output folder is a mount point" if os.path.ismount(place) else "the output folder is the current one"
            raise RunDirectoryError(what, path=target, remedy="name a new folder in it")
        # Tried, not asked: what a file system lets be written shows only so.
        with files.made_folder(place), files.partial_folder(place.parent):
            pass
    except OSError as error:
        raise _unwritable(target, error) from None


def _unwritable(target: Path, error: OSError) -> RunDirectoryError:
    remedy = f"{'free some space, ' if error.errno in files.NO_ROOM else ''}{_ELSEWHERE}; nothing was left behind"
    return RunDirectoryError(f"cannot write the run: {error.strerror or error}", path=target, remedy=remedy)


def write_json(path: Path, content: Any) -> None:
    """Write deterministic JSON: same content, same bytes; NaN is refused."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def replications_document(replicated: Mapping[Place, Mapping[str, Sequence[float | None]]]) -> list[Row]:
    """Return the numbers of each replication as the manifest has them."""
    return [
        {"workload": workload, "network": network, "policy": policy, "values": dict(columns)}
        for (workload, network, policy), columns in replicated.items()
    ]


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write the summary's rows as CSV, with an empty cell for an unknown number."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


ROW_GROUP = 131_072
"""Requests written at a time."""


def write_requests(path: Path, cells: Iterable[Cell]) -> None:
    """Write one row per request of replication 0, row groups of one workload, network and policy each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    logs = {(cell.workload, cell.network, policy): log for cell in cells for policy, log in cell.logs.items()}
    labels = {key: list(dict.fromkeys(place[at] for place in logs)) for at, key in enumerate(("workload", "network", "policy"))}
    texts = {key: arrow_array(of_key, str) for key, of_key in labels.items()}
    # The file is opened here: pyarrow would take no name that is not UTF-8, and blurs the reason of a failed write.
    with path.open("wb") as file, ExitStack() as open_writer:
        writer: Any = None
        for place, log in logs.items():
            columns: dict[str, Any] = {name: arrow_array(values) for name, values in log.items()}
            named = {
                key: pa.DictionaryArray.from_arrays(
                    arrow_array(np.full(len(log["target"]), of_key.index(value), np.int32)), texts[key]
                )
                for (key, of_key), value in zip(labels.items(), place, strict=True)
            }
            table = pa.table(named | columns)
            if writer is None:
                floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
                others = [name for name in table.schema.names if name not in floats]
                encoding = {"use_dictionary": others, "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT")}
                made = pq.ParquetWriter(file, table.schema, compression="zstd", compression_level=1, **encoding)
                writer = open_writer.enter_context(made)
            writer.write_table(table, row_group_size=ROW_GROUP)


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


REMEDY = "run the scenario anew"
_PLACE = ("workload", "network", "policy")


def load_run(directory: Path, scenario: Row) -> Run:
    """Return a finished run; `scenario`: the resolved scenario of the directory. Raises `RunDirectoryError`."""
    manifest = read_manifest(directory)
    path = directory / SUMMARY
    copied = ("name", "seed", "comparisons", "fits", "recommendations", "gaps", "notes")
    try:
        summary = json.loads(files.read_bounded(path, files.MOST_DOCUMENT_BYTES))
        return Run(
            summary_rows=summary["rows"],
            **{key: summary[key] for key in copied},
            cells=_stored_cells(directory, manifest, summary),
            replicated={tuple(row[key] for key in _PLACE): dict(row["values"]) for row in manifest[REPLICATIONS]},
            live=LiveMeasurement(**summary["live"]) if "live" in summary else None,
            scenario=scenario,
            directory=directory,
            input_digests=manifest["inputs"],
            engines=manifest["engines"],
            engine_reasons=manifest["engine_reasons"],
            manifest=manifest,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from None


def _stored_cells(directory: Path, manifest: Row, summary: Row) -> list[Cell]:
    accounts = {}
    for record in summary["batches"]:
        counts = {key: value for key, value in record.items() if key not in (*_PLACE, "device", "tokens", "busy_s")}
        counts |= {"steps": np.asarray(record["steps"], np.int64), "step_s": np.asarray(record["step_s"], np.float64)}
        accounts[tuple(record[key] for key in (*_PLACE, "device"))] = BatchAccount(**counts)
    cells = []
    for place, rows in by_cell(summary["rows"]).items():
        devices = tuple(Device(**device) for device in manifest[DEVICES][place[0]])
        logs = {row["policy"]: RequestLog(StoredColumns(directory / REQUESTS, (*place, row["policy"]))) for row in rows}
        batches = {name: tuple(accounts.get((*place, name, device.name)) for device in devices) for name in logs}
        batched = {name: of_devices for name, of_devices in batches.items() if any(of_devices)}
        cells.append(Cell(*place, devices, logs, batched))
    return cells


class StoredColumns(Log):
    """The columns of one policy's requests in a run directory, each read on access."""

    def __init__(self, path: Path, place: Place) -> None:
        """`path`: of requests.parquet, which is opened on the first access."""
        self._path, self._place = path, place

    @cached_property
    def _file(self) -> Any:
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(self._path)
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from None

    def __getitem__(self, name: str) -> Array:
        if name not in [*self]:
            raise KeyError(name)
        groups = (self._file.metadata.row_group(number) for number in range(self._file.num_row_groups))
        at = [self._file.schema_arrow.get_field_index(key) for key in _PLACE]
        # Every row group is of one workload, network and policy.
        labels = [tuple(group.column(index).statistics.min for index in at) for group in groups]
        numbers = [number for number, place in enumerate(labels) if place == self._place]
        try:
            values: Array = self._file.read_row_groups(numbers, columns=[name])[name].to_numpy()
        except (OSError, ValueError) as error:
            raise _unreadable(self._path, error) from None
        return values

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._file.schema_arrow.names if name not in _PLACE)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _unreadable(path: Path, error: Exception) -> RunDirectoryError:
    reason = error.strerror if isinstance(error, OSError) else None
    return RunDirectoryError(f"cannot be read: {reason or 'not what a run writes'}", path=path, remedy=REMEDY)
