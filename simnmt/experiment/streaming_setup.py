"""Plan how a device streams its model: from a scenario's settings to the plans, and to the boxes that the world runs (STI-10 to
STI-18).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.streaming_block import StiIo
from simnmt.profile.streaming_cost import StiCost
from simnmt.results.device_accounts import PlannedChange, PlannedDevice, PlannedState, state_name
from simnmt.scenario.configuration import StreamingConfiguration
from simnmt.streaming.plan.engagement import COLD, Engagement, Lifecycle, engagement
from simnmt.streaming.plan.streaming_plan import bytes_held
from simnmt.workload.length_table import LengthTable
from simnmt.world.streaming_server import PlanChange, StreamingServerSpec

COVERED_SHARE = 0.95
"""Share of the workload's lengths that the plans' default lengths are no less than."""


@dataclass(frozen=True, slots=True)
class StreamedDevice:
    """A device that streams its model: what the world runs, and what was planned."""

    streamed: StreamingServerSpec
    planned: PlannedDevice


@dataclass(frozen=True, slots=True)
class _Phase:
    """The plans from one moment of the run on."""

    at_s: float
    settings: StreamingConfiguration
    engaged: Engagement


def streamed_device(
    settings: StreamingConfiguration, profile: DeviceProfile, cost: StiCost, table: LengthTable
) -> StreamedDevice:
    """Plan the turns of an engagement, once at the start and once at each change, for all boxes and requests of the workload.

    `cost`: of the profile's block `sti`. Raises `PlanError`.
    """
    assert profile.sti is not None
    src_len = settings.src_len or covering_length(table.src_len, table.count)
    tgt_len = settings.tgt_len or covering_length(table.tgt_len, table.count)
    steps = float(tgt_len) if cost.decoder is not None else 1.0
    cold_read_bytes = profile.sti.resident_bytes if settings.cold_read_bytes is None else settings.cold_read_bytes
    cold_read_s = _read_s(profile.sti.io, cold_read_bytes or 0)
    phases = [
        _Phase(at_s, phase_settings, _engaged(phase_settings, cost, src_len, steps, cold_read_s))
        for at_s, phase_settings in settings.phases()
    ]
    last = max(len(phase.engaged.states) for phase in phases) - 1
    first, *changes = (_streamed(phase, last, steps, cold_read_bytes or 0) for phase in phases)
    replanned = (
        _replanned(cost, before, after, streamed) for (before, after), streamed in zip(pairwise(phases), changes, strict=True)
    )
    engaged = phases[0].engaged
    planned = PlannedDevice(
        deadline_s=settings.deadline_s,
        src_len=src_len,
        tgt_len=tgt_len if cost.decoder is not None else 0,
        preload_bytes=settings.preload_bytes,
        cache_bytes=settings.cache_bytes,
        cold_read_bytes=cold_read_bytes,
        working_bytes=engaged.working_bytes,
        plans=len(engaged.plans),
        kind=profile.sti.kind,
        model=profile.sti.model,
        all_layers=cost.geometry.layers,
        all_decoder_layers=0 if cost.decoder is None else cost.decoder.geometry.layers,
        all_slices=cost.geometry.heads,
        states=_states(engaged, src_len, tgt_len, cold_read_bytes or 0),
        changes=tuple(
            PlannedChange(
                at_s=phase.at_s,
                deadline_s=phase.settings.deadline_s,
                preload_bytes=phase.settings.preload_bytes,
                plans=len(phase.engaged.plans),
                states=_states(phase.engaged, src_len, tgt_len, cold_read_bytes or 0),
            )
            for phase in phases[1:]
        ),
    )
    return StreamedDevice(replace(first, changes=tuple(replanned)), planned)


def _engaged(settings: StreamingConfiguration, cost: StiCost, src_len: int, steps: float, cold_read_s: float) -> Engagement:
    return engagement(
        cost,
        settings.deadline_s,
        settings.preload_bytes,
        settings.cache_bytes,
        length=src_len,
        similar=settings.similar_share,
        fills_deadline=settings.fills_deadline,
        steps=steps,
        cold_read_s=cold_read_s,
    )


def _streamed(phase: _Phase, last: int, steps: float, cold_read_bytes: int) -> StreamingServerSpec:
    """How boxes stream by one phase's plans; `last`: the last state of all phases, which repeats a phase's own last one."""
    settings, engaged = phase.settings, phase.engaged
    reclaimed_after_s = inf if settings.reclaimed_after_s is None else settings.reclaimed_after_s
    # A cache that outlives its engagement makes the next one go on where the last one ended.
    gap_s = inf if settings.keeps_cache else settings.engagement_gap_s
    states = engaged.states + engaged.states[-1:] * (last + 1 - len(engaged.states))
    return StreamingServerSpec(
        compute=engaged.compute,
        states=states,
        lifecycle=Lifecycle(last, gap_s, reclaimed_after_s, settings.keeps_preload),
        deadline_s=settings.deadline_s,
        deadline_steps=steps,
        working_bytes=engaged.working_bytes,
        cold_read_bytes=cold_read_bytes,
    )


def _replanned(cost: StiCost, before: _Phase, after: _Phase, streamed: StreamingServerSpec) -> PlanChange:
    """The change from one phase to the next, with what fills the preload buffer where it held the earlier phase's."""
    old, new = before.engaged.plans[0], after.engaged.plans[0]
    held = {shard: old.bits[shard] for shard in old.preloaded}
    fill = {shard: new.bits[shard] for shard in new.preloaded if held.get(shard) != new.bits[shard]}
    fill_s = sum(cost.t_io(bits, layer) for (layer, _), bits in fill.items())
    return PlanChange(after.at_s, streamed, fill_s, bytes_held(cost, fill))


def covering_length(lengths: NDArray[np.int64], count: NDArray[np.int64]) -> int:
    """The least length that `COVERED` of the pairs do not exceed."""
    order = np.argsort(lengths, kind="stable")
    until = np.cumsum(count[order])
    return int(lengths[order][np.searchsorted(until, COVERED_SHARE * until[-1])])


def _read_s(io: StiIo, size: int) -> float:
    """Of one file of so many bytes, at the rate at which shards were read."""
    return io.s_fixed + size / io.bytes_per_s if size else 0.0


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
