"""Each way of running a model under a deadline, as what a study keeps of it (STI-10 to 15, 19)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simnmt.calibrate.sti_study.document import Method
from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.sti.baselines import in_memory, load_and_execute, standard_pipeline
from simnmt.sti.memory import memory_of
from simnmt.sti.plan import Plan, loads_s, made, planned
from simnmt.sti.submodel import submodel

PLANNED: tuple[Method, ...] = ("STI", "STI, waiting")
"""Ways with a preload buffer."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A way's submodel, and what its timeline says."""

    method: Method
    plan: Plan
    preload_share: float | None
    """|S|, of all shards in float32; None: the way has none."""
    held_bytes: int
    working_bytes: int
    load_s: tuple[float, ...]
    comp_s: float
    """Of each layer."""

    @property
    def bits(self) -> Mapping[Shard, int]:
        """Of every planned shard."""
        return self.plan.bits


def layers_bytes(cost: StiCost) -> int:
    """Of all shards in float32."""
    return cost.geometry.layers * cost.geometry.float32_bytes_per_layer


def chosen(method: Method, cost: StiCost, deadline_s: float, preload_share: float | None, length: int) -> Chosen:
    """The way's own choice; where none ends in time, one shard of one layer, which is late.

    `preload_share`: for `PLANNED` alone.
    """
    plan = _plan(method, cost, deadline_s, preload_share, length)
    memory = memory_of(cost, plan, whole=method.startswith("PreloadModel"), in_turn=method == "Load&Exec")
    # What lies in float32 already is computed where it lies.
    working = 0 if method == "PreloadModel-32" else memory.working_bytes
    return Chosen(
        method,
        plan,
        preload_share if method in PLANNED else None,
        memory.preload_bytes,
        working,
        tuple(loads_s(cost, plan.bits, plan.preloaded)),
        cost.t_comp(length, plan.slices_per_layer),
    )


def _plan(method: Method, cost: StiCost, deadline_s: float, preload_share: float | None, length: int) -> Plan:
    if method in PLANNED:
        preload_bytes = round((preload_share or 0.0) * layers_bytes(cost))
        return planned(cost, deadline_s, preload_bytes, length=length, fills_deadline=method != "STI")
    if method == "Load&Exec":
        return load_and_execute(cost, deadline_s, length=length)
    bits = int(method.rpartition("-")[2])
    if method.startswith("PreloadModel"):
        return in_memory(cost, deadline_s, bits, length=length)
    found = standard_pipeline(cost, deadline_s, bits, length=length)
    if found is not None:
        return found
    least = submodel(cost, 1, 1, length=length, importance=cost.importance)
    return made(cost, least, dict.fromkeys(least.shards, bits), frozenset(), deadline_s, 0, length=length)
