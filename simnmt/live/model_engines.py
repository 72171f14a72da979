"""The engines of several models on one box, of which memory may not hold all: one process for each model that is loaded.

`simnmt.batching.model_memory` decides what is loaded and evicted, as on a simulated box. A request whose model is not in memory
waits until that is loaded, others do not. `simnmt.batching.ModelBatcher` decides which of those that are ready are executed
next; sentences of two models never are at once.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from math import inf
from typing import Any

import psutil

from simnmt.base.errors import InputError
from simnmt.batching import Batching, Encode
from simnmt.batching.batcher import ModelBatcher
from simnmt.batching.model_memory import ModelCopy, ModelMemory
from simnmt.batching.slots import SlotLimits
from simnmt.live.engine import EngineSettings, Result, TextCodec
from simnmt.live.engine_process import EngineProcess
from simnmt.nmt.engine import BACKENDS
from simnmt.nmt.source_lines import SourceLine
from simnmt.service.messages import ServiceError


def private_bytes(process: EngineProcess) -> int:
    """Return the memory that a process shares with no other, and that its end frees."""
    return int(psutil.Process(process.pid).memory_full_info().uss)


class Turns:
    """The order of the sentences of several models in one box, which a `ModelBatcher` decides as on a simulated box.

    Sentences wait for company here, so that another model executes meanwhile; an engine takes what it is sent at once.
    """

    def __init__(self, batching: Batching, models: Iterable[str]) -> None:
        self._models = {model: number for number, model in enumerate(models)}
        self._batcher = ModelBatcher(batching, len(self._models))
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """By sentence that is not sent yet, the future that it awaits."""
        self._src_len: dict[int, int] = {}
        """Source tokens of all sentences here."""
        self._active: set[int] = set()
        """Sentences that have joined the batch."""
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        """Asks for the next move when the oldest sentence has waited long enough for company."""

    def __len__(self) -> int:
        """Return the number of sentences that are not sent yet."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, model: str, src_len: int, rank: int = 0) -> AsyncIterator[None]:
        """Wait until a sentence of a model and of a class may be executed."""
        number, turn = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number], self._src_len[number] = turn, src_len
        self._batcher.arrive(number, src_len, time.monotonic(), self._models[model], rank)
        self._move()
        try:
            await turn
            yield
        finally:
            del self._src_len[number]
            self._waiting.pop(number, None)
            self._active.discard(number)
            self._batcher.withdraw(number)
            self._move()

    def _move(self) -> None:
        now_s, active = time.monotonic(), self._active
        while move := self._batcher.next(len(active), now_s, max((self._src_len[number] for number in active), default=0)):
            if isinstance(move, Encode):
                for turn in map(self._waiting.pop, move.requests):
                    if not turn.cancelled():
                        turn.set_result(None)
            else:
                active.update(move.requests)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not active and (wait_s := self._batcher.due_s - now_s) < inf:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._move)


class ModelEngines:
    """The engines of a server of several models, as `EngineProcess` is that of one."""

    alive = True
    """An engine that dies is started again, while the others serve."""

    def __init__(
        self,
        models: Mapping[str, EngineSettings],
        memory_bytes: int | None = None,
        size_bytes: Mapping[Hashable, int] | None = None,
    ) -> None:
        """Prepare the engines.

        Args:
            models: settings by name, with one batching for all.
            memory_bytes: for all models together; None: all stay loaded.
            size_bytes: of models as a scenario states them; of the others, what their processes take.
        """
        batching = next(iter(models.values())).batching
        if isinstance(batching, SlotLimits):
            raise InputError("slots are for a server of one model", remedy="give another --batching, or one --model")
        self.models, self._memory_bytes = models, memory_bytes
        self._context = multiprocessing.get_context("forkserver")
        self.on_reference: Callable[[float, float], None] = lambda at_s, execution_s: None
        self.on_error: Callable[[str], None] = lambda text: None
        self.on_load: Callable[[str], None] = lambda model: None
        """Called with the name of a model when its load begins."""
        self.hashes: dict[str, str] = {}
        """Hash of the engine of each model."""
        self._codecs: dict[str, TextCodec] = {}
        self._size_bytes = dict(size_bytes or {})
        self._memory: ModelMemory
        self._processes: dict[ModelCopy, EngineProcess] = {}
        self._loaded: dict[ModelCopy, asyncio.Future[None]] = {}
        """By copy that is not loaded yet, the future that its sentences await."""
        self._load_task: asyncio.Task[None] | None = None
        """The load under way, or the last one."""
        self._batching, self._turns = batching, Turns(batching, models)
        self._closing, self.waiting = False, 0

    async def ready(self) -> Mapping[str, str]:
        """Load each model once, one after another, to learn its size, unless a service before this one has done so.

        Returns the hash of the engine of each model.

        Raises `InputError` for a memory that is too small, and as `EngineProcess.ready`.
        """
        if self.hashes:
            return self.hashes
        # Processes are copies of one that has imported the libraries of the engines, which takes seconds.
        backends = {settings.backend for settings in self.models.values() if settings.loader is None}
        libraries = [BACKENDS[backend].partition(":")[0] for backend in backends if backend in BACKENDS]
        modules = (*libraries, "ruamel.yaml", "simnmt.calibrate.profile_assembly", "simnmt.live.engine")
        self._context.set_forkserver_preload([*modules])
        for model in self.models:
            self._processes[ModelCopy(model)] = process = self._new_process(model)
            await process.ready()
            self.hashes[model], self._codecs[model] = process.block.hash, process.codec
            self._size_bytes.setdefault(model, private_bytes(process))
            if self._memory_bytes is not None:
                await process.close()
                self._processes.clear()
        sizes, memory_bytes = self._size_bytes, self._memory_bytes
        largest = max(sizes, key=sizes.__getitem__)
        if memory_bytes is not None and sizes[largest] > memory_bytes:
            what = f"{memory_bytes / 1e9:g} GB of memory, where {largest} takes {sizes[largest] / 1e9:.3g} GB"
            raise InputError(what, remedy="give a larger --memory-gb, or leave it out so that all models stay loaded")
        limit = (sum(sizes.values()), "never") if memory_bytes is None else (memory_bytes,)
        self._memory = ModelMemory(sizes, *limit)
        for first in list(self._processes):  # all models, which stay
            copy, _ = self._memory.enter(first.model)
            self._memory.ended(copy)
            self._processes[copy] = self._processes.pop(first)
        return self.hashes

    def _new_process(self, model: str) -> EngineProcess:
        settings = self.models[model]
        batching = replace(self._batching, longest_wait_s=0.0)  # sentences wait for company in `Turns`
        process = EngineProcess(replace(settings, batching=batching), self._context)
        process.on_error = lambda text: self.on_error(f"{model}: {text}")
        process.on_reference = lambda at_s, execution_s: self.on_reference(at_s, execution_s)
        return process

    def line(self, text: str, model: str) -> SourceLine:
        """Return a text as a source line of a model; see `EngineProcess.line`."""
        return self._codecs[model].line(text)

    async def execute(
        self,
        line: SourceLine,
        forced_len: int | None = None,
        began: Callable[[float], None] | None = None,
        model: str = "",
        rank: int = 0,
    ) -> Result:
        """Decode a line; see `EngineProcess.execute`. Raises `ServiceError` also when the engines are closed."""
        if self._closing:
            raise ServiceError(503, "the service ends")
        entered_s, (copy, is_hit) = time.monotonic(), self._memory.enter(model)
        self.waiting += 1
        if not is_hit:
            self._loaded[copy] = asyncio.get_running_loop().create_future()
        self._begin_load()
        try:
            if not copy.is_loaded:
                await asyncio.shield(self._loaded[copy])
            async with self._turns.turn(model, len(line.ids), rank):
                waited_s = time.monotonic() - entered_s
                result = await self._processes[copy].execute(line, forced_len, began, rank=rank)
            left_active, left_waiting = result.report
            result.queue_s, result.report = waited_s + result.queue_s, (left_active, left_waiting + len(self._turns))
            result.model_load = not is_hit
            return result
        finally:
            self.waiting -= 1
            self._memory.ended(copy)
            self._begin_load()

    def _begin_load(self) -> None:
        if not self._closing and (copy := self._memory.next_load()) is not None:
            self._load_task = asyncio.get_running_loop().create_task(self._load(copy))

    async def _load(self, copy: ModelCopy) -> None:
        """End the processes whose memory the model takes, and load it; without success, its process is started again later."""
        self.on_load(copy.model)
        self._processes[copy] = process = self._new_process(copy.model)
        try:
            for evicted in copy.evicts:
                await self._processes[evicted].close()
                del self._processes[evicted]
            await process.ready()
        except Exception as error:  # whatever fails here, the loads of other models go on
            self.on_error(f"{copy.model} could not be loaded: {error}")
            process.start_later()
        self._memory.loaded(copy)
        self._loaded.pop(copy).set_result(None)
        self._begin_load()

    def describe(self) -> Mapping[str, Any]:
        """Return what clients may know of the models."""
        in_memory = [copy.model for copy in self._processes if copy.is_loaded]
        models = {
            model: {"bytes": size_bytes, "in_memory": model in in_memory} for model, size_bytes in self._size_bytes.items()
        }
        facts = {"engine_hashes": self.hashes, "models": models, "memory_bytes": self._memory_bytes}
        return {**facts, "waiting": self.waiting, "task": "translation"}

    async def close(self) -> None:
        """End all processes; sentences that are still waited for fail."""
        self._closing = True
        if self._load_task is not None:
            self._load_task.cancel()
            await asyncio.gather(self._load_task, return_exceptions=True)
        for loaded in self._loaded.values():
            loaded.set_exception(ServiceError(503, "the service ends"))
            loaded.exception()  # a load that nobody awaits any more is no error
        self._loaded.clear()
        await asyncio.gather(*(process.close() for process in self._processes.values()))
