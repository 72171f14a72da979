"""Files that are shipped with simnmt and found by `@name`: traces, device profiles, scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean

Kind = Literal["traces/lengths", "traces/rtt", "traces/bandwidth", "calibration", "scenarios"]

KINDS: dict[Kind, str] = {
    "traces/lengths": ".csv",
    "traces/rtt": ".csv",
    "traces/bandwidth": ".csv",
    "calibration": ".json",
    "scenarios": ".yaml",
}
"""The kinds, with the suffix of their files."""

_PACKAGE = Path(__file__).resolve().parent.parent


def folder(kind: Kind) -> Path:
    """Return the folder of the shipped files of one kind: in an installed wheel, or at the top of a source checkout."""
    installed = _PACKAGE / "shipped_files" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def names(kind: Kind) -> list[str]:
    """Return the names of the shipped files of one kind, sorted, without the `@`."""
    return sorted(path.name.removesuffix(KINDS[kind]) for path in folder(kind).glob(f"*{KINDS[kind]}"))


def find(kind: Kind, name: str) -> Path:
    """Return the shipped file of a name (with or without the `@`).

    Raises `InputError` with the nearest shipped name if there is no such file.
    """
    bare = name.removeprefix("@")
    known = names(kind)
    if bare not in known:
        remedy = did_you_mean(bare, known, shown=lambda other: f"@{other}")
        raise InputError(f"@{bare}: nothing of that name is shipped under {kind}", remedy=remedy)
    return folder(kind) / f"{bare}{KINDS[kind]}"
