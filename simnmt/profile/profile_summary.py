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
from simnmt.profile.doubts import COST_MODELS, LENGTHS, alone_vs_plane, heldout_errors, profile_doubts
from simnmt.profile.profile_variant import choose

_COSTS = (*COST_MODELS, "beam_overrun")


def as_json(profile: DeviceProfile) -> dict[str, Any]:
    """Return the profile without its raw samples, with its held-out errors and its warnings; SI units."""
    content = profile.model_dump(mode="json", exclude={"execution": {"samples"}})
    costs = {name: content.pop(name) for name in _COSTS}
    return content | {
        "alone_vs_plane": alone_vs_plane(profile),
        "heldout_error": heldout_errors(profile),
        "warnings": [asdict(doubt) for doubt in profile_doubts(profile)],
        "cost_models": costs,
    }


def outline(profile: DeviceProfile) -> Mapping[str, Any]:
    """Return what tells a profile from others: box, engine, kinds of its cost models, samples, units, date and warnings.

    `batches`: whether it has the costs that a batching server needs; `knows_refills`: those of joining a running batch.
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
            key = f"{key}_".replace("_s_", "_").replace("_", " ")  # the value states its own unit
            lines += [(label, text) for label, text in part.lines(f"{shown.text} {key}".rstrip()) if text]
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


def _blocks(profile: DeviceProfile) -> list[tuple[str, Shown, Block | Mapping[str, Block]]]:
    named = ((name, shown_of(DeviceProfile, name), getattr(profile, name)) for name in DeviceProfile.model_fields)
    return [(name, shown, block) for name, shown, block in named if shown is not None and block]


SENTENCES = (10, 20, 50, 100)
"""Source and target tokens of the sentences whose times a comparison lists."""


def numbers(profile: DeviceProfile) -> dict[str, float | int | str]:
    """Return what a comparison lists, in SI units: box, model and engine, times of sentences and first steps, each cost.

    Names are the keys of the file. The slope of the execution plane includes a beam's steps beyond its best output.
    """
    lengths = np.array(SENTENCES)
    times_s = zip(SENTENCES, profile.plane.seconds(lengths, lengths).tolist(), profile.outside(lengths, lengths), strict=True)
    steps = () if profile.step is None else zip(profile.step.batch, profile.step.seconds, strict=True)
    blocks = {name: getattr(profile, name) for name in ("device", "model", "length_unit", "engine", *_COSTS)}
    blocks["execution"] = profile.execution.model_copy(update={"plane": profile.plane, "fit": ExecutionFit()})
    return {
        **dict(_leaves("", blocks)),
        **{f"seconds of {tokens} + {tokens} tokens": seconds for tokens, seconds, outside in times_s if not outside},
        **{f"seconds of a first step, batch {batch}": row[0] for batch, row in steps},
    }


def _leaves(place: str, content: Any) -> Iterator[tuple[str, float | int | str]]:
    """Return the numbers and the short texts below a block, by their keys."""
    if isinstance(content, Block):
        content = content.model_dump(exclude={"architecture", "versions", "note", "heldout_how"})
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _leaves(f"{place}.{key}".removeprefix("."), value)
    elif isinstance(content, float) or (content and isinstance(content, (int, str)) and len(str(content)) < 60):
        yield place, content


def comparison_text(files: Sequence[str], profiles: Sequence[DeviceProfile]) -> str:
    """Format the numbers of all profiles side by side; files by base name if distinct."""
    last = [Path(file).name for file in files]
    values = [numbers(profile) for profile in profiles]
    rows = []
    for name in dict.fromkeys(name for known in values for name in known):
        cells = (known.get(name, "-") for known in values)
        rows.append([name, *(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)])
    return format_table(["", *(last if len(set(last)) == len(last) else files)], rows)
