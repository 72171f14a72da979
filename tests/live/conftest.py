"""Fixtures of live services: one event loop and one fake engine for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simnmt.live.engine_process import EngineProcess
from tests.live.fake_engines import load_faulty
from tests.live.live_services import Services, new_engine
from tests.live.live_services import services as running_services


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with running_services() as running:
        yield running


@pytest.fixture(scope="module")
def faulty(services: Services) -> Iterator[EngineProcess]:
    """An engine that several services share; see `load_faulty`."""
    engine = new_engine(load_faulty)
    engine.RESTART_S = 0.05
    services.run(engine.ready())
    yield engine
    services.run(engine.close())


@pytest.fixture(autouse=True)
def stop_what_a_test_started(request: pytest.FixtureRequest) -> Iterator[None]:
    running = request.getfixturevalue("services") if "services" in request.fixturenames else None
    before = [] if running is None else running.started[:]
    yield
    for service in [] if running is None else running.started[::-1]:
        if service not in before:
            running.stop(service)
