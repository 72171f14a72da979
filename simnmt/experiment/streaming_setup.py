"""Plan how a device streams its model, from a scenario's settings to the boxes of the world (STI-10 to STI-18)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from simnmt.devices import Streamed
from simnmt.devices.stream import PlanChange
from simnmt.devices.streaming_configuration import StreamingConfiguration
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.streaming_cost import StiCost
from simnmt.results.device_accounts import PlannedChange, PlannedDevice, PlannedState, state_name
from simnmt.streaming.plan.engagement import COLD, Engagement, Lifecycle, engagement
from simnmt.streaming.plan.streaming_plan import bytes_held
from simnmt.workload.length_table import LengthTable

COVERED_SHARE = 0.95
"""Share of the workload's lengths that do not exceed the default lengths of the plans."""


@dataclass(frozen=True, slots=True)
class StreamedDevice:
    """A device that streams its model: its servers in the world, and the plans for a reader."""

    streamed: Streamed
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
    sti = profile.sti
    assert sti is not None
    src_len = settings.src_len or covering_length(table.src_len, table.count)
    tgt_len = settings.tgt_len or covering_length(table.tgt_len, table.count)
    steps = float(tgt_len) if cost.decoder is not None else 1.0
    cold_read_bytes = sti.resident_bytes if settings.cold_read_bytes is None else settings.cold_read_bytes
    # One file, read at the rate at which shards were read.
    cold_read_s = sti.io.s_fixed + cold_read_bytes / sti.io.bytes_per_s if cold_read_bytes else 0.0

    def phase(at_s: float, part: StreamingConfiguration) -> _Phase:
        engaged = engagement(
            cost,
            part.deadline_s,
            part.preload_bytes,
            part.cache_bytes,
            length=src_len,
            similar=part.similar_share,
            fills_deadline=part.fills_deadline,
            steps=steps,
            cold_read_s=cold_read_s,
        )
        return _Phase(at_s, part, engaged)

    phases = [phase(at_s, part) for at_s, part in settings.phases()]
    states = [_states(part.engaged, src_len, tgt_len, cold_read_bytes or 0) for part in phases]
    last = max(len(part.engaged.states) for part in phases) - 1
    first, *changed = (_streamed(part, last, steps, cold_read_bytes or 0) for part in phases)
    changes = [_change(cost, *pair, streamed) for pair, streamed in zip(pairwise(phases), changed, strict=True)]
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
        kind=sti.kind,
        model=sti.model,
        all_layers=cost.geometry.layers,
        all_decoder_layers=0 if cost.decoder is None else cost.decoder.geometry.layers,
        all_slices=cost.geometry.heads,
        states=states[0],
        changes=tuple(
            PlannedChange(
                part.at_s, part.settings.deadline_s, part.settings.preload_bytes, len(part.engaged.plans), states_of_part
            )
            for part, states_of_part in zip(phases[1:], states[1:], strict=True)
        ),
    )
    return StreamedDevice(replace(first, changes=tuple(changes)), planned)


def _streamed(phase: _Phase, last: int, steps: float, cold_read_bytes: int) -> Streamed:
    """Return how boxes stream by one phase's plans; states beyond the phase's own last one, up to `last`, repeat it."""
    settings, engaged = phase.settings, phase.engaged
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


def _change(cost: StiCost, before: _Phase, after: _Phase, streamed: Streamed) -> PlanChange:
    """Return the change between two phases; a preload buffer that holds the earlier phase's shards is filled with the rest."""
    old, new = before.engaged.plans[0], after.engaged.plans[0]
    held = {shard: old.bits[shard] for shard in old.preloaded}
    fill = {shard: new.bits[shard] for shard in new.preloaded if held.get(shard) != new.bits[shard]}
    fill_s = sum(cost.t_io(bits, layer) for (layer, _), bits in fill.items())
    return PlanChange(after.at_s, streamed, fill_s, bytes_held(cost, fill))


def covering_length(lengths: NDArray[np.int64], count: NDArray[np.int64]) -> int:
    """Return the least length that `COVERED_SHARE` of the pairs do not exceed."""
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
