"""Run a world in both engines: whatever theory or an oracle says of one then holds for the other."""

from __future__ import annotations

from typing import Any

from simnmt.results.requests import Trail
from simnmt.world.structures import library
from tests.campaigns.harness import SCALE
from tests.world.random_worlds import assert_agree
from tests.worlds import in_compiled, in_reference


def simulate(requests: Any, decide_for: Any, beliefs: Any, kinds: Any, **settings: Any) -> Trail:
    """Return the trail of a world after both engines agreed on it; without the compiled one, that of the reference.

    Raises `UncompiledError` for a world that only the reference covers, so that no test holds for one engine unnoticed.
    """
    trail = in_reference(requests, decide_for, beliefs, kinds, **settings)
    if library() is not None:
        assert_agree(trail, in_compiled(requests, decide_for, beliefs, kinds, **settings))
    return trail


def simulate_replication(replication: int, requests: Any, decide_for: Any, beliefs: Any, kinds: Any, **settings: Any) -> Trail:
    """Return the trail of one replication of a world, the first one after both engines agreed on it.

    `make check-deep` compares both engines in every replication; otherwise the further ones run in the compiled engine alone.
    """
    if replication == 0 or SCALE > 1.0 or library() is None:
        return simulate(requests, decide_for, beliefs, kinds, **settings)
    return in_compiled(requests, decide_for, beliefs, kinds, **settings)
