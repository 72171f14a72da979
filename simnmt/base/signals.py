"""Signals that end a program, held back while Python code runs that an exception must not leave in the middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGTERM") if hasattr(signal, name))
"""Ctrl-C, a terminal that closes, and a polite request to end."""


@contextmanager
def signals_held() -> Iterator[list[int]]:
    """Hold the signals that end a program until the block ends; then handle the first that arrived, as outside.

    Yields the list of those that have arrived. Does nothing in a thread that handles no signals, and for signals that are
    ignored or end the process at once.
    """
    arrived: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in STOPPING:
            if callable(signal.getsignal(number)):
                handlers[number] = signal.signal(number, lambda number, frame: arrived.append(number))
    try:
        yield arrived
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])
