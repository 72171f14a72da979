"""The models in the memory of one box: which are there, which are evicted, and which load may begin. Pure: no clock, no files.

The simulated boxes and the live server keep the same object. Requests enter in their order, and the memory decides at once, as
a cache that evicts the least recently used model would by the order of the requests alone.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Evict = Literal["lru", "never"]
"""Which model makes room: the least recently used one, or none."""


@dataclass(slots=True, eq=False)
class ModelCopy:
    """A model in memory, from the request that asks for its load until it is evicted and its last request has ended."""

    model: Any
    evicts: tuple[ModelCopy, ...] = ()
    """The copies whose memory its load takes; the load begins when their requests have ended. Empty once it is loaded."""
    is_loaded: bool = False
    requests: int = 0
    """Requests that have entered and have not ended."""


class Admission(NamedTuple):
    """What the memory decides for a request that enters."""

    copy: ModelCopy
    is_hit: bool
    """False if the request asks for the load of its model."""


class ModelMemory:
    """The memory of one box. Raises `ValueError` for models that do not fit.

    The disk loads one model after another, in the order in which requests ask for them. Ask for the `next_load` after each
    `enter`, `loaded` and `ended`.

    Example:
        >>> memory = ModelMemory({"de": 2, "fr": 2}, capacity_bytes=3)
        >>> copy, is_hit = memory.enter("de")
        >>> is_hit, memory.next_load() is copy
        (False, True)
        >>> memory.loaded(copy)
        >>> memory.enter("fr").copy.evicts == (copy,), memory.next_load() is None
        (True, True)
        >>> memory.ended(copy)
        >>> memory.next_load().model
        'fr'
    """

    def __init__(self, size_bytes: Mapping[Hashable, int], capacity_bytes: int, evict: Evict = "lru") -> None:
        """`size_bytes`: of each model. `evict` never: all models are loaded from the start and stay."""
        needed_bytes = sum(size_bytes.values()) if evict == "never" else max(size_bytes.values())
        if needed_bytes > capacity_bytes:
            raise ValueError(f"{needed_bytes:,} bytes do not fit into {capacity_bytes:,}")
        self._size_bytes, self._free_bytes = size_bytes, capacity_bytes
        self._copies: OrderedDict[Hashable, ModelCopy] = OrderedDict()
        """By model, least recently used first."""
        self._loads: deque[ModelCopy] = deque()
        """Those that have not begun."""
        self._loading: ModelCopy | None = None
        if evict == "never":
            self._copies.update((model, ModelCopy(model, is_loaded=True)) for model in size_bytes)

    def enter(self, model: Hashable) -> Admission:
        """Let a request enter; call `ended` with its copy when it ends, which it can only after the copy is loaded."""
        copy = self._copies.get(model)
        is_hit = copy is not None
        if copy is None:
            copy = ModelCopy(model, tuple(self._make_room(self._size_bytes[model])))
            self._copies[model] = copy
            self._loads.append(copy)
        self._copies.move_to_end(model)
        copy.requests += 1
        return Admission(copy, is_hit)

    def lacks(self, model: Hashable) -> bool:
        """Return True if a request of a model that entered now would ask for its load."""
        return model not in self._copies

    def _make_room(self, size_bytes: int) -> Iterator[ModelCopy]:
        self._free_bytes -= size_bytes
        while self._free_bytes < 0:
            _, evicted = self._copies.popitem(last=False)
            self._free_bytes += self._size_bytes[evicted.model]
            yield evicted

    def next_load(self) -> ModelCopy | None:
        """Return the copy whose load begins now; None if none waits, the disk is busy, or memory is still in use.

        Before it is loaded, its `evicts` are to be removed from memory.
        """
        if self._loading is not None or not self._loads or any(evicted.requests for evicted in self._loads[0].evicts):
            return None
        self._loading = self._loads.popleft()
        return self._loading

    def loaded(self, copy: ModelCopy) -> None:
        """Note that the load that began last has ended: the requests of the copy may begin."""
        copy.is_loaded, copy.evicts, self._loading = True, (), None

    def ended(self, copy: ModelCopy) -> None:
        """Note that a request of a copy has ended."""
        copy.requests -= 1

    def loads_until(self, *models: Hashable) -> list[Any]:
        """Return the models that are loaded before a request of `models` that entered now could begin, in their order.

        The first may be under way. Empty if all of them are loaded.
        """
        copies = {model: self._copies.get(model) for model in models}
        loads = [*self._loads] if self._loading is None else [self._loading, *self._loads]
        absent = [model for model, copy in copies.items() if copy is None]
        if not absent:
            waits = [loads.index(copy) + 1 for copy in copies.values() if copy is not None and not copy.is_loaded]
            loads = loads[: max(waits, default=0)]
        return [*(load.model for load in loads), *absent]
