"""A responder, and a slow network in front of it: a proxy that delays what passes, paces it, and breaks off when told."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from simnmt.network.recording import responder as responder_module
from simnmt.network.recording.responder import Limits, Responder


class SlowNetwork:
    """Carries connections to `target`, each chunk `one_way_s` later and no faster than `rate_bps` in each direction."""

    def __init__(self, target: tuple[str, int], one_way_s: float = 0.0, rate_bps: float | None = None) -> None:
        self._target, self.one_way_s, self._rate_bps = target, one_way_s, rate_bps
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._guard = threading.Lock()
        self.port = self._listener.getsockname()[1]
        self.accepting = True
        self._start(self._accept)

    def break_off(self) -> None:
        """End every connection there is."""
        with self._guard:
            ended, self._open = self._open, []
        for connection in ended:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_off()

    def _start(self, what: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=what, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self.accepting:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                for connection in (near, far):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._guard:
                    self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    waiting: deque[tuple[float, bytes]] = deque()
                    come = threading.Semaphore(0)
                    self._start(self._take, source, waiting, come)
                    self._start(self._give, sink, waiting, come)

    def _take(self, source: socket.socket, waiting: deque[tuple[float, bytes]], come: threading.Semaphore) -> None:
        free_s = 0.0
        chunk = b"x"
        while chunk:
            try:
                chunk = source.recv(2048)
            except OSError:
                chunk = b""
            now_s = time.monotonic()
            if self._rate_bps:
                free_s = max(free_s, now_s) + 8 * len(chunk) / self._rate_bps
            waiting.append((max(now_s, free_s) + self.one_way_s, chunk))
            come.release()
        source.close()

    def _give(self, sink: socket.socket, waiting: deque[tuple[float, bytes]], come: threading.Semaphore) -> None:
        with suppress(OSError):
            while True:
                come.acquire()
                due_s, chunk = waiting.popleft()
                time.sleep(max(0.0, due_s - time.monotonic()))
                if not chunk:
                    break
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Responder]]:
    """Makes a responder that answers in a thread, which looks around often."""
    monkeypatch.setattr(responder_module, "_LOOK_S", 0.02)
    with ExitStack() as stack:

        def begin(limits: Limits | None = None, *, once: bool = False) -> Responder:
            responder = Responder(limits=limits)
            thread = threading.Thread(target=responder.serve, kwargs={"once": once}, daemon=True, name=str(responder.address))
            thread.start()
            stack.callback(thread.join, 5.0)
            stack.callback(responder.close)
            return responder

        yield begin


@pytest.fixture
def slow_network(serve: Callable[..., Responder]) -> Iterator[Callable[..., SlowNetwork]]:
    """Makes a slow network with a responder behind it."""
    with ExitStack() as stack:

        def begin(one_way_s: float = 0.0, rate_bps: float | None = None, target: tuple[str, int] | None = None) -> SlowNetwork:
            network = SlowNetwork(target or serve().address, one_way_s, rate_bps)
            stack.callback(network.close)
            return network

        yield begin
