"""The run directory: written whole or not at all, and readable again."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simnmt.errors import InputError
from simnmt.results.result import Cell
from simnmt.results.summary import Row

MANIFEST, RESOLVED, INPUT = "manifest.json", "scenario.resolved.yaml", "scenario.input.yaml"
SUMMARY, TABLE, REQUESTS, PAGE = "summary.json", "summary.csv", "requests.parquet", "report.html"


class RunDirectoryError(InputError):
    """An output folder that cannot be written, or a run directory that cannot be read."""


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A folder to fill, renamed to `target` at the end; if anything goes wrong, nothing of it is left.

    Raises `RunDirectoryError` if `target` holds something already or cannot be written.
    """
    check_free(target)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    made = _missing_parents(target)
    try:
        partial.mkdir(parents=True)
        yield partial
        if target.is_dir():
            target.rmdir()
        partial.rename(target)
    except OSError as error:
        _discard(partial, made)
        raise RunDirectoryError(f"cannot write the run: {error.strerror or error}", path=target, remedy=_remedy(error)) from error
    except BaseException:
        _discard(partial, made)
        raise


def check_free(target: Path) -> None:
    """Refuse a target that is no folder or holds something; raises `RunDirectoryError`."""
    if target.is_dir():
        if not os.access(target, os.W_OK | os.X_OK):
            raise RunDirectoryError("the output folder is not writable", path=target, remedy="give another --out")
        if any(target.iterdir()):
            raise RunDirectoryError("the output folder is not empty", path=target, remedy="give another --out, or empty it")
    elif target.exists() or target.is_symlink():
        raise RunDirectoryError("the output is no folder", path=target, remedy="give another --out")
    else:
        above = next(folder for folder in target.absolute().parents if folder.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise RunDirectoryError(f"cannot make the output folder in {above}", path=target, remedy="give another --out")


def _missing_parents(target: Path) -> list[Path]:
    return [folder for folder in target.absolute().parents if not folder.exists()]


def _discard(partial: Path, made: Iterable[Path]) -> None:
    shutil.rmtree(partial, ignore_errors=True)
    for folder in made:
        try:
            folder.rmdir()
        except OSError:
            return


def _remedy(error: OSError) -> str:
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space, give another --out, or run fewer --requests; nothing was left behind"
    return "give another --out; nothing was left behind"


def write_json(path: Path, content: Any) -> None:
    """Deterministic JSON: same content, same bytes; NaN is refused."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_rows(path: Path, rows: list[Row]) -> None:
    """The summary's rows as CSV; an empty cell where a number is not known."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def write_requests(path: Path, cells: Iterable[Cell]) -> None:
    """One row per request of replication 0, a row group per workload, network and policy."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = list(cells)
    labels = {
        "workload": list(dict.fromkeys(cell.workload for cell in cells)),
        "network": list(dict.fromkeys(cell.network for cell in cells)),
        "policy": list(dict.fromkeys(policy for cell in cells for policy in cell.logs)),
    }
    writer = None
    try:
        for cell in cells:
            for policy, log in cell.logs.items():
                names = {"workload": cell.workload, "network": cell.network, "policy": policy}
                rows = len(log["request_id"])
                columns: dict[str, Any] = {
                    key: pa.DictionaryArray.from_arrays(
                        pa.repeat(pa.scalar(labels[key].index(value), pa.int8()), rows), labels[key]
                    )
                    for key, value in names.items()
                }
                table = pa.table(columns | log)
                if writer is None:
                    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
                    writer = pq.ParquetWriter(
                        path,
                        table.schema,
                        compression="zstd",
                        compression_level=1,
                        use_dictionary=[name for name in table.schema.names if name not in floats],
                        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
                    )
                writer.write_table(table, row_group_size=rows)
    finally:
        if writer is not None:
            writer.close()


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a run directory; raises `RunDirectoryError` unless the directory is whole."""
    missing = [name for name in (MANIFEST, RESOLVED) if not (directory / name).is_file()]
    if missing:
        raise RunDirectoryError(f"no complete run directory: {missing[0]} is missing", path=directory, remedy="run it anew")
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        assert isinstance(manifest["outputs"], dict) and isinstance(manifest["inputs"], dict)
    except (ValueError, KeyError, TypeError, AssertionError, OSError):
        raise RunDirectoryError("the manifest cannot be read", path=directory / MANIFEST, remedy="run it anew") from None
    return manifest  # type: ignore[no-any-return]


def check_unchanged(recorded: Mapping[str, str], label: str, locate: Callable[[str], Path]) -> None:
    """Refuse files that differ from what a run recorded of them; raises `RunDirectoryError` naming the first."""
    for name, digest in recorded.items():
        path = locate(name)
        if not path.is_file():
            raise RunDirectoryError(f"{label} of that run is gone", path=path, remedy="restore it, or run the scenario anew")
        if sha256(path) != digest:
            raise RunDirectoryError(
                f"{label} changed since that run", path=path, remedy="restore it, or run scenario.input.yaml anew"
            )
