"""The planner beside the exact one, on beginnings of a model that are small enough to be planned exactly (STI-10 to 15)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simnmt.calibrate.sti_study.document import SmallCase, StudiedDevice
from simnmt.calibrate.sti_study.settings import StudySettings
from simnmt.costs.shard_geometry import ShardGeometry
from simnmt.costs.sti_cost import StiCost
from simnmt.sti.exact import exact
from simnmt.sti.plan import planned

LAYERS, SLICES = 4, 4
"""Of the small model, where the whole has as many: its bottom layers and first slices."""
LIMIT_S = 5.0
"""Of one exact plan."""


def small_cases(device: StudiedDevice, cost: StiCost, length: int, settings: StudySettings) -> Iterator[SmallCase]:
    """Those whose submodel can be loaded in time at all."""
    small = beginning(cost, min(LAYERS, cost.geometry.layers), min(SLICES, cost.geometry.heads))
    own = small.geometry
    for share in settings.small_deadlines:
        for buffer in settings.small_buffers:
            whole_s = small.t_embed(length) + own.layers * small.t_comp(length, own.heads) + small.head_s
            deadline_s = share * whole_s
            greedy = planned(small, deadline_s, round(buffer * own.heads * small.bytes_of(2)), length=length)
            best = exact(small, greedy, limit_s=LIMIT_S)
            if best is not None:
                yield SmallCase(
                    device=device.name,
                    layers=own.layers,
                    slices=own.heads,
                    deadline_s=deadline_s,
                    preload_bytes=greedy.preload_bytes,
                    greedy=best.greedy_fidelity,
                    exact=best.fidelity,
                    gap=best.gap,
                    greedy_stalls=greedy.stalls,
                )


def beginning(cost: StiCost, layers: int, slices: int) -> StiCost:
    """The cost of a model of the bottom layers and first slices alone."""
    whole = cost.geometry
    geometry = ShardGeometry(layers, slices, whole.width // whole.heads * slices, whole.ffn // whole.heads * slices)
    kept = cost.importance and tuple(shard for shard in cost.importance if shard[0] < layers and shard[1] < slices)
    comp_s = {length: seconds[:slices] for length, seconds in cost.comp_s.items()}
    return replace(cost, geometry=geometry, comp_s=comp_s, importance=kept)
