"""A running service without a clock: an event loop whose time jumps to the next timer, and a service with stated noise."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from simnmt.calibrate.endpoint_apis import Reply
from tests.calibrate.endpoint_stub import FIXED_S, SRC_S, TGT_S, translation


class _NoWaiting(selectors.DefaultSelector):
    """Moves the time of its loop where another would wait."""

    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits, and no timer is set"
        self.loop.now_s += timeout
        return super().select(0.0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop without a clock."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        selector = _NoWaiting()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


def run_simulated(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a loop without a clock."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


@dataclass(frozen=True, slots=True)
class Noise:
    """What disturbs a simulated service and the box of its load generator; all times in seconds."""

    workers: int = 3
    busy: bool = False
    """Whether other programs use the processors of the box."""
    pace: float = 1.0
    """Factor of the service's times."""
    http_s: float = 0.0004
    """What HTTP adds to a request."""
    echo_s: float = 0.0004
    """An echo, without noise."""
    relative: float = 0.005
    """Standard deviation of an execution."""
    jitter_s: float = 0.0
    """Mean by which each way to the service and back takes longer."""
    late_s: float = 0.0
    """Mean by which an execution ends late."""
    outliers: float = 0.0
    """Share of the executions that take four times as long."""
    stall_share: float = 0.0
    """Share of the requests after whose sending the load generator stalls."""
    stall_s: float = 0.0
    """Mean length of a stall of the generator."""
    frozen_share: float = 0.0
    """Share of the executions during which the whole service freezes."""
    frozen_s: float = 0.0


class SimulatedService:
    """Executes up to `workers` sentences side by side, as the stub does, in the time of the loop."""

    echo_name, remarks = "GET /languages", ()

    def __init__(self, noise: Noise, seed: int) -> None:
        self.client: Any = nullcontext()
        self.asked = 0
        self._noise, self._random = noise, np.random.default_rng(seed)
        self._free = asyncio.Semaphore(noise.workers)
        self._frozen_until_s = 0.0

    async def check(self) -> bool:
        return True

    async def echo(self) -> float:
        begin_s = self._now_s()
        for _ in range(2):
            await self._sleep(0.5 * self._noise.echo_s, self._noise.jitter_s)
        return self._now_s() - begin_s

    async def ask(self, text: str) -> Reply:
        noise, random = self._noise, self._random
        self.asked += 1
        sent_s = self._now_s()
        if random.random() < noise.stall_share:
            self._loop().now_s += random.exponential(noise.stall_s)  # nothing else runs meanwhile
        await self._sleep(0.5 * noise.http_s, noise.jitter_s)
        async with self._free:
            answer = translation(text)
            work_s = noise.pace * (FIXED_S + SRC_S * len(text.split()) + TGT_S * len(answer.split()))
            work_s *= max(random.normal(1.0, noise.relative), 0.1) * (4.0 if random.random() < noise.outliers else 1.0)
            if random.random() < noise.frozen_share:
                self._frozen_until_s = self._now_s() + random.exponential(noise.frozen_s)
            await self._sleep(work_s, noise.late_s)
            if self._frozen_until_s > self._now_s():
                await self._sleep(self._frozen_until_s - self._now_s(), 0.0)
        await self._sleep(0.5 * noise.http_s, noise.jitter_s)
        return Reply(sent_s, self._now_s(), answer)

    async def _sleep(self, seconds: float, mean_late_s: float) -> None:
        await asyncio.sleep(seconds + self._random.exponential(mean_late_s))

    def _loop(self) -> SimulatedLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        return loop

    def _now_s(self) -> float:
        return self._loop().now_s
