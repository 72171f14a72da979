"""How a device executes the requests of one workload: the costs of its profile in the workload's unit, batched or streamed.

The model of a streamed device is planned here, from a scenario's settings to the boxes of the world (STI-10 to STI-18).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.devices import Batched, Slots, Streamed
from simnmt.devices.slots import SlotsConfiguration
from simnmt.devices.stream import PlanChange
from simnmt.devices.streaming_configuration import StreamingConfiguration
from simnmt.profile.blocks import ProfileError
from simnmt.profile.custom import CustomDevice
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.origin import LengthUnit
from simnmt.profile.profile_variant import DecoderChoice
from simnmt.profile.streaming_block import StiCost
from simnmt.results.device_accounts import PlannedChange, PlannedDevice, PlannedState, state_name
from simnmt.results.requests import Engine
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.streaming.plan.engagement import COLD, Engagement, Lifecycle, engagement
from simnmt.streaming.plan.streaming_plan import bytes_held
from simnmt.workload.arrivals import BackToBack
from simnmt.workload.length_table import LengthTable
from simnmt.workload.length_units import Fertility
from simnmt.world.engine import serve_all

Tokens = NDArray[np.int64]
Part = TypeVar("Part")
ExpectedTokens = Tokens | Floats
"""Target lengths, or expected ones, which need not be whole."""
COVERED_SHARE = 0.95
"""Share of the workload's lengths that do not exceed the default lengths of streaming plans."""


@dataclass(frozen=True, slots=True)
class StreamedDevice:
    """A device that streams its model: its servers in the world, and the plans for a reader."""

    streamed: Streamed
    planned: PlannedDevice


@dataclass(frozen=True, slots=True)
class Decoding(Batched):
    """How each box of a target decodes in batches, with the costs of its profile."""

    free_refills: bool = False


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a profile's costs were converted to the workload's unit: its tokens per token of the workload, as stated."""

    src: float
    tgt: float
    src_unit: str
    tgt_unit: str

    @classmethod
    def between(cls, table: LengthTable, unit: LengthUnit, stated: Fertility) -> Conversion | None:
        """Return how costs become costs per token of the workload; None if both count alike, or if no fertility is stated."""
        if (unit.src, unit.tgt) == (table.src_unit, table.tgt_unit):
            return None
        src = 1.0 if unit.src == table.src_unit else stated.factor("src", unit.src)
        tgt = 1.0 if unit.tgt == table.tgt_unit else stated.factor("tgt", unit.tgt)
        return None if src is None or tgt is None else cls(src, tgt, unit.src, unit.tgt)


def agreed_unit(
    by_site: Iterable[Sequence[DeviceProfile]], shared: Sequence[DeviceProfile], wanted: Callable[[LengthUnit], Part]
) -> Part:
    """Return how lengths are counted by the first profile of each site, or, where sites differ, of the shared devices."""
    choices = {wanted(profiles[0].length_unit) for profiles in by_site if profiles}
    return choices.pop() if len(choices) == 1 else wanted(shared[0].length_unit) if shared else min(choices, key=str)


def outside_share(profile: DeviceProfile, table: LengthTable) -> float:
    """Return the share of the pairs that lie outside the profile's range."""
    return float(table.count[profile.outside(table.src_len, table.tgt_len)].sum() / table.pairs)


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A model of a device that holds several, as a part of the box's memory."""

    memory_bytes: int
    """Memory of each box for all models."""
    size_bytes: int
    load_s: float
    kind: str
    """How size and loading time are known."""
    stays: bool
    """True if it is loaded before the first request, and no model is evicted."""


@dataclass(frozen=True, slots=True)
class Target:
    """How a device executes the requests of one workload."""

    device: str
    profile: DeviceProfile
    doubts: tuple[str, ...] = ()
    """Effects on the numbers of this workload of what is doubtful about its profile (`Doubt.effect`)."""
    decoder: DecoderChoice | None = None
    """Decoder variant that replaces the profile's; None if the scenario names none."""
    decoding: Decoding | None = None
    """How it batches; None if it executes requests one by one."""
    streaming: StreamedDevice | None = None
    """How its model is streamed from the disk; None if the model stays in memory."""
    conversion: Conversion | None = None
    """How its profile was converted to the workload's unit; None if both count alike."""
    models: Mapping[str, HeldModel | None] = field(default_factory=lambda: {"": None})
    """Its model, or the two of a pivot in turn, by the name of the workload or of the profile by which workloads share a model;
    None if the memory of a box is not limited."""
    workers: int = 1
    """Requests that each box executes side by side: as the scenario says, else as the profile does."""
    slots: Slots | None = None
    """How it decodes in slots, without the limit of context if no request of the workload exceeds it; None if it has none."""
    cost: CustomDevice | None = None
    """A user's cost function of requests alone, to which the profile's plane is a fit; None if the plane is charged."""

    @property
    def loads(self) -> bool:
        """True if requests may wait until a model is loaded."""
        return any(model is not None and not model.stays for model in self.models.values())

    @property
    def shared(self) -> tuple[Any, ...]:
        """What is the same for all workloads of a device: its plan of streaming, batching, and slots but for their context."""
        plan, batching = self.streaming and self.streaming.planned, self.decoding and self.decoding.batching
        return plan, batching, self.slots and self.slots.without_context()

    @property
    def together(self) -> Decoding | Slots | None:
        """How it decodes requests together; None if it does not."""
        return self.decoding or self.slots

    @property
    def under_load(self) -> tuple[Any, ...]:
        """How many requests it executes at once, and how these slow each other down."""
        return self.workers, self.occupancy_factors

    @property
    def occupancy_factors(self) -> tuple[float, ...]:
        """Factors on its seconds by requests in a box (`Fifo.occupancy_factors`); empty if it batches, streams or has slots."""
        is_fifo = self.together is None and self.streaming is None
        return self.profile.execution.occupancy_factors if is_fifo else ()

    @property
    def streamed(self) -> Streamed | None:
        """How its boxes stream their model; None if the model stays in memory."""
        return None if self.streaming is None else self.streaming.streamed

    @property
    def kind(self) -> str:
        """How the numbers are known by which it executes; those of the block `sti` or `slots` if it streams or has slots."""
        if self.slots is not None and self.profile.slots is not None:
            return self.profile.slots.kind
        return self.profile.execution.kind if self.streaming is None else self.streaming.planned.kind

    def in_memory_s(self, src_len: Tokens, tgt_len: ExpectedTokens, noise: Floats) -> Floats:
        """Return the seconds of requests alone, with nothing to be read from a disk (`DeviceProfile.execution_s`).

        A streamed model takes the computing time of its plan, since the profile's plane is that of the whole model, and slots
        that of their iterations. `noise`: standard normal numbers, from which the residual follows.
        """
        if self.slots is not None:
            return self.slots.solo_s(src_len, tgt_len)
        if self.cost is not None:
            return self.cost.seconds(src_len, tgt_len)
        if self.streamed is None:
            return self.profile.execution_s(src_len, tgt_len, noise)
        return self.streamed.compute.in_memory_s(src_len, tgt_len) * self.profile.residual.factor(noise)

    def execution_s(self, src_len: Tokens, tgt_len: ExpectedTokens, noise: Floats) -> Floats:
        """Return the seconds that the device charges: `in_memory_s`, or the steps of the request alone if it batches."""
        if self.decoding is None:
            return self.in_memory_s(src_len, tgt_len, noise)
        alone_s = self.decoding.cost.solo_s(src_len, np.rint(tgt_len) if tgt_len.dtype.kind == "f" else tgt_len)
        return alone_s * self.profile.residual.factor(noise) if self.decoding.varies else alone_s

    def mean_alone_s(self, table: LengthTable) -> float:
        """Return the mean seconds of a request alone, as charged back to back.

        A streamed model is in the last turn of an engagement, since requests follow each other.
        """
        src_len, tgt_len = table.src_len, table.tgt_len
        if self.streamed is not None:
            alone_s = self.streamed.compute.in_memory_s(src_len, tgt_len) + self.streamed.beyond_s(src_len)[-1]
        elif self.decoding is not None:
            alone_s = self.decoding.cost.solo_s(src_len, tgt_len)
        elif self.slots is not None:
            alone_s = self.slots.solo_s(src_len, tgt_len)
        elif self.cost is not None:
            alone_s = self.cost.seconds(src_len, tgt_len)
        else:
            alone_s = self.profile.plane.seconds(src_len, tgt_len)
        return float(np.average(alone_s, weights=table.count))


def most_together(target: Target) -> int | None:
    """Return the most sentences that a box decodes together; None if it decodes one by one."""
    if target.slots is not None:
        return target.slots.limits.slots
    return None if target.decoding is None else target.decoding.batching.size


def streamed_device(
    settings: StreamingConfiguration, profile: DeviceProfile, cost: StiCost, table: LengthTable
) -> StreamedDevice:
    """Plan the turns of an engagement, once at the start and once at each change, for all boxes and requests of the workload.

    `cost`: of the profile's block `sti`. Raises `PlanError`.
    """
    sti = profile.sti
    assert sti is not None
    src_len = settings.src_len or _covering_length(table.src_len, table.count)
    tgt_len = settings.tgt_len or _covering_length(table.tgt_len, table.count)
    steps = float(tgt_len) if cost.decoder is not None else 1.0
    cold_read_bytes = sti.resident_bytes if settings.cold_read_bytes is None else settings.cold_read_bytes
    # One file, read at the rate at which shards were read.
    cold_read_s = sti.io.s_fixed + cold_read_bytes / sti.io.bytes_per_s if cold_read_bytes else 0.0
    phases = [
        (
            at_s,
            part,
            engagement(
                cost,
                part.deadline_s,
                part.preload_bytes,
                part.cache_bytes,
                length=src_len,
                similar=part.similar_share,
                fills_deadline=part.fills_deadline,
                steps=steps,
                cold_read_s=cold_read_s,
            ),
        )
        for at_s, part in settings.phases()
    ]
    last = max(len(engaged.states) for _, _, engaged in phases) - 1
    first, *changed = (_streamed(part, engaged, last, steps, cold_read_bytes or 0) for _, part, engaged in phases)
    states = [_states(engaged, src_len, tgt_len, cold_read_bytes or 0) for _, _, engaged in phases]
    changes = [
        _change(at_s, cost, before, after, streamed)
        for ((_, _, before), (at_s, _, after)), streamed in zip(pairwise(phases), changed, strict=True)
    ]
    engaged = phases[0][2]
    planned = PlannedDevice(
        deadline_s=settings.deadline_s,
        src_len=src_len,
        tgt_len=tgt_len if cost.decoder is not None else 0,
        preload_bytes=settings.preload_bytes,
        cache_bytes=settings.cache_bytes,
        cold_read_bytes=cold_read_bytes,
        working_bytes=engaged.working_bytes,
        plans=len(engaged.plans),
        kind=sti.kind,
        model=sti.model,
        all_layers=cost.geometry.layers,
        all_decoder_layers=0 if cost.decoder is None else cost.decoder.geometry.layers,
        all_slices=cost.geometry.heads,
        states=states[0],
        changes=tuple(
            PlannedChange(at_s, part.deadline_s, part.preload_bytes, len(engaged.plans), of_phase)
            for (at_s, part, engaged), of_phase in zip(phases[1:], states[1:], strict=True)
        ),
    )
    return StreamedDevice(replace(first, changes=tuple(changes)), planned)


def _streamed(settings: StreamingConfiguration, engaged: Engagement, last: int, steps: float, cold_read_bytes: int) -> Streamed:
    """Return how boxes stream by one phase's plans; states beyond the phase's own last one, up to `last`, repeat it."""
    reclaimed_after_s = inf if settings.reclaimed_after_s is None else settings.reclaimed_after_s
    # With a cache that outlives its engagement, the next engagement continues the last one.
    gap_s = inf if settings.keeps_cache else settings.engagement_gap_s
    return Streamed(
        compute=engaged.compute,
        states=engaged.states + engaged.states[-1:] * (last + 1 - len(engaged.states)),
        lifecycle=Lifecycle(last, gap_s, reclaimed_after_s, settings.keeps_preload),
        deadline_s=settings.deadline_s,
        deadline_steps=steps,
        working_bytes=engaged.working_bytes,
        cold_read_bytes=cold_read_bytes,
    )


def _change(at_s: float, cost: StiCost, before: Engagement, after: Engagement, streamed: Streamed) -> PlanChange:
    """Return the change between two phases; a preload buffer that holds the earlier phase's shards is filled with the rest."""
    old, new = before.plans[0], after.plans[0]
    held = {shard: old.bits[shard] for shard in old.preloaded}
    fill = {shard: new.bits[shard] for shard in new.preloaded if held.get(shard) != new.bits[shard]}
    fill_s = sum(cost.t_io(bits, layer) for (layer, _), bits in fill.items())
    return PlanChange(at_s, streamed, fill_s, bytes_held(cost, fill))


def _covering_length(lengths: Tokens, count: Tokens) -> int:
    order = np.argsort(lengths, kind="stable")
    until = np.cumsum(count[order])
    return int(lengths[order][np.searchsorted(until, COVERED_SHARE * until[-1])])


def _states(engaged: Engagement, src_len: int, tgt_len: int, cold_read_bytes: int) -> tuple[PlannedState, ...]:
    compute, states = engaged.compute, engaged.states
    in_memory_s = float(compute.in_memory_s(src_len, tgt_len))
    planned_states = []
    for number, state in enumerate(states):
        # A cold start executes the plan of the first turn.
        plan = engaged.plans[min(max(number - 1, 0), len(engaged.plans) - 1)]
        drawn = state.pipeline(compute, src_len, tgt_len)
        planned_states.append(
            PlannedState(
                name=state_name(number, len(states)),
                layers=plan.layers,
                decoder_layers=compute.decoder_layers,
                slices=plan.slices_per_layer,
                bits=tuple(sorted(Counter(plan.bits.values()).items())),
                held_bytes=state.held_bytes,
                read_bytes=state.streamed_bytes + (cold_read_bytes if number == COLD else 0),
                latency_s=drawn.latency_s,
                stall_s=drawn.latency_s - in_memory_s,
                before_s=drawn.before_s,
                load=tuple(zip(drawn.load_begin.tolist(), drawn.load_end.tolist(), strict=True)),
                short_of_io=number > 0 and plan.short_of_io,
                compute=tuple(zip(drawn.compute_begin.tolist(), drawn.compute_end.tolist(), strict=True)),
            )
        )
    return tuple(planned_states)


def slots_of(
    device: str, scenario: ScenarioConfiguration, workload: str, profile: DeviceProfile, table: LengthTable
) -> Slots | None:
    """Return how a device decodes in slots; None if its profile has no block `slots`. Raises `ProfileError`.

    A limit of context that no pair of lengths exceeds is left out.
    """
    part, block = scenario.devices[device], profile.slots
    if block is None:
        if part.slots is not None:
            what = f"profile {profile.name} has no costs of slots (block slots)"
            raise ProfileError(what, remedy=f"name a profile that has them, or leave devices.{device}.slots out")
        return None
    if (other := part.beside_slots) is not None:
        what = f"profile {profile.name} is of an engine with slots, which {other} does not fit"
        raise ProfileError(what, remedy=f"leave devices.{device}.{other} out, or name another profile")
    try:
        limits = (part.slots or SlotsConfiguration()).limits(block)
    except ValueError as error:
        raise ProfileError(f"profile {profile.name}: {error}", remedy=f"correct devices.{device}.slots") from None
    slots = Slots(limits, block.cost, block.prompt, block.output)
    prompt, output = slots.tokens(table.src_len, table.tgt_len)
    if limits.context is None or int((prompt + output).max()) <= limits.context:
        return slots.without_context()
    if isinstance(scenario.workloads[workload].arrivals, BackToBack):
        what = f"requests exceed the context of {limits.context} tokens, and back to back none is refused"
        raise ProfileError(what, remedy=f"give workloads.{workload}.arrivals, or shorter lengths")
    return slots


SATURATION_SAMPLE = 2_000
"""Most sentences that are decoded to measure a saturated server, unless batches are large."""
LEAST_BATCHES = 4
"""Fewest batches decoded for that."""


def saturated_s(
    decoding: Decoding | Slots, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64], engine: Engine | None = None
) -> float:
    """Return the seconds that one server needs for these sentences in the long run, with batches or slots as full as possible.

    Of many sentences an even sample is decoded, few sentences are repeated, in either case to fill whole batches or
    collections, and the time is scaled by the target tokens. The sample is decoded once and twice over; the difference counts,
    since it contains neither a first batch nor a last one.
    """
    count = len(tgt_len)
    if count == 0:
        return 0.0
    if isinstance(decoding, Slots):
        kind: Decoding | Slots = decoding.without_context()
        size = together = decoding.limits.slots
    else:
        kind = replace(decoding, batching=replace(decoding.batching, longest_wait_s=0.0))
        size, together = decoding.batching.size, decoding.batching.collected or decoding.batching.size
    most, least = max(SATURATION_SAMPLE, 16 * size), max(count, LEAST_BATCHES * size)
    wanted = -(-min(most, least) // together) * together
    rows = np.arange(wanted) % count if count < wanted else (np.arange(wanted) * (count / wanted)).astype(np.int64)
    source, target = np.asarray(src_len)[rows], np.asarray(tgt_len)[rows]
    once_s, twice_s = (
        serve_all(kind, np.tile(source, times), np.tile(target, times), engine=engine).total_s for times in (1, 2)
    )
    return max(twice_s - once_s, 0.0) * int(np.sum(tgt_len + 1)) / int(np.sum(target + 1))
