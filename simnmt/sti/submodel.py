"""Which layers and slices are executed: the largest submodel that can be computed within the deadline (STI-02, STI-10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.sti.errors import PlanError
from simnmt.sti.timeline import ROUNDING


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


def submodel(
    cost: StiCost, layers: int, slices: int, *, length: int, importance: Sequence[Shard] | None, steps: float = 1.0
) -> Submodel:
    """Return the bottom layers with the most important slices of each, by `importance`, best first; without it, the first (D).

    Raises `PlanError` for fewer than one layer or slice, more than the model has, and an order that lacks shards, repeats one
    or names another model's.
    """
    for name, count, most in (("layers", layers, cost.geometry.layers), ("slices of a layer", slices, cost.geometry.heads)):
        if not 1 <= count <= most:
            raise PlanError(f"a submodel of {count} {name}", remedy=f"give 1 to {most}")
    indices = [*range(layers), *(cost.geometry.layers + j for j in range(decoder_layers(cost, layers)))]
    ranked: dict[int, list[int]] = {index: [] for index in indices}
    check_ranks(cost, importance)
    for layer, piece in cost.all_shards() if importance is None else importance:
        if layer in ranked:
            ranked[layer].append(piece)
    if any(len(pieces) < slices for pieces in ranked.values()):
        raise PlanError("an importance that does not rank every shard", remedy="measure it with simnmt sti profile --task")
    shards = tuple((index, piece) for index in indices for piece in sorted(ranked[index][:slices]))
    return Submodel(layers, slices, shards, work_of(cost, layers, slices, length=length, steps=steps))


def check_ranks(cost: StiCost, importance: Sequence[Shard] | None) -> None:
    """Raise `PlanError` for an order that ranks a shard twice, or one that the model does not have."""
    if importance is None or importance is cost.importance:  # the cost has checked its own
        return
    remedy = "measure it with simnmt sti profile --task"
    ranked = set(importance)
    if len(ranked) < len(importance):
        layer, piece = next(shard for shard in importance if importance.count(shard) > 1)
        raise PlanError(f"importance: shard {piece} of layer {layer} is ranked twice", remedy=remedy)
    if unknown := ranked.difference(cost.all_shards()):
        layer, piece = min(unknown)
        raise PlanError(f"importance: the model has no shard {piece} of layer {layer}", remedy=remedy)
