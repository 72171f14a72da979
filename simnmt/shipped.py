"""Files that come with simnmt, found by `@name`: traces, device profiles, scenarios."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Literal

from simnmt.errors import InputError

Kind = Literal["traces/lengths", "traces/rtt", "calibration", "scenarios"]

_PACKAGE = Path(__file__).resolve().parent


def folder(kind: Kind) -> Path:
    """Where the shipped files of one kind lie: inside an installed wheel, or at the top of a source checkout."""
    installed = _PACKAGE / "shipped_files" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def names(kind: Kind) -> list[str]:
    """Names that `@name` may take for this kind, sorted."""
    return sorted(
        path.name.split(".", 1)[0]
        for path in folder(kind).iterdir()
        if path.is_file() and path.suffix != ".md"
    )


def find(kind: Kind, name: str) -> Path:
    """The file behind `@name` (given with or without the `@`).

    Raises `InputError` naming the nearest shipped name where there is none.
    """
    bare = name.removeprefix("@")
    matches = [
        path for path in folder(kind).iterdir() if path.is_file() and path.name.split(".", 1)[0] == bare
    ]
    if not matches:
        near = difflib.get_close_matches(bare, names(kind), n=1)
        hint = (
            f"did you mean @{near[0]}?"
            if near
            else "known: " + ", ".join(f"@{known}" for known in names(kind))
        )
        raise InputError(f"@{bare}: nothing of that name is shipped under {kind}", remedy=hint)
    return matches[0]
