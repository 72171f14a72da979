"""The choice of the engine: the compiled one where it covers a run, and the reference where it does not."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats
from simnmt.base.compile import compile_remedy
from simnmt.base.errors import InputError
from simnmt.batching import Batching
from simnmt.devices import Batched, Kind
from simnmt.policies.decision import Fixed
from simnmt.policies.estimates import TransferEstimate
from simnmt.profile.cost import DecodingCost
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.requests import Engine, Requests, Trail
from simnmt.world.compiled_world import NOT_COMPILED, simulate_compiled
from simnmt.world.deciders import Beliefs
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
        if engine == "compiled":
            remedy = f"{compile_remedy()}, or " if str(error) == NOT_COMPILED else ""
            raise InputError(f"engine compiled: {error}", remedy=f"{remedy}choose the engine reference, or none") from None
        _LOG.debug("in the reference: %s", error)
        return replace(simulate_reference(world, policy, judged_share), engine_reason=str(error))


@dataclass(frozen=True, slots=True)
class Decoded:
    """The times of sentences at one box that decodes them together; columns in the order given, shape (sentences,), seconds."""

    begin_s: Floats
    """When the encoding of each sentence began."""
    finish_s: Floats
    first_token_s: Floats
    """From its arrival to the end of its first step; NaN without one."""
    account: BatchAccount

    @property
    def total_s(self) -> float:
        """When the last sentence was done; 0 without sentences."""
        return float(self.finish_s.max(initial=0.0))


def decode_all(
    batching: Batching,
    cost: DecodingCost,
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    arrival_s: ArrayLike | None = None,
    *,
    engine: Engine | None = None,
) -> Decoded:
    """Let one box decode sentences that arrive at `arrival_s`, or are all there at 0 and wait for no others.

    Lengths in tokens; `tgt_len`: steps of each sentence, 0 or more. `engine` and errors as in `simulate`.
    """
    if arrival_s is None:
        batching = replace(batching, longest_wait_s=0.0)
    return serve_all(Batched(batching, cost), src_len, tgt_len, arrival_s, engine=engine)


def serve_all(
    kind: Kind,
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    arrival_s: ArrayLike | None = None,
    *,
    engine: Engine | None = None,
) -> Decoded:
    """Let one box of a kind that batches or has slots decode sentences; arguments as in `decode_all`."""
    sources, nothing = np.asarray(src_len, np.int64), np.zeros(np.size(src_len))
    if arrival_s is None:
        arrival_s = nothing
    arrivals = np.asarray(arrival_s, np.float64)
    requests = Requests(sources, (nothing,), arrival_s=arrivals, tgt_len=np.asarray(tgt_len, np.int64))
    beliefs = Beliefs(lambda decider, target: TransferEstimate(0.0))
    policy = PolicySetup(lambda block: Fixed(0), (beliefs,))
    trail = simulate(World(requests, (), (kind,)), policy, engine=engine)
    begin_s = arrivals + trail.queue_s
    account = trail.batches[0]
    assert account is not None
    return Decoded(begin_s, begin_s + trail.execution_s, trail.first_token_s, account)
