"""Run a world in both engines: whatever theory or an oracle says of one then holds for the other."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from simnmt.results.requests import Trail
from simnmt.world import engine, reference
from tests.campaigns.harness import SCALE
from tests.world.random_worlds import assert_equal


def simulate(requests: Any, decide_for: Any, beliefs: Any, servers: Any, **settings: Any) -> Trail:
    """Return the trail of a world after both engines gave it the same bits; without the compiled one, that of SimPy.

    Raises `UncompiledError` for a world that only SimPy covers, so that no test holds for one engine unnoticed.
    """
    idle = deepcopy(servers)
    trail = reference.simulate(requests, decide_for, beliefs, servers, **settings)
    if structures.library() is not None:
        assert_equal(trail, engine.simulate_compiled(requests, decide_for, beliefs, idle, **settings))
    return trail


def simulate_replication(
    replication: int, requests: Any, decide_for: Any, beliefs: Any, servers: Any, **settings: Any
) -> Trail:
    """Return the trail of one replication of a world, the first one after both engines gave it the same bits.

    `make check-deep` compares both engines in every replication; otherwise the further ones run in the compiled engine alone.
    """
    if replication == 0 or SCALE > 1.0 or structures.library() is None:
        return simulate(requests, decide_for, beliefs, servers, **settings)
    return engine.simulate_compiled(requests, decide_for, beliefs, servers, **settings)
