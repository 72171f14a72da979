"""Bits for each shard by accumulated IO budgets: a uniform pass, then one in order of importance (STI-11, STI-13, STI-14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.shard_geometry import BITS
from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.sti.submodel import Submodel
from simnmt.sti.timeline import ROUNDING

Bits = dict[Shard, int]


def accumulated_budgets(bonus_s: float, comp_s: ArrayLike, spent_s: ArrayLike) -> NDArray[np.float64]:
    """AIB of each layer: the bonus and all computing before it, less the reading of it and of all layers before it (STI-11).

    `comp_s`, `spent_s`: of shape (layers,); what is preloaded is spent as well, which cancels the bonus. Never below zero: the
    plan is valid.
    """
    comp, spent = np.asarray(comp_s, np.float64), np.asarray(spent_s, np.float64)
    return bonus_s + np.concatenate([[0.0], np.cumsum(comp)[:-1]]) - np.cumsum(spent)


def allocated(
    cost: StiCost,
    chosen: Submodel,
    preload_bytes: int,
    *,
    cached: Mapping[Shard, int] | None = None,
    importance: Sequence[Shard] | None = None,
    whole_shards: bool = False,
    may_wait_s: float = 0.0,
) -> tuple[Bits, bool]:
    """Bits of every shard in layer order, and whether not even 2 bits could be loaded in time.

    `cached`: the buffer's true contents, which keep their bits; None: the buffer will be filled as planned, and its capacity
    counts as time: that of reading so many bytes of the planned shards from the first on, the last of them in part, which is
    optimistic by less than one shard (STI-15). `whole_shards`: only those shards that fit whole count.
    `may_wait_s`: how long the pipeline may wait in all; the paper's may not.
    """
    bits = {shard: BITS[0] if cached is None else cached.get(shard, BITS[0]) for shard in chosen.shards}
    free = [shard for shard in chosen.shards if cached is None or shard not in cached]
    held = frozenset(chosen.shards) - set(free)
    valid = _validity(cost, chosen, preload_bytes if cached is None else 0, held, whole_shards, may_wait_s)
    uniform = [width for width in BITS if valid(bits | dict.fromkeys(free, width))]
    if not uniform:
        return bits, True
    bits |= dict.fromkeys(free, max(uniform))
    may_change = set(free)
    for shard in chosen.shards if importance is None else importance:
        if shard not in may_change:
            continue
        for width in reversed(BITS):
            if width <= bits[shard]:
                break
            if valid(bits | {shard: width}):
                bits[shard] = width
                break
    return bits, False


def _validity(
    cost: StiCost, chosen: Submodel, capacity_bytes: int, held: frozenset[Shard], whole_shards: bool, may_wait_s: float
) -> Callable[[Mapping[Shard, int]], bool]:
    """Whether no layer's remaining loads last longer than what is computed before it and what may be waited.

    A pipeline ends at the latest of all layers' loads, each followed by all computing from its layer on, so that both together
    bound its end.

    What is preloaded is left out of the loads, not granted as a bonus: where it is a prefix, both are the same, and where it is
    not, a bonus for layers yet to come would hide the stall of those before (STI-12).
    """
    position = {layer: k for k, layer in enumerate(chosen.layer_indices)}
    before = list(accumulate(chosen.work.comp_s, initial=chosen.work.before_s))
    slack_s = may_wait_s + ROUNDING * before[-1]

    def valid(bits: Mapping[Shard, int]) -> bool:
        room, loading_s, at = capacity_bytes, 0.0, 0
        for shard, width in bits.items():
            layer = shard[0]
            if position[layer] != at:
                if loading_s > before[at] + slack_s:
                    return False
                at = position[layer]
            if shard in held:
                continue
            size = cost.bytes_of(width, layer)
            if room >= size:
                room -= size
                continue
            loading_s += cost.t_io(width, layer) * (1.0 if whole_shards else 1.0 - room / size)
            room = 0
        return loading_s <= before[at] + slack_s

    return valid
