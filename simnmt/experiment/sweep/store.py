"""The folder of a sweep: what is swept, and the result of every finished task, each file written whole.

    sweep.json            what is swept, by which version of simnmt, and the SHA-256 of all inputs
    scenario.input.yaml   the scenario as given
    tasks/ab/KEY.json     the result of a task; KEY is its digest, ab its first two digits
    failed.json           errors of the tasks that failed at the last attempt
    sweep.parquet         the table, once all tasks have ended
    sweep.html            its page

One process at a time writes the folder. A killed one leaves at most a folder under a temporary name (`.simnmt-partial-...`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from simnmt.base import VERSION, files
from simnmt.base.errors import InputError
from simnmt.experiment.sweep.tasks import TaskResult
from simnmt.results.run_directory import INPUT
from simnmt.results.summary import Row
from simnmt.results.sweep_table import HEADER
from simnmt.scenario.document import Override
from simnmt.scenario.errors import format_location
from simnmt.scenario.sweep_configuration import Sweep
from simnmt.scenario.varied_keys import VariedKey

TASKS, FAILED = "tasks", "failed.json"
FORMAT = 1
"""Version of the folder's form."""


class SweepFolderError(InputError):
    """A folder that holds no sweep, or one that cannot go on."""


@dataclass(frozen=True, slots=True)
class Header:
    """What sweep.json records: enough to go on with the sweep."""

    name: str
    """Of the scenario."""
    base: str
    """Folder at which relative paths of the scenario start."""
    overrides: list[list[Any]]
    """Keys and value of each override for all points."""
    keys: list[Row]
    """`key`, a list of its parts, with `values`, or `from` and `to`."""
    inputs: dict[str, str]
    """SHA-256 of every file that any point reads, by its name in the scenario."""
    simnmt: str = VERSION
    format: int = FORMAT

    @staticmethod
    def of(sweep: Sweep, name: str, base: Path, inputs: dict[str, str]) -> Header:
        """Return the record of a sweep."""
        keys = [{"key": list(key.location), "values": [node.plain() for node in key.values]} for key in sweep.keys]
        overrides = [[list(override.location), override.node.plain()] for override in sweep.overrides]
        return Header(name, str(base), overrides, keys, dict(sorted(inputs.items())))

    def sweep(self, folder: Path) -> Sweep:
        """Return the sweep, whose scenario is the file in the folder."""
        overrides = [
            Override.of(location, value, f"--set {format_location(tuple(location))}") for location, value in self.overrides
        ]
        keys = []
        for record in self.keys:
            label = f"--grid {format_location(tuple(record['key']))}"
            keys.append(VariedKey.of(tuple(record["key"]), label, record["values"]))
        return Sweep(str(folder / INPUT), tuple(overrides), tuple(keys))


def new_folder(under: Path, stem: str) -> Path:
    """Return a path for a new sweep, named after `stem` and the time (UTC); nothing is made."""
    # File systems take names of 255 bytes; a scenario's may have 80 characters of any script.
    short = stem.encode()[:100].decode(errors="ignore")
    name = f"{short}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    numbered = (under / f"{name}-{number}" for number in itertools.count(2))
    return next(path for path in itertools.chain([under / name], numbered) if not os.path.lexists(path))


def is_sweep_folder(path: Path) -> bool:
    """Return whether a folder holds a sweep, finished or not."""
    return os.path.isfile(path / HEADER)  # noqa: PTH113 - Path.is_file raises for a name that no file can have


def read_header(folder: Path) -> Header:
    """Return what a folder sweeps. Raises `SweepFolderError`, also for a sweep of another version."""
    try:
        record = json.loads(files.read_bounded(folder / HEADER))
        form, version = record["format"], record["simnmt"]
        if form == FORMAT:
            return Header(**record)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise SweepFolderError(f"no sweep: {HEADER} is missing or damaged", path=folder, remedy="begin a new sweep") from None
    what = f"a sweep in form {form} of simnmt {version}, and this is simnmt {VERSION} with form {FORMAT}"
    raise SweepFolderError(what, path=folder, remedy="use that version, or begin a new sweep")


class SweepStore:
    """A sweep's folder while this process writes it (`open_store`)."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder, self.header = folder, header
        self._tasks = folder / TASKS
        files.remove_link(self._tasks)
        for of_digits in self._tasks.glob("*"):
            files.remove_link(of_digits)

    def _path(self, key: str) -> Path:
        return self._tasks / key[:2] / f"{key}.json"

    def finished(self) -> tuple[set[str], int]:
        """Return the keys of the finished tasks, and the number of files that were removed: damaged, or changed since."""
        paths = list(self._tasks.glob("*/*.json"))
        keys = {path.stem for path in paths if self.read(path.stem) is not None}
        changed = [path for path in paths if path.stem not in keys]
        for path in changed:
            path.unlink(missing_ok=True)
        return keys, len(changed)

    def write(self, result: TaskResult) -> None:
        """Write the result of a task that succeeded, whole or not at all."""
        content = {"open_loops": list(result.open_loops), "runs": list(result.runs)}
        path = self._path(result.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.written_whole(path) as partial:
            partial.write_text(_compact({"format": FORMAT, "sha256": _digest(content), **content}), encoding="ascii")

    def read(self, key: str) -> tuple[list[str], list[Row]] | None:
        """Return workloads with an open loop, and the runs of a finished task; None without them, or for a changed file."""
        try:
            content = json.loads(files.read_bounded(self._path(key)))
            format_, digest = content.pop("format"), content.pop("sha256")
            unchanged = format_ == FORMAT and digest == _digest(content)
            return (content["open_loops"], content["runs"]) if unchanged else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def write_failures(self, failures: Iterable[TaskResult]) -> None:
        """Record the errors of the tasks that failed, in place of those of an earlier attempt."""
        records = [
            {key: value for key, value in asdict(result).items() if key in ("key", "point", "replication", "error", "trace")}
            for result in failures
        ]
        if records:
            with files.written_whole(self.folder / FAILED) as partial:
                partial.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
        else:
            (self.folder / FAILED).unlink(missing_ok=True)


def _compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _digest(content: Any) -> str:
    return hashlib.sha256(_compact(content).encode()).hexdigest()


@contextmanager
def open_store(folder: Path, header: Header, scenario_text: bytes) -> Iterator[SweepStore]:
    """Yield the store of a sweep, new or begun earlier, locked against other sweeps.

    Raises `SweepFolderError` if another process writes it, if it holds another sweep or anything else, or cannot be written.
    """
    with files.sole_writer(folder, SweepFolderError, "sweep"):
        if is_sweep_folder(folder):
            check_same(read_header(folder), header, folder)
        else:
            if not _is_vacant(folder, scenario_text):
                remedy = "choose another --out, or empty it"
                raise SweepFolderError("the folder holds something else than a sweep", path=folder, remedy=remedy)
            _begin(folder, header, scenario_text)
        yield SweepStore(folder, header)


def _is_vacant(folder: Path, scenario_text: bytes) -> bool:
    """Return whether a folder holds nothing but what this sweep left when it was killed at its begin."""
    begun = folder / INPUT
    if begun.is_file() and begun.read_bytes() == scenario_text:
        return files.is_vacant(folder, INPUT)
    return files.is_vacant(folder)


def _begin(folder: Path, header: Header, scenario_text: bytes) -> None:
    try:
        for name, content in ((INPUT, scenario_text), (HEADER, (json.dumps(asdict(header), indent=1) + "\n").encode())):
            with files.written_whole(folder / name) as partial:
                partial.write_bytes(content)
    except OSError as error:
        raise SweepFolderError(f"cannot be written: {error.strerror}", path=folder, remedy="choose another --out") from None


def check_same(recorded: Header, header: Header, folder: Path) -> None:
    """Refuse to go on with another sweep than the recorded one. Raises `SweepFolderError`."""
    if recorded.simnmt != header.simnmt:
        what = f"a sweep that simnmt {recorded.simnmt} began, and this is simnmt {header.simnmt}"
        raise SweepFolderError(what, path=folder, remedy="use that version, or begin a new sweep")
    for name, digest in recorded.inputs.items():
        if header.inputs.get(name, digest) != digest:
            what = f"input {name} has changed since the sweep began"
            raise SweepFolderError(what, path=folder, remedy="restore it, or begin a new sweep")
    if recorded != header:
        remedy = f"go on with it: simnmt sweep {folder}, or choose another --out"
        raise SweepFolderError("another sweep is there", path=folder, remedy=remedy)
