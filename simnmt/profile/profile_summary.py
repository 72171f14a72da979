"""Summary and comparison of device profiles, from their fields: text for a person, and JSON in SI units.

The words for a field stand beside it in the blocks (`Shown`), so that a new quantity appears here by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration
from simnmt.base.text_tables import format_table
from simnmt.profile.blocks import Block, Shown, shown_of
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import COST_MODELS, LENGTHS, against_step, alone_vs_plane, heldout_errors, profile_doubts
from simnmt.profile.profile_variant import choose

_COSTS = (*COST_MODELS, "beam_overrun")


def as_json(profile: DeviceProfile) -> dict[str, Any]:
    """Return the profile without its raw samples, with its held-out errors and its warnings; SI units."""
    content = profile.model_dump(mode="json", exclude={"execution": {"samples"}, "disk": {"samples"}})
    costs = {name: content.pop(name) for name in _COSTS}
    return content | {
        "alone_vs_plane": alone_vs_plane(profile),
        "heldout_error": heldout_errors(profile),
        "warnings": [doubt.as_json() for doubt in profile_doubts(profile)],
        "cost_models": costs,
    }


def outline(profile: DeviceProfile) -> Mapping[str, Any]:
    """Return what tells a profile from others: box, engine, kinds of its cost models, samples, units, date and warnings.

    `execution_s_of_20_tokens`: seconds of a sentence of 20 source and 20 target tokens by itself. `batches`: whether it has the
    costs that a batching server needs; `knows_refills`: those of sentences that join a running batch.
    """
    costs = {name: getattr(profile, name) for name in _COSTS}
    engine = None if profile.engine is None else f"{profile.engine.backend} {profile.engine.compute_type}"
    return {
        "device": profile.device.name,
        "model": profile.model.name,
        "engine": engine if profile.endpoint is None else f"{profile.endpoint.api} endpoint",
        "kinds": {name: cost.kind for name, cost in costs.items() if hasattr(cost, "kind")},
        "samples": len(profile.execution.samples),
        "execution_s_of_20_tokens": float(profile.plane.seconds(20, 20)),
        "batches": profile.step is not None and profile.encoder is not None,
        "knows_refills": profile.knows_refills,
        "src_unit": profile.length_unit.src,
        "tgt_unit": profile.length_unit.tgt,
        "date": profile.provenance.date[:10],
        "warnings": len(profile_doubts(profile)),
    }


def title(profile: DeviceProfile) -> str:
    """Return the title of a profile: `marian on Intel Xeon, measured, 2 warnings`."""
    doubts = len(profile_doubts(profile))
    warned = f", {doubts} warning{'s' * (doubts > 1)}" if doubts else ""
    return f"{profile.model.name} on {profile.device.name}, {profile.execution.kind}{warned}"


def facts(profile: DeviceProfile) -> list[tuple[str, str]]:
    """Return (label, text) lines of each block, its fields as `Shown` says; a block's doubts follow it as `warning`."""
    doubts, lines = profile_doubts(profile), list[tuple[str, str]]()
    for name, shown, block in _blocks(profile):
        lines += [(label, text) for label, text in block.lines(shown.text) if text]
        lines += _derived(name, profile)
        lines += [("warning", doubt.message) for doubt in doubts if doubt.source == name]
    missing = [name for name in COST_MODELS if getattr(profile, name) is None]
    return [*lines, *([("not measured", ", ".join(missing))] if missing else [])]


def _derived(name: str, profile: DeviceProfile) -> Iterator[tuple[str, str]]:
    """Return lines about a block that follow from several blocks."""
    if name == "encoder" and (apart := alone_vs_plane(profile)) is not None:
        yield "sentence alone", f"{100 * apart:+.2f} % by steps against the plane, mean over {LENGTHS}"
    if name == "decoder" and profile.decoder is not None:
        block, compute_type = profile.decoder, None if profile.engine is None else profile.engine.compute_type
        choices = (choose(block, settings, name=profile.name, compute_type=compute_type) for settings in block.measured)
        yield "decoder fidelity", "; ".join(f"{choice.settings}: {choice.fidelity}" for choice in choices)
        ratios = ", ".join(f"{ratio:.3g} at batch {batch}" for batch, ratio in against_step(profile).items())
        if ratios:
            yield "decoder against step", f"measured steps of {block.base} over step and gap: {ratios}"


def columns(profile: DeviceProfile) -> list[tuple[str, Shown, float]]:
    """Return (place, words, value) of the numbers that a comparison lists.

    The slope of the execution plane includes a beam's steps beyond its best output, as in the ratios of predicted times.
    """
    charged = profile.execution.model_copy(update={"plane": profile.plane})
    blocks = _blocks(profile.model_copy(update={"execution": charged}))
    return [column for name, _, block in blocks if name in _COSTS for column in block.columns(name)]


def _blocks(profile: DeviceProfile) -> list[tuple[str, Shown, Block]]:
    named = ((name, shown_of(DeviceProfile, name), getattr(profile, name)) for name in DeviceProfile.model_fields)
    return [(name, shown, block) for name, shown, block in named if shown is not None and block is not None]


_LENGTHS = (1, 2, 5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 400)
_MOST = 7
"""Most lengths along each side of the table."""


def compare_profiles(first: DeviceProfile, other: DeviceProfile) -> dict[str, Any]:
    """Compare the other profile with the first, over the lengths in both valid ranges; plain numbers in SI units.

    `time_ratio`: predicted time over that of the first, by `src_len` and `tgt_len`, below 1 if the other is faster;
    `faster_share`: share of all common pairs of lengths at which it is, None without common lengths; `step`: the same ratio of
    a step by `batch` at one `position`, empty if a profile has no steps; `differences`: the ratio is the effect of all of them.
    """
    src = _common(first.valid_range.src_len, other.valid_range.src_len, 1)
    tgt = _common(first.valid_range.tgt_len, other.valid_range.tgt_len, 1)
    comparison: dict[str, Any] = {"src_len": [], "tgt_len": [], "time_ratio": [], "faster_share": None}
    if src and tgt:
        src_len, tgt_len = _some(*src), _some(*tgt)
        every_src, every_tgt = (np.unique(np.linspace(*ends, 200).round()) for ends in (src, tgt))
        comparison = {
            "src_len": src_len,
            "tgt_len": tgt_len,
            "time_ratio": _plane_ratio(first, other, src_len, tgt_len).tolist(),
            "faster_share": float((_plane_ratio(first, other, every_src, every_tgt) < 1.0).mean()),
        }
    return comparison | {"step": _steps(first, other), "differences": differences(first, other)}


def differences(first: DeviceProfile, other: DeviceProfile) -> list[str]:
    """Return one line for each property in which box, model, unit and engine differ, apart from their descriptions."""
    lines = []
    for name in ("device", "model", "length_unit", "engine"):
        one, another = getattr(first, name), getattr(other, name)
        if one is not None and another is not None:
            lines += _differing(name.replace("_", " "), one, another)
    if first.execution.kind != other.execution.kind:
        lines.append(f"kind: {first.execution.kind} and {other.execution.kind}")
    return lines


def _differing(place: str, first: Configuration, other: Configuration) -> list[str]:
    lines = []
    for name in type(first).model_fields:
        one, another = getattr(first, name), getattr(other, name)
        label = place if name == "name" else f"{place} {name.replace('_', ' ')}"
        if isinstance(one, Configuration) and isinstance(another, Configuration):
            lines += _differing(label, one, another)
        elif one != another and name not in ("details", "device_name", "versions", "clipped_weights", "product_weights"):
            values = "" if isinstance(one, Mapping) else f": {one} and {another}"
            lines.append(f"{label}{values or ' differs'}")
    return lines


def _common(one: tuple[int, int], another: tuple[int, int], least: int = 0) -> tuple[int, int] | None:
    low, high = max(one[0], another[0], least), min(one[1], another[1])
    return (low, high) if low <= high else None


def _some(low: int, high: int) -> list[int]:
    inner = [length for length in _LENGTHS if low < length < high]
    wanted = np.linspace(0, len(inner) - 1, min(_MOST - 2, len(inner))).round().astype(int).tolist() if inner else []
    return sorted({low, *(inner[at] for at in wanted), high})


def _plane_ratio(first: DeviceProfile, other: DeviceProfile, src: ArrayLike, tgt: ArrayLike) -> Floats:
    src_len, tgt_len = np.asarray(src)[:, None], np.asarray(tgt)[None, :]
    return _ratio(first.plane.seconds(src_len, tgt_len), other.plane.seconds(src_len, tgt_len))


def _ratio(first_s: Floats, other_s: Floats) -> Floats:
    # A fitted cost may be 0 at some lengths; a nanosecond keeps the ratio a number.
    return np.maximum(other_s, 1e-9) / np.maximum(first_s, 1e-9)


def _steps(first: DeviceProfile, other: DeviceProfile) -> dict[str, Any]:
    if first.step is None or other.step is None:
        return {}
    one, another = first.step.cost, other.step.cost
    sizes, positions = _common(one.batch_range, another.batch_range), _common(one.length_range, another.length_range)
    if sizes is None or positions is None:
        return {}
    batch = sorted({size for size in first.step.batch + other.step.batch if sizes[0] <= size <= sizes[1]})
    position = sum(positions) // 2
    ratio = _ratio(one.seconds(batch, position), another.seconds(batch, position))
    return {"batch": batch, "position": position, "time_ratio": ratio.tolist()}


def comparison_text(files: Sequence[str], profiles: Sequence[DeviceProfile]) -> str:
    """Format the coefficients of all profiles, then each profile against the first; files by base name if distinct."""
    last = [Path(file).name for file in files]
    names = last if len(set(last)) == len(last) else list(files)
    numbers = [{place: (shown, value) for place, shown, value in columns(profile)} for profile in profiles]
    rows = []
    for place in dict.fromkeys(place for profile_numbers in numbers for place in profile_numbers):
        shown = next(profile_numbers[place][0] for profile_numbers in numbers if place in profile_numbers)
        block = re.sub("_s(?=_|$)", "", place.rpartition(".")[0]).replace("_", " ").replace(".", " ")
        values = (profile_numbers.get(place) for profile_numbers in numbers)
        rows.append(
            [f"{block} {shown.column}", *("-" if number is None else f"{shown.factor * number[1]:.4g}" for number in values)]
        )
    lines = [format_table(["", *names], rows, indent="  ")]
    for name, other in zip(names[1:], profiles[1:], strict=True):
        lines += ["", *_against(names[0], name, compare_profiles(profiles[0], other))]
    return "\n".join(lines)


def _against(first: str, other: str, comparison: Mapping[str, Any]) -> list[str]:
    notes = [f"note: {difference}" for difference in comparison["differences"]]
    if comparison["faster_share"] is None:
        return [f"{other} against {first}: their valid ranges share no lengths", *notes]
    share = f"faster at {100 * comparison['faster_share']:.3g} % of the common lengths"
    by_length = f"time of {other} over that of {first}, by source (down) and target length (across):"
    rows = [
        [str(src), *map("{:.3g}".format, row)] for src, row in zip(comparison["src_len"], comparison["time_ratio"], strict=True)
    ]
    table = format_table(["", *map(str, comparison["tgt_len"])], rows, indent="  ")
    lines = [f"{other} against {first}: {share}", *notes, by_length, table]
    if step := comparison["step"]:
        ratios = list(map("{:.3g}".format, step["time_ratio"]))
        lines.append(f"the same of one decode step at position {step['position']}, by batch:")
        lines.append(format_table(list(map(str, step["batch"])), [ratios], 0, indent="  "))
    return lines
