"""Models of a target, not all of which fit into the memory of a box: the settings, and the loads of one run.

A request whose model is not in memory waits until that is loaded; others do not. `batching/model_memory.py` decides what is
loaded and evicted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from simnmt.batching.model_memory import Evict, ModelCopy, ModelMemory
from simnmt.devices.device import LOADED, Clock, Execution, Process, numbers
from simnmt.results.columns import MODEL_COLUMNS, Array, Recorder
from simnmt.results.requests import Block


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a target, and the memory of each of its boxes. Raises `ValueError` for models that do not fit."""

    of_workload: tuple[int, ...]
    """The model of each workload, by the numbers in `Requests.model`; workloads may share one."""
    size_bytes: tuple[int, ...]
    """By model, as the following."""
    load_s: tuple[float, ...]
    memory_bytes: int
    evict: Evict = "lru"
    second_of_workload: tuple[int, ...] = ()
    """The second model of each workload that pivots, such as en-fr of de -> en -> fr, and -1 for others; empty if none does."""

    def __post_init__(self) -> None:
        self.memory()
        if len(self.load_s) != len(self.size_bytes):
            raise ValueError(f"loads of {len(self.load_s)} models, sizes of {len(self.size_bytes)}")

    @property
    def records(self) -> frozenset[str]:
        """Optional columns of its requests."""
        return frozenset(MODEL_COLUMNS) if self.loads else frozenset()

    @property
    def loads(self) -> bool:
        """True if models are loaded while requests wait."""
        return self.evict != "never"

    def memory(self) -> ModelMemory:
        """Return the memory of a box before its first request."""
        return ModelMemory(dict(enumerate(self.size_bytes)), self.memory_bytes, self.evict)

    def of_requests(self, workload: Array | None, count: int) -> NDArray[np.int64]:
        """Return the model of each of `count` requests, the first one of those that pivot; `workload`: their column `model`."""
        models: NDArray[np.int64] = np.asarray(self.of_workload)[np.zeros(count, np.int64) if workload is None else workload]
        return models

    def by_workload(self) -> list[tuple[int, ...]]:
        """Return the models that a request of each workload needs at once: two if it pivots, else one."""
        seconds = self.second_of_workload or (-1,) * len(self.of_workload)
        return [(one,) if second < 0 else (one, second) for one, second in zip(self.of_workload, seconds, strict=True)]


class Loads:
    """The models of the requests of one run, and the memory and the disk of each box."""

    def __init__(self, clock: Clock, models: Models, requests: Block, trail: Recorder, boxes: int, first_box: int) -> None:
        """`first_box`: number of the first one among all on the clock."""
        self._workload = [0] * len(requests) if requests.model is None else numbers(requests.model)
        self._models, self._trail = models.by_workload(), trail
        self._disks = [_Disk(clock, models, first_box + number) for number in range(boxes)]
        self._copies: dict[int, list[ModelCopy]] = {}
        """By request that has entered and has not ended."""

    def load(self, execution: Execution) -> Process:
        """Let a request that enters a box wait until its models are loaded."""
        request, disk = execution.request, self._disks[execution.box]
        models = self._models[self._workload[request]]
        # What is in memory enters first, so that the load of the other model of a pivot does not evict it.
        entered = {model: disk.memory.enter(model) for model in sorted(models, key=disk.memory.lacks)}
        self._copies[request] = [entered[model].copy for model in models]
        self._trail["model_load"][request] = sum((not entered[model].is_hit) << bit for bit, model in enumerate(models))
        disk.begin_load()
        if loads := disk.memory.loads_until(*models):
            last = self._copies[request][models.index(loads[-1])]
            yield disk.ready.setdefault(last, disk.clock.event())
        self._trail["load_wait_s"][request] = disk.clock.now - execution.entry_s

    def ended(self, execution: Execution) -> None:
        """Note that a request has ended."""
        disk = self._disks[execution.box]
        for copy in self._copies.pop(execution.request):
            disk.memory.ended(copy)
        disk.begin_load()

    def left_s(self, request: int, box: int) -> float:
        """Return the seconds of the loads before a request that entered a box now could begin; waits for memory are not
        foreseen."""
        return self._disks[box].left_s(self._models[self._workload[request]])


class _Disk:
    """The memory of one box, and its loads."""

    def __init__(self, clock: Clock, models: Models, number: int) -> None:
        self.clock, self._number, self._load_s, self.memory = clock, number, models.load_s, models.memory()
        self.ready: dict[ModelCopy, simpy.Event] = {}
        """Ends of the loads for which requests wait, by copy."""
        self._ends_s: float | None = None
        """When the load ends that is under way."""

    def begin_load(self) -> None:
        """Let the next load begin, if one waits and can."""
        copy = self.memory.next_load()
        if copy is not None:
            self._ends_s = self.clock.now + self._load_s[copy.model]
            self.clock.process(self._end_load(copy, self._ends_s))

    def _end_load(self, copy: ModelCopy, ends_s: float) -> Process:
        yield self.clock.moment(ends_s, LOADED, self._number)
        self.memory.loaded(copy)
        self._ends_s = None
        if copy in self.ready:  # requests that pivot wait for the later one of two loads
            self.ready.pop(copy).succeed()
        self.begin_load()

    def left_s(self, models: tuple[int, ...]) -> float:
        loads_s = [self._load_s[load] for load in self.memory.loads_until(*models)]
        if loads_s and self._ends_s is not None:
            loads_s[0] = min(loads_s[0], self._ends_s - self.clock.now)
        return float(sum(loads_s))
