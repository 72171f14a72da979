"""Texts of `simnmt sti`: tables of a shard store, a plan with its pipeline, and the turns of an engagement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from simnmt.base.text_tables import format_table
from simnmt.profile.streaming_cost import BITS

if TYPE_CHECKING:
    from simnmt.cli.sti_costs import CostSource
    from simnmt.profile.streaming_cost import StiCost
    from simnmt.streaming.pipeline import EngagementSettings, Execution, Turn
    from simnmt.streaming.plan.plan_summary import PlanSummary
    from simnmt.streaming.plan.timeline import Timeline
    from simnmt.streaming.store import ShardStore


def format_store(description: dict[str, Any], *, layers: bool = False) -> str:
    """Return the result of `describe_store` as tables, with one of the layers if `layers` is set."""
    kind = "untrained " * description["random"] + description["kind"]
    lines = [
        f"{description['model'] or 'a model'}: {kind}, {description['layers']} layers of {description['slices']} shards, "
        f"width {description['width']}, {description['ffn']} neurons; {description['weights_per_shard']:,} weights a shard",
        f"fingerprint {description['fingerprint'][:16]}",
        f"{description['records']} records, {_store_mb(description['shards_bytes'])} MB; "
        f"always in memory {_store_mb(description['resident_bytes'])} MB",
    ]
    if description["outlier_share"] is not None:
        low_bits = f"all below 32 bits {_store_mb(description['low_bits_bytes'])} MB"
        lines += [f"outliers {100 * description['outlier_share']:.3f} % of all weights; {low_bits}"]
    rows = [
        [
            str(fidelity["bits"]),
            _store_mb(fidelity["bytes"]),
            f"{fidelity['shard_bytes'] / 1e3:,.1f}",
            f"{fidelity['smaller']:.1f}",
            f"{fidelity['rmse_over_s']:.3f}",
        ]
        for fidelity in description["by_bits"]
    ]
    lines += ["", format_table(["bits", "MB", "kB a shard", "times smaller", "error / s"], rows, 0)]
    if layers:
        rows = [
            [
                str(layer["layer"]),
                f"{layer['mean']:.5f}",
                f"{layer['deviation']:.5f}",
                "" if layer["outlier_share"] is None else f"{100 * layer['outlier_share']:.3f}",
            ]
            for layer in description["by_layer"]
        ]
        lines += ["", format_table(["layer", "mean", "s", "outliers %"], rows, 0)]
    meaning = "error / s: root mean square of what rounding changes, in standard deviations s of a layer's weights; measured"
    return "\n".join([*lines, "", meaning])


def _store_mb(count: float) -> str:
    return f"{count / 1e6:,.{1 if count >= 1e7 else 3}f}"


PICTURE_COLUMNS = 88
"""Characters of a row of a pipeline."""


def describe_overheads(cost: StiCost, length: int, slices: int) -> str:
    """Return the computing times of a plan besides its layers, as text."""
    parts = f"{1e3 * cost.t_embed(length):.3g} ms of embedding, {1e3 * cost.head_s:.3g} ms of head"
    parts += "" if cost.decoder is None else " in each step"
    slowed = cost.slowing(slices)
    return parts + (f", all computing {slowed:.3g} times as long while the disk reads" if slowed > 1.0 else "")


def format_plan(outlook: PlanSummary, source: CostSource) -> str:
    """Return a plan and its contestants as text."""
    plan, timeline, memory, cost = outlook.run.plan, outlook.run.timeline, outlook.run.memory, outlook.cost
    decoding = len(plan.layer_indices) - plan.layers
    size = f"{plan.layers} x {plan.slices_per_layer}" + (f" and {decoding} decoder layers as wide" if decoding else "")
    whole = f"{cost.geometry.layers} x {cost.geometry.heads}"
    shards = "one shard" if len(plan.bits) == 1 else f"{len(plan.bits)} shards"
    steps = f", {plan.steps:g} decoder steps" if decoding else ""
    lines = [
        f"{source.name} ({source.kind}): {source.model}",
        f"{size} of {whole}, {shards}, {plan.length} tokens{steps}: "
        f"{1e3 * plan.latency_s:.4g} ms of {1e3 * plan.deadline_s:g} ms, "
        + (f"{1e3 * plan.stall_s:.4g} ms of it waiting" if plan.stalls else "without waiting"),
        f"memory: {_mb(memory.preload_bytes)} of {plan.preload_bytes / 1e6:g} MB preloaded, {len(plan.preloaded)} of "
        f"the shards; {_mb(memory.streamed_bytes)} MB read; working buffer {_mb(memory.working_bytes)} MB",
        *[f"besides the layers: {describe_overheads(cost, plan.length, plan.slices_per_layer)}"]
        * bool(cost.embed_s or cost.head_s or cost.slowed),
        *outlook.remarks,
        "",
        format_table(
            ["layer", "slices", "bits (* preloaded)", "budget ms", "left ms", "read ms", "read by", "computed from", "waits"],
            [_layer_row(layer, timeline, at) for at, layer in enumerate(outlook.layers)],
            3,
        ),
        "",
        *format_pipeline(timeline, plan.layer_indices),
    ]
    if outlook.contestants:
        header = ["method", "size", "shards", "mean bits", "latency ms", "waits ms", "deadline", "preload MB", "working MB"]
        lines += ["", format_table(header, list(_contestant_rows(outlook)), 1)]
    return "\n".join(lines)


def format_pipeline(timeline: Timeline, layers: tuple[int, ...]) -> Iterator[str]:
    """Yield lines that show disk and processor over time: `=` reads, `#` computes, `.` waits, a number begins a layer."""
    scale = PICTURE_COLUMNS / timeline.latency_s
    reading, computing = [" "] * PICTURE_COLUMNS, [" "] * PICTURE_COLUMNS
    _mark_span(computing, 0.0, timeline.before_s * scale, "~")
    for number, moments in zip(layers, timeline.rows(), strict=True):
        load_begin, load_end, begin, end, stall = (moment * scale for moment in moments)
        _mark_span(reading, load_begin, load_end, "=", str(number))
        _mark_span(computing, begin - stall, begin, ".")
        _mark_span(computing, begin, end, "#", str(number))
    _mark_span(computing, (timeline.latency_s - timeline.after_s) * scale, PICTURE_COLUMNS, "~")
    yield f"io      |{''.join(reading).rstrip()}"
    yield f"compute |{''.join(computing).rstrip()}|"
    later = ", ~ embedding, head, later decoder steps" if timeline.before_s or timeline.after_s else ""
    yield f"         = reads, # computes, . waits{later}; one sign is {1e3 / scale:.3g} ms"


def _mark_span(row: list[str], begin: float, end: float, sign: str, name: str = "") -> None:
    first, last = round(begin), round(end)
    for at in range(first, min(last, len(row))):
        row[at] = name[at - first] if at - first < len(name) < last - first + 1 else sign


def _layer_row(layer: dict[str, Any], timeline: Timeline, at: int) -> list[str]:
    bits = " ".join(f"{width}{'*' if held else ''}" for width, held in zip(layer["bits"], layer["preloaded"], strict=True))
    moments_s = [column[at] for column in (timeline.load_end, timeline.compute_begin, timeline.stall)]
    budget_s = [layer["granted_s"], layer["left_s"], layer["load_s"]]
    return [str(layer["layer"]), _ranges(layer["slices"]), bits, *map(_ms, [*budget_s, *moments_s])]


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.3f}"


def _ms(seconds: float) -> str:
    text = f"{1e3 * seconds:.2f}"
    return "0.00" if text == "-0.00" else text


def _ranges(slices: Sequence[int]) -> str:
    """Return rising numbers as runs, such as `0-3,5`."""
    numbered = groupby(enumerate(slices), lambda place: place[1] - place[0])
    runs = [[piece for _, piece in run] for _, run in numbered]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _contestant_rows(outlook: PlanSummary) -> Iterator[list[str]]:
    for name, run in outlook.contestants.items():
        if run is None:
            yield [name, "none", *["-"] * 4, "missed", "-", "-"]
            continue
        plan = run.plan
        yield [
            name,
            f"{plan.layers} x {plan.slices_per_layer}",
            str(len(plan.bits)),
            f"{sum(plan.bits.values()) / len(plan.bits):.1f}",
            f"{1e3 * plan.latency_s:.2f}",
            f"{1e3 * run.timeline.stall_s:.2f}",
            "missed" if plan.misses_deadline else "met",
            f"{run.memory.preload_bytes / 1e6:.2f}",
            f"{run.memory.working_bytes / 1e6:.2f}",
        ]


def format_engagement(store: ShardStore, source: CostSource, engaged: EngagementSettings, turns: Sequence[Turn]) -> str:
    """Return the engagement as text."""
    geometry, pace = store.geometry, engaged.pace_bytes_per_s
    paced = "as fast as the disk gives" if pace is None else f"paced to {pace / 1e6:g} MB/s"
    last = turns[-1]
    lines = [
        f"{store.name}: {geometry.layers} x {geometry.heads} shards, {engaged.length} tokens, {paced}; "
        f"deadline {1e3 * engaged.deadline_s:g} ms, buffer {engaged.preload_bytes / 1e6:g} MB, "
        f"{engaged.capacity_bytes / 1e6:g} MB within the engagement",
        f"planned with {source.name} ({source.kind}); "
        f"{describe_overheads(source.cost, engaged.length, last.plan.slices_per_layer)}",
        "",
        format_table(
            [
                "turn",
                "n x m",
                "mean bits",
                "held MB",
                "read MB",
                "planned ms",
                "took ms",
                "waits ms",
                "planned",
                "class",
                "sure %",
            ],
            [_turn_row(number, turn) for number, turn in enumerate(turns, start=1)],
            0,
        ),
        *_engagement_remarks(source, engaged, turns),
        "",
        "The last turn, layer by layer:",
        format_table(
            ["layer", "bits", "read MB", "read from ms", "read by", "waits", "unpacks", "computes", "done ms"],
            list(_layer_times(last)),
            2,
        ),
        "",
        *format_pipeline(last.execution.timeline, last.plan.layer_indices),
    ]
    return "\n".join(lines)


def engagement_document(
    store: ShardStore, source: CostSource, engaged: EngagementSettings, turns: Sequence[Turn]
) -> dict[str, Any]:
    """Return the engagement as plain data, in seconds and bytes."""
    return {
        "store": str(store.path),
        "fingerprint": store.fingerprint,
        "costs": {"name": source.name, "kind": source.kind, "importance": source.cost.importance is not None},
        "length": engaged.length,
        "pace_bytes_per_s": engaged.pace_bytes_per_s,
        "remarks": list(_engagement_remarks(source, engaged, turns)),
        "cache_bytes": engaged.capacity_bytes,
        "turns": [
            {
                "plan": turn.plan.as_json(),
                "held": len(turn.held),
                "held_bytes": turn.held_bytes,
                "kept_bytes": turn.kept_bytes,
                "planned_latency_s": turn.predicted.latency_s,
                "planned_stall_s": turn.predicted.stall_s,
                "execution": turn.execution.as_json(),
                "logits": turn.execution.logits.tolist(),
            }
            for turn in turns
        ],
    }


def _turn_row(number: int, turn: Turn) -> list[str]:
    plan, run = turn.plan, turn.execution
    return [
        str(number),
        f"{plan.layers} x {plan.slices_per_layer}",
        f"{sum(plan.bits.values()) / len(plan.bits):.2f}",
        f"{turn.held_bytes / 1e6:.3g}",
        f"{run.total('bytes_read') / 1e6:.3g}",
        _ms(turn.predicted.latency_s),
        _ms(run.latency_s),
        _ms(run.total("wait_s")),
        _ms(turn.predicted.stall_s),
        *_answer(run),
    ]


def _answer(run: Execution) -> tuple[str, str]:
    share = run.logits[0].softmax(0)
    return str(int(share.argmax())), f"{100 * float(share.max()):.0f}"


def _engagement_remarks(source: CostSource, engaged: EngagementSettings, turns: Sequence[Turn]) -> Iterator[str]:
    if source.cost.importance is None:
        yield "importance was not measured (simnmt sti profile --task does): slices and upgrades go in layer order"
    missed = [str(number) for number, turn in enumerate(turns, start=1) if turn.execution.latency_s > turn.plan.deadline_s]
    if missed:
        waits = any(turn.plan.stalls and turn.plan.misses_deadline for turn in turns)
        smaller = ": planned to wait within it (--fill), a smaller submodel may keep it"
        yield f"the deadline was missed in turn {', '.join(missed)}{smaller if waits and not engaged.fills_deadline else ''}"
    yield from _describe_slow_reads(turns)
    if not all(turn.execution.cold for turn in turns):
        yield "the store's file may have stayed in memory: reads may have been faster than the disk"


def _describe_slow_reads(turns: Sequence[Turn]) -> Iterator[str]:
    """Yield one remark for all turns in which even 2 bits everywhere are read too late, and which have the same reads."""
    numbers: dict[str, list[str]] = {}
    for number, turn in enumerate(turns, start=1):
        plan = turn.plan
        if not plan.short_of_io:
            continue
        remark = "even 2 bits everywhere would make the processor wait"
        if all(bits == BITS[0] or turn.held.get(shard) == bits for shard, bits in plan.bits.items()):
            remark = "even 2 bits cannot be read in time, so all reads have 2 bits and the processor waits"
        elif turn.predicted.latency_s <= plan.deadline_s:
            remark += "; the deadline leaves time for more"
        numbers.setdefault(remark, []).append(str(number))
    yield from (f"turn {', '.join(of_remark)}: {remark}" for remark, of_remark in numbers.items())


def _layer_times(turn: Turn) -> Iterator[list[str]]:
    for run in turn.execution.layers:
        bits = " ".join(
            f"{turn.plan.bits[shard]}{'*' if turn.held.get(shard) == turn.plan.bits[shard] else ''}"
            for shard in turn.plan.shards_of(run.layer)
        )
        end_s = run.begin_s + run.unpack_s + run.forward_s
        seconds = [run.io_begin_s, run.io_end_s, run.wait_s, run.unpack_s, run.forward_s, end_s]
        yield [str(run.layer), bits, f"{run.bytes_read / 1e6:.3g}", *map(_ms, seconds)]
