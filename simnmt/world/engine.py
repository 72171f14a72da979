"""The two engines of the world: compiled, where it covers a run, and SimPy, which covers all. Both give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simnmt.base.columns import AnyColumn
from simnmt.base.errors import InputError
from simnmt.results.requests import Engine, Requests, Trail
from simnmt.world import simulation
from simnmt.world.compiled import world as compiled_world
from simnmt.world.deciders import Beliefs
from simnmt.world.server import Server


def simulate(
    requests: Requests[AnyColumn],
    decide_for: simulation.DecideFor,
    beliefs: Beliefs,
    servers: Sequence[Server],
    *,
    engine: Engine | None = None,
    **settings: Any,
) -> Trail:
    """Run every request through the world, as `simulation.simulate` does with these arguments; the trail names its engine.

    `engine`: None for the compiled one where it covers the run. Raises `InputError` if the run needs the other one.
    """
    if engine != "simpy":
        try:
            return compiled_world.simulate(requests, decide_for, beliefs, servers, **settings)
        except compiled_world.UncompiledError as error:
            if engine == "compiled":
                raise InputError(f"the compiled world does not cover {error}", remedy="leave out --engine") from None
    return simulation.simulate(requests, decide_for, beliefs, servers, **settings)
