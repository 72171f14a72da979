"""The engines of the world: hand a run to the C in `compiled/` where that covers it, and to SimPy where it does not.

The C is a translation of the modules of this room, function by function: what anything means is documented there. Both give the
same bits. To read it, start with `compiled/simulation.h` beside `simulation.py`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.columns import AnyColumn
from simnmt.base.compile import PORTABLE, WORLD_LIBRARY
from simnmt.base.errors import InputError
from simnmt.policies.decision import Choice, Fixed, LeastTotal
from simnmt.policies.estimates import ProbedEstimate, QuantileEstimate, TransferEstimate
from simnmt.policies.views import BacklogView
from simnmt.results.requests import Block, Engine, Requests, Trail
from simnmt.world import simulation
from simnmt.world.deciders import Beliefs
from simnmt.world.fifo_server import FifoPool, LeastWork
from simnmt.world.server import Balancer, ByNode, InTurn, LeastLoadedOfDrawn, Server, ServerSpec
from simnmt.world.simulation import Clients, DecideFor, ExpectedFor, PlanBeyondFor, Route

BLOCK = 65_536
"""Requests handed over at a time: between two blocks an interrupt is noticed."""
MOST_TARGETS, MOST_BOXES = 128, 32_768
"""Numbers of targets and boxes that the columns of a trail hold."""


class UncompiledError(Exception):
    """A run that the compiled world does not cover; the message names what."""


def simulate(
    requests: Requests[AnyColumn],
    decide_for: DecideFor,
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
            return simulate_compiled(requests, decide_for, beliefs, servers, **settings)
        except UncompiledError as error:
            if engine == "compiled":
                raise InputError(f"the compiled world does not cover {error}", remedy="leave out --engine") from None
    return simulation.simulate(requests, decide_for, beliefs, servers, **settings)


_BACK_TO_BACK, _OPEN_LOOP = range(2)
_ALWAYS, _LEAST_TOTAL = range(2)
_FIFO_POOL, _LEAST_WORK_POOL = range(2)
_BALANCERS = {ByNode: 0, InTurn: 1, LeastLoadedOfDrawn: 2}
_ESTIMATES: dict[type[TransferEstimate], int] = {TransferEstimate: 0, QuantileEstimate: 1, ProbedEstimate: 2}
_NUMBER, _REAL, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
_ProbeTime = ctypes.CFUNCTYPE(_REAL, _NUMBER, _NUMBER, _REAL)


class _PoolSettings(ctypes.Structure):
    _fields_ = [*((name, _NUMBER) for name in ("kind", "boxes", "workers", "balancer", "drawn")), ("choices", _POINTER)]


class _EstimateSettings(ctypes.Structure):
    _fields_ = [
        *((name, _REAL) for name in ("initial_s", "weight", "quantile", "interval_s")),
        *((name, _NUMBER) for name in ("window", "kind")),
    ]


_TRAIL = {
    **dict.fromkeys(("arrival_s", "queue_s", "estimate_s", "measured_at_s", "lost_s"), np.float64),
    "target": np.int8,
    "server": np.int16,
}
"""Columns that a run fills, in the order of the C."""


class _WorldSettings(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBER) for name in ("targets", "deciders", "workers", "discipline", "judged_limit")),
        *((name, _NUMBER) for name in ("probes", "true_transfer", "true_backlog")),
        *((name, _POINTER) for name in ("pools", "estimates", "parallel")),
        ("rtt_s", _ProbeTime),
        ("allocations", _NUMBER),
        *((name, _POINTER) for name in _TRAIL),
    ]


class _Block(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBER) for name in ("first", "count", "choice", "chosen")),
        *((name, _POINTER) for name in ("arrival_s", "access_s", "node")),
        *((name, _POINTER) for name in ("execution_s", "uplink_s", "downlink_s", "weighed_s", "expected")),
    ]


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled world; None if it was not compiled, or from other sources, which a warning says."""
    compiled, sources = WORLD_LIBRARY.compiled()
    path = compiled.get(PORTABLE)
    cdll = None if path is None else WORLD_LIBRARY.opened(path, sources)
    if cdll is None:
        return None
    signatures: dict[str, tuple[Any, ...]] = {
        "new": (_POINTER, _POINTER),
        "block": (_NUMBER, _POINTER, _POINTER),
        "end": (_NUMBER, _POINTER),
        "probes": (_NUMBER, _POINTER),
        "free": (None, _POINTER),
        "size": (_NUMBER, _NUMBER),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(cdll, f"simnmt_world_{name}")
        function.restype, function.argtypes = result, arguments
    for number, structure in enumerate((_WorldSettings, _PoolSettings, _EstimateSettings, _Block)):
        assert cdll.simnmt_world_size(number) == ctypes.sizeof(structure), f"{structure.__name__} is not as in C"
    return cdll


def simulate_compiled(
    requests: Requests[AnyColumn],
    decide_for: DecideFor,
    beliefs: Beliefs,
    servers: Sequence[Server],
    *,
    deciders: int = 1,
    workers: int = 1,
    expected_for: ExpectedFor | None = None,
    route: Route | None = None,
    clients: Clients | None = None,
    local: ServerSpec | None = None,
    plan_beyond_for: PlanBeyondFor | None = None,
    judged_share: float = 0.0,
    allocations: int = -1,
) -> Trail:
    """Run every request through the compiled world, and return its trail; arguments as in `simulation.simulate`.

    `allocations`: of memory that succeed; below 0 all. Raises `UncompiledError` for a run that it does not cover, and
    `MemoryError`.
    """
    cdll = library()
    if cdll is None:
        raise UncompiledError("the compiled world is not there")
    _check(beliefs, requests, route, clients, local, plan_beyond_for, judged_share)
    run = _Run(requests, beliefs, servers, deciders, workers, judged_share, allocations)
    with run.world(cdll) as world:
        for block in requests.blocks(BLOCK):
            run.check(cdll.simnmt_world_block(world, run.block(block, decide_for(block), expected_for)))
        run.check(cdll.simnmt_world_end(world))
        return run.trail(int(cdll.simnmt_world_probes(world)))


def _check(
    beliefs: Beliefs,
    requests: Requests[AnyColumn],
    route: Route | None,
    clients: Clients | None,
    local: ServerSpec | None,
    plan_beyond_for: PlanBeyondFor | None,
    judged_share: float,
) -> None:
    """Raise `UncompiledError` for what is not covered."""
    uncovered = {
        "a closed loop": clients is not None,
        "links that are looked up during the run": route is not None,
        "a decider's device of another kind": local is not None,
        "states of streamed models": plan_beyond_for is not None or any(beliefs.plan_views),
        "true waits back to back": requests.arrival_s is None and (beliefs.true_backlog or judged_share > 0.0),
        "views back to back": requests.arrival_s is None and any(beliefs.views),
    }
    for what, has in uncovered.items():
        if has:
            raise UncompiledError(what)


class _Run:
    """One run: the structures that the C reads, and the arrays behind them, which live as long."""

    def __init__(
        self,
        requests: Requests[AnyColumn],
        beliefs: Beliefs,
        servers: Sequence[Server],
        deciders: int,
        workers: int,
        judged_share: float,
        allocations: int,
    ) -> None:
        self._targets = 1 + len(servers)
        if self._targets > MOST_TARGETS:
            raise UncompiledError(f"{self._targets} targets")
        self._kept: list[Any] = []
        """What the C points to."""
        self._failure: BaseException | None = None
        count = len(requests)
        optional = () if judged_share > 0.0 else ("lost_s",)
        self._columns = {name: np.zeros(count, dtype) for name, dtype in _TRAIL.items() if name not in optional}
        if judged_share > 0.0:
            self._columns["lost_s"][:] = np.nan
        is_open = requests.arrival_s is not None
        if is_open:
            self._columns["arrival_s"][:] = requests.arrival_s
        estimates = [beliefs.estimate(number, target) for number in range(deciders) for target in range(1, self._targets)]
        settings = self._settings = _WorldSettings()
        settings.targets, settings.deciders, settings.workers = self._targets, deciders, workers
        settings.discipline = _OPEN_LOOP if is_open else _BACK_TO_BACK
        settings.judged_limit = round(judged_share * 2**32)
        settings.probes, settings.true_transfer = beliefs.probes, beliefs.true_transfer
        settings.true_backlog, settings.allocations = beliefs.true_backlog, allocations
        settings.pools = self._array(_PoolSettings, [self._pool(server) for server in servers])
        settings.estimates = self._array(_EstimateSettings, [_estimate_settings(estimate) for estimate in estimates])
        settings.parallel = self._array(_NUMBER, [_parallel(view) for view in beliefs.views or [None] * self._targets])
        settings.rtt_s = self._probe_time(estimates)
        for name, column in self._columns.items():
            setattr(settings, name, column.ctypes.data)

    @contextmanager
    def world(self, cdll: ctypes.CDLL) -> Iterator[int]:
        """Return the world before its first request, within `with`."""
        world = cdll.simnmt_world_new(ctypes.byref(self._settings))
        if world is None:
            raise MemoryError
        try:
            yield world
        finally:
            cdll.simnmt_world_free(world)

    def check(self, status: int) -> None:
        """Raise what went wrong in a call of the C."""
        if self._failure is not None:
            raise self._failure
        if status:
            raise MemoryError

    def block(self, block: Block, choice: Choice, expected_for: ExpectedFor | None) -> Any:
        """Return a block as the C reads it. Raises `UncompiledError` for a policy in Python."""
        self._kept_of_block = kept = list[Any]()
        made = _Block()
        made.first, made.count = block.first, len(block)
        if isinstance(choice, LeastTotal):
            made.choice, made.weighed_s = _LEAST_TOTAL, _columns(choice.execution_s, kept)
        elif isinstance(choice, Fixed):
            made.choice, made.chosen = _ALWAYS, choice.target
        else:
            raise UncompiledError("a policy in Python")
        made.arrival_s, made.access_s = _column(block.arrival_s, kept), _column(block.access_s, kept)
        made.node = _column(block.node, kept, np.int32)
        made.execution_s = _columns(block.execution_s, kept)
        made.uplink_s, made.downlink_s = (_columns((None, *ways_s), kept) for ways_s in (block.uplink_s, block.downlink_s))
        if expected_for is not None:
            made.expected = _columns(expected_for(block), kept)
        kept.append(made)
        return ctypes.byref(made)

    def trail(self, probes: int) -> Trail:
        """Return the trail of the run."""
        return replace(Trail.recorded(self._columns, probes, (None,) * self._targets), engine="compiled")

    def _array(self, kind: Any, items: Sequence[Any]) -> int:
        made = (kind * len(items))(*items)
        self._kept.append(made)
        return ctypes.addressof(made)

    def _pool(self, server: Server) -> _PoolSettings:
        boxes, workers = len(server.boxes), 1
        balancer: Balancer = ByNode()
        if type(server) is LeastWork:
            kind, boxes, workers = _LEAST_WORK_POOL, server.count, server.workers
        elif type(server) is FifoPool:
            kind, workers, balancer = _FIFO_POOL, server.workers, server.balancer
        else:
            raise UncompiledError(f"a {type(server).__name__}")
        if type(balancer) not in _BALANCERS or boxes > MOST_BOXES:
            raise UncompiledError(f"a balancer {type(balancer).__name__} of {boxes} boxes")
        settings = _PoolSettings(kind, boxes, workers, _BALANCERS[type(balancer)])
        if isinstance(balancer, LeastLoadedOfDrawn):
            settings.drawn, settings.choices = len(balancer.choices), _columns(list(balancer.choices), self._kept, np.int16)
        return settings

    def _probe_time(self, estimates: Sequence[TransferEstimate]) -> Any:
        """Return the function by which the C asks for the round trip of a probe; an error of it ends the run at the block."""
        beyond = self._targets - 1

        def rtt_s(decider: int, target: int, at_s: float) -> float:
            estimate = estimates[decider * beyond + target - 1]
            assert isinstance(estimate, ProbedEstimate)
            try:
                return estimate.rtt_s(at_s)
            except BaseException as error:
                self._failure = error
                return inf

        made = _ProbeTime(rtt_s)
        self._kept.append(made)
        return made


def _estimate_settings(estimate: TransferEstimate) -> _EstimateSettings:
    kind = _ESTIMATES.get(type(estimate))
    if kind is None:
        raise UncompiledError(f"an estimate of kind {type(estimate).__name__}")
    settings = _EstimateSettings(estimate.value_s, estimate.weight, kind=kind)
    if isinstance(estimate, QuantileEstimate):
        settings.quantile, settings.window = estimate.quantile, estimate.window
    elif isinstance(estimate, ProbedEstimate):
        settings.interval_s = estimate.interval_s
    return settings


def _parallel(view: Any) -> int:
    """Return the workers that a view of the backlog mirrors; 0 without a view."""
    if view is None:
        return 0
    made = view()
    if type(made) is not BacklogView:
        raise UncompiledError(f"a view of kind {type(made).__name__}")
    return made.parallel


def _column(column: NDArray[Any] | None, kept: list[Any], dtype: Any = np.float64) -> int | None:
    """Return the address of a column's numbers."""
    if column is None:
        return None
    made = np.ascontiguousarray(column, dtype)
    kept.append(made)
    return made.ctypes.data


def _columns(columns: Sequence[NDArray[Any] | None], kept: list[Any], dtype: Any = np.float64) -> int:
    """Return the address of the addresses of columns."""
    made = (_POINTER * len(columns))(*(_column(column, kept, dtype) for column in columns))
    kept.append(made)
    return ctypes.addressof(made)
