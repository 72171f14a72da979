"""The inputs of a run: the world that all policies meet, and one policy in the form that the world runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.devices.device import Kind
from simnmt.policies.cnmt import PredictLength
from simnmt.policies.decision import Decide
from simnmt.results.requests import Block, Requests
from simnmt.world.deciders import Beliefs
from simnmt.world.faults import Faults

Route = Callable[[int, int, float], tuple[tuple[float, ...], tuple[float, ...], float, float]]
"""`route(request, node, moment_s)`: seconds up and down per remote target at that moment, and from the end node to its decider
and back."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of a closed loop, with their think times."""

    count: int
    nodes: int
    """End nodes; client c is at node c modulo nodes."""
    think_s: NDArray[np.float64]
    """Shape (clients + requests,), seconds: each client's thinking before its first request, then the thinking after each
    request."""


@dataclass(frozen=True, slots=True)
class World:
    """What all policies meet: requests, the boxes of the targets, and the links to them."""

    requests: Requests
    """With a `tgt_len` if a device takes a step for each token; `execution_s` is the time of a request alone, for a streamed
    model with nothing to be read."""
    kinds: Sequence[Kind]
    """Boxes of every target but the first. Back to back requests never meet, so nothing batches."""
    deciders: int = 1
    """Devices that decide; end node n's is n modulo their number."""
    workers: int = 1
    """Requests that each decider executes side by side, without `local`."""
    local: Kind | None = None
    """Kind of the deciders' own devices, if they are not first in, first out; it has a box for each decider."""
    route: Route | None = None
    """Looks links up during the run, if the requests' columns do not hold their times."""
    clients: Clients | None = None
    """Closed loop; it needs a `route`."""
    faults: Faults | None = None
    """Of links and boxes, and what deciders do about late answers."""


DecideFor = Callable[[Block], Decide]
"""Prepares a policy for one block of requests."""
ExpectedFor = Callable[[Block], Sequence[NDArray[np.float64]]]
"""Returns, per target, the policy's expectation of each request of a block in the unit of the target's view: seconds of
execution, or tokens if it batches."""
PlanBeyondFor = Callable[[Block], Sequence[Sequence[NDArray[np.float64]] | None]]
"""Returns, by target and state, the seconds that the policy expects beyond its plane."""


@dataclass(frozen=True, slots=True)
class PolicySetup:
    """A policy in the form that the world runs."""

    decide_for: DecideFor
    beliefs: Beliefs
    """How its deciders estimate delays. For true delays of a streamed model, an oracle needs the true backlog back to back as
    well. With queues true delays hold unless a later request overtakes this one; in batches they are a guess."""
    expected_for: ExpectedFor | None = None
    """Needed if `beliefs` has views."""
    plan_beyond_for: PlanBeyondFor | None = None
    """Needed if `beliefs` views states."""
    predicted_tgt_len: PredictLength | None = None
    """Predicts target lengths, for the log; None if the policy predicts none."""
