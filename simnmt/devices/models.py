"""Boxes of several models, not all of which fit into memory: the settings, the loads of a box, and first-in first-out boxes.

A request whose model is not in memory waits until that is loaded; others do not. Requests that are ready are executed first in,
first out, by the moment from which they are. `batching/model_memory.py` decides what is loaded and evicted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import simpy
from numpy.typing import NDArray
from typing_extensions import Self

from simnmt.batching.model_memory import Evict, ModelCopy, ModelMemory
from simnmt.devices.device import LOADED, Arrival, Balancer, ByNode, Clock, Execution, Kind, numbers
from simnmt.devices.fifo import FifoBox
from simnmt.policies.views import StateView
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

    def __post_init__(self) -> None:
        self.memory()
        if len(self.load_s) != len(self.size_bytes):
            raise ValueError(f"loads of {len(self.load_s)} models, sizes of {len(self.size_bytes)}")

    @property
    def loads(self) -> bool:
        """True if models are loaded while requests wait."""
        return self.evict != "never"

    def memory(self) -> ModelMemory:
        """Return the memory of a box before its first request."""
        return ModelMemory(dict(enumerate(self.size_bytes)), self.memory_bytes, self.evict)

    def of_requests(self, workload: Array | None, count: int) -> NDArray[np.int64]:
        """Return the model of each of `count` requests; `workload`: their column `model`."""
        models: NDArray[np.int64] = np.asarray(self.of_workload)[np.zeros(count, np.int64) if workload is None else workload]
        return models


@dataclass(frozen=True, slots=True)
class ModelFifo:
    """Boxes with `workers` each that load the models of their requests."""

    models: Models
    boxes: int = 1
    workers: int = 1
    balancer: Balancer = field(default_factory=ByNode)

    name: ClassVar[str] = "models"
    needs_tgt_len: ClassVar[bool] = False
    records: ClassVar[frozenset[str]] = frozenset(MODEL_COLUMNS)
    reports_at_end: ClassVar[bool] = False

    @classmethod
    def of_device(cls, boxes: int, workers: int, balancer: Balancer, settings: Kind | None) -> ModelFifo:
        """Return the boxes of a device with these settings."""
        assert isinstance(settings, ModelFifo)
        return replace(settings, boxes=boxes, workers=workers, balancer=balancer)

    def of(self, boxes: int, balancer: Balancer | None = None) -> Self:
        """Return so many boxes behind a balancer."""
        return replace(self, boxes=boxes, balancer=balancer or ByNode())

    def device(self, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> ModelFifoDevice:
        """Return the boxes of one run, before their first request."""
        return ModelFifoDevice(self, clock, target, requests, trail, first_box)


class ModelLoader:
    """The memory of one box and its disk; requests wait here until their model is loaded."""

    def __init__(self, clock: Clock, models: Models, number: int) -> None:
        """`number`: of the box among all on the clock."""
        self._clock, self._number, self._load_s = clock, number, models.load_s
        self._memory = models.memory()
        self._ready: dict[ModelCopy, simpy.Event] = {}
        """Ends of the loads for which requests wait, by copy."""
        self._ends_s: float | None = None
        """When the load ends that is under way."""

    def load(self, execution: Execution, model: int, trail: Recorder) -> Generator[simpy.Event, Any, ModelCopy]:
        """Let a request that enters wait until its model is loaded; return the copy, for `ended`."""
        copy, is_hit = self._memory.enter(model)
        trail["model_load"][execution.request] = not is_hit
        self._begin_load()
        if not copy.is_loaded:
            yield self._ready.setdefault(copy, self._clock.event())
        trail["load_wait_s"][execution.request] = self._clock.now - execution.entry_s
        return copy

    def ended(self, copy: ModelCopy) -> None:
        """Note that a request of a copy has ended."""
        self._memory.ended(copy)
        self._begin_load()

    def _begin_load(self) -> None:
        copy = self._memory.next_load()
        if copy is not None:
            self._ends_s = self._clock.now + self._load_s[copy.model]
            self._clock.process(self._end_load(copy, self._ends_s))

    def _end_load(self, copy: ModelCopy, ends_s: float) -> Generator[simpy.Event, Any, None]:
        yield self._clock.moment(ends_s, LOADED, self._number)
        self._memory.loaded(copy)
        self._ends_s = None
        self._ready.pop(copy).succeed()
        self._begin_load()

    def left_s(self, model: int) -> float:
        """Return the seconds of the loads before a request that entered now could begin; waits for memory are not foreseen."""
        loads_s = [self._load_s[load] for load in self._memory.loads_until(model)]
        if loads_s and self._ends_s is not None:
            loads_s[0] = self._ends_s - self._clock.now
        return float(sum(loads_s))


class ModelFifoBox:
    """The workers of one box and their queue, behind its loads."""

    idle_since_s = wasted_s = 0.0

    def __init__(self, clock: Clock, kind: ModelFifo, number: int) -> None:
        self.loader, self.workers = ModelLoader(clock, kind.models, number), FifoBox(clock, kind.workers)

    def work_left(self, now_s: float) -> float:
        """Return the seconds until a request could start whose model is loaded."""
        return self.workers.work_left(now_s)


class ModelFifoDevice:
    """The boxes of one target. A balancer that compares boxes ignores their memories."""

    def __init__(self, kind: ModelFifo, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> None:
        self._clock, self._trail, self._balancer = clock, trail, kind.balancer.copy()
        self._model = numbers(kind.models.of_requests(requests.model, len(requests)))
        self._execution_s = numbers(requests.execution_s[target])
        self.boxes = [ModelFifoBox(clock, kind, first_box + number) for number in range(kind.boxes)]

    def enter(self, execution: Execution) -> None:
        """Let a request enter a box."""
        execution.box = self._balancer.choose(self.boxes, execution.entry_s, execution.request, execution.node)
        self._clock.process(self._execute(execution, self.boxes[execution.box]))

    def _execute(self, execution: Execution, box: ModelFifoBox) -> Generator[simpy.Event, Any, None]:
        copy = yield from box.loader.load(execution, self._model[execution.request], self._trail)
        yield from box.workers.execute(execution, self._execution_s[execution.request])
        box.loader.ended(copy)

    def wait_s(self, arrivals: Sequence[Arrival]) -> float:
        """Return the wait of the last arrival as if it entered now: its loads, or the work that is ready if that takes longer.

        No number is exact: requests that wait for their models are not counted, and loads may wait for memory.
        """
        (_, request, node), now_s = arrivals[-1], self._clock.now
        box = self.boxes[self._balancer.copy().choose(self.boxes, now_s, request, node)]
        return max(box.work_left(now_s), box.loader.left_s(self._model[request]))

    def work_of(self, execution: Execution) -> float:
        """Return the seconds of an execution that has ended."""
        return execution.finish_s - execution.begin_s

    def state_view(self, box: int) -> StateView | None:
        """Return None: what is loaded is not reported."""
        return None

    def close(self) -> bool:
        """Return False: nothing waits for company."""
        return False

    def account(self) -> None:
        """Return None: the columns of the run hold everything."""
        return
