"""The memory of a box decides as an independent LRU cache, and loads a model when its memory is free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.batching.model_memory import ModelCopy, ModelMemory
from tests.model_cache import lru


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 10), st.data())
def test_hits_and_evictions_are_those_of_a_cache_and_memory_is_never_overfull(
    sizes: list[int], spare: int, data: st.DataObject
) -> None:
    """Whatever the order in which entries, ends of loads and ends of requests come."""
    capacity = max(sizes) + spare
    memory = ModelMemory(dict(enumerate(sizes)), capacity)
    entries, outcomes = list[int](), list[tuple[bool, list[int]]]()
    copies, pending, loads = list[ModelCopy](), list[ModelCopy](), list[ModelCopy]()
    present, loading = set[ModelCopy](), None
    for _ in range(data.draw(st.integers(0, 60))):
        move = data.draw(st.sampled_from(["enter", "enter", "loaded", "ended"]))
        executing = [copy for copy in copies if copy.is_loaded]
        if move == "enter":
            model = data.draw(st.integers(0, len(sizes) - 1))
            loads_until = memory.loads_until(model)
            copy, is_hit = memory.enter(model)
            pending += [] if is_hit else [copy]
            to_load = [other for other in pending if not other.is_loaded]
            expected = [] if copy.is_loaded else [other.model for other in to_load[: to_load.index(copy) + 1]]
            assert memory.loads_until(model) == loads_until == expected
            entries.append(model)
            outcomes.append((is_hit, [] if is_hit else [evicted.model for evicted in copy.evicts]))
            copies.append(copy)
        elif move == "loaded" and loading is not None:
            memory.loaded(loading)
            loading = None
        elif move == "ended" and executing:
            copies.remove(ended := data.draw(st.sampled_from(executing)))
            memory.ended(ended)
        if (copy := memory.next_load()) is not None:
            assert loading is None
            assert not any(evicted in copies for evicted in copy.evicts)
            loading = copy
            loads.append(copy)
            present = (present - set(copy.evicts)) | {copy}
            assert sum(sizes[model] for model in (other.model for other in present)) <= capacity
        assert all(copy in present for copy in copies if copy.is_loaded)
    assert outcomes == lru(dict(enumerate(sizes)), capacity, entries)
    asked = [model for model, (is_hit, _) in zip(entries, outcomes, strict=True) if not is_hit]
    assert [copy.model for copy in loads] == asked[: len(loads)], "loads are in the order in which they were asked for"
    while copies:  # nothing waits for ever
        loading = loading or memory.next_load()
        if loading is not None:
            memory.loaded(loading)
        loading, executing = None, [copy for copy in copies if copy.is_loaded]
        assert executing or any(copy.requests for copy in copies)
        for copy in executing:
            copies.remove(copy)
            memory.ended(copy)


def test_models_that_are_never_evicted_are_loaded_from_the_start() -> None:
    memory = ModelMemory({"a": 1, "b": 2}, 3, "never")
    for model in ("a", "b", "a"):
        copy, is_hit = memory.enter(model)
        assert is_hit and copy.is_loaded
    assert memory.next_load() is None


@pytest.mark.parametrize(("capacity", "evict"), [(1, "lru"), (2, "never")])
def test_models_that_do_not_fit_are_refused(capacity: int, evict: str) -> None:
    with pytest.raises(ValueError, match="fit"):
        ModelMemory({"a": 1, "b": 2}, capacity, evict)  # type: ignore[arg-type]
