"""The inputs of a run: the world that all policies meet, and one policy in the form that the world runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.devices import Fifo, Kind
from simnmt.devices.translation_cache import CacheConfiguration
from simnmt.policies.cnmt import PredictLength
from simnmt.policies.decision import Decide, LeastTotal
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
    local: Sequence[Kind] = (Fifo(),)
    """The deciders' own devices, target 0, by group: the boxes of a group are those of consecutive deciders, and a request
    enters the box of its decider. A decider without a device has a box that nothing enters: its policy is `Fixed(1)`, and
    `execution_s[0]` of its requests exceeds every other way to an answer, so that no oracle prefers it."""
    decider: NDArray[np.int32] | None = None
    """The decider of each request, by number over all groups, for requests that arrive on their own. None, of one group alone:
    the end node's number modulo the deciders."""
    route: Route | None = None
    """Looks links up during the run, if the requests' columns do not hold their times."""
    clients: Clients | None = None
    """Closed loop; it needs a `route`."""
    faults: Faults | None = None
    """Of links and boxes, and what deciders do about late answers."""
    caches: Sequence[CacheConfiguration | None] = ()
    """By group of `local`, the cache that each of its deciders has; empty: none has one."""

    @property
    def has_caches(self) -> bool:
        """True if a decider has a cache."""
        return any(cache is not None for cache in self.caches)

    passes_on: bool = False
    """Whether a decider that a target refuses passes the refusal on to the client, and does not execute the request itself."""
    decides_by_document: bool = False
    """Whether the decision on the first sentence of a document holds for all of them."""

    @property
    def deciders(self) -> int:
        """Number of devices that decide."""
        return sum(kind.boxes for kind in self.local)

    @property
    def refuses(self) -> bool:
        """True if boxes refuse requests when they are full, or long requests."""
        kinds = (*self.local, *self.kinds)
        return any(getattr(kind, "max_waiting", None) is not None or getattr(kind, "refuses_long", False) for kind in kinds)


DecideFor = Callable[[Block], Decide]
"""Prepares a policy for one block of requests."""
SecondFor = Callable[[Block], LeastTotal]
"""Returns what a policy weighs when a decider's own device has executed a request that was meant for it: by target, the seconds
that sending the request on takes beside the delay, and in place of those of target 0 what the present translation costs."""
ExpectedFor = Callable[[Block], Sequence[NDArray[np.float64]]]
"""Returns, per target, the policy's expectation of each request of a block in the unit of the target's view: seconds of
execution, or tokens if it batches."""
PlanBeyondFor = Callable[[Block], Sequence[Sequence[NDArray[np.float64]] | None]]
"""Returns, by target and state, the seconds that the policy expects beyond its plane."""


@dataclass(frozen=True, slots=True)
class PolicySetup:
    """A policy in the form that the world runs."""

    decide_for: DecideFor
    beliefs: Sequence[Beliefs]
    """By group of `World.local`, how its deciders estimate delays; estimates are by the decider's number in its group. For true
    delays of a streamed model, an oracle needs the true backlog back to back as well. With queues true delays hold unless a
    later request overtakes this one; in batches they are a guess."""
    expected_for: ExpectedFor | None = None
    """Needed if any beliefs have views."""
    plan_beyond_for: PlanBeyondFor | None = None
    """Needed if any beliefs view states."""
    second_for: SecondFor | None = None
    """None if a request is answered once it has been executed; else its decider decides again then."""
    for_gain: Callable[[float], PolicySetup] | None = None
    """Returns the set-up for texts of a known expected gain in quality, as a live gateway has them; None if the policy weighs
    none."""
    predicted_tgt_len: PredictLength | None = None
    """Predicts target lengths, for the log; None if the policy predicts none."""
