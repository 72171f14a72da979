"""The choice of the engine: the compiled one where it covers a run, and the reference where it does not."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from simnmt.base.compile import compile_remedy
from simnmt.base.errors import InputError
from simnmt.batching import Batching
from simnmt.devices import batch
from simnmt.devices.batch import Decoded
from simnmt.results.requests import Engine, Trail
from simnmt.world.compiled_world import NOT_COMPILED, decode_compiled, simulate_compiled
from simnmt.world.inputs import PolicySetup, World
from simnmt.world.reference import simulate_reference
from simnmt.world.structures import UncompiledError

_LOG = logging.getLogger("simnmt.world")


def simulate(world: World, policy: PolicySetup, judged_share: float = 0.0, engine: Engine | None = None) -> Trail:
    """Run every request through the world, as `simulate_reference` does; the trail names its engine.

    `engine`: None for the compiled one where it covers the run. Raises `InputError` if it was chosen and does not.
    """
    if engine == "reference":
        return simulate_reference(world, policy, judged_share)
    try:
        return simulate_compiled(world, policy, judged_share)
    except UncompiledError as error:
        _refuse_if_chosen(engine, error)
        _LOG.debug("in the reference: %s", error)
        return replace(simulate_reference(world, policy, judged_share), engine_reason=str(error))


def decode_all(
    batching: Batching,
    cost: Any,
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    arrival_s: ArrayLike | None = None,
    *,
    engine: Engine | None = None,
) -> Decoded:
    """Let one box decode sentences, as `devices.batch.decode_all` does with these arguments; `engine` as of `simulate`."""
    if engine != "reference":
        try:
            return decode_compiled(batching, cost, src_len, tgt_len, arrival_s)
        except UncompiledError as error:
            _refuse_if_chosen(engine, error)
    return batch.decode_all(batching, cost, src_len, tgt_len, arrival_s)


def _refuse_if_chosen(engine: Engine | None, error: UncompiledError) -> None:
    if engine == "compiled":
        remedy = f"{compile_remedy()}, or " if str(error) == NOT_COMPILED else ""
        raise InputError(f"engine compiled: {error}", remedy=f"{remedy}choose the engine reference, or none") from None
