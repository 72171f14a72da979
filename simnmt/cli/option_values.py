"""Parse values of options that users write as lists, in megabytes, milliseconds and percent."""

from __future__ import annotations

import math
from pathlib import Path

import typer

from simnmt.base import shipped_files
from simnmt.base.errors import InputError


def in_bytes(option: str, megabytes: float) -> int:
    """That many bytes, a megabyte being 10^6 of them; raises `InputError` for less than 0 and for what is no finite number."""
    if not 0.0 <= megabytes < math.inf:
        raise InputError(f"{option} {megabytes:g}: no size of a buffer", remedy="give 0 or more MB")
    return round(1e6 * megabytes)


def in_seconds(option: str, milliseconds: float) -> float:
    """That many seconds; raises `InputError` for 0, for less, and for what is no finite number."""
    if not 0.0 < milliseconds < math.inf:
        raise InputError(f"{option} {milliseconds:g}: no time to keep to", remedy="give a positive number of ms")
    return milliseconds / 1e3


def in_share(option: str, percentage: str) -> float:
    """Return the share that a percentage such as `2%` stands for; raises `InputError` unless it lies between 0 and 100 %."""
    number = percentage.strip().removesuffix("%")
    try:
        share = float(number) / 100.0 if number != percentage.strip() else math.nan
    except ValueError:
        share = math.nan
    if not 0.0 < share < 1.0:
        raise InputError(f"{option} {percentage}: not a percentage between 0 and 100", remedy="write 2% for two percent")
    return share


def parse_integers(option: str, text: str, example: str) -> tuple[int, ...]:
    """Return the whole numbers of a list such as `2,6,32`; raises `BadParameter` for anything else."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list: give whole numbers, as in {example}", param_hint=option) from None


def profile_path(profile: str | Path) -> Path:
    """Return the file of a device profile given by its path or as `@name` of a shipped one."""
    return shipped_files.find("calibration", str(profile)) if str(profile).startswith("@") else Path(profile)
