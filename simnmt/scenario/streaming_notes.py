"""What a reader must know of a run's streamed models: what was planned, on which numbers that rests, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator

from simnmt.results.streamed import PlannedDevice, PlannedState
from simnmt.results.wording import digits, duration
from simnmt.scenario.model import Scenario
from simnmt.scenario.streaming_configuration import MEGABYTE, StreamingConfiguration


def of_streaming(scenario: Scenario, device: str, planned: PlannedDevice) -> Iterator[str]:
    """The sentences about one streamed device, without their full stops."""
    settings = scenario.devices[device].sti
    assert settings is not None
    yield submodel(planned)
    yield memory(planned, settings)
    yield cold_start(planned)
    yield f"predicted for such a request at an idle box, {planned.kind} profile: {predictions(planned)}"
    yield from changes(planned)
    yield from beyond_reach(planned)
    yield (
        "what a translation loses by fewer layers and slices and by the bits of its weights was not measured: latencies are "
        "compared, not quality. Policies learn what the planned submodel takes in memory; what reading adds they know by "
        "plan_state: known alone"
    )


def submodel(planned: PlannedDevice) -> str:
    """What of the model is executed, and for what it was planned."""
    first = planned.states[0]
    layers = f"{first.layers} of {planned.all_layers}"
    if planned.all_decoder_layers:
        layers += f" encoder and {first.decoder_layers} of {planned.all_decoder_layers} decoder"
    tokens = f"{planned.src_len} source" + (f" and {planned.tgt_len} target" if planned.tgt_len else "") + " tokens"
    return (
        f"streams {planned.model} from its disk, layer by layer: {layers} layers with "
        f"{first.slices} of {planned.all_slices} slices each, planned once for all boxes ({planned.plans} "
        f"plan{'s' * (planned.plans != 1)}) for {tokens} within {duration(planned.deadline_s)}"
    )


def memory(planned: PlannedDevice, settings: StreamingConfiguration) -> str:
    """What a box keeps of its model, and for how long."""
    within = f", {megabytes(planned.cache_bytes)} from turn to turn" if planned.cache_bytes > planned.preload_bytes else ""
    kept = "is kept" if settings.keeps_preload else "is given back"
    kept = "and the enlarged cache are kept" if settings.keeps_cache else kept
    reclaimed = "never" if settings.reclaimed_after_s is None else f"after {duration(settings.reclaimed_after_s)} idle"
    return (
        f"a preload buffer of {megabytes(planned.preload_bytes)}{within}, and beside it {megabytes(planned.working_bytes)} in "
        f"which a layer is computed; requests within {duration(settings.engagement_gap_s)} of the last answer are turns of one "
        f"engagement, after which the buffer {kept}; the system reclaims all of it {reclaimed}"
    )


def changes(planned: PlannedDevice) -> Iterator[str]:
    """Yield what each change of deadline or buffer brings, and how boxes take it."""
    for change in planned.changes:
        first = change.states[0]
        yield (
            f"from {duration(change.at_s)} on planned anew for {duration(change.deadline_s)} and a preload buffer of "
            f"{megabytes(change.preload_bytes)}: {first.layers} layers with {first.slices} slices each; "
            f"{'; '.join(_prediction(state) for state in change.states)}"
        )
    if planned.changes:
        yield (
            f"planned {planned.plannings} times in all. A request is executed by the plan that holds when it reaches its box; "
            "a change ends the engagement, and a box that holds its buffer fills it for the new plan from its disk. Policies "
            "keep to what the first plan takes"
        )


def cold_start(planned: PlannedDevice) -> str:
    """What is read where nothing of the model is in memory."""
    if planned.cold_read_bytes is None:
        return (
            "what a cold start reads beside shards (embeddings, norms, head) is in no profile and counted as nothing "
            "(cold_read_mb says it)"
        )
    if not planned.cold_read_bytes:
        return "a cold start reads shards alone: what is in none of them (embeddings, norms, head) stays in memory"
    return (
        f"a cold start reads {megabytes(planned.cold_read_bytes)} that are in no shard (embeddings, norms, head) ahead of the "
        "first layer's shards, and computes nothing before"
    )


def predictions(planned: PlannedDevice) -> str:
    """Latency, stall and bits by state."""
    return "; ".join(_prediction(state) for state in planned.states)


def _prediction(state: PlannedState) -> str:
    stall = f" ({duration(state.stall_s)} of it stalled)" if state.stall_s > 1e-9 else ""
    read = f"reads {megabytes(state.read_bytes)}" if state.read_bytes else "reads nothing"
    return f"{state.name} {duration(state.latency_s)}{stall}, {read}, shards of {bits(state)}"


def bits(state: PlannedState) -> str:
    """How many bits its shards have.

    >>> bits(PlannedState("cold", 1, 0, 3, ((2, 2), (6, 1)), 0, 0, 0.0, 0.0, (), ()))
    '2 (2 of 3) and 6 bits'
    """
    shards = sum(count for _, count in state.bits)
    told = [f"{width} ({count} of {shards})" for width, count in state.bits]
    if len(told) > 1:
        told[-1] = str(state.bits[-1][0])
        return f"{', '.join(told[:-1])} and {told[-1]} bits"
    return f"{state.bits[0][0]} bits"


def beyond_reach(planned: PlannedDevice) -> Iterator[str]:
    """What no plan reaches."""
    first, turn = planned.states[:2]
    late = [state.name for state in planned.states if state.latency_s > planned.deadline_s * (1.0 + 1e-9)]
    if late:
        smallest = " even by the smallest submodel, 1 layer of 1 slice," if (first.layers, first.slices) == (1, 1) else ""
        yield f"the deadline of {duration(planned.deadline_s)} is not met{smallest} in these states: {', '.join(late)}"
    if short := [state.name for state in planned.states if state.short_of_io]:
        which = ", ".join(short)
        yield f"the disk is too slow to read 2 bits of every weight in time, so the processor waits for it, in: {which}"
    if planned.preload_bytes > turn.held_bytes == 0:
        preload = megabytes(planned.preload_bytes)
        yield f"no shard fits into the preload buffer of {preload}, so the first turn finds nothing in it"


def megabytes(count: int) -> str:
    """10^6 bytes.

    >>> megabytes(1_770_000)
    '1.77 MB'
    """
    return f"{digits(count / MEGABYTE)} MB"


def of_nothing_streamed(scenario: Scenario) -> Iterator[str]:
    """What is said of plans where there are none: taking `sti` away must not make a scenario wrong."""
    if any(device.sti is not None for device in scenario.devices.values()):
        return
    knowing = [name for name, policy in scenario.policies.items() if getattr(policy, "plan_state", "ignored") != "ignored"]
    if knowing:
        yield f"No device streams its model, so there is no state of a plan to be known by {', '.join(knowing)}."
