"""Clients that speak the recorder's protocol wrongly: nobody else waits."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from simnmt.network.recording.protocol import ASK, DOWN, ECHO, HEAD, UPLOAD, connect, receive, resolve_host
from simnmt.network.recording.responder import Limits, Responder
from tests.campaigns.harness import mutate_bytes, run_cases

FRAMES = [HEAD.pack(ECHO, 1, 5) + b"hello", HEAD.pack(DOWN, 1000, 0), HEAD.pack(UPLOAD, 0, 300) + bytes(300)]


def test_a_hostile_client_disturbs_no_other(serve: Callable[..., Responder]) -> None:
    responder = serve(Limits(greeting_s=0.2, transfer_s=0.2))
    place = resolve_host(*responder.address)[0]
    honest = connect(place, 5.0)[0]

    def check(generator: random.Random) -> None:
        frames = b"".join(generator.choices(FRAMES, k=generator.choice([0, 1, 3])))
        with socket.create_connection(responder.address[:2], timeout=5.0) as hostile, suppress(OSError):
            hostile.sendall(mutate_bytes(ASK + frames, generator))
            if generator.random() < 0.5:
                hostile.shutdown(socket.SHUT_WR)
                while hostile.recv(1 << 16):
                    pass
        frame = HEAD.pack(ECHO, generator.randrange(1 << 32), 3) + b"abc"
        honest.sendall(frame)
        assert receive(honest, len(frame), time.monotonic() + 5.0) == frame

    with honest:
        run_cases("hostile client", 40, check)
