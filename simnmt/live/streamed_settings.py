"""How a live engine streams its model: costs, deadline, buffers, and the states of its memory; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from simnmt.profile.blocks import EngineBlock
from simnmt.profile.streaming_cost import StiCost
from simnmt.streaming.plan.engagement import Lifecycle, engagement
from simnmt.streaming.plan.submodel import PlanError

BACKEND = "sti"
"""Backend of an engine that streams its model."""


@dataclass(frozen=True, slots=True)
class StreamedSettings:
    """How a live engine streams its model."""

    cost: StiCost
    """Costs that plans are made with, of the profile's block `sti`."""
    deadline_s: float
    preload_bytes: int
    """Memory for shards between engagements."""
    length: int
    """Padded tokens of the plans."""
    lifecycle: Lifecycle
    """By which idle time the box loses which memory; its last state is that of the planned engagement."""
    cache_bytes: int | None = None
    """Memory for shards within an engagement; None: `preload_bytes`."""
    pace_bytes_per_s: float | None = None
    """Pace of the reads; None for the pace of the disk."""
    similar: float = 0.0
    """Share of the most shards that a deeper submodel may lack."""
    fills_deadline: bool = False
    """True if the pipeline may wait for reads within the deadline, beyond the paper."""
    reads_resident: bool = True
    """True if a cold start also reads what is in no shard: embeddings, norms, head."""
    fingerprint: str | None = None
    """Fingerprint of the profiled model, which the store must have; None if unknown."""

    def engine_block(self, fingerprint: str, **fields: Any) -> EngineBlock:
        """Return what executes a model of this fingerprint; its hash covers the model, the deadline and the memory."""
        plan = {"deadline_s": self.deadline_s, "preload_bytes": self.preload_bytes, "length": self.length}
        cache_bytes = max(self.preload_bytes, self.cache_bytes or 0)
        architecture = {"kind": "streamed encoder", "fingerprint": fingerprint, "cache_bytes": cache_bytes} | plan
        return EngineBlock(backend=BACKEND, compute_type="float32", device="cpu", architecture=architecture, **fields)


def streamed_settings(
    cost: StiCost,
    *,
    engagement_gap_s: float = 30.0,
    reclaimed_after_s: float = inf,
    keeps_preload: bool = True,
    length: int | None = None,
    **others: Any,
) -> StreamedSettings:
    """Return the settings, with the states of the engagement that a planner finds.

    Args:
        cost: of the profile.
        engagement_gap_s, reclaimed_after_s, keeps_preload: see `Lifecycle`.
        length: padded tokens of the plans; None for the greatest that the profile has.
        others: further fields of `StreamedSettings`.

    Raises `PlanError` for a deadline that no submodel meets, and for settings that no plan has.
    """
    if reclaimed_after_s < engagement_gap_s:
        what = f"memory reclaimed after {reclaimed_after_s:g} s ends engagements before their gap of {engagement_gap_s:g} s"
        raise PlanError(what, remedy="give as much or more, or a shorter gap")
    length = max(cost.comp_s) if length is None else length
    settings = StreamedSettings(cost, length=length, lifecycle=Lifecycle(1, 0.0), **others)
    planned = engagement(
        cost,
        settings.deadline_s,
        settings.preload_bytes,
        settings.cache_bytes,
        length=length,
        similar=settings.similar,
        fills_deadline=settings.fills_deadline,
    )
    first = planned.plans[0]
    if first.misses_deadline:
        what = f"no submodel ends within {1e3 * settings.deadline_s:g} ms: the smallest takes {1e3 * first.latency_s:.3g} ms"
        raise PlanError(what, remedy="give a longer deadline")
    lifecycle = Lifecycle(len(planned.states) - 1, engagement_gap_s, reclaimed_after_s, keeps_preload)
    return StreamedSettings(cost, length=length, lifecycle=lifecycle, **others)


def describe_states(settings: StreamedSettings) -> dict[str, Any]:
    """Return the states of the memory and their idle times, as JSON; an infinite time is null."""
    lifecycle = settings.lifecycle
    times_s = {"engagement_gap_s": lifecycle.engagement_gap_s, "reclaimed_after_s": lifecycle.reclaimed_after_s}
    finite = {name: None if seconds == inf else seconds for name, seconds in times_s.items()}
    return {"states": lifecycle.last + 1, "keeps_preload": lifecycle.keeps_preload} | finite
