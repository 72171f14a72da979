"""Fixtures of live services: one event loop and one fake engine for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simnmt.live.server import LocalEngine
from tests.live.fake_engines import load_faulty
from tests.live.live_services import Services, engine_settings
from tests.live.live_services import services as running_services


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with running_services() as running:
        yield running


@pytest.fixture(scope="module")
def faulty(services: Services) -> Iterator[LocalEngine]:
    """An engine that several services share; see `load_faulty`."""
    engine = LocalEngine(engine_settings(load_faulty))
    engine.process.RESTART_S = 0.05
    services.run(engine.ready())
    yield engine
    services.run(engine.process.close())
