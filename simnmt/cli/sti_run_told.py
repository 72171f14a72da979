"""What `simnmt sti run` prints: each turn's plan beside its execution, the layers of the last, and the rivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from simnmt.cli.sti_plan_told import beside, picture
from simnmt.cli.tables import aligned
from simnmt.sti.outlook import fill_proposal

if TYPE_CHECKING:
    from simnmt.cli.sti_run_source import RunSource
    from simnmt.elastic.pipeline.comparing import Rival
    from simnmt.elastic.pipeline.execution import Execution
    from simnmt.elastic.pipeline.turns import Engaged, Turn
    from simnmt.elastic.store import ShardStore


def told(store: ShardStore, source: RunSource, engaged: Engaged, turns: Sequence[Turn], others: Sequence[Rival]) -> str:
    """All of it as text."""
    geometry, pace = store.geometry, source.pace_bytes_per_s
    paced = "as fast as the disk gives" if pace is None else f"paced to {pace / 1e6:g} MB/s"
    last = turns[-1]
    lines = [
        f"{store.index.origin or store.kind}: {geometry.layers} x {geometry.heads} shards, {engaged.length} tokens, {paced}; "
        f"deadline {1e3 * engaged.deadline_s:g} ms, buffer {engaged.preload_bytes / 1e6:g} MB, "
        f"{engaged.capacity_bytes / 1e6:g} MB within the engagement",
        f"planned with {source.name} ({source.kind}); {beside(source.cost, engaged.length, last.plan.slices_per_layer)}",
        "",
        aligned(
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
            [_turn(number, turn) for number, turn in enumerate(turns, start=1)],
            0,
        ),
        *_remarks(source, engaged, turns),
        "",
        f"The last turn, layer by layer; {last.execution.peak_bytes / 1e6:.3g} MB of compressed shards in memory at most:",
        aligned(
            ["layer", "bits", "read MB", "read from ms", "read by", "waits", "unpacks", "computes", "done ms"],
            list(_layers(last)),
            2,
        ),
        "",
        *(f"{row}" for row in picture(last.execution.timeline, last.plan.layer_indices)),
    ]
    if others:
        header = ["way", "n x m", "bits", "planned ms", "took ms", "waits ms", "in memory beforehand MB", "class"]
        lines += ["", aligned(header, [_rival(each, engaged) for each in others], 1)]
    return "\n".join(lines)


def document(
    store: ShardStore, source: RunSource, engaged: Engaged, turns: Sequence[Turn], others: Sequence[Rival]
) -> dict[str, Any]:
    """The same for a program, in seconds and bytes."""
    return {
        "store": str(store.path),
        "fingerprint": store.fingerprint,
        "costs": {"name": source.name, "kind": source.kind, "importance": source.cost.importance is not None},
        "length": engaged.length,
        "pace_bytes_per_s": source.pace_bytes_per_s,
        "remarks": list(_remarks(source, engaged, turns)),
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
        "comparison": [
            {
                "way": each.contestant.name,
                "plan": None if each.contestant.plan is None else each.contestant.plan.as_json(),
                "execution": None if each.execution is None else each.execution.as_json(),
            }
            for each in others
        ],
    }


def _turn(number: int, turn: Turn) -> list[str]:
    plan, run = turn.plan, turn.execution
    return [
        str(number),
        f"{plan.layers} x {plan.slices_per_layer}",
        f"{sum(plan.bits.values()) / len(plan.bits):.2f}",
        f"{turn.held_bytes / 1e6:.3g}",
        f"{run.bytes_read / 1e6:.3g}",
        _ms(turn.predicted.latency_s),
        _ms(run.latency_s),
        _ms(run.stall_s),
        _ms(turn.predicted.stall_s),
        *_answer(run),
    ]


def _answer(run: Execution) -> tuple[str, str]:
    share = run.logits[0].softmax(0)
    return str(int(share.argmax())), f"{100 * float(share.max()):.0f}"


def _remarks(source: RunSource, engaged: Engaged, turns: Sequence[Turn]) -> Iterator[str]:
    if source.cost.importance is None:
        yield "importance was not measured (simnmt sti profile --task does): slices and upgrades go in layer order"
    missed = [str(number) for number, turn in enumerate(turns, start=1) if turn.execution.latency_s > turn.plan.deadline_s]
    if missed:
        waits = any(turn.plan.stalls and turn.plan.misses_deadline for turn in turns)
        smaller = (
            ": planned to wait within it (--fill), a smaller submodel may keep it"
            if waits and not engaged.fills_deadline
            else ""
        )
        yield f"the deadline was missed in turn {', '.join(missed)}{smaller}"
    proposal = None if engaged.fills_deadline else fill_proposal(source.cost, turns[0].plan, reclaimed=engaged.cold)
    if proposal is not None:
        yield f"turn 1: {proposal.removesuffix('.')}"
    short = [str(number) for number, turn in enumerate(turns, start=1) if turn.plan.short_of_io]
    if short:
        yield f"turn {', '.join(short)}: not even 2 bits can be read in time, so that what is read has 2 bits and is waited for"
    if not all(turn.execution.cold for turn in turns):
        yield "the store's file could not be dropped from memory, or nobody knows: reads may have been faster than the disk"


def _layers(turn: Turn) -> Iterator[list[str]]:
    for each in turn.execution.layers:
        bits = " ".join(
            f"{turn.plan.bits[shard]}{'*' if turn.held.get(shard) == turn.plan.bits[shard] else ''}"
            for shard in turn.plan.shards_of(each.layer)
        )
        seconds = (each.io_begin_s, each.io_end_s, each.wait_s, each.unpack_s, each.forward_s, each.end_s)
        yield [str(each.layer), bits, f"{each.bytes_read / 1e6:.3g}", *map(_ms, seconds)]


def _rival(each: Rival, engaged: Engaged) -> list[str]:
    known = each.contestant
    if known.plan is None or known.timeline is None or known.memory is None or each.execution is None:
        return [known.name, "none ends in time", *[""] * 6]
    plan, run = known.plan, each.execution
    late = " late" if run.latency_s > engaged.deadline_s else ""
    return [
        known.name,
        f"{plan.layers} x {plan.slices_per_layer}",
        str(next(iter(plan.bits.values()))),
        _ms(known.timeline.latency_s),
        _ms(run.latency_s) + late,
        _ms(run.stall_s),
        f"{known.memory.preload_bytes / 1e6:.3g}",
        _answer(run)[0],
    ]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"
