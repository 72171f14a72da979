"""A cache of models that an independent program evicts from, least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TypeVar

Model = TypeVar("Model")


def lru(sizes: Mapping[Model, int], capacity: int, entries: Iterable[Model]) -> list[tuple[bool, list[Model]]]:
    """Whether each entry is a hit, and what it evicts."""
    held: OrderedDict[Model, None] = OrderedDict()
    outcomes = []
    for model in entries:
        is_hit, evicted = model in held, list[Model]()
        held[model] = None
        held.move_to_end(model)
        while sum(sizes[other] for other in held) > capacity:
            evicted.append(held.popitem(last=False)[0])
        outcomes.append((is_hit, evicted))
    return outcomes


def misses(sizes: Mapping[Model, int], capacity: int, entries: Iterable[Model]) -> list[bool]:
    """Whether each entry asks for the load of its model."""
    return [not is_hit for is_hit, _ in lru(sizes, capacity, entries)]
