"""An asyncio event loop whose timers fire within about 0.1 ms, and which ends well by a signal.

Python's epoll selector rounds timeouts up to whole milliseconds, so `asyncio.sleep` ends up to 1 ms late. An epoll descriptor
is itself readable when one of its sockets is ready: `select` on it alone waits with microseconds, for any number of sockets.
"""

from __future__ import annotations

import asyncio
import selectors
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

Result = TypeVar("Result")

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGTERM") if hasattr(signal, name))
"""Ctrl-C, a terminal that closes, and a polite request to end."""

_SELECTABLE_DESCRIPTORS = 1024

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


def run_precisely(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a new loop with precise timers; at its end, also by an interrupt, cancel whatever it left running."""
    loop = new_precise_loop()
    task = loop.create_task(work)
    try:
        with _signals_that_cancel(loop, task):
            return loop.run_until_complete(task)
    finally:
        loop.run_until_complete(cancel_others())
        loop.close()


@contextmanager
def _signals_that_cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> Iterator[None]:
    """Let signals that end the program cancel a task, and handle the first of them, as outside, at the end of the block.

    An exception of a signal's handler could otherwise meet a callback of a library, which would drop it and go on.
    """
    arrived: list[int] = []
    handlers: dict[int, Any] = {}

    def cancel(number: int) -> None:
        arrived.append(number)
        task.cancel()

    if threading.current_thread() is threading.main_thread():
        for number in STOPPING:
            if callable(handler := signal.getsignal(number)):
                with suppress(NotImplementedError):  # Windows
                    loop.add_signal_handler(number, cancel, number)
                    handlers[number] = handler
    try:
        yield
    finally:
        for number, handler in handlers.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


async def cancel_others() -> None:
    """Cancel all other tasks of the loop, and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0.0)  # transports close
