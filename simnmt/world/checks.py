"""Checks that both engines make of a run before it begins, and of each block before it is run.

No number is NaN, infinite or below 0, and no index and no length is out of place. The compiled engine relies on this.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.devices import Fifo
from simnmt.devices.device import ByNode, LeastLoadedOfDrawn
from simnmt.network.link import MovingRoute
from simnmt.policies.decision import Decide, Fixed, LeastTotal
from simnmt.results.requests import Block, Requests
from simnmt.world.inputs import PolicySetup, World

NO_TARGET = -1


def check_world(world: World, policy: PolicySetup) -> None:
    """Raise `InputError` if the parts of a run do not fit each other; the columns are checked block by block."""
    requests, kinds, local, decider, clients = world.requests, world.kinds, world.local, world.decider, world.clients
    count, targets, route = len(requests), len(requests.execution_s), world.route
    _require(len(local) >= 1, "no deciders")
    for kind in local:
        _require(kind.boxes >= 1, f"{kind.boxes} deciders")
        _require(isinstance(kind.balancer, ByNode), "a balancer before the deciders' own devices")
        _require(not isinstance(kind, Fifo) or kind.workers >= 1, "a device without workers")
    _require(len(policy.beliefs) == len(local), f"beliefs of {len(policy.beliefs)} groups of {len(local)}")
    _require(len(kinds) == targets - 1, f"execution times of {targets} targets, boxes of {1 + len(kinds)}")
    for name, column in _columns(requests, has_links=route is None):
        _require(len(column) == count, f"{len(column)} values of {name} for {count} requests")
    if decider is not None:
        paced = clients is None and requests.arrival_s is not None
        _require(paced, "deciders of requests that do not arrive on their own")
        _require(len(decider) == count, f"{len(decider)} deciders of {count} requests")
        _require(_is_between(decider, world.deciders), f"deciders are not 0 to {world.deciders - 1}")
    _require(decider is not None or len(local) == 1, f"{len(local)} groups of deciders, but no decider of each request")
    for target, kind in [*((0, kind) for kind in local), *enumerate(kinds, start=1)]:
        has_lengths = not kind.needs_tgt_len or requests.tgt_len is not None
        _require(has_lengths, f"target {target} takes a step for each token, but the requests have no tgt_len")
        if (models := getattr(kind, "models", None)) is not None:
            fits = _is_between(0 if requests.model is None else requests.model, len(models.of_workload))
            fits = fits and _is_between(list(chain(*models.by_workload())), len(models.size_bytes))
            _require(fits, f"models of requests that target {target} does not have")
        if isinstance(kind.balancer, LeastLoadedOfDrawn):
            fits = len(kind.balancer.choices) == count and _is_between(kind.balancer.choices, kind.boxes)
            _require(fits, f"drawn boxes of target {target} are not its boxes 0 to {kind.boxes - 1}, one for each request")
    if isinstance(route, MovingRoute):
        columns = (route.src_len, route.tgt_len, route.moments_s, *route.half_overhead_s)
        fits = all(column is None or len(column) == count for column in columns)
        fits = fits and len(route.hops) == targets - 1 and len(route.token_bytes) == len(route.half_overhead_s) == targets
        _require(fits, "a route of other requests or targets")
    if clients is not None:
        _require(route is not None, "clients without a route, which looks their links up")
        _require(clients.count >= 1 and clients.nodes >= 1, f"{clients.count} clients at {clients.nodes} end nodes")
        fits = len(clients.think_s) >= clients.count + count and _is_sound(clients.think_s)
        _require(fits, "think times below 0, infinite, NaN, or too few for the clients and requests")


class BlockChecks:
    """The checks of the blocks of one run, one after another."""

    __slots__ = ("_foresees", "_has_links", "_last_s")

    def __init__(self, has_links: bool, foresees: bool) -> None:
        """`has_links`: the columns hold the times of links. `foresees`: the times of all targets are read.

        Without foresight the times of targets that a fixed policy never chooses are not read, and of a policy in Python it is
        not known which are.
        """
        self._has_links, self._foresees, self._last_s = has_links, foresees, 0.0

    def check(self, block: Block, choice: Decide) -> None:
        """Raise `InputError` if columns of the next block hold what no request has; the message names the first such one."""
        only = None
        if not self._foresees and not isinstance(choice, LeastTotal):
            only = choice.target if isinstance(choice, Fixed) else NO_TARGET
        for name, column in _columns(block, self._has_links, only):
            if not _is_sound(column):
                faulty = ~(np.isfinite(column) & (np.asarray(column) >= 0))
                _refuse_first(block, faulty, f"{name} of request {{}} is below 0, infinite or NaN")
        if (arrival_s := block.arrival_s) is not None and len(arrival_s):
            if arrival_s[0] < self._last_s or (arrival_s[1:] < arrival_s[:-1]).any():
                falls = np.diff(arrival_s, prepend=self._last_s) < 0.0
                _refuse_first(block, falls, "arrival_s of request {} is before that of the request before")
            self._last_s = float(arrival_s[-1])
        targets = len(block.execution_s)
        if isinstance(choice, Fixed):
            _require(0 <= choice.target < targets, f"a policy for target {choice.target} of {targets}")
        elif isinstance(choice, LeastTotal):
            fits = len(choice.execution_s) == targets and all(len(column) == len(block) for column in choice.execution_s)
            _require(fits, "a policy that was prepared for other requests than those of the block")
            for column in choice.execution_s:
                if np.isnan(np.min(column, initial=0.0)):
                    _refuse_first(block, np.isnan(column), "a policy that estimates NaN for request {}")


def _refuse_first(block: Block, faulty: NDArray[np.bool_], fault: str) -> None:
    raise InputError(fault.format(block.first + int(faulty.argmax())))


def _columns(requests: Requests, has_links: bool, only: int | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the columns that a run reads, with their names; `only`: the target whose times are read, if not all are."""
    for name in ("src_len", "tgt_len", "arrival_s", "node", "access_s", "model"):
        if (column := getattr(requests, name)) is not None:
            yield name, column
    for target, column in enumerate(requests.execution_s):
        if only in (None, target):
            yield f"execution_s[{target}]", column
    for name in ("uplink_s", "downlink_s") if has_links else ():
        columns = getattr(requests, name)
        _require(len(columns) == len(requests.execution_s) - 1, f"{name} of {len(columns)} targets")
        for number, column in enumerate(columns):
            if only in (None, number + 1):
                yield f"{name}[{number}]", column


def _is_sound(column: Any) -> bool:
    """Return whether no number is below 0, infinite or NaN, by two passes that make no columns of their own."""
    return bool(np.min(column, initial=0) >= 0 and np.max(column, initial=0) < np.inf)


def _is_between(column: Any, end: int) -> bool:
    return not np.size(column) or bool(np.min(column) >= 0 and np.max(column) < end)


def _require(is_met: bool, fault: str) -> None:
    if not is_met:
        raise InputError(fault)
