"""Summary of a device profile, as JSON in SI units and as text in the units that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simnmt.profile.blocks import DiskBlock, EncoderBlock, Overhead, Overheads, StepBlock
from simnmt.profile.consistency import alone_vs_plane, decoder_facts, describe_alone
from simnmt.profile.device_profile import DeviceProfile, LengthUnit
from simnmt.profile.doubts import RECONCILIATION, Doubt, heldout_errors, profile_doubts
from simnmt.profile.execution_fit import MEDIAN
from simnmt.profile.profile_variant import as_calibrated
from simnmt.profile.streaming_block import StiBlock, StiDecoder, StiIo

Facts = list[tuple[str, str]]
_FIRST = 6
"""Shards named of the importance order."""


def sti_facts(block: StiBlock) -> Facts:
    """(what, how much)."""
    own = block.geometry
    said = [f"{block.kind}: {block.model}, {own.layers} layers of {own.heads} shards", f"{own.width} x {own.ffn}"]
    said += [] if block.threads is None else [f"{block.threads} {'thread' if block.threads == 1 else 'threads'}"]
    said += [] if block.store_bytes is None else [f"{block.store_bytes / 1e6:.4g} MB of shards"]
    said += [] if block.resident_bytes is None else [f"{block.resident_bytes / 1e6:.4g} MB that are in none"]
    return [
        ("sti", ", ".join(said)),
        *_reads(block),
        *_layers(block),
        *([] if block.decoder is None else _decoder(block.decoder)),
        *_importance(block),
        *([("sti note", "; ".join(block.notes))] if block.notes else []),
    ]


def _reads(block: StiBlock) -> Facts:
    own = block.io
    fit = f"{1e3 * own.s_fixed:.4g} ms + bytes / {own.bytes_per_s / 1e6:.4g} MB/s"
    fit += "" if own.r2 is None else f", R2 {own.r2:.4f}"
    fit += ", cold" if own.cold else ", not known to be cold"
    fit += "" if own.paced_bytes_per_s is None else f", paced to {own.paced_bytes_per_s / 1e6:.4g} MB/s"
    return [("sti read", f"{_by_bits(own)}; {fit}")]


def _by_bits(own: StiIo | StiDecoder) -> str:
    """`2 bits 1.9 ms, ...`, and which of them a planner takes for slower than they were."""
    said = ", ".join(f"{each.bits} bits {1e3 * each.median_s:.4g} ms" for each in own.reads)
    raised = [
        f"{each.bits} bits {1e3 * own.io_s[each.bits]:.4g} ms" for each in own.reads if own.io_s[each.bits] > each.median_s
    ]
    return said + (f"; planned as {', '.join(raised)}, since more bits never read faster" if raised else "")


def _layers(block: StiBlock) -> Facts:
    own = block.compute
    found = [
        (f"sti layer of {each.length} tokens", f"{_by_width(each.seconds)}{_unpacking(each.unpack_s, each.seconds)}")
        for each in own.lengths
    ]
    error = "unknown" if own.heldout_error is None else f"{100 * own.heldout_error:.3g} % held out"
    if own.slowed_by_reads is not None:
        least, most = min(own.slowed_by_reads), max(own.slowed_by_reads)
        found.append(("sti layer beside reads", f"{least:.4g} to {most:.4g} times as long, by shards"))
    return [*found, ("sti layer error", error + (f" ({own.heldout_how})" if own.heldout_how else ""))]


def _by_width(seconds: Sequence[float]) -> str:
    """Least, middle and greatest width."""
    widths = sorted({1, (1 + len(seconds)) // 2, len(seconds)})
    return ", ".join(f"{1e3 * seconds[m - 1]:.4g} ms with {m} {'shard' if m == 1 else 'shards'}" for m in widths)


def _unpacking(unpack_s: Sequence[float] | None, seconds: Sequence[float]) -> str:
    return "" if unpack_s is None else f"; {100 * unpack_s[-1] / seconds[-1]:.3g} % of all shards' is unpacking"


def _decoder(own: StiDecoder) -> Facts:
    under = f"under {own.src_len} source tokens, {own.tgt_len} out"
    once = "" if own.once_s is None else f"; once for each request {1e3 * own.once_s[-1]:.4g} ms with all shards"
    once += "" if own.output_s is None else f"; choosing a word {1e3 * own.output_s:.4g} ms"
    return [
        ("sti decoder", f"{own.layers} layers; {_by_bits(own)}"),
        ("sti decoder layer", f"{_by_width(own.step_s)} for one token, {under}{once}"),
    ]


def _importance(block: StiBlock) -> Facts:
    own = block.importance
    if own is None:
        return [("sti importance", "not measured: shards count alike")]
    order = own.order
    first = ", ".join(f"{layer}.{piece}" for layer, piece in order[:_FIRST])
    best, (layer, piece) = order[0], order[0]
    gain = own.accuracy[best[0]][best[1]] - own.base_accuracy
    said = f"{own.task}, {own.examples:,} examples, {own.evaluations} evaluations"
    said += f"; all at 2 bits {100 * own.base_accuracy:.1f} %, with shard {layer}.{piece} whole {100 * gain:+.1f} points"
    return [("sti importance", f"{said}; first (layer.slice) {first}")]


_COSTS = ("execution", "step", "encoder", "decoder", "overheads", "beam_overrun", "reconciliation", "disk", "sti", "energy")


def as_json(profile: DeviceProfile) -> dict[str, Any]:
    """Return the profile without its raw samples, its held-out errors side by side, and its warnings; SI units."""
    content = profile.model_dump(mode="json", exclude={"execution": {"samples"}, "disk": {"samples"}})
    costs = {name: content.pop(name) for name in _COSTS}
    return content | {
        "alone_vs_plane": alone_vs_plane(profile),
        "heldout_error": heldout_errors(profile),
        "warnings": [doubt.as_json() for doubt in profile_doubts(profile)],
        "cost_models": costs,
    }


def title(profile: DeviceProfile) -> str:
    """Return what it is: `marian on Intel Xeon, measured, 2 warnings`."""
    doubts = len(profile_doubts(profile))
    warned = f", {_many(doubts, 'warning')}" if doubts else ""
    return f"{profile.model.name} on {profile.device.name}, {profile.execution.kind}{warned}"


def facts(profile: DeviceProfile) -> list[tuple[str, str]]:
    """Return (what, how much) of the device, the engine, and each cost model with its kind, fit and range.

    A `warning` follows the facts that it concerns.
    """
    (src_low, src_high), (tgt_low, tgt_high) = profile.valid_range.src_len, profile.valid_range.tgt_len
    unit = profile.length_unit
    found = [
        ("device", "; ".join(filter(None, [profile.device.name, profile.device.details]))),
        ("model", f"{profile.model.name}, vocabulary {profile.model.vocab:,}"),
        *_engine(profile),
        *_conditions(profile),
        (
            "holds for",
            f"source {src_low} to {src_high} ({unit.src}), target {tgt_low} to {tgt_high} ({unit.tgt}); {_ends(unit)}",
        ),
        *_execution(profile),
    ]
    if profile.step is not None:
        found += _grid("decode step", profile.step)
    if profile.encoder is not None:
        found += _grid("encoder", profile.encoder)
    found += _beam(profile) + describe_alone(profile)
    found += decoder_facts(profile)
    found += _overheads(profile)
    if profile.disk is not None:
        found += _disk(profile.disk)
    if profile.sti is not None:
        found += sti_facts(profile.sti)
    found += _energy(profile) if profile.schema_version > 1 else []
    found = _with_warnings(found, profile_doubts(profile))
    source = profile.provenance
    return [*found, ("provenance", f"{source.source}; {source.date}, {source.tool}; form {profile.schema_version}")]


def _with_warnings(lines: list[tuple[str, str]], doubts: list[Doubt]) -> list[tuple[str, str]]:
    """Insert each doubt after the last line of the block that shows it; at the end where the block has no line."""
    begins = {"step": "decode step", RECONCILIATION: "sentence alone"}
    places: dict[int, list[tuple[str, str]]] = {}
    for doubt in doubts:
        begin = begins.get(doubt.source, doubt.source)
        place = max((at for at, (name, _) in enumerate(lines) if name.startswith(begin)), default=len(lines) - 1)
        places.setdefault(place, []).append(("warning", doubt.message))
    return [entry for at, line in enumerate(lines) for entry in (line, *places.get(at, []))]


def milliseconds(seconds: float) -> str:
    """Four digits that count."""
    return f"{1e3 * seconds:.4g} ms"


def percent(share: float | None) -> str:
    """Of an error; `unknown` where none was found out."""
    if share is None:
        return "unknown"
    return f"{100 * share:.3g} %" if share == 0.0 or share >= 5e-5 else "below 0.01 %"


def describe_plane(profile: DeviceProfile) -> str:
    """The plane in milliseconds."""
    plane = profile.plane
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


def _beam(profile: DeviceProfile) -> list[tuple[str, str]]:
    block = profile.beam_overrun
    if block is None:
        beam = 1 if profile.engine is None else profile.engine.beam
        unknown = "steps beyond the best output: not measured, and not charged (calibrate a trained model with --text)"
        return [("beam", unknown)] if beam > 1 else []
    many = "" if block.sentences is None else f", {_many(block.sentences, 'sentence')}"
    return [("beam", "; ".join(filter(None, [f"{block.kind}: {block.steps_per_token:.4g} steps a token{many}", block.note])))]


def _engine(profile: DeviceProfile) -> list[tuple[str, str]]:
    engine = profile.engine
    if engine is None:
        return []
    threads = [] if engine.threads is None else [_many(engine.threads, "thread")]
    said = [f"{engine.backend} {engine.compute_type} on {engine.device}", engine.device_name, *threads]
    own = as_calibrated(profile)
    said += [f"beam {engine.beam}" if own is None else own.settings.words().removesuffix(", plain")]
    said += ["random weights" if engine.weights == "random" else "weights of a checkpoint"]
    versions = ", ".join(f"{name} {version}" for name, version in engine.versions.items())
    return [("engine", ", ".join(filter(None, said)))] + ([("versions", versions)] if versions else [])


def _conditions(profile: DeviceProfile) -> list[tuple[str, str]]:
    state = profile.conditions
    if state is None:
        return []
    said = []
    if state.load_average is not None:
        said.append(f"load {_listed(state.load_average)}")
    if state.governor is not None:
        said.append(f"governor {state.governor}")
    if state.frequency_mhz is not None:
        said.append(f"{_listed(state.frequency_mhz)} MHz")
    if state.drift is not None:
        said.append(f"drift {percent(state.drift)}")
    if state.disturbed_cells is not None:
        said.append(f"{_many(state.disturbed_cells, 'disturbed cell')}")
    return [("conditions", ", ".join(said))] if said else []


def _execution(profile: DeviceProfile) -> list[tuple[str, str]]:
    own, fit = profile.execution, profile.execution.quality
    words = {"six_cells": "six cells", "full_grid": "full grid", "paper": "single inferences, ordinary least squares"}
    shape = "medians" if fit.quantile == MEDIAN else "least"
    said = [] if fit.mode is None else [words[fit.mode]]
    said += [] if fit.inferences is None else [_many(fit.inferences, "inference")]
    said += [] if fit.r2 is None else [f"R2 {fit.r2:.5f}"]
    said += [] if fit.r2_of_means_per_tgt_len is None else [f"of the means per target length {fit.r2_of_means_per_tgt_len:.5f}"]
    said += [] if fit.mse_ms2 is None else [f"MSE {fit.mse_ms2:.4g} ms^2"]
    said += [] if fit.level is None or fit.mode == "paper" else [f"mean {fit.level:.4g} times the {shape}"]
    said += [] if not fit.disturbed_share else [f"{percent(fit.disturbed_share)} disturbed"]
    how = f" ({fit.heldout_how})" if fit.heldout_how else ""
    unknown = f"not measured: the numbers are {own.kind}"
    error = f"{percent(fit.heldout_error)} held out{how}" if own.kind == "measured" else unknown
    if own.kind == "measured" and fit.heldout_error_of_means is not None:
        error += f"; {percent(fit.heldout_error_of_means)} on the mean times of the same cells"
    block = profile.reconciliation
    if block is not None:
        # The plane above is not the one that was fitted: its fit and errors are not this one's.
        fitted = "of the plane fitted to whole executions alone"
        derived = f"{percent(block.plane_error)} off whole executions, {_many(block.cells, 'cell')}"
        said, error = [fitted, *said] if said else [], f"{derived}; {fitted}: {error}"
    return [
        (
            "execution",
            f"{own.kind}: {describe_plane(profile)}; single executions spread by {percent(own.residual_relative_sd)}",
        ),
        *([("execution fit", "; ".join(said))] if said else []),
        ("execution error", error),
    ]


def _grid(name: str, block: StepBlock | EncoderBlock) -> list[tuple[str, str]]:
    step = isinstance(block, StepBlock)
    lengths, along = (block.position, "position") if isinstance(block, StepBlock) else (block.src_len, "source")
    said = f"{block.kind}, {block.form}"
    own = block.coefficients
    if block.form == "linear" and own is not None:
        along_with = ("", " x batch", f" x {along}", f" x batch x {along}")
        terms = [f"{1e3 * each:.4g}{times}" for each, times in zip(own.model_dump().values(), along_with, strict=True) if each]
        said += f": {' + '.join(terms) or '0'} ms"
    said += f"; batch {block.batch[0]} to {block.batch[-1]}, {along} {lengths[0]} to {lengths[-1]}"
    said += f", beam {block.beam}" if block.beam > 1 else ""
    if isinstance(block, StepBlock) and block.src_len is not None and block.s_per_row_src_token is not None:
        each = f"{1e3 * block.s_per_row_src_token:.4g} ms each more of the longest"
        said += f"; under sources of {block.src_len} tokens, {each}, by sentence"
    how = f" ({block.heldout_how})" if block.heldout_how else ""
    other = {"linear": ("table", block.heldout_error_table), "table": ("linear", block.heldout_error_linear)}[block.form]
    if isinstance(block, EncoderBlock) and block.padding_share is not None:
        said += f"; {percent(block.padding_share)} of what padding would cost is paid"
    rejected = f"; {other[0]}: {percent(other[1])}" if other[1] is not None else ""
    if isinstance(block, StepBlock) and block.run_over_told is not None:
        rejected += f"; runs took {block.run_over_told:.4g} times what is told"
    found = [(name, said), (f"{name} error", f"{percent(block.heldout_error)} held out{how}{rejected}")]
    if block.notes:
        found.append((f"{name} note", "; ".join(block.notes)))
    if block.left_out:
        found.append((f"{name} left out", "; ".join(block.left_out)))
    if step and block.seconds is not None and len(block.batch) > 1:
        middle = len(lengths) // 2
        growth = block.seconds[-1][middle] / block.seconds[0][middle]
        ratio = f"{growth:.3g} times as long with batch {block.batch[-1]} as with {block.batch[0]}"
        found.append((f"{name} growth", f"{ratio}, at {along} {lengths[middle]}"))
    return found


def _overheads(profile: DeviceProfile) -> list[tuple[str, str]]:
    block = profile.overheads or Overheads()
    alone = {
        "decision_s": "decision",
        "tokenisation_s_per_token": "tokenisation, per token",
        "tokenisation_s_fixed": "tokenisation, fixed",
    }
    told = [(name, _one(own)) for key, name in alone.items() if (own := getattr(block, key)) is not None]
    of_batches = (
        ("gap between steps", block.step_gap_s, block.step_gap_s_per_sentence),
        ("refilling a batch", block.refill_s_fixed, block.refill_s_per_sentence),
    )
    for name, fixed, per_sentence in of_batches:
        # A server that batches reckons with them: what is missing counts 0 s there, and must not pass in silence.
        if profile.step is not None or fixed is not None or per_sentence is not None:
            told.append((name, _by_sentences(fixed, per_sentence)))
    leave = block.leave_s
    if leave is not None or profile.step is not None:
        told.append(("leaving a batch", _leaving(leave)))
    return told


def _one(own: Overhead) -> str:
    if own.value is None:
        return "; ".join(filter(None, ["not measured", own.note]))
    return f"{own.kind}: {1e3 * own.value:.4g} ms"


def _leaving(own: Overhead | None) -> str:
    if own is None or own.value is None:
        return "; ".join(["not measured", *([own.note] if own and own.note else []), "counts as 0 s"])
    return f"{_one(own)}, of each step with which some sentence leaves"


def _by_sentences(fixed: Overhead | None, per_sentence: Overhead | None) -> str:
    """Both parts of a cost that may grow with the batch."""
    known = [own for own in (fixed, per_sentence) if own is not None]
    notes = list(dict.fromkeys(own.note for own in known if own.note))
    values = [(own.value, times) for own, times in ((fixed, ""), (per_sentence, " x sentences")) if own is not None]
    terms = [f"{1e3 * value:.4g}{times}" for value, times in values if value is not None]
    if not terms:
        return "; ".join(["not measured", *notes, "counts as 0 s"])
    said = f"{known[0].kind}: {' + '.join(terms)} ms"
    said += "" if len(terms) == 2 else "; how it grows with the batch: not measured, counts as 0 s"
    return "; ".join([said, *notes])


def _disk(block: DiskBlock) -> list[tuple[str, str]]:
    line = f"{milliseconds(block.s_fixed)} + bytes / {block.bytes_per_s / 1e6:.4g} MB/s"
    sizes = [sample.bytes / 1e6 for sample in block.samples]
    table = (
        f"table of {len(sizes)} sizes, {sizes[0]:.4g} to {sizes[-1]:.4g} MB; as a line {line}" if block.form == "table" else ""
    )
    said = f"{block.kind}: {table or line}"
    said += ", cold" if block.cold else ", not known to be cold"
    said += "" if block.r2 is None else f"; R2 {block.r2:.4f}"
    said += "" if block.paced_bytes_per_s is None else f"; paced to {block.paced_bytes_per_s / 1e6:.4g} MB/s"
    other = {"linear": ("table", block.heldout_error_table), "table": ("linear", block.heldout_error_linear)}[block.form]
    rejected = f"; {other[0]}: {percent(other[1])}" if other[1] is not None else ""
    return [("disk", said), ("disk error", f"{percent(block.heldout_error)} held out (sizes left out in turn){rejected}")]


def _energy(profile: DeviceProfile) -> list[tuple[str, str]]:
    block, cost = profile.energy, profile.energy_cost
    if block is None or cost is None:
        return [("energy", "not measured")]
    said = [] if block.idle_w is None else [f"{block.idle_w:.4g} W idle"]
    said += [] if block.active_w is None else [f"{block.active_w:.4g} W active"]
    if cost.j_per_src_token is not None and cost.j_per_tgt_token is not None and cost.j_fixed is not None:
        said.append(f"{cost.j_per_src_token:.4g} x source + {cost.j_per_tgt_token:.4g} x target {cost.j_fixed:+.4g} J")
        said.append(f"{percent(block.heldout_error)} held out")
    return [("energy", f"{block.kind} ({block.source}): {', '.join(said) or 'nothing known'}")]


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _listed(value: float | tuple[float, ...]) -> str:
    return ", ".join(f"{each:.4g}" for each in value) if isinstance(value, tuple) else f"{value:.4g}"
