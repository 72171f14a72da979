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
    """What disturbs a simulated service; all times in seconds."""

    http_s: float = 0.0004
    """What HTTP adds to a request."""
    echo_s: float = 0.0004
    """An echo, without noise."""
    relative: float = 0.005
    """Standard deviation of an execution."""
    jitter_s: float = 0.0
    """Mean by which each way to the service and back takes longer."""


class SimulatedService:
    """Executes a sentence in the time of the loop."""

    echo_name, remarks = "GET /languages", ()

    def __init__(self, noise: Noise, seed: int) -> None:
        self.client: Any = nullcontext()
        self._noise, self._random = noise, np.random.default_rng(seed)

    async def check(self) -> bool:
        return True

    async def echo(self) -> float:
        begin_s = self._now_s()
        for _ in range(2):
            await self._sleep(0.5 * self._noise.echo_s)
        return self._now_s() - begin_s

    async def ask(self, text: str) -> Reply:
        sent_s = self._now_s()
        await self._sleep(0.5 * self._noise.http_s)
        answer = translation(text)
        work_s = FIXED_S + SRC_S * len(text.split()) + TGT_S * len(answer.split())
        await asyncio.sleep(work_s * max(self._random.normal(1.0, self._noise.relative), 0.1))
        await self._sleep(0.5 * self._noise.http_s)
        return Reply(sent_s, self._now_s(), answer)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds + self._random.exponential(self._noise.jitter_s))

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
