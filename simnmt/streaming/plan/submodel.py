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
from simnmt.profile.streaming_cost import BITS, Shard, StiCost
from simnmt.streaming.plan.timeline import ROUNDING, timeline


class PlanError(InputError):
    """A deadline, a buffer or a model that no plan can be made of."""


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds of computing, nothing to be read: ahead of the layers, of each layer, and behind them."""

    before_s: float
    """The embedding."""
    comp_s: tuple[float, ...]
    """Of each executed layer; a decoder's for its first step and for what it does once a request."""
    after_s: float
    """The head, and a decoder's later steps."""
    slowed: float
    """Times as long that all of it takes while the disk reads."""

    @property
    def total_s(self) -> float:
        """In memory."""
        return self.before_s + sum(self.comp_s) + self.after_s


@dataclass(frozen=True, slots=True)
class Submodel:
    """The bottom layers and some slices of each."""

    layers: int
    """Of the encoder."""
    slices_per_layer: int
    shards: tuple[Shard, ...]
    """In layer order, and in slice order within a layer."""
    length: int
    """Padded source tokens."""
    steps: float
    """Decoder steps."""
    work: Work

    @property
    def layer_indices(self) -> tuple[int, ...]:
        """In the order of execution."""
        return tuple(dict.fromkeys(layer for layer, _ in self.shards))


def decoder_layers(cost: StiCost, layers: int) -> int:
    """How many decoder layers go with so many of the encoder: the same share, rounded up; none without a decoder (D)."""
    return 0 if cost.decoder is None else -(-layers * cost.decoder.geometry.layers // cost.geometry.layers)


def work_of(cost: StiCost, layers: int, slices: int, *, length: int, steps: float = 1.0) -> Work:
    """What a submodel computes over `length` tokens and so many decoder steps, one at least."""
    decoding = decoder_layers(cost, layers)
    step_s, of_steps = cost.step_s(slices), max(steps, 1.0) if decoding else 1.0
    comp_s = (*[cost.t_comp(length, slices)] * layers, *[cost.once_s(slices) + step_s] * decoding)
    return Work(
        cost.t_embed(length), comp_s, of_steps * cost.head_s + (of_steps - 1.0) * decoding * step_s, cost.slowing(slices)
    )


def compute_s(cost: StiCost, layers: int, slices: int, *, length: int, steps: float = 1.0) -> float:
    """Seconds to compute a submodel that is in memory, embedding and head included."""
    return work_of(cost, layers, slices, length=length, steps=steps).total_s


def sizes(cost: StiCost) -> Iterator[tuple[int, int]]:
    """All numbers of layers and of slices a layer, the one with the most shards first, the deeper of two alike first."""
    every = [(n, m) for n in range(1, cost.geometry.layers + 1) for m in range(1, cost.geometry.heads + 1)]
    yield from sorted(every, key=lambda size: (-shards_in(cost, *size), -size[0]))


def shards_in(cost: StiCost, layers: int, slices: int) -> int:
    """Of encoder and decoder together."""
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
    """Layers and slices of the submodel with the most shards that can be computed in time; (1, 1) where none can.

    Of submodels that lack at most the share `similar` of the most shards, the deepest (D: 0, an exact tie), then the widest.
    `fits`: what else is asked of one.
    """
    limit_s = deadline_s * (1.0 + ROUNDING)
    in_time = (size for size in sizes(cost) if compute_s(cost, *size, length=length, steps=steps) <= limit_s)
    fitting = [size for size in in_time if fits(*size)]
    if not fitting:
        return 1, 1
    least = (1.0 - similar) * shards_in(cost, *fitting[0]) - ROUNDING
    return max(size for size in fitting if shards_in(cost, *size) >= least)


def submodel(cost: StiCost, layers: int, slices: int, *, length: int, steps: float = 1.0) -> Submodel:
    """Return the bottom layers with the most important slices of each; without importance, the first slices (D).

    Raises `PlanError` for fewer than one layer or slice, and for more than the model has.
    """
    for name, count, most in (("layers", layers, cost.geometry.layers), ("slices of a layer", slices, cost.geometry.heads)):
        if not 1 <= count <= most:
            raise PlanError(f"a submodel of {count} {name}", remedy=f"give 1 to {most}")
    indices = [*range(layers), *(cost.geometry.layers + j for j in range(decoder_layers(cost, layers)))]
    ranked: dict[int, list[int]] = {index: [] for index in indices}
    for layer, piece in cost.importance or cost.all_shards():
        if layer in ranked:
            ranked[layer].append(piece)
    shards = tuple((index, piece) for index in indices for piece in sorted(ranked[index][:slices]))
    return Submodel(layers, slices, shards, length, steps, work_of(cost, layers, slices, length=length, steps=steps))


Bits = dict[Shard, int]


def allocate_bits(
    cost: StiCost,
    chosen: Submodel,
    preload_bytes: int,
    *,
    cached: Mapping[Shard, int] | None = None,
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
    for shard in cost.importance or chosen.shards:
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
