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
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base import files
from simnmt.base.errors import InputError
from simnmt.results.columns import arrow_array
from simnmt.results.result import Cell
from simnmt.results.summary import Place, Row

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
    name = f"{stem.encode()[:100].decode(errors='ignore')}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    made = files.missing_parents(folder / name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        for number in itertools.count(2):
            with suppress(FileExistsError):
                path.mkdir()
                break
            path = folder / f"{name}-{number}"
    except OSError as error:
        files.remove_empty(made)
        raise _unwritable(folder, error) from None
    try:
        yield path
    finally:
        files.remove_empty([path, *made])


@contextmanager
def whole(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder to fill, and rename it to `target` at the end; if anything fails, nothing of it is left.

    `replace`: a run directory at `target` gives way at the end. Raises `RunDirectoryError` if `target` is otherwise not empty,
    or cannot be written.
    """
    check_free(target, replace=replace)
    place = _place(target)
    made = files.missing_parents(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with files.partial_folder(place.parent) as partial:
            yield partial
            if os.name == "nt" and place.is_dir():
                place.rmdir()
            if replace and place.is_dir() and any(place.iterdir()):
                _replace(place, partial)
                return
            partial.rename(place)  # over an empty folder, without a moment in which another run could take its name
    except OSError as error:
        files.remove_empty(made)
        raise _unwritable(target, error) from error
    except BaseException:
        files.remove_empty(made)
        raise


def _replace(place: Path, new: Path) -> None:
    """Give a folder the name of a run directory, which is then removed; if it cannot have the name, the run directory keeps it.

    A process that is killed between the two renames leaves both under a temporary name.
    """
    old = files.free_name(place.parent)
    place.rename(old)
    try:
        new.rename(place)
    except BaseException:
        old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def check_free(target: Path, *, replace: bool | None = None) -> None:
    """Refuse a target that is no folder, is not empty, or cannot be made, before a long run rather than after it.

    `replace`: whether a run directory there may be replaced; None: the verb replaces none. Raises `RunDirectoryError`.
    """
    if files.is_standard(target):
        raise RunDirectoryError("a run directory is a folder, no stream", remedy="give the name of a folder")
    place = _place(target)
    try:
        if place.is_dir():
            if any(place.iterdir()):
                _refuse_occupied(target, replace)
            mounted = os.path.ismount(place)
            if mounted or place == _place(Path()):
                # It is replaced as a whole in the end: a mount cannot be, and a shell would stand in a folder that is gone.
                what = "the output folder is a mount point" if mounted else "the output folder is the current one"
                raise RunDirectoryError(what, path=target, remedy="name a new folder in it")
        elif place.exists() or target.is_symlink():
            raise RunDirectoryError("the output is no folder", path=target, remedy=_ELSEWHERE)
        # Tried, not asked: what a file system lets be written shows only so.
        attempt = files.free_name(place.parent) if place.is_dir() else place
        made = files.missing_parents(place)
        try:
            attempt.mkdir(parents=True)
            attempt.rmdir()
        finally:
            files.remove_empty(made)
    except OSError as error:
        raise _unwritable(target, error) from None


def _refuse_occupied(target: Path, replace: bool | None) -> None:
    """Raise `RunDirectoryError` for a folder that is not empty, unless it is a run directory and may be replaced."""
    names = sorted(entry.name for entry in target.iterdir())
    ours: frozenset[str] = frozenset({REPRODUCTION, PAGE}) if REPRODUCTION in names else frozenset()
    with suppress(RunDirectoryError):
        ours |= OUTPUTS | {MANIFEST} if "simnmt" in read_manifest(target) else frozenset()
    foreign = next((name for name in names if name not in ours), None)
    if foreign is None and replace:
        return
    what, remedy = "the output folder is not empty", f"{_ELSEWHERE}, or empty it"
    if foreign is None and replace is False:
        what, remedy = "a run is there", f"{_ELSEWHERE}, or replace it: --force, in Python force=True"
    elif replace:
        what = f"only a run directory can be replaced, and this folder holds {foreign}"
    raise RunDirectoryError(what, path=target, remedy=remedy)


def _place(target: Path) -> Path:
    """Return the target with links resolved: a link to an empty folder cannot be renamed over."""
    return Path(os.path.realpath(target))


def _unwritable(target: Path, error: OSError) -> RunDirectoryError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    remedy = f"{_ELSEWHERE}; nothing was left behind"
    if error.errno in files.NO_ROOM:
        remedy = f"free some space, {_ELSEWHERE}, or run fewer requests; nothing was left behind"
    return RunDirectoryError(f"cannot write the run: {reason}", path=target, remedy=remedy)


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
    if not (directory / MANIFEST).is_file():
        what = f"no complete run directory: {MANIFEST} is missing"
        raise RunDirectoryError(what, path=directory, remedy="give a folder that simnmt run wrote")
    try:
        manifest = json.loads(files.read_bounded(directory / MANIFEST))
        known = _digests_by_name(manifest["inputs"]) and _digests_by_name(manifest["outputs"])
        known = known and {INPUT, RESOLVED} <= set(manifest["outputs"]) <= OUTPUTS
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        known = False
    if not known:
        remedy = f"run {directory / RESOLVED} anew"
        raise RunDirectoryError("no manifest of a run", path=directory / MANIFEST, remedy=remedy)
    return manifest  # type: ignore[no-any-return]


def _digests_by_name(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(digest, str) for digest in value.values())


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


def check_packages(manifest: Mapping[str, Any], present: Mapping[str, str], directory: Path) -> None:
    """Refuse packages of another version than a run recorded; raises `RunDirectoryError` for the first of them."""
    recorded = manifest.get(PACKAGES, {})
    for name, version in present.items():
        if isinstance(recorded, dict) and recorded.get(name, version) != version:
            what = f"that run used {name} {recorded[name]}, and {name} {version} is installed"
            remedy = f"install that version, or run {directory / RESOLVED}"
            raise RunDirectoryError(what, path=directory, remedy=remedy)
