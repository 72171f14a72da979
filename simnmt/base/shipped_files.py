"""Files that come with simnmt, found by `@name`: traces, device profiles, scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

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
    """Where the shipped files of one kind lie: inside an installed wheel, or at the top of a source checkout."""
    installed = _PACKAGE / "shipped_files" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def names(kind: Kind) -> list[str]:
    """Names that `@name` may take for this kind, sorted."""
    return sorted(path.name.removesuffix(_SUFFIX[kind]) for path in folder(kind).glob(f"*{_SUFFIX[kind]}"))


def find(kind: Kind, name: str) -> Path:
    """The file behind `@name` (given with or without the `@`).

    Raises `InputError` naming the nearest shipped name where there is none.
    """
    bare = name.removeprefix("@")
    known = names(kind)
    if bare not in known:
        remedy = did_you_mean(bare, known, shown=lambda other: f"@{other}")
        raise InputError(f"@{bare}: nothing of that name is shipped under {kind}", remedy=remedy)
    return folder(kind) / f"{bare}{_SUFFIX[kind]}"
