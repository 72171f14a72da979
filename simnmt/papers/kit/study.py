"""Studies of trained models, measured part by part: the record of each part's measurement, and the file of a study."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

from simnmt.base import VERSION, shipped_files
from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError
from simnmt.base.files import write_text
from simnmt.calibrate.box import describe_machine
from simnmt.calibrate.settings import CalibrationError, read_measurement
from simnmt.nmt.devices import installed_versions

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
AboveZero = Annotated[float, Field(gt=0.0)]
T = TypeVar("T")
TOOL = f"simnmt {VERSION}"
"""The program that writes studies."""


class PartRun(Configuration):
    """How and when one part of a study was measured; the harness repeats what other programs disturb."""

    date: str
    """End of the measurement, ISO 8601."""
    threads: Positive
    machine: str
    """Processor, CPUs and operating system."""
    versions: dict[str, str]
    """Versions of the libraries."""
    notes: tuple[str, ...] = ()
    """What was left out, or sampled: one sentence each."""


Run = TypeVar("Run", bound=PartRun)


def part_run(kind: type[Run], threads: int, libraries: Iterable[str], **more: Any) -> Run:
    """Return the record of the part that ends now; `more`: the further fields of `kind`."""
    return kind(
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        threads=threads,
        machine=describe_machine(),
        versions={"python": platform.python_version(), **installed_versions(libraries)},
        **more,
    )


def describe_runs(runs: Iterable[PartRun]) -> str:
    """Return on which days and machines the parts of a study were measured."""
    return "; ".join(dict.fromkeys(f"{run.date[:10]} on {run.machine}" for run in runs))


Study = TypeVar("Study", bound=BaseModel)


def read_study(path: str | os.PathLike[str], kind: type[Study]) -> Study:
    """Read and check the file of a study; raises `CalibrationError` naming the place and the key."""
    return read_measurement(path, kind, "study", "make the study again with this version")


def read_distinct(paths: Iterable[Path], read: Callable[[Path], T], name: Callable[[T], str], kind: str) -> list[T]:
    """Read files with `read`. Raises `InputError` if two have one `name`, and what `read` raises."""
    by_name: dict[str, T] = {}
    for path in paths:
        content = read(path)
        if by_name.setdefault(name(content), content) is not content:
            raise InputError(f"two {kind} of {name(content)}", path=path, remedy="name one of them")
    return [*by_name.values()]


def read_studies(paths: Iterable[Path], kind: type[Study]) -> list[Study]:
    """Read study files; raise `CalibrationError` for an invalid file, `InputError` for two studies of one `name`."""
    return read_distinct(paths, lambda path: read_study(path, kind), attrgetter("name"), "studies")


def shipped_measurements(paper: str, kind: str) -> list[Path]:
    """Return the shipped files of a kind such as `bench` or `study`, sorted by name; an empty list if none is shipped."""
    return sorted((shipped_files.folder("calibration") / paper).glob(f"{kind}-*.json"))


def write_study(path: str | os.PathLike[str], study: Configuration) -> None:
    """Write a study whole or not at all; raises `CalibrationError` where the file cannot be written."""
    write_text(path, study.model_dump_json(indent=1) + "\n", CalibrationError)
