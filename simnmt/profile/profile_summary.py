"""Summary and comparison of device profiles, from their fields: text for a person, and JSON in SI units.

The words for a field stand beside it in the blocks (`Shown`), so that a new quantity appears here by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from simnmt.base.text_tables import format_table
from simnmt.profile.blocks import OF_BATCHES, Block, ExecutionFit, Shown, shown_of
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
        "warnings": [asdict(doubt) for doubt in profile_doubts(profile)],
        "cost_models": costs,
    }


def outline(profile: DeviceProfile) -> Mapping[str, Any]:
    """Return what tells a profile from others: box, engine, kinds of its cost models, samples, units, date and warnings.

    `execution_s_of_20_tokens`: seconds of a sentence of 20 source and 20 target tokens by itself. `batches`: whether it has the
    costs that a batching server needs; `knows_refills`: those of sentences that join a running batch.
    """
    engine = None if profile.engine is None else f"{profile.engine.backend} {profile.engine.compute_type}"
    return {
        "device": profile.device.name,
        "model": profile.model.name,
        "engine": engine if profile.endpoint is None else f"{profile.endpoint.api} endpoint",
        "kinds": {name: cost.kind for name in _COSTS if hasattr(cost := getattr(profile, name), "kind")},
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
        parts = block.items() if isinstance(block, Mapping) else [("", block)]
        for key, part in parts:
            lines += [(label, text) for label, text in part.lines(f"{shown.text} {key.replace('_', ' ')}".rstrip()) if text]
        lines += _derived(name, profile)
        lines += [("warning", doubt.message) for doubt in doubts if doubt.source == name]
    missing = [name for name in COST_MODELS if not getattr(profile, name)]
    return [*lines, *([("not measured", ", ".join(missing))] if missing else [])]


def _derived(name: str, profile: DeviceProfile) -> Iterator[tuple[str, str]]:
    """Return lines about a block that follow from several blocks."""
    if name == "encoder" and (apart := alone_vs_plane(profile)) is not None:
        yield "sentence alone", f"{100 * apart:+.2f} % by steps against the plane, mean over {LENGTHS}"
    if name == "overheads" and (unknown := [part for part in OF_BATCHES if part not in profile.overheads]):
        yield name, f"not measured, count as 0 s: {', '.join(unknown)}"
    if name == "decoder" and profile.decoder is not None:
        choices = (choose(profile, settings) for settings in profile.decoder.measured)
        yield "decoder fidelity", "; ".join(f"{choice.settings}: {choice.fidelity}" for choice in choices)
        if ratios := ", ".join(f"{ratio:.3g} at batch {batch}" for batch, ratio in against_step(profile).items()):
            yield "decoder against step", f"measured steps of {profile.decoder.base} over step and gap: {ratios}"


def _blocks(profile: DeviceProfile) -> list[tuple[str, Shown, Block | Mapping[str, Block]]]:
    named = ((name, shown_of(DeviceProfile, name), getattr(profile, name)) for name in DeviceProfile.model_fields)
    return [(name, shown, block) for name, shown, block in named if shown is not None and block]


SENTENCES = (10, 20, 50, 100)
"""Source and target tokens of the sentences whose times a comparison lists."""


def numbers(profile: DeviceProfile) -> dict[str, float]:
    """Return the numbers that a comparison lists, in SI units: times of sentences and first steps, and each cost by its keys.

    The slope of the execution plane includes a beam's steps beyond its best output, as in the predicted times.
    """
    lengths = np.array(SENTENCES)
    times_s = zip(SENTENCES, profile.plane.seconds(lengths, lengths).tolist(), profile.outside(lengths, lengths), strict=True)
    found = {f"seconds of {tokens} + {tokens} tokens": seconds for tokens, seconds, outside in times_s if not outside}
    if profile.step is not None:
        steps = zip(profile.step.batch, profile.step.seconds, strict=True)
        found |= {f"seconds of a first step, batch {batch}": row[0] for batch, row in steps}
    blocks = {name: getattr(profile, name) for name in _COSTS}
    blocks["execution"] = profile.execution.model_copy(update={"plane": profile.plane, "fit": ExecutionFit()})
    return found | dict(_floats("", blocks))


def _floats(place: str, content: Any) -> Iterator[tuple[str, float]]:
    if isinstance(content, Block):
        content = content.model_dump()
    if isinstance(content, float):
        yield place, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _floats(f"{place}.{key}".removeprefix("."), value)


def compare_profiles(first: DeviceProfile, other: DeviceProfile) -> dict[str, Any]:
    """Return the share of all pairs of lengths in both valid ranges at which the other profile is faster, and what differs.

    `faster_share`: None without common lengths; `differences`: one line for each property in which box, model, unit and engine
    differ, since the ratio of two profiles' times is the effect of all of them.
    """
    lengths = []
    for range_, other_range in zip(_ranges(first), _ranges(other), strict=True):
        low, high = max(range_[0], other_range[0], 1), min(range_[1], other_range[1])
        lengths.append(np.unique(np.linspace(low, high, 200).round()) if low <= high else np.empty(0))
    src, tgt = lengths[0][:, None], lengths[1][None, :]
    faster = other.plane.seconds(src, tgt) < first.plane.seconds(src, tgt)
    one, another = _header(first), _header(other)
    differing = [name for name in one if name in another and one[name] != another[name]]
    differences = [
        f"{name} differs" if isinstance(one[name], dict) else f"{name}: {one[name]} and {another[name]}" for name in differing
    ]
    return {"faster_share": float(faster.mean()) if faster.size else None, "differences": differences}


def _ranges(profile: DeviceProfile) -> tuple[tuple[int, int], tuple[int, int]]:
    return profile.valid_range.src_len, profile.valid_range.tgt_len


def _header(profile: DeviceProfile) -> dict[str, object]:
    """Return the properties of box, model, unit and engine by their labels, without descriptions and counts."""
    properties: dict[str, object] = {"kind": profile.execution.kind}
    for part in ("device", "model", "length_unit", "engine"):
        for name, value in getattr(profile, part) or ():
            if name not in ("details", "device_name", "versions", "clipped_weights", "product_weights"):
                properties[f"{part} {name}".replace("_", " ").removesuffix(" name")] = value
    return properties


def comparison_text(files: Sequence[str], profiles: Sequence[DeviceProfile]) -> str:
    """Format the numbers of all profiles, then each profile against the first; files by base name if distinct."""
    last = [Path(file).name for file in files]
    names = last if len(set(last)) == len(last) else list(files)
    values = [numbers(profile) for profile in profiles]
    places = dict.fromkeys(place for by_place in values for place in by_place)
    rows = [[place, *(f"{part[place]:.4g}" if place in part else "-" for part in values)] for place in places]
    lines = [format_table(["", *names], rows, indent="  "), ""]
    for name, other in zip(names[1:], profiles[1:], strict=True):
        comparison = compare_profiles(profiles[0], other)
        share = comparison["faster_share"]
        faster = "no lengths in common" if share is None else f"faster at {100 * share:.3g} % of the common lengths"
        lines += [f"{name} against {names[0]}: {faster}", *(f"note: {note}" for note in comparison["differences"])]
    return "\n".join(lines)
