"""What `simnmt sti plan` prints for people: the plan, its budgets, the pipeline as two rows of signs, the comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simnmt.cli.tables import aligned

if TYPE_CHECKING:
    from simnmt.costs.sti_cost import StiCost
    from simnmt.sti.outlook import Outlook, PlannedLayer
    from simnmt.sti.timeline import Timeline

COLUMNS = 88
"""Signs of a pipeline's row."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a plan's costs come from."""

    name: str
    kind: str
    model: str
    """The model that is streamed, in words."""
    cost: StiCost
    warnings: tuple[str, ...] = ()
    """What makes the costs doubtful."""


def read_source(profile: str) -> Source:
    """A profile's block `sti`, or one of the planner's own presets. Raises `ProfileError`."""
    from simnmt import shipped
    from simnmt.costs import profile_doubts, read_profile
    from simnmt.sti.presets import preset

    shipped_preset = preset(profile)
    if shipped_preset is not None:
        return Source(profile, shipped_preset.kind, shipped_preset.model, shipped_preset.cost)
    streamed = read_profile(shipped.find("calibration", profile) if profile.startswith("@") else profile)
    cost = streamed.sti_cost
    assert streamed.sti is not None
    doubts = tuple(doubt.message for doubt in profile_doubts(streamed, ["sti"]))
    return Source(streamed.name, streamed.sti.kind, streamed.sti.model, cost, doubts)


def beside(cost: StiCost, length: int, slices: int) -> str:
    """What a plan reckons with besides layers and loads."""
    parts = f"{1e3 * cost.t_embed(length):.3g} ms of embedding, {1e3 * cost.head_s:.3g} ms of head"
    parts += "" if cost.decoder is None else " in each step"
    slowed = cost.slowing(slices)
    return parts + (f", all computing {slowed:.3g} times as long while the disk reads" if slowed > 1.0 else "")


def format_plan(outlook: Outlook, source: Source) -> str:
    """Return a plan and what it is compared with as text."""
    plan, cost = outlook.plan, outlook.cost
    decoding = len(plan.layer_indices) - plan.layers
    size = f"{plan.layers} x {plan.slices_per_layer}" + (f" and {decoding} decoder layers as wide" if decoding else "")
    of = f"{cost.geometry.layers} x {cost.geometry.heads}"
    steps = f", {plan.steps:g} decoder steps" if decoding else ""
    lines = [
        f"{source.name} ({source.kind}): {source.model}",
        f"{size} of {of}, {_count(len(plan.bits))}, {plan.length} tokens{steps}: "
        f"{1e3 * plan.latency_s:.4g} ms of {1e3 * plan.deadline_s:g} ms, "
        + (f"{1e3 * plan.stall_s:.4g} ms of it waiting" if plan.stalls else "without waiting"),
        f"memory: {_mb(outlook.memory.preload_bytes)} of {plan.preload_bytes / 1e6:g} MB preloaded, {len(plan.preloaded)} of "
        f"the shards; {_mb(outlook.memory.streamed_bytes)} MB read; working buffer {_mb(outlook.memory.working_bytes)} MB",
        *(
            [f"besides the layers: {beside(cost, plan.length, plan.slices_per_layer)}"]
            if cost.embed_s or cost.head_s or cost.slowed
            else []
        ),
        *outlook.remarks,
        "",
        aligned(
            ["layer", "slices", "bits (* preloaded)", "budget ms", "left ms", "read ms", "read by", "computed from", "waits"],
            [_layer(layer, outlook.timeline, at) for at, layer in enumerate(outlook.layers)],
            3,
        ),
        "",
        *picture(outlook.timeline, plan.layer_indices),
    ]
    if outlook.contestants:
        header = ["way", "size", "shards", "mean bits", "latency ms", "waits ms", "deadline", "preload MB", "working MB"]
        lines += ["", aligned(header, list(_compared(outlook)), 1)]
    if outlook.exact is not None:
        best = outlook.exact
        proven = best.bound - best.fidelity < 1e-6
        known = "" if proven else f", the best yet, {best.bound:.5f} at most"
        lacks = f"{100 * best.gap:.2f} %" if proven else f"{100 * best.gap:.2f} to {100 * best.gap_at_most:.2f} %"
        lines += [
            "",
            f"Exact: fidelity {best.fidelity:.5f} by the best bits{known}; the greedy plan's {best.greedy_fidelity:.5f} lacks "
            f"{lacks} (1 less the squared rounding error{'' if outlook.cost.importance is None else ', weighted by rank'}).",
        ]
    return "\n".join(lines)


def picture(timeline: Timeline, layers: tuple[int, ...]) -> Iterator[str]:
    """Disk and processor over time, a layer's number where it begins: `=` reads, `#` computes, `.` waits."""
    scale = COLUMNS / timeline.latency_s
    reading, computing = [" "] * COLUMNS, [" "] * COLUMNS
    _mark(computing, 0.0, timeline.before_s * scale, "~")
    for number, *moments in zip(
        layers,
        timeline.load_begin,
        timeline.load_end,
        timeline.compute_begin,
        timeline.compute_end,
        timeline.stall,
        strict=True,
    ):
        load_begin, load_end, begin, end, stall = (float(moment) * scale for moment in moments)
        _mark(reading, load_begin, load_end, "=", str(number))
        _mark(computing, begin - stall, begin, ".")
        _mark(computing, begin, end, "#", str(number))
    _mark(computing, (timeline.latency_s - timeline.after_s) * scale, COLUMNS, "~")
    yield f"io      |{''.join(reading).rstrip()}"
    yield f"compute |{''.join(computing).rstrip()}|"
    later = ", ~ embedding, head, later decoder steps" if timeline.before_s or timeline.after_s else ""
    yield f"         = reads, # computes, . waits{later}; one sign is {1e3 / scale:.3g} ms"


def _mark(row: list[str], begin: float, end: float, sign: str, name: str = "") -> None:
    first, last = round(begin), round(end)
    for at in range(first, min(last, len(row))):
        row[at] = name[at - first] if at - first < len(name) < last - first + 1 else sign


def _layer(layer: PlannedLayer, timeline: Timeline, at: int) -> list[str]:
    bits = " ".join(f"{width}{'*' if held else ''}" for width, held in zip(layer.bits, layer.preloaded, strict=True))
    moments_s = (
        layer.granted_s,
        layer.left_s,
        layer.load_s,
        timeline.load_end[at],
        timeline.compute_begin[at],
        timeline.stall[at],
    )
    return [str(layer.layer), _ranges(layer.slices), bits, *(_ms(moment) for moment in moments_s)]


def _count(shards: int) -> str:
    return "one shard" if shards == 1 else f"{shards} shards"


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.3f}"


def _ms(seconds: float) -> str:
    text = f"{1e3 * seconds:.2f}"
    return "0.00" if text == "-0.00" else text


def _ranges(slices: tuple[int, ...]) -> str:
    """Runs of numbers as `0-3`."""
    runs: list[list[int]] = []
    for piece in slices:
        if runs and piece == runs[-1][1] + 1:
            runs[-1][1] = piece
        else:
            runs.append([piece, piece])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _compared(outlook: Outlook) -> Iterator[list[str]]:
    for contestant in outlook.contestants:
        if contestant.plan is None or contestant.timeline is None or contestant.memory is None:
            yield [contestant.name, "none", *["-"] * 4, "missed", "-", "-"]
            continue
        plan = contestant.plan
        yield [
            contestant.name,
            f"{plan.layers} x {plan.slices_per_layer}",
            str(len(plan.bits)),
            f"{sum(plan.bits.values()) / len(plan.bits):.1f}",
            f"{1e3 * plan.latency_s:.2f}",
            f"{1e3 * contestant.timeline.stall_s:.2f}",
            "missed" if plan.misses_deadline else "met",
            f"{contestant.memory.preload_bytes / 1e6:.2f}",
            f"{contestant.memory.working_bytes / 1e6:.2f}",
        ]
