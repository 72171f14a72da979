"""Summary of a device profile, as JSON in SI units and as text in the units that a person reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simnmt.profile.blocks import EncoderBlock, Overhead, Overheads, StepBlock
from simnmt.profile.decoder_block import DecoderBlock, Fidelity, canonical
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, LengthUnit
from simnmt.profile.disk_block import DiskBlock
from simnmt.profile.doubts import (
    LENGTHS,
    MOST_APART,
    Doubt,
    against_step,
    alone_vs_plane,
    heldout_errors,
    profile_doubts,
)
from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.profile.profile_variant import as_calibrated
from simnmt.profile.streaming_summary import (
    Facts,
    describe_read_conditions,
    describe_read_cost,
    many,
    milliseconds,
    sti_facts,
)

_COSTS = (
    "execution",
    "step",
    "encoder",
    "decoder",
    "overheads",
    "beam_overrun",
    "disk",
    "sti",
    "energy",
)


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
    kinds = {name: cost.kind for name, cost in costs.items() if cost is not None and hasattr(cost, "kind")}
    engine = None if profile.engine is None else f"{profile.engine.backend} {profile.engine.compute_type}"
    if profile.endpoint is not None:
        engine = f"{profile.endpoint.api} endpoint"
    return {
        "device": profile.device.name,
        "model": profile.model.name,
        "engine": engine,
        "kinds": kinds,
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
    warned = f", {many(doubts, 'warning')}" if doubts else ""
    return f"{profile.model.name} on {profile.device.name}, {profile.execution.kind}{warned}"


def facts(profile: DeviceProfile) -> Facts:
    """Return (label, value) lines of the device, the engine, and each cost model with its kind, fit and range.

    A `warning` follows the lines of the block that gives the reason.
    """
    (src_low, src_high), (tgt_low, tgt_high) = profile.valid_range.src_len, profile.valid_range.tgt_len
    unit = profile.length_unit
    lines = [
        ("device", "; ".join(filter(None, [profile.device.name, profile.device.details]))),
        ("model", f"{profile.model.name}, vocabulary {profile.model.vocab:,}"),
        *_engine(profile),
        *_conditions(profile),
        (
            "holds for",
            f"source {src_low} to {src_high} ({unit.src}), target {tgt_low} to {tgt_high} ({unit.tgt}); {_ends(unit)}",
        ),
        *_execution(profile),
        *([] if profile.endpoint is None else profile.endpoint.facts()),
    ]
    if profile.step is not None:
        lines += _grid("decode step", profile.step)
    if profile.encoder is not None:
        lines += _grid("encoder", profile.encoder)
    lines += _beam(profile) + _alone(profile)
    lines += _decoder_variants(profile)
    lines += _overheads(profile)
    if profile.disk is not None:
        lines += _disk(profile.disk)
    if profile.sti is not None:
        lines += sti_facts(profile.sti)
    lines += _energy(profile)
    lines = _with_warnings(lines, profile_doubts(profile))
    source = profile.provenance
    return [*lines, ("provenance", f"{source.source}; {source.date}, {source.tool}; form {profile.schema_version}")]


def _with_warnings(lines: Facts, doubts: list[Doubt]) -> list[tuple[str, str]]:
    """Insert each doubt after the last line of the block that gives the reason; at the end if that block has no line."""
    begins = {"step": "decode step"}
    places: dict[int, Facts] = {}
    for doubt in doubts:
        begin = begins.get(doubt.source, doubt.source)
        place = max((at for at, (name, _) in enumerate(lines) if name.startswith(begin)), default=len(lines) - 1)
        places.setdefault(place, []).append(("warning", doubt.message))
    return [entry for at, line in enumerate(lines) for entry in (line, *places.get(at, []))]


def percent(share: float | None) -> str:
    """Format a share as a percentage; `unknown` for None."""
    if share is None:
        return "unknown"
    return f"{100 * share:.3g} %" if share == 0.0 or share >= 5e-5 else "below 0.01 %"


def describe_plane(profile: DeviceProfile) -> str:
    """Format the plane in milliseconds."""
    return _format_plane(profile.plane)


def _format_plane(plane: ExecutionPlane) -> str:
    sign = "-" if plane.s_fixed < 0.0 else "+"
    tokens = f"{1e3 * plane.s_per_src_token:.4g} x source + {1e3 * plane.s_per_tgt_token:.4g} x target"
    return f"{tokens} {sign} {1e3 * abs(plane.s_fixed):.4g} ms"


def _ends(unit: LengthUnit) -> str:
    counted = {
        "none": "neither counts",
        "source": "source lengths count",
        "target": "target lengths count",
        "both": "both count",
    }
    return f"{counted[unit.end_of_sentence]} the end of the sentence"


def _beam(profile: DeviceProfile) -> Facts:
    block = profile.beam_overrun
    if block is None:
        beam = 1 if profile.engine is None else profile.engine.beam
        unknown = "steps beyond the best output: not measured, and not charged (calibrate a trained model with --text)"
        return [("beam", unknown)] if beam > 1 else []
    sentences = "" if block.sentences is None else f", {many(block.sentences, 'sentence')}"
    return [
        ("beam", "; ".join(filter(None, [f"{block.kind}: {block.steps_per_token:.4g} steps a token{sentences}", block.note])))
    ]


def _engine(profile: DeviceProfile) -> Facts:
    engine = profile.engine
    if engine is None:
        return []
    threads = [] if engine.threads is None else [many(engine.threads, "thread")]
    parts = [f"{engine.backend} {engine.compute_type} on {engine.device}", engine.device_name, *threads]
    choice = as_calibrated(profile)
    parts += [f"beam {engine.beam}" if choice is None else choice.settings.describe().removesuffix(", plain")]
    parts += ["random weights" if engine.weights == "random" else "weights of a checkpoint"]
    versions = ", ".join(f"{name} {version}" for name, version in engine.versions.items())
    return [("engine", ", ".join(filter(None, parts)))] + ([("versions", versions)] if versions else [])


def _conditions(profile: DeviceProfile) -> Facts:
    state = profile.conditions
    if state is None:
        return []
    parts = [] if state.gap_s is None else [f"after {milliseconds(state.gap_s)} of idling"]
    parts += [] if state.load_average is None else [f"load {_listed(state.load_average)}"]
    parts += [] if state.governor is None else [f"governor {state.governor}"]
    parts += [] if state.frequency_mhz is None else [f"{_listed(state.frequency_mhz)} MHz"]
    parts += [] if state.drift is None else [f"drift {percent(state.drift)}"]
    parts += [] if state.disturbed_cells is None else [many(state.disturbed_cells, "disturbed cell")]
    return [("conditions", ", ".join(parts))] if parts else []


def _execution(profile: DeviceProfile) -> Facts:
    execution, fit = profile.execution, profile.execution.fit
    modes = {
        "six_cells": "six cells",
        "full_grid": "full grid",
        "every_repeat": "means of all repeats",
        "paper": "single inferences, ordinary least squares",
        "sentences": "sentences of a text",
    }
    shape = "medians" if fit.quantile == 0.5 else "least"
    level = "level" if fit.mode == "sentences" else "mean"
    parts = [] if fit.mode is None else [modes[fit.mode]]
    parts += [] if fit.inferences is None else [many(fit.inferences, "inference")]
    parts += [] if fit.r2 is None else [f"R2 {fit.r2:.5f}"]
    r2_of_means = fit.r2_of_means_per_tgt_len
    parts += [] if r2_of_means is None else [f"of the means per target length {r2_of_means:.5f}"]
    parts += [] if fit.mse_ms2 is None else [f"MSE {fit.mse_ms2:.4g} ms^2"]
    parts += (
        [] if fit.level is None or fit.mode in ("paper", "every_repeat") else [f"{level} {fit.level:.4g} times the {shape}"]
    )
    parts += [] if not fit.disturbed_share else [f"{percent(fit.disturbed_share)} disturbed"]
    how = f" ({fit.heldout_how})" if fit.heldout_how else ""
    unknown = f"not measured: the numbers are {execution.kind}"
    error = f"{percent(fit.heldout_error)} held out{how}" if execution.kind == "measured" else unknown
    if execution.kind == "measured" and fit.heldout_error_of_means is not None:
        error += f"; {percent(fit.heldout_error_of_means)} on the mean times of the same cells"
    spread = percent(execution.residual_relative_sd)
    return [
        ("execution", f"{execution.kind}: {describe_plane(profile)}; single executions spread by {spread}"),
        *([("execution fit", "; ".join(parts))] if parts else []),
        ("execution error", error),
    ]


def _grid(name: str, block: StepBlock | EncoderBlock) -> Facts:
    lengths, along = block.lengths, {"position": "position", "src_len": "source"}[block.length_name]
    summary, runs, growth = f"{block.kind}, {block.form}", "", []
    if block.form == "linear" and block.coefficients is not None:
        along_with = ("", " x batch", f" x {along}", f" x batch x {along}")
        factors = zip(block.coefficients.model_dump().values(), along_with, strict=True)
        terms = [f"{1e3 * coefficient:.4g}{times}" for coefficient, times in factors if coefficient]
        summary += f": {' + '.join(terms) or '0'} ms"
    summary += f"; batch {block.batch[0]} to {block.batch[-1]}, {along} {lengths[0]} to {lengths[-1]}"
    summary += f", beam {block.beam}" if block.beam > 1 else ""
    if isinstance(block, StepBlock):
        if block.src_len is not None and block.s_per_row_src_token is not None:
            per_token = f"{1e3 * block.s_per_row_src_token:.4g} ms each more of the longest"
            summary += f"; under sources of {block.src_len} tokens, {per_token}, by sentence"
        runs = "" if block.run_over_told is None else f"; runs took {block.run_over_told:.4g} times the predicted time"
        if block.seconds is not None and len(block.batch) > 1:
            middle = len(lengths) // 2
            ratio = f"{block.seconds[-1][middle] / block.seconds[0][middle]:.3g} times as long"
            of_batches = f"with batch {block.batch[-1]} as with {block.batch[0]}, at {along} {lengths[middle]}"
            growth = [(f"{name} growth", f"{ratio} {of_batches}")]
    elif block.padding_share is not None:
        summary += f"; {percent(block.padding_share)} of the cost of padding is paid"
    lines = [(name, summary), (f"{name} error", _heldout_error(block, block.heldout_how) + runs)]
    lines += [(f"{name} note", "; ".join(block.notes))] if block.notes else []
    lines += [(f"{name} left out", "; ".join(block.left_out))] if block.left_out else []
    return lines + growth


def _heldout_error(block: StepBlock | EncoderBlock | DiskBlock, how: str | None) -> str:
    """Describe the error of the chosen form, then that of the other form."""
    other = "table" if block.form == "linear" else "linear"
    other_error = block.heldout_error_table if block.form == "linear" else block.heldout_error_linear
    error = f"{percent(block.heldout_error)} held out" + (f" ({how})" if how else "")
    return error if other_error is None else f"{error}; {other}: {percent(other_error)}"


def _overheads(profile: DeviceProfile) -> Facts:
    block = profile.overheads or Overheads()
    alone = {
        "decision_s": "decision",
        "tokenisation_s_per_token": "tokenisation, per token",
        "tokenisation_s_fixed": "tokenisation, fixed",
    }
    lines = [(name, _one(overhead)) for key, name in alone.items() if (overhead := getattr(block, key)) is not None]
    of_batches = (
        ("gap between steps", block.step_gap_s, block.step_gap_s_per_sentence),
        ("refilling a batch", block.refill_s_fixed, block.refill_s_per_sentence),
    )
    for name, fixed, per_sentence in of_batches:
        # A batching server counts missing costs as 0 s, so the summary must show them.
        if profile.step is not None or fixed is not None or per_sentence is not None:
            lines.append((name, _by_sentences(fixed, per_sentence)))
    leave = block.leave_s
    if leave is not None and leave.value is not None:
        lines.append(("leaving a batch", f"{_one(leave)}, of each step that ends some sentence"))
    elif leave is not None or profile.step is not None:
        lines.append(("leaving a batch", _by_sentences(leave, None)))
    return lines


def _one(overhead: Overhead) -> str:
    if overhead.value is None:
        return "; ".join(filter(None, ["not measured", overhead.note]))
    return f"{overhead.kind}: {1e3 * overhead.value:.4g} ms"


def _by_sentences(fixed: Overhead | None, per_sentence: Overhead | None) -> str:
    """Describe the fixed part and the part per sentence of a cost."""
    known = [part for part in (fixed, per_sentence) if part is not None]
    notes = list(dict.fromkeys(part.note for part in known if part.note))
    values = [(part.value, times) for part, times in ((fixed, ""), (per_sentence, " x sentences")) if part is not None]
    terms = [f"{1e3 * value:.4g}{times}" for value, times in values if value is not None]
    if not terms:
        return "; ".join(["not measured", *notes, "counts as 0 s"])
    summary = f"{known[0].kind}: {' + '.join(terms)} ms"
    summary += "" if len(terms) == 2 else "; how it grows with the batch: not measured, counts as 0 s"
    return "; ".join([summary, *notes])


def _disk(block: DiskBlock) -> Facts:
    summary = describe_read_cost(block)
    if block.form == "table":
        sizes = [sample.bytes / 1e6 for sample in block.samples]
        summary = f"table of {len(sizes)} sizes, {sizes[0]:.4g} to {sizes[-1]:.4g} MB; as a line {summary}"
    error = _heldout_error(block, "sizes left out in turn")
    return [("disk", f"{block.kind}: {summary}{describe_read_conditions(block)}"), ("disk error", error)]


def _energy(profile: DeviceProfile) -> Facts:
    block = profile.energy_cost
    if block is None:
        return [("energy", "not measured")]
    parts = [] if block.idle_w is None else [f"{block.idle_w:.4g} W idle"]
    parts += [] if block.active_w is None else [f"{block.active_w:.4g} W active"]
    if block.j_fixed is not None:
        parts.append(f"{block.j_per_src_token:.4g} x source + {block.j_per_tgt_token:.4g} x target {block.j_fixed:+.4g} J")
        parts.append(f"{percent(block.heldout_error)} held out")
    return [("energy", f"{block.kind} ({block.source}): {', '.join(parts) or 'nothing known'}")]


def _listed(value: float | tuple[float, ...]) -> str:
    return ", ".join(f"{number:.4g}" for number in value) if isinstance(value, tuple) else f"{value:.4g}"


def _alone(profile: DeviceProfile) -> Facts:
    apart = alone_vs_plane(profile)
    if apart is None:
        return []
    difference = f"{100 * apart:+.2f} % against the plane, mean over {LENGTHS} (at most {100 * MOST_APART:.0f} %)"
    return [("sentence alone", difference)]


def _decoder_variants(profile: DeviceProfile) -> Facts:
    """Return the lines of each variant by batch size, with the shares of the stages, which sum to 100 % (FNI-17)."""
    block = profile.decoder
    if block is None:
        return []
    batches = ", ".join(map(str, block.batches))
    parts = [f"{block.kind}: {len(block.measured)} variants, batch {batches}"]
    parts += [] if block.repeats is None else [f"{block.repeats} timings each, taken in turn"]
    parts += [] if block.src_len is None else [f"under sources of {block.src_len} tokens"]
    lines = [("decoder", f"{', '.join(parts)}; the other costs are of {block.base.describe()}")]
    compute_type = None if profile.engine is None else profile.engine.compute_type
    lines += [
        (f"decoder {settings.describe()}", "; ".join(_describe_variant(block, settings, compute_type)))
        for settings in block.measured
    ]
    if against := against_step(profile):
        ratios = ", ".join(f"{ratio:.3g} at batch {batch}" for batch, ratio in against.items())
        lines.append(("decoder against step", f"measured steps of {block.base.describe()} over step and gap: {ratios}"))
    lines += [("decoder note", "; ".join(block.notes))] if block.notes else []
    lines += [("decoder left out", "; ".join(block.left_out))] if block.left_out else []
    return lines


def _describe_variant(block: DecoderBlock, settings: DecoderSettings, compute_type: str | None) -> Iterator[str]:
    for variant in block.variants:
        if variant.settings != settings:
            continue
        body, product, search = (round(100 * share) for share in variant.shares)
        # Rounded separately, the three shares might sum to 99 or 101.
        body = 100 - product - search
        shares = f"body {body} %, product {product} %, bias, softmax and search {search} %"
        base = block.at(variant.batch)[canonical(block.base)]
        times = "" if variant is base else f", {variant.step_s / base.step_s:.3g} times the base's"
        active = "" if variant.active is None else f", {variant.active.describe()}"
        yield f"batch {variant.batch}: {1e3 * variant.step_s:.4g} ms{times} ({shares}){active}"
    yield Fidelity.of(block, settings, compute_type).describe()
