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
from simnmt.batching import Batching
from simnmt.network.link import Hop, MovingRoute
from simnmt.network.series import Series
from simnmt.policies.decision import Choice, Fixed, LeastTotal
from simnmt.policies.estimates import ProbedEstimate, QuantileEstimate, TransferEstimate
from simnmt.policies.views import BacklogView, BatchView, PlanView
from simnmt.profile.batch_cost import DecodingCost, LengthForm
from simnmt.results.device_accounts import BatchAccount, BoxesUntil
from simnmt.results.requests import Block, Engine, Requests, Trail
from simnmt.world import simulation
from simnmt.world.batch_pool import BatchPool, BatchServerSpec, enough_waiting
from simnmt.world.deciders import Beliefs
from simnmt.world.fifo_server import FifoPool, LeastWork
from simnmt.world.server import Balancer, ByNode, FewestTokens, InTurn, LeastLoadedOfDrawn, Server, ServerSpec
from simnmt.world.simulation import Clients, DecideFor, ExpectedFor, PlanBeyondFor, Route
from simnmt.world.streaming_server import ROUNDING, PlanChange, StreamingPool, StreamingServerSpec, engaged_s

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


_BACK_TO_BACK, _OPEN_LOOP, _CLOSED_LOOP = range(3)
_ALWAYS, _LEAST_TOTAL = range(2)
_FIFO_POOL, _LEAST_WORK_POOL, _BATCH_POOL, _STREAMING_POOL = range(4)
_BALANCERS: dict[type[Balancer], int] = {ByNode: 0, InTurn: 1, LeastLoadedOfDrawn: 2, FewestTokens: 3}
_ESTIMATES: dict[type[TransferEstimate], int] = {TransferEstimate: 0, QuantileEstimate: 1, ProbedEstimate: 2}
_NUMBER, _REAL, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
_ProbeTime = ctypes.CFUNCTYPE(_REAL, _NUMBER, _NUMBER, _REAL)


class _LengthCost(ctypes.Structure):
    _fields_ = [
        *(("knots", _NUMBER), ("level", _REAL), ("slope", _REAL)),
        *((name, _POINTER) for name in ("start", "value", "slopes", "before")),
    ]


class _BatchCost(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in ("steps", "encoders", "gap_s")),
        *((name, _NUMBER) for name in ("encoder_count", "packs", "weighs_sources", "src_len")),
        *((name, _REAL) for name in ("mean_over_usual", "padding_share", "refill_s_fixed", "refill_s_per_sentence", "leave_s")),
        ("s_per_row_src_token", _REAL),
    ]


class _Batching(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBER) for name in ("size", "threshold", "collected", "padded_tokens", "together")),
        ("longest_wait_s", _REAL),
    ]


class _PoolSettings(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBER) for name in ("kind", "boxes", "workers", "balancer", "drawn")),
        *(("choices", _POINTER), ("cost", _POINTER), ("batching", _Batching), ("enough", _NUMBER), ("streaming", _POINTER)),
    ]


class _Plans(ctypes.Structure):
    _fields_ = [
        *((name, _REAL) for name in ("begin_s", "fill_s", "within_s", "slowing", "engagement_gap_s", "reclaimed_after_s")),
        *(("engaged_s", _REAL), ("fill_bytes", _NUMBER), ("offset", _NUMBER), ("keeps_preload", _NUMBER)),
        *((name, _POINTER) for name in ("read_s", "held_bytes", "kept_bytes", "streamed_bytes")),
    ]


class _StreamingSettings(ctypes.Structure):
    _fields_ = [*((name, _NUMBER) for name in ("states", "phases", "columns")), ("plans", _POINTER)]


_STREAMED_SECONDS = ("free_s", "disk_free_s", "begun_s", "compute_s", "filled_s", "held_byte_s", "deferred_since_s")
_STREAMED_COUNTS = ("filled_bytes", "peak_bytes", "peak_shard_bytes", "last_shard_bytes")


class _StreamingBox(ctypes.Structure):
    _fields_ = [
        *((name, _REAL) for name in _STREAMED_SECONDS),
        *((name, _NUMBER) for name in ("state", "phase", "is_deferred", "deferred_warm", *_STREAMED_COUNTS)),
        ("counts", ctypes.POINTER(_NUMBER)),
    ]


class _BatchViewSettings(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBER) for name in ("size", "threshold", "servers")),
        *((name, _REAL) for name in ("step_alone_s", "alone_s", "together_s")),
        *((name, _POINTER) for name in ("slower_s", "end_s")),
    ]


class _AccountCopy(ctypes.Structure):
    _fields_ = [
        *(("steps", ctypes.POINTER(_NUMBER)), ("timeline", ctypes.POINTER(_NUMBER)), ("step_s", ctypes.POINTER(_REAL))),
        *((name, _REAL) for name in ("encode_s", "refill_s")),
        *((name, _NUMBER) for name in ("encodings", "refills", "src_tokens", "padded_tokens", "sentences", "changes")),
    ]


class _EstimateSettings(ctypes.Structure):
    _fields_ = [
        *((name, _REAL) for name in ("initial_s", "weight", "quantile", "interval_s")),
        *((name, _NUMBER) for name in ("window", "kind")),
    ]


class _Series(ctypes.Structure):
    _fields_ = [("samples", _NUMBER), ("lap_s", _REAL), ("time_s", _POINTER), ("value", _POINTER)]


class _Link(ctypes.Structure):
    _fields_ = [("rtt", _Series), ("uplink_bps", _Series), ("downlink_bps", _Series)]


class _Hop(ctypes.Structure):
    _fields_ = [("link_count", _NUMBER), ("begin_count", _NUMBER), ("links", _POINTER), ("begin_s", _POINTER)]


class _Routes(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in ("access", "hops", "token_bytes", "src_len", "tgt_len", "moments_s", "half_overhead_s"))
    ]


class _Clients(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBER) for name in ("count", "nodes", "first_count", "requests")),
        *((name, _POINTER) for name in ("first", "think_s", "client_of", "back_s", "decided_s", "node")),
    ]


_TRAIL = {
    **dict.fromkeys(("arrival_s", "queue_s", "estimate_s", "measured_at_s"), np.float64),
    **dict.fromkeys(("lost_s", "execution_s", "first_token_s", "stall_s"), np.float64),
    **dict.fromkeys(("target", "state", "deadline_missed"), np.int8),
    "server": np.int16,
}
"""Columns that a run fills, in the order of the C."""


class _WorldSettings(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBER) for name in ("targets", "deciders", "workers", "discipline", "judged_limit")),
        *((name, _NUMBER) for name in ("probes", "true_transfer", "true_backlog")),
        *((name, _POINTER) for name in ("pools", "estimates", "parallel", "batch_views", "plan_views")),
        *(("is_local", _NUMBER), ("routes", _POINTER), ("clients", _POINTER)),
        ("rtt_s", _ProbeTime),
        ("allocations", _NUMBER),
        *((name, _POINTER) for name in _TRAIL),
    ]


class _Block(ctypes.Structure):
    _fields_ = [
        *((name, _NUMBER) for name in ("first", "count", "choice", "chosen")),
        *((name, _POINTER) for name in ("arrival_s", "access_s", "node", "src_len", "tgt_len")),
        *((name, _POINTER) for name in ("execution_s", "uplink_s", "downlink_s", "weighed_s", "expected", "factor")),
        *((name, _POINTER) for name in ("added", "beyond")),
    ]


_STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    *(_WorldSettings, _PoolSettings, _EstimateSettings, _Block),
    *(_BatchCost, _LengthCost, _BatchViewSettings, _AccountCopy),
    *(_StreamingSettings, _Plans, _StreamingBox),
    *(_Series, _Link, _Hop, _Routes, _Clients),
)
"""In the order of the C function `simnmt_world_size`."""


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
        "account": (None, _POINTER, _NUMBER, _NUMBER, _POINTER),
        "stream": (None, _POINTER, _NUMBER, _NUMBER, _POINTER),
        "size": (_NUMBER, _NUMBER),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(cdll, f"simnmt_world_{name}")
        function.restype, function.argtypes = result, arguments
    for number, structure in enumerate(_STRUCTURES):
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
    pools = [None if local is None else local.servers(deciders), *servers]
    _check(beliefs, requests, route, clients, pools)
    run = _Run(requests, beliefs, pools, deciders, workers, judged_share, allocations)
    run.meet_links(route, clients)
    with run.world(cdll) as world:
        for block in requests.blocks(BLOCK):
            run.check(cdll.simnmt_world_block(world, run.block(block, decide_for(block), expected_for, plan_beyond_for)))
        run.check(cdll.simnmt_world_end(world))
        return run.trail(cdll, world)


def _check(
    beliefs: Beliefs,
    requests: Requests[AnyColumn],
    route: Route | None,
    clients: Clients | None,
    pools: Sequence[Server | None],
) -> None:
    """Raise `UncompiledError` for what is not covered."""
    is_back_to_back = requests.arrival_s is None and clients is None
    uncovered = {
        "links that a function looks up": route is not None and not isinstance(route, MovingRoute),
        "batches without lengths": requests.tgt_len is None and any(pool is not None and pool.needs_tgt_len for pool in pools),
        "batches back to back": is_back_to_back and any(isinstance(pool, BatchPool) for pool in pools),
        "views back to back": is_back_to_back and any(beliefs.views),
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
        pools: Sequence[Server | None],
        deciders: int,
        workers: int,
        judged_share: float,
        allocations: int,
    ) -> None:
        self._targets, self._pools = len(pools), pools
        self._batched = {target: pool for target, pool in enumerate(pools) if isinstance(pool, BatchPool)}
        self._streamed = {target: pool for target, pool in enumerate(pools) if isinstance(pool, StreamingPool)}
        if self._targets > MOST_TARGETS:
            raise UncompiledError(f"{self._targets} targets")
        self._kept: list[Any] = []
        """What the C points to."""
        self._failure: BaseException | None = None
        self._judged_share = judged_share
        self._of_clients = dict[str, NDArray[Any]]()
        """Columns that only a closed loop has."""
        count = len(requests)
        is_open, streams = requests.arrival_s is not None, bool(self._streamed)
        optional = {"lost_s": judged_share > 0.0, **dict.fromkeys(("state", "stall_s", "deadline_missed"), streams)}
        optional |= dict.fromkeys(("execution_s", "first_token_s"), streams or bool(self._batched))
        unset = {"state": -1, **dict.fromkeys(("lost_s", "execution_s", "first_token_s"), np.nan)}
        self._columns = {
            name: np.full(count, unset.get(name, 0), dtype) for name, dtype in _TRAIL.items() if optional.get(name, True)
        }
        if is_open:
            self._columns["arrival_s"][:] = requests.arrival_s
        estimates = [beliefs.estimate(number, target) for number in range(deciders) for target in range(1, self._targets)]
        settings = self._settings = _WorldSettings()
        settings.targets, settings.deciders, settings.workers = self._targets, deciders, workers
        settings.discipline = _OPEN_LOOP if is_open else _BACK_TO_BACK
        settings.judged_limit = round(judged_share * 2**32) if is_open or streams else 0
        settings.probes, settings.true_transfer = beliefs.probes, beliefs.true_transfer
        settings.true_backlog, settings.allocations = beliefs.true_backlog, allocations
        settings.is_local = pools[0] is not None
        self._pool_settings = [_PoolSettings() if pool is None else self._pool(pool) for pool in pools]
        settings.pools = self._array(_PoolSettings, self._pool_settings)
        settings.estimates = self._array(_EstimateSettings, [_estimate_settings(estimate) for estimate in estimates])
        views = [None if view is None else view() for view in beliefs.views or [None] * self._targets]
        settings.parallel = self._array(_NUMBER, [_parallel(view) for view in views])
        if any(type(view) is BatchView for view in views):
            settings.batch_views = self._array(_POINTER, [self._batch_view(view) for view in views])
        if any(beliefs.plan_views):
            plans = [None if plan is None else plan() for plan in beliefs.plan_views]
            settings.plan_views = self._array(_POINTER, [self._plan_view(target, plan) for target, plan in enumerate(plans)])
        settings.rtt_s = self._probe_time(estimates)
        for name, column in self._columns.items():
            setattr(settings, name, column.ctypes.data)

    def meet_links(self, route: Route | None, clients: Clients | None) -> None:
        """Let the run look up its links, and let clients ask in a closed loop."""
        if isinstance(route, MovingRoute):
            made = _Routes()
            made.hops = self._array(_Hop, [self._hop(hop) for hop in route.hops])
            if route.access is not None:
                made.access = self._array(_Hop, [self._hop(route.access)])
            made.token_bytes = _column(np.array(route.token_bytes), self._kept, np.int64)
            made.src_len, made.tgt_len = (_column(column, self._kept, np.int64) for column in (route.src_len, route.tgt_len))
            made.moments_s = _column(route.moments_s, self._kept)
            made.half_overhead_s = _columns(route.half_overhead_s, self._kept)
            self._settings.routes = self._array(_Routes, [made])
        if clients is not None:
            assert route is not None
            self._settings.discipline = _CLOSED_LOOP
            self._settings.judged_limit = round(self._judged_share * 2**32)
            self._settings.clients = self._array(_Clients, [self._clients(clients)])

    def _hop(self, hop: Hop) -> _Hop:
        links = [
            _Link(self._series(link.rtt), self._series(link.uplink_bps), self._series(link.downlink_bps)) for link in hop.links
        ]
        return _Hop(len(links), len(hop.begin_s), self._array(_Link, links), _column(np.array(hop.begin_s), self._kept))

    def _series(self, series: Series | float) -> _Series:
        if not isinstance(series, Series):
            return _Series(1, 1.0, _column(np.zeros(1), self._kept), _column(np.array([series]), self._kept))
        columns = (_column(column, self._kept) for column in (series.time_s, series.value))
        return _Series(len(series.time_s), series.duration_s, *columns)

    def _clients(self, clients: Clients) -> _Clients:
        count = len(self._columns["arrival_s"])
        first = np.argsort(clients.think_s[: clients.count], kind="stable")[:count]
        made = _Clients(clients.count, clients.nodes, len(first), count)
        made.first, made.think_s = _column(first, self._kept, np.int64), _column(clients.think_s, self._kept)
        self._of_clients = {"node": np.zeros(count, np.int32), "decided_s": np.zeros(count)}
        for name, column in self._of_clients.items():
            setattr(made, name, column.ctypes.data)
        made.client_of, made.back_s = _column(np.zeros(count), self._kept, np.int64), _column(np.zeros(count), self._kept)
        return made

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

    def block(
        self, block: Block, choice: Choice, expected_for: ExpectedFor | None, plan_beyond_for: PlanBeyondFor | None
    ) -> Any:
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
        if self._streamed:
            added = [
                self._streamed[target].row_columns(block, block.execution_s[target]) if target in self._streamed else None
                for target in range(self._targets)
            ]
            made.added = self._tables(added, kept)
        if plan_beyond_for is not None:
            made.beyond = self._tables(plan_beyond_for(block), kept)
        if self._batched:
            made.src_len, made.tgt_len = _column(block.src_len, kept, np.int64), _column(block.tgt_len, kept, np.int64)
            made.factor = _columns([self._factors(target, block) for target in range(self._targets)], kept)
        made.execution_s = _columns(block.execution_s, kept)
        made.uplink_s, made.downlink_s = (_columns((None, *ways_s), kept) for ways_s in (block.uplink_s, block.downlink_s))
        if expected_for is not None:
            made.expected = _columns(expected_for(block), kept)
        kept.append(made)
        return ctypes.byref(made)

    def _factors(self, target: int, block: Block) -> NDArray[np.float64] | None:
        """Return by how much each sentence takes longer than usual at a target; None if sentences do not vary there."""
        pool = self._batched.get(target)
        columns = [] if pool is None else pool.row_columns(block, block.execution_s[target])
        return columns[0] if columns else None

    def _tables(self, tables: Sequence[Sequence[NDArray[np.float64]] | None], kept: list[Any]) -> int:
        """Return the address of the addresses of columns, by target."""
        made = (_POINTER * len(tables))(*(None if columns is None else _columns(columns, kept) for columns in tables))
        kept.append(made)
        return ctypes.addressof(made)

    def trail(self, cdll: ctypes.CDLL, world: int) -> Trail:
        """Return the trail of the run."""
        accounts: list[BatchAccount | BoxesUntil | None] = [None] * self._targets
        for target, pool in self._batched.items():
            accounts[target] = _account(cdll, world, target, pool)
        for target, streamed in self._streamed.items():
            _take_back(cdll, world, target, streamed)
            accounts[target] = streamed.account()
        trail = Trail.recorded(self._columns, int(cdll.simnmt_world_probes(world)), tuple(accounts))
        of_clients = self._of_clients
        decided_s = of_clients.get("decided_s", trail.decided_s)
        return replace(trail, node=of_clients.get("node"), decided_s=decided_s, engine="compiled")

    def _array(self, kind: Any, items: Sequence[Any]) -> int:
        made = (kind * len(items))(*items)
        self._kept.append(made)
        return ctypes.addressof(made)

    def _pool(self, server: Server) -> _PoolSettings:
        boxes, workers = len(server.boxes), 1
        balancer: Balancer = ByNode()
        cost, streaming, batching, enough = None, None, _Batching(), 0
        if type(server) is BatchPool:
            kind, balancer, batched = _BATCH_POOL, server.balancer, server.batched
            cost, batching, enough = self._cost(batched), _batching(batched.batching), enough_waiting(batched.batching)
        elif type(server) is StreamingPool:
            kind, balancer, streaming = _STREAMING_POOL, server.balancer, self._streaming(server.streamed)
        elif type(server) is LeastWork:
            kind, boxes, workers = _LEAST_WORK_POOL, server.count, server.workers
        elif type(server) is FifoPool:
            kind, workers, balancer = _FIFO_POOL, server.workers, server.balancer
        else:
            raise UncompiledError(f"servers of the kind {type(server).__name__}")
        if type(balancer) not in _BALANCERS or boxes > MOST_BOXES:
            raise UncompiledError(f"a balancer {type(balancer).__name__} of {boxes} boxes")
        settings = _PoolSettings(kind, boxes, workers, _BALANCERS[type(balancer)])
        settings.cost, settings.batching, settings.enough, settings.streaming = cost, batching, enough, streaming
        if isinstance(balancer, LeastLoadedOfDrawn):
            settings.drawn, settings.choices = len(balancer.choices), _columns(list(balancer.choices), self._kept, np.int16)
        return settings

    def _cost(self, batched: BatchServerSpec) -> int:
        """Return the address of the costs of batches."""
        cost, batching = batched.cost, batched.batching
        if type(cost) is not DecodingCost or batched.waking is not None:
            raise UncompiledError("batches of other costs")
        together = max(batching.encoded_together or batching.size, batching.size)
        steps, encoders = (
            self._array(_LengthCost, [self._length_cost(part.at_batch(batch)) for batch in range(1, most + 1)])
            for part, most in ((cost.step, batching.size), (cost.encoder, together))
        )
        made = _BatchCost(steps, encoders, _column(np.array([cost.gap_s(n) for n in range(1, batching.size + 1)]), self._kept))
        made.encoder_count, made.packs, made.src_len = together, cost.packs, cost.src_len or 0
        made.weighs_sources = any(cost.source_s(1, longest) for longest in (1, 2))
        for name in ("mean_over_usual", "padding_share", "refill_s_fixed", "refill_s_per_sentence", "leave_s"):
            setattr(made, name, getattr(cost, name))
        made.s_per_row_src_token = cost.s_per_row_src_token
        self._kept.append(made)
        return ctypes.addressof(made)

    def _streaming(self, streamed: StreamingServerSpec) -> int:
        """Return the address of a target's sets of plans."""
        phases = streamed.phases()
        plans = [self._plans(*phase, change) for phase, change in zip(phases, (None, *streamed.changes), strict=True)]
        made = _StreamingSettings(len(streamed.states), len(phases), streamed.columns, self._array(_Plans, plans))
        self._kept.append(made)
        return ctypes.addressof(made)

    def _plans(self, begin_s: float, streamed: StreamingServerSpec, offset: int, change: PlanChange | None) -> _Plans:
        lifecycle, states = streamed.lifecycle, streamed.states
        made = _Plans(begin_s, offset=offset, keeps_preload=lifecycle.keeps_preload)
        if change is not None:
            made.fill_s, made.fill_bytes = change.fill_s, change.fill_bytes
        made.within_s, made.slowing = streamed.deadline_s * ROUNDING, 1.0 - 1.0 / streamed.compute.slowed
        made.engagement_gap_s, made.reclaimed_after_s = lifecycle.engagement_gap_s, lifecycle.reclaimed_after_s
        made.engaged_s = engaged_s(lifecycle)
        made.read_s = _column(np.array([state.read_s for state in states]), self._kept)
        for name in ("held_bytes", "kept_bytes", "streamed_bytes"):
            setattr(made, name, _column(np.array([getattr(state, name) for state in states]), self._kept, np.int64))
        return made

    def _plan_view(self, target: int, view: Any) -> int | None:
        """Return the address of the plans of a target whose state a policy views."""
        if view is None:
            return None
        pool = self._streamed.get(target)
        if type(view) is not PlanView or pool is None or view.next_state != pool.streamed.lifecycle.next_state:
            raise UncompiledError(f"a view of the kind {type(view).__name__}")
        return int(self._pool_settings[target].streaming)

    def _length_cost(self, form: LengthForm) -> _LengthCost:
        tables = (_column(np.array(table), self._kept) for table in (form.start, form.value, form.slopes, form.before))
        return _LengthCost(len(form.start), form.level, form.slope, *tables)

    def _batch_view(self, view: Any) -> int | None:
        """Return the address of what the views of a target's batch have in common; None for another view."""
        if type(view) is not BatchView:
            return None
        made = _BatchViewSettings(view.size, view.threshold, view.servers, view.step_alone_s, view.alone_s, view.together_s)
        made.slower_s, made.end_s = (_column(np.array(table), self._kept) for table in (view.slower_s, view.end_s))
        self._kept.append(made)
        return ctypes.addressof(made)

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
    if view is None or type(view) is BatchView:
        return 0
    if type(view) is not BacklogView:
        raise UncompiledError(f"a view of the kind {type(view).__name__}")
    return view.parallel


def _batching(batching: Batching) -> _Batching:
    return _Batching(
        batching.size,
        batching.threshold,
        batching.collected or 0,
        batching.padded_tokens or 0,
        batching.encoded_together or batching.size,
        batching.longest_wait_s,
    )


def _take_back(cdll: ctypes.CDLL, world: int, target: int, pool: StreamingPool) -> None:
    """Bring the boxes of a target into the states that they have in the compiled world."""
    for number, box in enumerate(pool.boxes):
        copied = _StreamingBox()
        cdll.simnmt_world_stream(world, target, number, ctypes.byref(copied))
        counts = np.ctypeslib.as_array(copied.counts, (len(pool.streamed.phases()), len(pool.streamed.states))).tolist()
        deferred = (copied.deferred_since_s, bool(copied.deferred_warm)) if copied.is_deferred else None
        numbers = {name: getattr(copied, name) for name in (*_STREAMED_SECONDS[:-1], *_STREAMED_COUNTS)}
        box.resume(copied.phase, copied.state, counts, deferred, numbers)


def _account(cdll: ctypes.CDLL, world: int, target: int, pool: BatchPool) -> BatchAccount:
    """Return the account of all boxes of a target."""
    size, accounts = pool.batched.batching.size, list[BatchAccount]()
    for box in range(len(pool.boxes)):
        copied = _AccountCopy()
        cdll.simnmt_world_account(world, target, box, ctypes.byref(copied))
        timeline = np.empty((0, 2), np.int64)
        if copied.changes:
            timeline = np.ctypeslib.as_array(copied.timeline, (copied.changes, 2)).copy()
        steps, step_s = (np.ctypeslib.as_array(column, (size + 1,)).copy() for column in (copied.steps, copied.step_s))
        names = ("encode_s", "refill_s", "encodings", "refills", "src_tokens", "padded_tokens", "sentences")
        counts = {name: getattr(copied, name) for name in names}
        accounts.append(BatchAccount(size, steps, step_s, timeline=timeline, **counts))
    return accounts[0].merged(accounts[1:])


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
