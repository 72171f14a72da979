"""Bits for each shard by accumulated IO budgets: a uniform pass, then one in order of importance (STI-11, STI-13, STI-14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf

import numpy as np

from simnmt.costs.shard_geometry import BITS
from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.sti.submodel import Submodel, Work
from simnmt.sti.timeline import ROUNDING, timeline

Bits = dict[Shard, int]


def allocated(
    cost: StiCost,
    chosen: Submodel,
    preload_bytes: int,
    *,
    cached: Mapping[Shard, int] | None = None,
    importance: Sequence[Shard] | None = None,
    whole_shards: bool = False,
    may_wait_s: float = 0.0,
    deadline_s: float = inf,
) -> tuple[Bits, bool]:
    """Bits of every shard in layer order, and whether not even 2 bits could be loaded in time.

    `cached`: the buffer's true contents, which keep their bits; None: the buffer will be filled as planned, and its capacity
    counts as time: that of reading so many bytes of the planned shards from the first on, the last of them in part, which is
    optimistic by less than one shard (STI-15). `whole_shards`: only those shards that fit whole count.
    `may_wait_s`: how long the pipeline may wait in all; the paper's may not. Where reads slow computing, what is computed ahead
    of a layer gives its loads so much more time; and no shard gets bits that make all of it end beyond `deadline_s`, or beyond
    what it takes with 2 bits.
    """
    bits = {shard: BITS[0] if cached is None else cached.get(shard, BITS[0]) for shard in chosen.shards}
    free = [shard for shard in chosen.shards if cached is None or shard not in cached]
    held = frozenset(chosen.shards) - set(free)
    capacity_bytes = preload_bytes if cached is None else 0
    loads = _loading(cost, chosen, capacity_bytes, held, whole_shards)
    in_time = _in_time(chosen.work, may_wait_s, max(deadline_s, _end_s(chosen.work, list(loads(bits)))))

    def valid(changed: Mapping[Shard, int]) -> bool:
        return in_time(loads(changed))

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


def read_in_time(cost: StiCost, chosen: Submodel, bits: Mapping[Shard, int], held: frozenset[Shard], deadline_s: float) -> bool:
    """Whether computing that those bits' reads slow, but do not hold up, ends by the deadline."""
    *_, read_s = _loading(cost, chosen, 0, held, True)(bits)
    return chosen.work.total_s + read_s * (1.0 - 1.0 / chosen.work.slowed) <= deadline_s * (1.0 + ROUNDING)


def _loading(
    cost: StiCost, chosen: Submodel, capacity_bytes: int, held: frozenset[Shard], whole_shards: bool
) -> Callable[[Mapping[Shard, int]], Iterator[float]]:
    """When each layer's remaining loads end, one layer after the other, by bits.

    What is preloaded is left out of the loads, not granted as a bonus: where it is a prefix, both are the same, and where it is
    not, a bonus for layers yet to come would hide the stall of those before (STI-12).
    """

    def loaded_s(bits: Mapping[Shard, int]) -> Iterator[float]:
        room, loading_s, at = capacity_bytes, 0.0, chosen.shards[0][0]
        for shard, width in bits.items():
            layer = shard[0]
            if layer != at:
                yield loading_s
                at = layer
            if shard in held:
                continue
            size = cost.bytes_of(width, layer)
            if room >= size:
                room -= size
                continue
            loading_s += cost.t_io(width, layer) * (1.0 if whole_shards else 1.0 - room / size)
            room = 0
        yield loading_s

    return loaded_s


def _in_time(work: Work, may_wait_s: float, limit_s: float) -> Callable[[Iterator[float]], bool]:
    """Whether no layer's remaining loads last longer than what is computed before it and what may be waited.

    A layer's loads end before those of the last layer do, so that all that is computed before it is slowed if anything is, and
    the longest that any layer's loads last beyond it is how long the pipeline waits in all: `timeline`'s stall.
    """
    before = [work.slowed * done_s for done_s in accumulate(work.comp_s, initial=work.before_s)]
    slack_s = may_wait_s + ROUNDING * before[-1] / work.slowed

    def valid(loaded_s: Iterator[float]) -> bool:
        known_s = []
        for ready_s, layer_s in zip(before, loaded_s, strict=False):
            if layer_s > ready_s + slack_s:
                return False
            known_s.append(layer_s)
        return work.slowed == 1.0 or _end_s(work, known_s) <= limit_s * (1.0 + ROUNDING)

    return valid


def _end_s(work: Work, loaded_s: Sequence[float]) -> float:
    """When all is computed: `timeline`'s latency."""
    return timeline(np.diff(loaded_s, prepend=0.0), work.comp_s, work.after_s, work.slowed, before_s=work.before_s).latency_s
