"""A comparison of profiles as text; milliseconds, because a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simnmt.costs.comparison import Comparison, coefficients, compared
from simnmt.costs.profile import DeviceProfile


def comparison_text(files: Sequence[str], profiles: Sequence[DeviceProfile]) -> str:
    """Coefficients of all, then each against the first; files by their last names where these tell them apart."""
    last = [Path(file).name for file in files]
    names = last if len(set(last)) == len(last) else list(files)
    numbers = [coefficients(profile) for profile in profiles]
    keys = list(dict.fromkeys(key for each in numbers for key in each))
    rows = [[_named(key), *(_number(key, each.get(key)) for each in numbers)] for key in keys]
    lines = _aligned(["", *names], rows)
    for name, other in zip(names[1:], profiles[1:], strict=True):
        lines += ["", *_against(names[0], name, compared(profiles[0], other))]
    return "\n".join(lines)


def _against(first: str, other: str, found: Comparison) -> list[str]:
    lines = [f"note: {each}" for each in found.differences]
    if found.faster_share is None:
        return [f"{other} against {first}: they hold for no common lengths", *lines]
    lines = [f"{other} against {first}: {_verdict(first, other, found.faster_share)}", *lines]
    lines.append(f"time of {other} over that of {first}, by source (down) and target length (across):")
    rows = [[str(src), *(f"{each:.3g}" for each in row)] for src, row in zip(found.src_len, found.ratio, strict=True)]
    lines += _aligned(["", *map(str, found.tgt_len)], rows)
    if found.step_batch:
        lines.append(f"the same of one decode step at position {found.step_position}, by batch:")
        lines += _aligned(list(map(str, found.step_batch)), [[f"{each:.3g}" for each in found.step_ratio]])
    return lines


def _verdict(first: str, other: str, share: float) -> str:
    if share == 1.0:
        return f"{other} is faster at all common lengths"
    if share == 0.0:
        return f"{first} is as fast or faster at all common lengths"
    return f"{other} is faster at {100 * share:.3g} % of the common lengths, {first} at the others"


def _named(key: str) -> str:
    """With the unit in which `_number` tells it."""
    block, name = key.split(".")
    if key.endswith("bytes_per_s"):
        return f"{block} bandwidth, MB/s"
    if key.endswith("relative_sd"):
        return f"{block} residual spread, %"
    if key.endswith("_w"):
        return f"{block} {name.removesuffix('_w')}, W"
    plain = name.removeprefix("s_").replace("_s_per_", " per ").removesuffix("_s").replace("_s_", " ").replace("_", " ")
    return f"{block} {plain}, ms"


def _number(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    if key.endswith("_w"):
        return f"{value:.4g}"
    if key.endswith("bytes_per_s"):
        return f"{value / 1e6:.4g}"
    return f"{100 * value:.3g}" if key.endswith("relative_sd") else f"{1e3 * value:.4g}"


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    first_left = header[0] == ""
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if at == 0 and first_left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]
