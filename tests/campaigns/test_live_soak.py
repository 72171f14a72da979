"""A campaign of requests through a gateway and a server: every one is answered once, and memory and descriptors stay flat."""

from __future__ import annotations

import io

import psutil

from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings
from simnmt.service.client import Exchange, TranslationClient
from tests.campaigns.harness import SCALE
from tests.live.fake_engines import load_echo
from tests.live.live_services import FRONT, ask, engine_settings, services, together, unit_of

REQUESTS = 300 if SCALE < 2.0 else round(10_000 * SCALE)
"""100,000 at the scale of `make check-deep`."""
TOGETHER = 50


class _Discarded(io.StringIO):
    """A log of any length that takes no memory."""

    lines = 0

    def write(self, text: str) -> int:
        self.lines += text.count("\n")
        return len(text)


def test_memory_and_descriptors_stay_flat() -> None:
    unit = unit_of("@open-loop", "policies.cnmt.sees_backlog=true")
    with services() as running:
        engine = EngineProcess(engine_settings(load_echo))
        running.run(engine.ready())
        log = _Discarded()
        server = running.server(engine)
        settings = GatewaySettings(unit, "cnmt", {"cloud": server.http.url}, FRONT, any_model=True)
        gateway = running.gateway(settings, log, engine)
        processes = psutil.Process(), psutil.Process(engine.pid)

        async def send(first: int, count: int) -> int:
            answered = 0
            async with TranslationClient(gateway.http.url) as client:
                for begin in range(first, first + count, TOGETHER):
                    requests = [ask("w " * (1 + number % 60), number=str(number)) for number in range(begin, begin + TOGETHER)]
                    for request, answer in zip(requests, await together(client, requests), strict=True):
                        assert isinstance(answer, Exchange), answer
                        assert answer.headers["Simnmt-Request"] == request.number
                        answered += 1
            return answered

        warm = REQUESTS // 3 // TOGETHER * TOGETHER
        answered = running.run(send(0, warm), 3600.0)
        before = [(process.memory_info().rss, process.num_fds()) for process in processes]
        answered += running.run(send(warm, REQUESTS - warm), 3600.0)
        after = [(process.memory_info().rss, process.num_fds()) for process in processes]
        running.stop(gateway)
        running.stop(server)
        running.run(engine.close())
    assert answered == REQUESTS
    assert gateway.outcomes == {"done": REQUESTS}
    assert log.lines >= 3 * REQUESTS
    for (bytes_before, open_before), (bytes_after, open_after) in zip(before, after, strict=True):
        assert bytes_after - bytes_before < 8e6
        assert open_after - open_before <= 4
