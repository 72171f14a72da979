"""The two planning stages: choose a submodel, then allocate bits to its shards.

The submodel is the largest that can be computed within the deadline (STI-02, STI-10). Bits are allocated within accumulated
IO budgets: a uniform pass, then a pass in order of importance (STI-11, STI-13, STI-14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

import numpy as np

from simnmt.base.errors import InputError
from simnmt.profile.streaming_block import BITS, Shard, StiCost
from simnmt.streaming.plan.timeline import ROUNDING, Work, timeline


class PlanError(InputError):
    """A deadline, a buffer or a model for which no plan exists."""


@dataclass(frozen=True, slots=True)
class Submodel:
    """The bottom layers of a model, and the same number of slices of each."""

    layers: int
    slices_per_layer: int
    shards: tuple[Shard, ...]
    """In layer order, and in slice order within a layer."""
    length: int
    steps: float
    work: Work


def decoder_layers(cost: StiCost, layers: int) -> int:
    """Return how many decoder layers go with `layers` of the encoder: the same share, rounded up; 0 without a decoder (D)."""
    return 0 if cost.decoder is None else -(-layers * cost.decoder.geometry.layers // cost.geometry.layers)


def work_of(cost: StiCost, layers: int, slices: int, *, length: int, steps: float = 1.0) -> Work:
    """Return the computing times of a submodel for `length` tokens and `steps` decoder steps, at least one."""
    decoding = decoder_layers(cost, layers)
    step_s, of_steps = cost.step_s(slices), max(steps, 1.0) if decoding else 1.0
    comp_s = [cost.t_comp(length, slices)] * layers + [cost.once_s(slices) + step_s] * decoding
    after_s = of_steps * cost.head_s + (of_steps - 1.0) * decoding * step_s
    return Work(comp_s, after_s, cost.slowing(slices), cost.t_embed(length))


def sizes(cost: StiCost) -> list[tuple[int, int]]:
    """Return all pairs of layers and slices per layer, by falling number of shards; the deeper of two alike comes first."""
    every = [(n, m) for n in range(1, cost.geometry.layers + 1) for m in range(1, cost.geometry.heads + 1)]
    return sorted(every, key=lambda size: (-shards_in(cost, *size), -size[0]))


def shards_in(cost: StiCost, layers: int, slices: int) -> int:
    return (layers + decoder_layers(cost, layers)) * slices


def chosen_size(
    cost: StiCost,
    deadline_s: float,
    *,
    length: int,
    similar: float = 0.0,
    steps: float = 1.0,
    fits: Callable[[int, int], bool] = lambda layers, slices: True,
) -> tuple[int, int]:
    """Return layers and slices per layer of the largest submodel that is computed in time; (1, 1) if there is none.

    Among the submodels that have at most the share `similar` fewer shards than the largest, the deepest is chosen, then the
    widest; 0 means an exact tie (D). `fits`: further condition on layers and slices.
    """
    limit_s = deadline_s * (1.0 + ROUNDING)
    in_time = (size for size in sizes(cost) if work_of(cost, *size, length=length, steps=steps).total_s <= limit_s)
    fitting = [size for size in in_time if fits(*size)]
    if not fitting:
        return 1, 1
    least = (1.0 - similar) * shards_in(cost, *fitting[0]) - ROUNDING
    return max(size for size in fitting if shards_in(cost, *size) >= least)


def submodel(cost: StiCost, layers: int, slices: int, *, length: int, steps: float = 1.0) -> Submodel:
    """Return the bottom layers with the most important slices of each; without importance, the first slices (D)."""
    indices = [*range(layers), *(cost.geometry.layers + j for j in range(decoder_layers(cost, layers)))]
    ranked: dict[int, list[int]] = {index: [] for index in indices}
    for layer, piece in cost.importance or cost.all_shards():
        if layer in ranked:
            ranked[layer].append(piece)
    shards = tuple((index, piece) for index in indices for piece in sorted(ranked[index][:slices]))
    return Submodel(layers, slices, shards, length, steps, work_of(cost, layers, slices, length=length, steps=steps))


def allocate_bits(
    cost: StiCost,
    chosen: Submodel,
    preload_bytes: int,
    *,
    cached: Mapping[Shard, int] | None = None,
    whole_shards: bool = False,
    may_wait_s: float = 0.0,
    deadline_s: float = inf,
) -> tuple[dict[Shard, int], bool]:
    """Return the bits of every shard in layer order, and whether even 2 bits everywhere are loaded too late.

    Where reads slow computing, the longer computing before a layer gives more time for its loads, but no shard gets bits with
    which the execution ends later than both `deadline_s` and the execution with 2 bits.

    `cached`: true contents of the buffer, which keep their bits. None: the buffer will be filled as planned, and its capacity
    counts as the time of reading that many bytes of the planned shards, from the first on; the last shard may count in part,
    which is optimistic by less than one shard (STI-15), unless `whole_shards`. `may_wait_s`: seconds that the pipeline may wait
    in all; 0 in the paper.
    """
    bits = {shard: BITS[0] if cached is None else cached.get(shard, BITS[0]) for shard in chosen.shards}
    free = [shard for shard in chosen.shards if cached is None or shard not in cached]
    held = frozenset(chosen.shards) - set(free)
    loads = _loading(cost, chosen, preload_bytes if cached is None else 0, held, whole_shards)
    in_time = _in_time(chosen.work, may_wait_s, max(deadline_s, _end_s(chosen.work, list(loads(bits)))))
    uniform = [width for width in BITS if in_time(loads(bits | dict.fromkeys(free, width)))]
    if not uniform:
        return bits, True
    bits |= dict.fromkeys(free, max(uniform))
    may_change = set(free)
    for shard in cost.importance or chosen.shards:
        if shard in may_change:
            larger = (width for width in reversed(BITS) if width > bits[shard])
            bits[shard] = next((width for width in larger if in_time(loads(bits | {shard: width}))), bits[shard])
    return bits, False


def read_in_time(cost: StiCost, chosen: Submodel, bits: Mapping[Shard, int], held: frozenset[Shard], deadline_s: float) -> bool:
    """Return whether the execution ends by the deadline if its reads slow computing but never hold it up."""
    *_, read_s = _loading(cost, chosen, 0, held, True)(bits)
    return chosen.work.total_s + read_s * (1.0 - 1.0 / chosen.work.slowed) <= deadline_s * (1.0 + ROUNDING)


def _loading(
    cost: StiCost, chosen: Submodel, capacity_bytes: int, held: frozenset[Shard], whole_shards: bool
) -> Callable[[Mapping[Shard, int]], Iterator[float]]:
    """Return a function of the bits that yields when the remaining loads of each layer end.

    Preloaded shards are left out of the loads instead of being granted as a bonus. For a prefix both are the same; otherwise a
    bonus for later layers would hide the stalls of earlier ones (STI-12).
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
    """Return a check that no layer's loads last longer than the computing before it and `may_wait_s` allow.

    A layer's loads end before those of the last layer, so all computing before it is slowed if any is. The largest excess of
    any layer's loads over that computing is the total wait of the pipeline: the stall of `timeline`.
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
    return timeline(np.diff(loaded_s, prepend=0.0), work).latency_s
