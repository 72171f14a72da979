"""Files that are shipped with simnmt and found by `@name`: traces, device profiles, scenarios."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean

Kind = Literal["traces/lengths", "traces/rtt", "traces/bandwidth", "calibration", "scenarios"]

_SUFFIX: dict[Kind, str] = {
    "traces/lengths": ".csv",
    "traces/rtt": ".csv",
    "traces/bandwidth": ".csv",
    "calibration": ".json",
    "scenarios": ".yaml",
}

_PACKAGE = Path(__file__).resolve().parent.parent


def folder(kind: Kind) -> Path:
    """Return the folder of the shipped files of one kind: in an installed wheel, or at the top of a source checkout."""
    installed = _PACKAGE / "shipped_files" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def names(kind: Kind) -> list[str]:
    """Return the names of the shipped files of one kind, sorted, without the `@`."""
    return sorted(path.name.removesuffix(_SUFFIX[kind]) for path in folder(kind).glob(f"*{_SUFFIX[kind]}"))


def listing(kinds: Sequence[Kind], local: Path | None, default: str) -> list[tuple[str, Path]]:
    """Return the shipped files of some kinds as `@name` with its path, then the files of these suffixes in a local folder.

    Args:
        kinds: kinds with one suffix.
        local: a folder, whose own folders are searched too, except those of runs; None: `default`, if there is one here.
        default: its path.

    Raises `InputError` if `local` is no folder.
    """
    shipped = [(f"@{name}", find(kind, name)) for kind in kinds for name in names(kind)]
    folder_here = Path(default) if local is None else local
    if not folder_here.is_dir():
        if local is None:
            return shipped
        raise InputError("no such folder", path=local, remedy=f"name a folder; left out, it is {default}/")
    ours = {Path(os.path.realpath(folder(kind))) for kind in _SUFFIX}
    suffix = _SUFFIX[kinds[0]]
    paths = sorted([*folder_here.glob(f"*{suffix}"), *folder_here.glob(f"*/*{suffix}")])
    # In a checkout of the source the local folder holds the shipped files.
    listed = [path for path in paths if ours.isdisjoint(Path(os.path.realpath(path)).parents)]
    # Runs have a manifest beside their tables and documents.
    return shipped + [(str(path), path) for path in listed if not (path.parent / "manifest.json").exists()]


def outlines(
    files: Iterable[tuple[str, Path]], outline: Callable[[Path], Sequence[Mapping[str, Any]]]
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the outlines of listed files, each with the file's `name`, and why other files are left out.

    `outline`: returns the outlines of one file, or raises `InputError`.
    """
    rows: list[Mapping[str, Any]] = []
    faults: list[str] = []

    def add(name: str, path: Path) -> None:
        try:
            rows.extend({"name": name, **row} for row in outline(path))
        except InputError as error:
            faults.append(str(error))

    for name, path in files:
        add(name, path)
    return rows, faults


def find(kind: Kind, name: str) -> Path:
    """Return the shipped file of a name (with or without the `@`).

    Raises `InputError` with the nearest shipped name if there is no such file.
    """
    bare = name.removeprefix("@")
    known = names(kind)
    if bare not in known:
        remedy = did_you_mean(bare, known, shown=lambda other: f"@{other}")
        raise InputError(f"@{bare}: nothing of that name is shipped under {kind}", remedy=remedy)
    return folder(kind) / f"{bare}{_SUFFIX[kind]}"
