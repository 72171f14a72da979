"""From what a scenario says of a streamed device to its plans, and to the boxes that the world runs (STI-10 to STI-18)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.costs import DeviceProfile
from simnmt.costs.sti_block import StiIo
from simnmt.costs.sti_cost import StiCost
from simnmt.results.streamed import PlannedDevice, PlannedState, state_name
from simnmt.scenario.streaming_configuration import StreamingConfiguration
from simnmt.sti.engagement import Engagement, engagement
from simnmt.sti.lifecycle import COLD, Lifecycle
from simnmt.workload.length_table import LengthTable
from simnmt.world.streamed import Streamed

COVERED = 0.95
"""Share of the workload's lengths that the plans' default lengths are no less than."""


@dataclass(frozen=True, slots=True)
class StreamedDevice:
    """A device that streams its model: what the world runs, and what was planned."""

    streamed: Streamed
    planned: PlannedDevice


def streamed_device(said: StreamingConfiguration, profile: DeviceProfile, cost: StiCost, table: LengthTable) -> StreamedDevice:
    """Plan the turns of an engagement once, for all boxes of the device and all requests of the workload.

    `cost`: of the profile's block `sti`. Raises `PlanError`.
    """
    assert profile.sti is not None
    src_len = said.src_len or covering(table.src_len, table.count)
    tgt_len = said.tgt_len or covering(table.tgt_len, table.count)
    steps = float(tgt_len) if cost.decoder is not None else 1.0
    cold_read_bytes = profile.sti.resident_bytes if said.cold_read_bytes is None else said.cold_read_bytes
    engaged = engagement(
        cost,
        said.deadline_s,
        said.preload_bytes,
        said.cache_bytes,
        length=src_len,
        similar=said.similar_share,
        fills_deadline=said.fills_deadline,
        steps=steps,
        cold_read_s=_read_s(profile.sti.io, cold_read_bytes or 0),
    )
    reclaimed_after_s = np.inf if said.reclaimed_after_s is None else said.reclaimed_after_s
    streamed = Streamed(
        compute=engaged.compute,
        states=engaged.states,
        lifecycle=Lifecycle(len(engaged.states) - 1, said.engagement_gap_s, reclaimed_after_s, said.keeps_preload),
        deadline_s=said.deadline_s,
        deadline_steps=steps,
        working_bytes=engaged.working_bytes,
        cold_read_bytes=cold_read_bytes or 0,
    )
    planned = PlannedDevice(
        deadline_s=said.deadline_s,
        src_len=src_len,
        tgt_len=tgt_len if cost.decoder is not None else 0,
        preload_bytes=said.preload_bytes,
        cache_bytes=said.cache_bytes,
        cold_read_bytes=cold_read_bytes,
        working_bytes=engaged.working_bytes,
        plans=len(engaged.plans),
        kind=profile.sti.kind,
        model=profile.sti.model,
        all_layers=cost.geometry.layers,
        all_decoder_layers=0 if cost.decoder is None else cost.decoder.geometry.layers,
        all_slices=cost.geometry.heads,
        states=_states(engaged, src_len, tgt_len, cold_read_bytes or 0),
    )
    return StreamedDevice(streamed, planned)


def covering(lengths: NDArray[np.int64], count: NDArray[np.int64]) -> int:
    """The least length that `COVERED` of the pairs do not exceed."""
    order = np.argsort(lengths, kind="stable")
    until = np.cumsum(count[order])
    return int(lengths[order][np.searchsorted(until, COVERED * until[-1])])


def _read_s(io: StiIo, size: int) -> float:
    """Of one file of so many bytes, at the rate at which shards were read."""
    return io.s_fixed + size / io.bytes_per_s if size else 0.0


def _states(engaged: Engagement, src_len: int, tgt_len: int, cold_read_bytes: int) -> tuple[PlannedState, ...]:
    compute, states = engaged.compute, engaged.states
    in_memory_s = float(compute.in_memory_s(src_len, tgt_len))
    found = []
    for number, state in enumerate(states):
        # A cold start executes the plan of the first turn.
        plan = engaged.plans[min(max(number - 1, 0), len(engaged.plans) - 1)]
        drawn = state.pipeline(compute, src_len, tgt_len)
        found.append(
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
    return tuple(found)
