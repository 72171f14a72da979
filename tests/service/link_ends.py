"""Ends of a replayed link in tests: servers on real sockets, and links with plain numbers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simnmt.network.link import Link
from simnmt.network.series import constant_rtt
from simnmt.service.addresses import Address
from simnmt.service.link import LinkProxy, LinkSettings

TIMEOUT_S = 20.0


def plain_link(rtt_s: float = 1e-9, bps: float = 1e12) -> Link:
    return Link(constant_rtt(rtt_s), bps, bps)


def echo(end: socket.socket) -> None:
    while data := end.recv(1 << 16):
        end.sendall(data)
    end.shutdown(socket.SHUT_WR)


@contextmanager
def server(answer: Callable[[socket.socket], None] = echo) -> Iterator[Address]:
    """A server that runs `answer` in a thread for every connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def converse(end: socket.socket) -> None:
        try:
            end.settimeout(TIMEOUT_S)
            answer(end)
        except OSError:
            pass
        finally:
            end.close()

    def serve() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=converse, args=(end,), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=serve, daemon=True)
    accepting.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (accepting, *threads):
            thread.join(TIMEOUT_S)


@contextmanager
def replayed(
    link: Link, answer: Callable[[socket.socket], None] = echo, settings: LinkSettings | None = None
) -> Iterator[LinkProxy]:
    """A link that leads to a server."""
    with server(answer) as address, LinkProxy(link, address, settings=settings) as proxy:
        yield proxy


def connect(proxy: LinkProxy) -> socket.socket:
    end = socket.create_connection((proxy.address.host, proxy.address.port), timeout=TIMEOUT_S)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


def receive(end: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes."""
    received = bytearray()
    while len(received) < size:
        data = end.recv(size - len(received))
        assert data, f"ended after {len(received)} of {size} bytes"
        received += data
    return bytes(received)


def reset(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
