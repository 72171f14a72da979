"""One small run for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import simnmt
from tests.conftest import small_scenarios


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, make_profile: Callable[..., Any]) -> simnmt.Run:
    """Fifty requests of the paper's protocol under five policies, in a run directory."""
    folder = tmp_path_factory.mktemp("small")
    return simnmt.run(small_scenarios(folder, make_profile)(requests=50), out=folder / "run")
