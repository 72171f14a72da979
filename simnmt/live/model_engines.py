"""The engines of several models on one box, of which memory may not hold all: one process for each model that is loaded.

`simnmt.batching.model_memory` decides what is loaded and evicted, as on a simulated box. A request whose model is not in memory
waits until that is loaded, others do not; those that are ready are executed in the order in which they became so, and sentences
of two models never at once.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import takewhile
from typing import Any

import psutil

from simnmt.base.errors import InputError, SimnmtError
from simnmt.batching.model_memory import ModelCopy, ModelMemory
from simnmt.live.engine import EngineSettings, Execution, Reference, TextCodec
from simnmt.live.engine_process import EngineProcess
from simnmt.nmt.engine import BACKENDS
from simnmt.nmt.source_lines import SourceLine


def private_bytes(process: EngineProcess) -> int:
    """Return the memory that a process shares with no other, and that its end frees."""
    return int(psutil.Process(process.pid).memory_full_info().uss)


class Turns:
    """The order of the sentences of several models in one box: first in, first out, and one model at a time.

    A batch begins with the model of the sentence that waits longest, and with all waiting sentences of that model for which it
    has room. Others join while the sentence that waits longest is of that model.
    """

    def __init__(self, size: int) -> None:
        """`size`: most sentences of a batch."""
        self._size = size
        self._waiting: list[tuple[ModelCopy, asyncio.Future[None]]] = []
        self._copy: ModelCopy | None = None
        """The model whose sentences are executed."""
        self._executed = 0

    def __len__(self) -> int:
        """Return the number of sentences that wait for another model's."""
        return len(self._waiting)

    @asynccontextmanager
    async def of(self, copy: ModelCopy) -> AsyncIterator[None]:
        """Wait until sentences of a model may be executed; those that came later wait for this one."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((copy, turn))
        self._begin()
        try:
            await turn
            yield
        finally:
            self._executed -= not turn.cancelled()
            self._begin()

    def _begin(self) -> None:
        waiting = [(copy, turn) for copy, turn in self._waiting if not turn.cancelled()]
        if not self._executed and waiting:
            self._copy = waiting[0][0]
            company = [first for first in waiting if first[0] is self._copy][: self._size]
            waiting = [*company, *(later for later in waiting if later not in company)]
        begins = list(takewhile(lambda first: first[0] is self._copy, waiting))
        self._waiting = waiting[len(begins) :]
        self._executed += len(begins)
        for _, turn in begins:
            turn.set_result(None)


class ModelEngines:
    """The engines of a server of several models, as `EngineProcess` is that of one."""

    alive = True
    """An engine that dies is started again, while the others serve."""

    def __init__(
        self,
        models: Mapping[str, EngineSettings],
        memory_bytes: int | None = None,
        size_bytes: Mapping[Hashable, int] | None = None,
        expected_hashes: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the engines.

        Args:
            models: settings by name.
            memory_bytes: for all models together; None: all stay loaded.
            size_bytes: of models as a scenario states them; of the others, what their processes take.
            expected_hashes: of the engines that must run, by model; others may be any.
        """
        self.models, self._memory_bytes, self.expected_hashes = models, memory_bytes, expected_hashes or {}
        self._context = multiprocessing.get_context("forkserver")
        self.on_reference: Callable[[Reference], None] = lambda reference: None
        self.on_error: Callable[[str], None] = lambda text: None
        self.on_load: Callable[[str], None] = lambda model: None
        """Called with the name of a model when its load begins."""
        self.hashes: dict[str, str] = {}
        """Of the engine of each model."""
        self._codecs: dict[str, TextCodec] = {}
        self._size_bytes = dict(size_bytes or {})
        self._memory: ModelMemory
        self._processes: dict[ModelCopy, EngineProcess] = {}
        self._loaded: dict[ModelCopy, asyncio.Future[None]] = {}
        """Of each model that is not loaded yet what its sentences wait for."""
        self._load: asyncio.Task[None] | None = None
        """The load under way, or the last one."""
        self._turns = Turns(max(settings.batching.size for settings in models.values()))
        self._hurried, self.waiting = False, 0

    async def ready(self) -> None:
        """Load each model once, one after another, to learn its size, unless a service before this one has done so.

        Raises `InputError` for a memory that is too small, `NmtError` for a model that cannot be loaded.
        """
        if self.hashes:
            return
        # Processes are copies of one that has imported the libraries of the engines, which takes seconds.
        backends = {settings.backend for settings in self.models.values() if settings.loader is None}
        libraries = [BACKENDS[backend].partition(":")[0] for backend in backends if backend in BACKENDS]
        modules = (*libraries, "ruamel.yaml", "simnmt.calibrate.profile_assembly", "simnmt.live.engine")
        self._context.set_forkserver_preload([*modules])
        for model in self.models:
            self._processes[ModelCopy(model)] = process = self._new_process(model)
            await process.start()
            self.hashes[model], self._codecs[model] = process.block.hash, process.codec
            self._size_bytes.setdefault(model, private_bytes(process))
            if self._memory_bytes is not None:
                self._processes.clear()
                await process.close()
        self._memory = self._new_memory()
        for first in list(self._processes):  # all models, which stay
            copy, _ = self._memory.enter(first.model)
            self._memory.ended(copy)
            self._processes[copy] = self._processes.pop(first)

    def _new_process(self, model: str) -> EngineProcess:
        process = EngineProcess(self.models[model], self._context)
        process.on_error = lambda text: self.on_error(f"{model}: {text}")
        process.on_reference = lambda reference: self.on_reference(reference)
        return process

    def _new_memory(self) -> ModelMemory:
        """Return the memory. Raises `InputError` if it is too small for a model."""
        if self._memory_bytes is None:
            return ModelMemory(self._size_bytes, sum(self._size_bytes.values()), "never")
        model, size_bytes = max(self._size_bytes.items(), key=lambda item: item[1])
        if size_bytes > self._memory_bytes:
            what = f"{self._memory_bytes / 1e9:g} GB of memory, where {model} takes {size_bytes / 1e9:.3g} GB"
            raise InputError(what, remedy="give a larger --memory-gb, or leave it out so that all models stay loaded")
        return ModelMemory(self._size_bytes, self._memory_bytes)

    def line(self, model: str, text: str) -> SourceLine:
        """Return a text as a source line of a model; see `EngineProcess.line`."""
        return self._codecs[model].line(text)

    async def execute(self, model: str, line: SourceLine, forced_len: int | None = None) -> tuple[Execution, float, bool]:
        """Decode a line; return its execution, when it entered, and whether it asked for the load of its model.

        Raises `ServiceError` as `EngineProcess.execute` does.
        """
        entered_s, (copy, is_hit) = time.monotonic(), self._memory.enter(model)
        self.waiting += 1
        if not is_hit:
            self._loaded[copy] = asyncio.get_running_loop().create_future()
        self._begin_load()
        try:
            if not copy.is_loaded:
                await asyncio.shield(self._loaded[copy])
            async with self._turns.of(copy):
                execution, _ = await self._processes[copy].execute(line, forced_len)
            return replace(execution, left_waiting=execution.left_waiting + len(self._turns)), entered_s, not is_hit
        finally:
            self.waiting -= 1
            self._memory.ended(copy)
            self._begin_load()

    def _begin_load(self) -> None:
        if (copy := self._memory.next_load()) is not None:
            self._load = asyncio.get_running_loop().create_task(self._load_model(copy))

    async def _load_model(self, copy: ModelCopy) -> None:
        """End the processes whose memory the model takes, and load it; without success, its process is started again later."""
        self.on_load(copy.model)
        for evicted in copy.evicts:
            await self._processes.pop(evicted).close()
        self._processes[copy] = process = self._new_process(copy.model)
        try:
            await process.start()
        except (SimnmtError, OSError) as error:
            self.on_error(f"{copy.model} could not be loaded: {error}")
            process.start_later()
        if self._hurried:
            process.hurry()
        self._memory.loaded(copy)
        self._loaded.pop(copy).set_result(None)
        self._begin_load()

    def describe(self) -> Mapping[str, Any]:
        """Return what clients may know of the models."""
        in_memory = [copy.model for copy in self._processes]
        models = {
            model: {"bytes": size_bytes, "in_memory": model in in_memory} for model, size_bytes in self._size_bytes.items()
        }
        facts = {"engine_hashes": self.hashes, "models": models, "memory_bytes": self._memory_bytes}
        return {**facts, "waiting": self.waiting, "task": "translation"}

    def hurry(self) -> None:
        """Let no sentence wait for company from now on, since the service ends."""
        self._hurried = True
        for process in self._processes.values():
            process.hurry()

    async def close(self) -> None:
        """End all processes."""
        if self._load is not None:
            self._load.cancel()
            await asyncio.gather(self._load, return_exceptions=True)
        await asyncio.gather(*(process.close() for process in self._processes.values()))
