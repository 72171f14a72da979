"""Live services of tests: fronts within this process, each with an engine's process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from simnmt.live.engine_process import EngineSettings
from simnmt.live.front import FrontSettings
from simnmt.live.server import LiveServer, ServerSettings
from simnmt.service.http_server import Access, Limits
from tests.live.fake_engines import load_echo

FRONT = FrontSettings(forced_lengths=True)
Answer = TypeVar("Answer")


def run(work: Coroutine[Any, Any, Answer], timeout_s: float = 60.0) -> Answer:
    return asyncio.run(asyncio.wait_for(work, timeout_s))


def engine(loader: Any = load_echo, **settings: Any) -> EngineSettings:
    return EngineSettings("fake", **{"loader": loader, "nice": 0} | settings)


@asynccontextmanager
async def server(
    settings: EngineSettings | None = None,
    front: FrontSettings = FRONT,
    access: Access | None = None,
    limits: Limits | None = None,
    log: Any = None,
    errors: list[str] | None = None,
) -> AsyncIterator[LiveServer]:
    """A started server."""
    service = LiveServer(
        ServerSettings(settings or engine(), front, access or Access(), limits or Limits()),
        log,
        (errors if errors is not None else []).append,
    )
    try:
        await service.start()
        yield service
        await service.front.service.stop()
    finally:
        await service.close()
