"""Describe for a reader the plans of devices that stream their models: what they read and compute, and which are late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import RunPlan
from simnmt.results.device_accounts import PlannedDevice, PlannedState
from simnmt.results.number_text import digits, duration
from simnmt.scenario.configuration import MEGABYTE, StreamingConfiguration


def describe_streaming(settings: StreamingConfiguration, planned: PlannedDevice) -> Iterator[str]:
    """Yield the sentences about one streamed device, without their full stops."""
    first = planned.states[0]
    tokens = f"{planned.src_len} source" + (f" and {planned.tgt_len} target" if planned.tgt_len else "") + " tokens"
    yield (
        f"streams {planned.model} from its disk, layer by layer: {_describe_layers(planned, first)} with "
        f"{first.slices} of {planned.all_slices} slices each, planned once for all boxes ({planned.plans} "
        f"plan{'s' * (planned.plans != 1)}) for {tokens} within {duration(planned.deadline_s)}"
    )
    within = f", {_megabytes(planned.cache_bytes)} from turn to turn" if planned.cache_bytes > planned.preload_bytes else ""
    kept = "is kept" if settings.keeps_preload else "is given back"
    kept = "and the enlarged cache are kept" if settings.keeps_cache else kept
    reclaimed = "never" if settings.reclaimed_after_s is None else f"after {duration(settings.reclaimed_after_s)} idle"
    yield (
        f"a preload buffer of {_megabytes(planned.preload_bytes)}{within}, and beside it {_megabytes(planned.working_bytes)} "
        f"in which a layer is computed; requests within {duration(settings.engagement_gap_s)} of the last answer are turns of "
        f"one engagement, after which the buffer {kept}; the system reclaims all of it {reclaimed}"
    )
    yield _describe_cold_start(planned)
    yield f"predicted for such a request at an idle box, {planned.kind} profile: {_describe_states(planned.states)}"
    yield from _describe_changes(planned)
    yield from _describe_unreachable_goals(planned)
    yield (
        "the loss of quality by fewer layers and slices and by the bits of its weights was not measured: latencies are "
        "compared, not quality. Policies learn the time of the planned submodel in memory; only with plan_state: known do "
        "they know what reading adds"
    )


def _describe_layers(planned: PlannedDevice, state: PlannedState) -> str:
    """Describe how many of the model's layers are computed in a state."""
    layers = f"{state.layers} of {planned.all_layers}"
    if planned.all_decoder_layers:
        layers += f" encoder and {state.decoder_layers} of {planned.all_decoder_layers} decoder"
    return f"{layers} layers"


def _describe_cold_start(planned: PlannedDevice) -> str:
    if planned.cold_read_bytes is None:
        return (
            "what a cold start reads beside shards (embeddings, norms, head) is in no profile and counted as nothing "
            "(cold_read_mb sets it)"
        )
    if not planned.cold_read_bytes:
        return "a cold start reads shards alone: what is in none of them (embeddings, norms, head) stays in memory"
    return (
        f"a cold start reads {_megabytes(planned.cold_read_bytes)} that are in no shard (embeddings, norms, head) ahead of the "
        "first layer's shards, and computes nothing before"
    )


def _describe_changes(planned: PlannedDevice) -> Iterator[str]:
    for change in planned.changes:
        first = change.states[0]
        yield (
            f"from {duration(change.at_s)} on planned anew for {duration(change.deadline_s)} and a preload buffer of "
            f"{_megabytes(change.preload_bytes)}: {first.layers} layers with {first.slices} slices each; "
            f"{_describe_states(change.states)}"
        )
    if planned.changes:
        yield (
            f"planned {planned.plannings} times in all. A request is executed by the plan that holds when it reaches its box; "
            "a change ends the engagement, and a box that holds its buffer fills it for the new plan from its disk. Policies "
            "keep to the times of the first plan"
        )


def _describe_states(states: Sequence[PlannedState]) -> str:
    """Describe latency, stall, reads and bits of each state."""
    sentences = []
    for state in states:
        stall = f" ({duration(state.stall_s)} of it stalled)" if state.stall_s > 1e-9 else ""
        read = f"reads {_megabytes(state.read_bytes)}" if state.read_bytes else "reads nothing"
        shards = sum(count for _, count in state.bits)
        widths = [f"{width} ({count} of {shards})" for width, count in state.bits]
        widths[-1] = str(state.bits[-1][0])
        sentences.append(
            f"{state.name} {duration(state.latency_s)}{stall}, {read}, shards of {format_list(widths, 'and')} bits"
        )
    return "; ".join(sentences)


def _describe_unreachable_goals(planned: PlannedDevice) -> Iterator[str]:
    """Yield the goals of the settings that no plan reaches."""
    first, turn = planned.states[:2]
    late = [state.name for state in planned.states if _is_late(state, planned.deadline_s)]
    if late:
        smallest = " even by the smallest submodel, 1 layer of 1 slice," if (first.layers, first.slices) == (1, 1) else ""
        yield f"the deadline of {duration(planned.deadline_s)} is not met{smallest} in these states: {', '.join(late)}"
    if short := [state.name for state in planned.states if state.short_of_io]:
        which = ", ".join(short)
        yield f"the disk is too slow to read 2 bits of every weight in time, so the processor waits for it, in: {which}"
    if planned.preload_bytes > turn.held_bytes == 0:
        preload = _megabytes(planned.preload_bytes)
        yield f"no shard fits into the preload buffer of {preload}, so the first turn finds nothing in it"


def _megabytes(count: int) -> str:
    return f"{digits(count / MEGABYTE)} MB"


def describe_late_plans(plan: RunPlan) -> Iterator[str]:
    """Yield the streamed devices whose first turn is late even with a filled preload buffer, and the size of their plans."""
    for case in plan.cases.values():
        for target in case.targets:
            if target.streaming is None:
                continue
            planned = target.streaming.planned
            plans = [("", planned.deadline_s, planned.states)]
            plans += [(f" from {duration(change.at_s)} on", change.deadline_s, change.states) for change in planned.changes]
            for when, deadline_s, (_, turn, *_) in plans:
                if not _is_late(turn, deadline_s):
                    continue
                remedy = "set a longer deadline_ms" + (" or more preload_mb" if turn.read_bytes and turn.stall_s > 0.0 else "")
                yield (
                    f"{case.name}, {target.device}: streamed model planned{when} as {_describe_layers(planned, turn)} x "
                    f"{turn.slices} of {planned.all_slices} slices, the deadline of {duration(deadline_s)} is not met even so: "
                    f"{turn.name} takes {duration(turn.latency_s)} ({remedy})"
                )


def _is_late(state: PlannedState, deadline_s: float) -> bool:
    return state.latency_s > deadline_s * (1.0 + 1e-9)
