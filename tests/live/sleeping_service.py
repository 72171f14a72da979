"""A live service without a model: it answers each request after a known time, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

from simnmt.live.engine import Result
from simnmt.live.server import FrontSettings, LiveServer, Trip
from simnmt.service.http_server import Limits
from simnmt.service.load import new_precise_loop
from simnmt.service.messages import ServiceError

GATEWAY: Mapping[str, Any] = {"service": "gateway", "policy": "cnmt", "servers": {"cloud": "ok"}}


class SleepingService(LiveServer):
    """Executes up to `workers` requests side by side, each in `seconds(number)`; the others wait."""

    def __init__(
        self, seconds: Callable[[int], float], front: FrontSettings, workers: int, facts: Mapping[str, Any], falls_back: bool
    ) -> None:
        """`seconds`: of the execution of the request with a number; may raise `ServiceError`."""
        super().__init__(Mock(alive=True), replace(front, limits=Limits(drain_s=0.0)))
        self._seconds, self._facts, self._falls_back, self._free = seconds, facts, falls_back, asyncio.Semaphore(workers)
        self.executed: dict[str, tuple[float, float]] = {}
        """Begin and end of each execution by the sender's number, by the monotonic clock."""
        self.url = ""

    async def translate(self, trip: Trip) -> Result:
        number = int(trip.sender) + trip.number - trip.document.number if trip.sender.isdecimal() else -1
        arrived_s = time.monotonic()
        async with self._free:
            begin_s = time.monotonic()
            if number >= 0:
                await asyncio.sleep(self._seconds(number))
            end_s = time.monotonic()
        self.executed[str(number)] = begin_s, end_s
        words = len(trip.text.split())
        steps = words + 1 if trip.forced_len is None else trip.forced_len
        fell_back = self._falls_back and number % 7 == 3
        target = 0 if fell_back else number % 2
        decision = f"target={target};estimate_s=0.01;age_s=0.5;tgt_len={words:.3f};fallback={int(fell_back)}"
        return Result(trip.text, begin_s - arrived_s, end_s - begin_s, (), (words + 1, steps, 1), decision)

    def health(self) -> dict[str, Any]:
        return dict(self._facts)


def refusing(status: int) -> float:
    """Refuse a request."""
    raise ServiceError(status, f"made status {status}")


@contextmanager
def served_on_a_thread(start: Callable[[], Awaitable[object]], stop: Callable[[], Awaitable[object]]) -> Iterator[None]:
    """Run a service on an event loop and a thread of its own until the block ends."""
    loop, ready, stopped = new_precise_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        await start()
        ready.set()
        await stopped.wait()
        await stop()
        await loop.shutdown_default_executor()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10.0)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


@contextmanager
def sleeping(
    seconds: Callable[[int], float],
    front: FrontSettings | None = None,
    workers: int = 1,
    facts: Mapping[str, Any] = GATEWAY,
    falls_back: bool = False,
) -> Iterator[SleepingService]:
    """Run such a service until the block ends."""
    service = SleepingService(seconds, front or FrontSettings(forced_lengths=True), workers, facts, falls_back)

    async def start() -> None:
        await service.http.start()
        service.url = service.http.url

    with served_on_a_thread(start, service.http.stop):
        yield service
