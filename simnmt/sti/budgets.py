"""Accumulated IO budgets: how long a layer and all below it may read without anything having to wait (STI-11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simnmt.costs.sti_cost import StiCost
from simnmt.sti.plan import Plan, loads_s
from simnmt.sti.submodel import work_of
from simnmt.sti.timeline import Column


def accumulated_budgets(bonus_s: float, comp_s: ArrayLike, spent_s: ArrayLike) -> Column:
    """AIB of each layer: the bonus and all computing before it, less the reading of it and of all layers before it (STI-11).

    `comp_s`, `spent_s`: of shape (layers,); what is preloaded is spent as well, which cancels the bonus. Never below zero: the
    plan is valid.
    """
    comp, spent = np.asarray(comp_s, np.float64), np.asarray(spent_s, np.float64)
    return bonus_s + np.concatenate([[0.0], np.cumsum(comp)[:-1]]) - np.cumsum(spent)


def budgets_of(plan: Plan, cost: StiCost) -> tuple[Column, Column]:
    """Accumulated IO budgets of each executed layer: what the preloaded shards and the computing grant, and what is left of it.

    Below zero: the layer's loads are late (STI-11). Where reads slow computing, it grants what it takes beside them.
    """
    work = work_of(cost, plan.layers, plan.slices_per_layer, length=plan.length)
    bonus_s = sum(cost.t_io(plan.bits[shard], shard[0]) for shard in plan.preloaded)
    comp_s = work.slowed * np.asarray(work.comp_s)
    granted = accumulated_budgets(work.slowed * work.before_s + bonus_s, comp_s, np.zeros(len(comp_s)))
    return granted, granted - np.cumsum(loads_s(cost, plan.bits, frozenset()))
