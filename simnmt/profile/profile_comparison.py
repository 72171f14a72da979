"""Comparison of profiles: coefficients, ratios of predicted times, and the lengths at which each device is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats
from simnmt.base.text_tables import format_table
from simnmt.profile.decoder_settings import DecoderOptions
from simnmt.profile.device_profile import DeviceProfile

_LENGTHS = (1, 2, 5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 400)
_MOST = 7
"""Most lengths along each side of the table."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One profile compared with the first."""

    src_len: tuple[int, ...]
    """Source lengths in both valid ranges; empty if the ranges share no length."""
    tgt_len: tuple[int, ...]
    ratio: tuple[tuple[float, ...], ...]
    """Predicted time over that of the first profile; shape (src_len, tgt_len). Below 1 the other profile is faster."""
    faster_share: float | None
    """Share of all common pairs of lengths at which the other profile is faster."""
    step_batch: tuple[int, ...]
    """Batch sizes in both measured ranges; empty if one of the profiles has no steps."""
    step_position: int | None
    step_ratio: tuple[float, ...]
    differences: tuple[str, ...]
    """Properties in which the profiles differ; the ratio is the effect of all differences together."""

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers in SI units."""
        return {
            "src_len": list(self.src_len),
            "tgt_len": list(self.tgt_len),
            "time_ratio": [list(row) for row in self.ratio],
            "faster_share": self.faster_share,
            "step": {"batch": list(self.step_batch), "position": self.step_position, "time_ratio": list(self.step_ratio)},
            "differences": list(self.differences),
        }


def compare_profiles(first: DeviceProfile, other: DeviceProfile) -> Comparison:
    """Compare the other profile with the first, over the lengths in both valid ranges."""
    src = _common(first.valid_range.src_len, other.valid_range.src_len, 1)
    tgt = _common(first.valid_range.tgt_len, other.valid_range.tgt_len, 1)
    src_len, tgt_len, ratio, share = tuple[int, ...](), tuple[int, ...](), np.empty((0, 0)), None
    if src and tgt:
        src_len, tgt_len = _some(*src), _some(*tgt)
        ratio = _plane_ratio(first, other, src_len, tgt_len)
        share = float((_plane_ratio(first, other, _spread(*src), _spread(*tgt)) < 1.0).mean())
    rows = tuple(tuple(row) for row in ratio.tolist())
    return Comparison(src_len, tgt_len, rows, share, *_steps(first, other), tuple(differences(first, other)))


def coefficients(profile: DeviceProfile) -> dict[str, float | None]:
    """Return the named coefficients of the cost models; None for one that was not measured.

    The slope of the execution plane includes a beam's steps beyond its best output, as in the ratios of predicted times.
    """
    numbers: dict[str, float | None] = {
        f"execution.{name}": value for name, value in profile.plane.coefficients.model_dump().items()
    }
    numbers["execution.residual_relative_sd"] = profile.execution.residual_relative_sd
    for name in ("step", "encoder"):
        block = getattr(profile, name)
        fitted = None if block is None or block.form != "linear" else block.coefficients
        numbers |= {f"{name}.{key}": value for key, value in ({} if fitted is None else fitted.model_dump()).items()}
    if profile.overheads is not None:
        for key in type(profile.overheads).model_fields:
            overhead = getattr(profile.overheads, key)
            numbers[f"overheads.{key}"] = None if overhead is None else overhead.value
    for name, keys in (("disk", ("s_fixed", "bytes_per_s")), ("energy", ("idle_w", "active_w"))):
        block = getattr(profile, name)
        numbers |= {} if block is None else {f"{name}.{key}": getattr(block, key) for key in keys}
    return numbers


def differences(first: DeviceProfile, other: DeviceProfile) -> list[str]:
    """Return one line for each property in which the profiles differ, apart from times."""
    pairs: list[tuple[str, Any, Any]] = [
        ("device", first.device.name, other.device.name),
        ("model", first.model.name, other.model.name),
        ("vocabulary", first.model.vocab, other.model.vocab),
        ("source unit", first.length_unit.src, other.length_unit.src),
        ("target unit", first.length_unit.tgt, other.length_unit.tgt),
        ("end of sentence counted", first.length_unit.end_of_sentence, other.length_unit.end_of_sentence),
        ("kind", first.execution.kind, other.execution.kind),
    ]
    if first.engine is not None and other.engine is not None:
        keys = ("backend", "compute_type", "device", "threads", "beam", "fused", "weights")
        pairs += [(key.replace("_", " "), getattr(first.engine, key), getattr(other.engine, key)) for key in keys]
        one, another = first.engine.decoder, other.engine.decoder
        if one is not None and another is not None:
            options = [key for key in DecoderOptions.model_fields if key not in keys]
            pairs += [(key.replace("_", " "), getattr(one, key), getattr(another, key)) for key in options]
        if first.engine.architecture != other.engine.architecture:
            pairs.append(("architecture", "one", "another"))
    return [f"{what}: {one} and {another}" for what, one, another in pairs if one != another]


def _common(one: tuple[int, int], another: tuple[int, int], least: int = 0) -> tuple[int, int] | None:
    low, high = max(one[0], another[0], least), min(one[1], another[1])
    return (low, high) if low <= high else None


def _some(low: int, high: int) -> tuple[int, ...]:
    inner = [length for length in _LENGTHS if low < length < high]
    wanted = np.linspace(0, len(inner) - 1, min(_MOST - 2, len(inner))).round().astype(int).tolist() if inner else []
    return tuple(sorted({low, *(inner[at] for at in wanted), high}))


def _spread(low: int, high: int) -> Floats:
    return np.unique(np.linspace(low, high, 200).round())


def _plane_ratio(first: DeviceProfile, other: DeviceProfile, src: ArrayLike, tgt: ArrayLike) -> Floats:
    src_len, tgt_len = np.asarray(src)[:, None], np.asarray(tgt)[None, :]
    return _ratio(first.plane.seconds(src_len, tgt_len), other.plane.seconds(src_len, tgt_len))


def _ratio(first_s: Floats, other_s: Floats) -> Floats:
    # A fitted cost may be 0 at some lengths; a nanosecond keeps the ratio a number.
    return np.maximum(other_s, 1e-9) / np.maximum(first_s, 1e-9)


def _steps(first: DeviceProfile, other: DeviceProfile) -> tuple[tuple[int, ...], int | None, tuple[float, ...]]:
    if first.step is None or other.step is None:
        return (), None, ()
    one, another = first.step.cost, other.step.cost
    sizes, positions = _common(one.batch_range, another.batch_range), _common(one.length_range, another.length_range)
    if sizes is None or positions is None:
        return (), None, ()
    batch = tuple(sorted({size for size in first.step.batch + other.step.batch if sizes[0] <= size <= sizes[1]}))
    position = sum(positions) // 2
    return batch, position, tuple(_ratio(one.seconds(batch, position), another.seconds(batch, position)).tolist())


def comparison_text(files: Sequence[str], profiles: Sequence[DeviceProfile]) -> str:
    """Format the coefficients of all profiles, then each profile against the first; files by base name if distinct."""
    last = [Path(file).name for file in files]
    names = last if len(set(last)) == len(last) else list(files)
    numbers = [coefficients(profile) for profile in profiles]
    keys = list(dict.fromkeys(key for profile_numbers in numbers for key in profile_numbers))
    rows = [_coefficient_row(key, [profile_numbers.get(key) for profile_numbers in numbers]) for key in keys]
    lines = [format_table(["", *names], rows, indent="  ")]
    for name, other in zip(names[1:], profiles[1:], strict=True):
        lines += ["", *_against(names[0], name, compare_profiles(profiles[0], other))]
    return "\n".join(lines)


def _against(first: str, other: str, comparison: Comparison) -> list[str]:
    lines = [f"note: {difference}" for difference in comparison.differences]
    if comparison.faster_share is None:
        return [f"{other} against {first}: their valid ranges share no lengths", *lines]
    lines = [f"{other} against {first}: {_verdict(first, other, comparison.faster_share)}", *lines]
    lines.append(f"time of {other} over that of {first}, by source (down) and target length (across):")
    ratio_rows = zip(comparison.src_len, comparison.ratio, strict=True)
    rows = [[str(src), *(f"{ratio:.3g}" for ratio in row)] for src, row in ratio_rows]
    lines += [format_table(["", *map(str, comparison.tgt_len)], rows, indent="  ")]
    if comparison.step_batch:
        lines.append(f"the same of one decode step at position {comparison.step_position}, by batch:")
        ratios = [f"{ratio:.3g}" for ratio in comparison.step_ratio]
        lines += [format_table(list(map(str, comparison.step_batch)), [ratios], 0, indent="  ")]
    return lines


def _verdict(first: str, other: str, share: float) -> str:
    if share == 1.0:
        return f"{other} is faster at all common lengths"
    if share == 0.0:
        return f"{first} is as fast or faster at all common lengths"
    return f"{other} is faster at {100 * share:.3g} % of the common lengths, {first} at the others"


def _coefficient_row(key: str, values: Sequence[float | None]) -> list[str]:
    """Return the label of a coefficient with its unit, and its value in each profile."""
    block, name = key.split(".")
    plain = name.removeprefix("s_").replace("_s_per_", " per ").removesuffix("_s").replace("_s_", " ").replace("_", " ")
    label, factor, form = f"{plain}, ms", 1e3, ".4g"
    if key.endswith("bytes_per_s"):
        label, factor = "bandwidth, MB/s", 1e-6
    elif key.endswith("relative_sd"):
        label, factor, form = "residual spread, %", 100.0, ".3g"
    elif key.endswith("_w"):
        label, factor = f"{name.removesuffix('_w')}, W", 1.0
    return [f"{block} {label}", *("-" if value is None else f"{factor * value:{form}}" for value in values)]
