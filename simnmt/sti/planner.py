"""An app's models with deadlines and preload buffers: planned once, executed often, replanned on change (STI-17, STI-18)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.sti.buffer import bytes_held, evicted
from simnmt.sti.errors import PlanError
from simnmt.sti.plan import Plan, check, planned


@dataclass(slots=True)
class _Declared:
    cost: StiCost
    length: int
    steps: float
    deadline_s: float
    preload_bytes: int
    plan: Plan
    contents: dict[Shard, int]
    plans: int = 1


@dataclass(slots=True)
class Planner:
    """Plans and buffers, one of each for every model; only a changed deadline or buffer makes a new plan.

    A change plans with what the buffer truly holds, which keeps its bits; the first plan fills the buffer as it likes.
    """

    _models: dict[str, _Declared] = field(default_factory=dict)

    def declare(
        self, model: str, cost: StiCost, deadline_s: float, preload_bytes: int, *, length: int, steps: float = 1.0
    ) -> Plan:
        """A model's first plan; its preloaded shards are in the buffer from now on. Raises `PlanError`: a known name too."""
        if model in self._models:
            raise PlanError(f"{model} is declared already", remedy="change its deadline or buffer instead")
        plan = planned(cost, deadline_s, preload_bytes, length=length, steps=steps)
        contents = {shard: plan.bits[shard] for shard in plan.bits if shard in plan.preloaded}
        self._models[model] = _Declared(cost, length, steps, deadline_s, preload_bytes, plan, contents)
        return plan

    def plan(self, model: str) -> Plan:
        """The one to execute."""
        return self._of(model).plan

    def plans_made(self, model: str) -> int:
        """1 and one for each change since (STI-18)."""
        return self._of(model).plans

    def contents(self, model: str) -> Mapping[Shard, int]:
        """What the buffer holds, in bits."""
        return dict(self._of(model).contents)

    def held_bytes(self) -> int:
        """In all buffers together."""
        return sum(bytes_held(each.cost, each.contents) for each in self._models.values())

    def change(self, model: str, *, deadline_s: float | None = None, preload_bytes: int | None = None) -> Plan:
        """Another deadline or buffer between executions; a smaller buffer loses its top layers' shards at once."""
        own = self._of(model)
        deadline_s = own.deadline_s if deadline_s is None else deadline_s
        preload_bytes = own.preload_bytes if preload_bytes is None else preload_bytes
        check(deadline_s, preload_bytes)
        if (deadline_s, preload_bytes) != (own.deadline_s, own.preload_bytes):
            contents = evicted(own.cost, own.contents, preload_bytes)
            own.plan = planned(own.cost, deadline_s, preload_bytes, length=own.length, cached=contents, steps=own.steps)
            own.contents, own.deadline_s, own.preload_bytes = contents, deadline_s, preload_bytes
            own.plans += 1
        return own.plan

    def executed(self, model: str, *, deadline_s: float | None = None, preload_bytes: int | None = None) -> Plan:
        """The plan has been executed: its shards are in memory, and are evicted until they fit the buffer, or the new one."""
        own = self._of(model)
        capacity = own.preload_bytes if preload_bytes is None else preload_bytes
        check(own.deadline_s, capacity)
        own.contents = evicted(own.cost, own.contents | dict(own.plan.bits), capacity)
        return self.change(model, deadline_s=deadline_s, preload_bytes=preload_bytes)

    def _of(self, model: str) -> _Declared:
        if model not in self._models:
            raise PlanError(f"no model {model} is declared", remedy="declare it first")
        return self._models[model]
