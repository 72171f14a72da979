"""An asyncio event loop whose timers fire within about 0.1 ms, and the measurement of how late they fire.

Python's epoll selector rounds timeouts up to whole milliseconds, so `asyncio.sleep` ends up to 1 ms late. An epoll descriptor
is itself readable when one of its sockets is ready: `select` on it alone waits with microseconds, for any number of sockets.
"""

from __future__ import annotations

import asyncio
import ctypes
import selectors
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

_SELECTABLE_DESCRIPTORS = 1024
_PR_SET_TIMERSLACK = 29

if sys.platform == "linux":
    import select

    class PreciseSelector(selectors.EpollSelector):
        """An epoll selector whose timeouts have microseconds."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Return the ready descriptors and their events, empty after `timeout` seconds; None waits for ever."""
            if timeout is not None and timeout > 0.0 and self.fileno() < _SELECTABLE_DESCRIPTORS:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0.0
            return super().select(timeout)

else:  # kqueue and Windows' select have fine timeouts
    PreciseSelector = selectors.DefaultSelector


def new_precise_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop with precise timers, as a `loop_factory` of `asyncio.Runner` does."""
    return asyncio.SelectorEventLoop(PreciseSelector())


def reduce_timer_slack() -> None:
    """Let the timers of the calling thread fire without Linux's slack of 50 us; has no effect on other systems."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def measure_lateness_s(count: int, wait_s: float = 1e-3) -> Sequence[float]:
    """Return by how many seconds each of `count` timers of a precise loop fires late, in ascending order."""

    async def wait() -> list[float]:
        reduce_timer_slack()
        lateness_s = []
        for _ in range(count):
            due_s = time.monotonic() + wait_s
            await asyncio.sleep(wait_s)
            lateness_s.append(max(time.monotonic() - due_s, 0.0))
        return sorted(lateness_s)

    loop = new_precise_loop()
    try:
        return loop.run_until_complete(wait())
    finally:
        loop.close()
