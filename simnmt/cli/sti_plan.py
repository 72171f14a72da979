"""`simnmt sti plan` and `simnmt sti run`: plan a streamed model, and execute plans on its store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simnmt.base.errors import InputError
from simnmt.cli.options import (
    AsJson,
    argument,
    chosen,
    flag,
    option,
    parse_bytes,
    parse_duration,
    parse_rate,
    print_result,
    profile_path,
)
from simnmt.cli.terminal import format_record, say, warn

if TYPE_CHECKING:
    from simnmt.profile.streaming_cost import StiCost
    from simnmt.streaming.encoder import ElasticEncoder
    from simnmt.streaming.pipeline import Turn
    from simnmt.streaming.plan.plan_summary import PlannedRun, PlanSummary
    from simnmt.streaming.store import ShardStore

REPEATS, LENGTH = 3, 16
"""Repeats, and padded tokens where the model takes as many, of the short measurement of `sti run` without a profile."""

Deadline = Annotated[
    float, option("TIME", "Time within which a request must end, such as 200ms.", "--deadline", parser=parse_duration)
]
Preload = Annotated[
    int,
    option("SIZE", "Memory for shards between requests, such as 1MB; 0 for none.", "--preload", parser=parse_bytes),
]
Fill = Annotated[bool, flag("--fill", "Beyond the paper: let the pipeline wait as long as the deadline allows.")]
Cold = Annotated[bool, flag("--cold", "The first request finds an empty buffer: the system took the memory.")]


def plan(
    profile: Annotated[str, option("FILE|@NAME", "Profile with a block sti, or @odroid-sti or @jetson-sti.")],
    deadline_s: Deadline,
    preload_bytes: Preload,
    length: Annotated[int | None, option("L", "Padded tokens. [default: the greatest length measured]", min=1)] = None,
    steps: Annotated[int | None, option("M", "Decoder steps within the deadline. [default: 1]", min=1)] = None,
    cold: Cold = False,
    similar: Annotated[
        float, option("PERCENT", "Prefer a deeper submodel if it has at most PERCENT fewer shards.", min=0.0, max=100.0)
    ] = 0.0,
    fill: Fill = False,
    compare: Annotated[bool, flag("--compare", "Set the plan beside Load&Exec, StdPL and PreloadModel.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a streamed model for a deadline and a preload buffer: layers, slices, bits and preloaded shards.

    Example: simnmt sti plan --profile @odroid-sti --deadline 200ms --preload 1MB
    """
    from simnmt.streaming.plan.plan_summary import summarise_plan

    source = plan_costs(profile)
    for warning in source.warnings:
        warn(warning)
    summarise = partial(summarise_plan, source.cost, deadline_s, preload_bytes, length=length, steps=steps, cold=cold)
    planned = summarise(similar=similar / 100, fills_deadline=fill, compares=compare)
    about = {"profile": source.name, "kind": source.kind, "model": source.model, "warnings": source.warnings}
    print_result(as_json, lambda: about | planned.as_json(), lambda: _format_plan(source, planned))


def _format_plan(source: CostSource, planned: PlanSummary) -> str:
    """Return the text of a plan: submodel and memory, its layers, the contestants, and remarks."""
    plan, timeline = planned.run.plan, planned.run.timeline
    moments = zip(timeline.load_end.tolist(), timeline.compute_begin.tolist(), timeline.stall.tolist(), strict=True)
    layers = [
        {
            "layer": layer["layer"],
            "slices": layer["slices"],
            "bits": [f"{bits}{'*' * held}" for bits, held in zip(layer["bits"], layer["preloaded"], strict=True)],
            "budget_s": layer["granted_s"],
            "left_s": layer["left_s"],
            "read_s": layer["load_s"],
            "read_by_s": read_by_s,
            "computed_from_s": begin_s,
            "waits_s": waits_s,
        }
        for layer, (read_by_s, begin_s, waits_s) in zip(planned.layers, moments, strict=True)
    ]
    cost = source.cost
    record = {
        "costs": f"{source.name} ({source.kind}): {source.model}",
        **_plan_numbers(planned.run),
        "deadline_s": plan.deadline_s,
        "tokens": plan.length,
        "embedding_s": cost.t_embed(plan.length),
        "head_s": cost.head_s,
        "slowed by reads": cost.slowing(plan.slices_per_layer),
    }
    if cost.decoder is not None:
        record |= {"decoder_layers": len(plan.layer_indices) - plan.layers, "decoder_steps": plan.steps}
    record["executed layers (* preloaded)"] = layers
    if planned.contestants:
        record["methods"] = [{"method": name, **_plan_numbers(run)} for name, run in planned.contestants.items()]
    return "\n\n".join(filter(None, (format_record(record), "\n".join(planned.remarks))))


def _plan_numbers(run: PlannedRun | None) -> dict[str, Any]:
    """Return size, latency and memory of a plan; None: of one that meets no deadline."""
    if run is None:
        return {"deadline_met": False}
    plan, memory = run.plan, asdict(run.memory)
    return {
        "layers": plan.layers,
        "slices": plan.slices_per_layer,
        "shards": len(plan.bits),
        "mean_bits": sum(plan.bits.values()) / len(plan.bits),
        "latency_s": plan.latency_s,
        "waits_s": run.timeline.stall_s,
        "deadline_met": not plan.misses_deadline,
        **{name: memory[name] for name in ("preload_bytes", "working_bytes")},
    }


def run(
    context: typer.Context,
    store: Annotated[Path, argument("STORE", "Folder that simnmt sti shard wrote.")],
    deadline_s: Deadline,
    preload_bytes: Preload,
    cache_bytes: Annotated[
        int | None,
        option("SIZE", "Memory for shards within the engagement. [default: as --preload]", "--cache", parser=parse_bytes),
    ] = None,
    profile: Annotated[
        str | None, option("FILE|@NAME", "Profile that simnmt sti profile wrote. [default: measure now, briefly]")
    ] = None,
    length: Annotated[
        int | None, option("L", "Padded tokens. [default: the profile's greatest; without it, 16 or the model's]", min=1)
    ] = None,
    pace: Annotated[
        float | None,
        option(
            "RATE", "Read no faster than a slower storage, such as 20MB/s. [default: as the profile's reads]", parser=parse_rate
        ),
    ] = None,
    turns: Annotated[int, option("K", "Turns of the engagement.", min=1, max=1000)] = 3,
    cold: Cold = False,
    fill: Fill = False,
    text: Annotated[list[str] | None, option("TEXT", "Text to classify; one for each turn, the last one repeats.")] = None,
    task: Annotated[Path | None, option("FILE.tsv", "Use the file's first texts as the turns.")] = None,
    threads: Annotated[int, option("T", "Threads that compute, beside the one that reads.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Stream a model from its store: plan each turn of an engagement, execute it, and compare it with the plan.

    Reads find the store's file out of this system's memory. Without a text, tokens are drawn.

    Example: simnmt sti run store --deadline 200ms --preload 1MB --turns 5
    """
    from simnmt.nmt.errors import need

    if cache_bytes is not None and cache_bytes < preload_bytes:
        what = f"--cache of {cache_bytes:,} bytes: less than --preload of {preload_bytes:,}"
        raise InputError(what, remedy="give as much or more")
    if text and task is not None:
        raise InputError("--text and --task: both say what is classified", remedy="give one of them")
    if threads > (os.cpu_count() or 1):
        raise InputError(f"--threads {threads}: this box has {os.cpu_count() or 1} CPUs", remedy="give no more")
    need("torch")
    from simnmt.calibrate import profile_assembly
    from simnmt.calibrate.box import describe
    from simnmt.streaming.encoder import ElasticEncoder
    from simnmt.streaming.pipeline import EngagementSettings, inputs_of, run_engagement
    from simnmt.streaming.store import ShardStore
    from simnmt.streaming.texts import read_task

    texts = tuple(text or ()) if task is None else read_task(task).texts[:turns]
    box = describe()
    before = profile_assembly.state(box)
    with ShardStore(store) as opened:
        encoder = ElasticEncoder(opened.configuration, opened.resident())
        source = run_costs(opened, encoder, profile, length, pace, threads)
        tokens = max(source.cost.comp_s) if length is None else length
        inputs = inputs_of(opened, texts, tokens, turns)
        paced = {"pace_bytes_per_s": source.pace_bytes_per_s}
        engaged = chosen(context, EngagementSettings, length=tokens, fills_deadline=fill, **paced)
        done = list(run_engagement(opened, encoder, source.cost, engaged, inputs))
    warnings = [*source.warnings, *profile_assembly.busy_warnings([before, profile_assembly.state(box)], "the run")]
    for warning in warnings:
        warn(warning)
    about = {"store": str(opened.path), "fingerprint": opened.fingerprint, "length": tokens, **paced}
    about |= {"cache_bytes": engaged.capacity_bytes}
    remarks = list(_engagement_remarks(source, done))
    document = about | {
        "costs": {"name": source.name, "kind": source.kind, "importance": source.cost.importance is not None},
        "remarks": remarks,
        "turns": [_turn_document(turn) for turn in done],
        "warnings": warnings,
    }
    record = about | {
        "costs": f"{source.name} ({source.kind})",
        "turns": [_turn_row(number, turn) for number, turn in enumerate(done, start=1)],
        "last turn by layer (* held)": list(_layer_times(done[-1])),
    }
    print_result(as_json, lambda: document, lambda: "\n\n".join(filter(None, (format_record(record), "\n".join(remarks)))))


def _turn_document(turn: Turn) -> dict[str, Any]:
    return {
        "plan": turn.plan.as_json(),
        "held": len(turn.held),
        "held_bytes": turn.held_bytes,
        "kept_bytes": turn.kept_bytes,
        "planned_latency_s": turn.predicted.latency_s,
        "planned_stall_s": turn.predicted.stall_s,
        "execution": turn.execution.as_json(),
        "logits": turn.execution.logits.tolist(),
    }


def _turn_row(number: int, turn: Turn) -> dict[str, Any]:
    """Return what the text shows of a turn, with the likeliest class of the first text and its probability."""
    plan, execution, shares = turn.plan, turn.execution, turn.execution.logits[0].softmax(0)
    return {
        "turn": number,
        "layers": plan.layers,
        "slices": plan.slices_per_layer,
        "mean_bits": sum(plan.bits.values()) / len(plan.bits),
        "held_bytes": turn.held_bytes,
        "read_bytes": execution.total("bytes_read"),
        "planned_s": turn.predicted.latency_s,
        "took_s": execution.latency_s,
        "waits_planned_s": turn.predicted.stall_s,
        "waited_s": execution.total("wait_s"),
        "class": int(shares.argmax()),
        "sure_share": float(shares.max()),
    }


def _layer_times(turn: Turn) -> Iterator[dict[str, Any]]:
    for times in turn.execution.layers:
        shards = turn.plan.shards_of(times.layer)
        yield {
            "layer": times.layer,
            "bits": [f"{turn.plan.bits[shard]}{'*' * (turn.held.get(shard) == turn.plan.bits[shard])}" for shard in shards],
            "read_bytes": times.bytes_read,
            "read_from_s": times.io_begin_s,
            "read_by_s": times.io_end_s,
            "waited_s": times.wait_s,
            "unpacked_s": times.unpack_s,
            "computed_s": times.forward_s,
            "done_s": times.begin_s + times.unpack_s + times.forward_s,
        }


def _engagement_remarks(source: CostSource, turns: Sequence[Turn]) -> Iterator[str]:
    def numbers(which: Callable[[Turn], bool]) -> str:
        return ", ".join(str(number) for number, turn in enumerate(turns, start=1) if which(turn))

    if source.cost.importance is None:
        yield "importance was not measured (simnmt sti profile --task does): slices and upgrades go in layer order"
    if missed := numbers(lambda turn: turn.execution.latency_s > turn.plan.deadline_s):
        yield f"the deadline was missed in turn {missed}"
    if short := numbers(lambda turn: turn.plan.short_of_io):
        yield f"turn {short}: even 2 bits everywhere would make the processor wait for reads"
    if not all(turn.execution.cold for turn in turns):
        yield "the store's file may have stayed in memory: reads may have been faster than the disk"


@dataclass(frozen=True, slots=True)
class CostSource:
    """Costs of a streamed model and their origin."""

    name: str
    kind: str
    model: str
    """Description of the model that is streamed."""
    cost: StiCost
    warnings: tuple[str, ...] = ()
    """Reasons to doubt the costs."""
    fingerprint: str | None = None
    """Fingerprint of the measured model; None if unknown."""
    pace_bytes_per_s: float | None = None
    """Pace of the measured reads; None for the pace of the disk."""


def _read_costs(profile: str) -> CostSource:
    """Return the costs of a profile's block `sti`. Raises `ProfileError`."""
    from simnmt.profile.doubts import profile_doubts
    from simnmt.profile.profile_file import read_profile

    streamed = read_profile(profile_path(profile))
    cost, block = streamed.sti_cost, streamed.sti
    assert block is not None
    doubts = tuple(doubt.message for doubt in profile_doubts(streamed, ["sti"]))
    return CostSource(streamed.name, block.kind, block.model, cost, doubts, block.fingerprint, block.io.paced_bytes_per_s)


def plan_costs(profile: str) -> CostSource:
    """Return the costs of a profile, or of one of the planner's own presets. Raises `ProfileError`."""
    from simnmt.profile.streaming_cost import BERT_BASE
    from simnmt.streaming.plan.presets import PRESETS, board_cost

    if profile not in PRESETS:
        return _read_costs(profile)
    board, model = PRESETS[profile]
    return CostSource(profile, "inferred", model, board_cost(board, BERT_BASE))


def run_costs(
    store: ShardStore, encoder: ElasticEncoder, profile: str | None, length: int | None, pace: float | None, threads: int
) -> CostSource:
    """Return the costs of a profile, or measure them. Raises `StreamingError` for a profile of another model or pace."""
    from simnmt.streaming.errors import StreamingError

    if profile is None:
        return measured_costs(store, encoder, length, pace, threads)
    source = _read_costs(profile)
    if source.fingerprint is not None:
        store.check_model(source.fingerprint)
    paced = source.pace_bytes_per_s
    if pace is not None and pace != paced:
        measured = "as fast as the disk gave" if paced is None else f"at {paced / 1e6:g} MB/s"
        what = f"--pace {pace / 1e6:g}MB/s: the profile's reads were measured {measured}"
        raise StreamingError(what, remedy="profile at this pace, or leave --pace out")
    return source


def measured_costs(
    store: ShardStore, encoder: ElasticEncoder, length: int | None, pace: float | None, threads: int
) -> CostSource:
    """Measure the costs of a store on this box, briefly."""
    from simnmt.calibrate.harness import Silent
    from simnmt.calibrate.settings import StiSettings, lengths_up_to
    from simnmt.calibrate.streaming.profile import encoder_block
    from simnmt.profile.doubts import sti_doubts

    positions = store.configuration.positions
    lengths = lengths_up_to(positions, [LENGTH]) if length is None else (length,)
    settings = StiSettings(lengths=lengths, pace_bytes_per_s=pace, repeats=REPEATS, threads=threads)
    settings.within(positions)
    say("measuring the disk and the layers, briefly: simnmt sti profile measures them well")
    block = encoder_block(store, encoder, settings, Silent)
    doubts = tuple(doubt.message for doubt in sti_doubts(block))
    return CostSource("this box, just now", block.kind, block.model, block.cost(), doubts, None, pace)
