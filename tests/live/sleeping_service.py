"""A live service without a model: it answers each request after a known time, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from simnmt.live.server import Front, FrontSettings, Result, Task
from simnmt.service.http_server import Access, Limits, Metrics
from simnmt.service.messages import ServiceError

GATEWAY: Mapping[str, Any] = {"service": "gateway", "policy": "cnmt", "servers": {"cloud": "ok"}}


@dataclass
class SleepingService:
    """Executes up to `workers` requests side by side, each in `seconds(number)`; the others wait."""

    seconds: Callable[[int], float]
    """Execution of the request with this number; may raise `ServiceError`."""
    workers: int = 1
    facts: Mapping[str, Any] = field(default_factory=lambda: GATEWAY)
    decision: Callable[[int], str] = "target={}".format
    falls_back: bool = False
    executed: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Begin and end of each execution by the sender's number, by the monotonic clock."""
    url: str = ""

    async def translate(self, task: Task) -> Result:
        number = int(task.sender) if task.sender.isdecimal() else -1
        arrived_s = time.monotonic()
        async with self._free:
            begin_s = time.monotonic()
            if number >= 0:
                await asyncio.sleep(self.seconds(number))
            end_s = time.monotonic()
        self.executed[task.sender] = begin_s, end_s
        words = len(task.text.split())
        steps = words + 1 if task.forced_len is None else task.forced_len
        decision = f"{self.decision(number % 2)};estimate_s=0.01;age_s=0.5;tgt_len={words:.3f};fallback=0"
        if number % 7 == 3 and self.falls_back:
            decision = decision.replace("target=1", "target=0").replace("fallback=0", "fallback=1")
        return Result(task.text, begin_s - arrived_s, end_s - begin_s, (), (words + 1, steps, 1), decision)

    def health(self) -> dict[str, Any]:
        return dict(self.facts)

    async def serve(self, ready: threading.Event, settings: FrontSettings) -> None:
        self._free, self._stop, self._loop = asyncio.Semaphore(self.workers), asyncio.Event(), asyncio.get_running_loop()
        front = Front(self, settings, Access(), Limits(drain_s=0.0), Metrics(), print)
        await front.service.start()
        self.url = front.service.url
        ready.set()
        await self._stop.wait()
        await front.service.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)


def refusing(status: int) -> float:
    """Refuse a request."""
    raise ServiceError(status, f"made status {status}")


@contextmanager
def sleeping(seconds: Callable[[int], float], front: FrontSettings | None = None, **fields: Any) -> Iterator[SleepingService]:
    """Run such a service until the block ends."""
    service, ready = SleepingService(seconds, **fields), threading.Event()
    work = service.serve(ready, front or FrontSettings(forced_lengths=True))
    thread = threading.Thread(target=lambda: asyncio.run(work))
    thread.start()
    assert ready.wait(10.0)
    try:
        yield service
    finally:
        service.stop()
        thread.join()
