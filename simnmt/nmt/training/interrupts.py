"""Signals kept waiting while weights change or files are written, so that what is kept is always a whole step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def held_back() -> Iterator[None]:
    """A signal that would raise comes when the block has ended; without effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if callable(handler):  # ignored ones stay ignored, and those that end the process at once do so
            signal.signal(number, lambda signum, frame: came.append((signum, frame)))
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)
        for number, frame in came[:1]:
            handler = before[number]
            assert callable(handler)
            handler(number, frame)
