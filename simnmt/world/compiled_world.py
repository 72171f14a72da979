"""The engines of the world: hand a run to the C in `compiled/` where that covers it, and to SimPy where it does not.

The C is a translation of the modules of this room, function by function: what anything means is documented there. Both give the
same bits. To read it, start with `compiled/simulation.h` beside `simulation.py`.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.network.link import Hop, MovingRoute
from simnmt.network.message_paths import Capacity, ConstantCapacity, MessagePaths, SeriesCapacity
from simnmt.network.series import Series
from simnmt.policies.decision import Choice, Fixed, LeastTotal
from simnmt.policies.views import BatchView, PlanView
from simnmt.results.columns import COLUMNS
from simnmt.results.device_accounts import BatchAccount, BoxesUntil
from simnmt.results.requests import Block, Engine, Requests, Trail
from simnmt.world import compiled_library as c
from simnmt.world import simulation
from simnmt.world.batch_pool import BatchPool, enough_waiting
from simnmt.world.checks import BlockChecks, check_run
from simnmt.world.compiled_library import library
from simnmt.world.compiled_settings import (
    NoLibraryError,
    UncompiledError,
    account_of,
    array_of,
    batch_cost,
    batching_settings,
    estimate_settings,
    parallel_workers,
    refuse_if_chosen,
    take_back,
)
from simnmt.world.deciders import Beliefs
from simnmt.world.faults import Faults
from simnmt.world.fifo_server import FifoPool, LeastWork
from simnmt.world.server import Balancer, ByNode, LeastLoadedOfDrawn, Server, ServerSpec
from simnmt.world.simulation import Clients, DecideFor, ExpectedFor, PlanBeyondFor, Route
from simnmt.world.streaming_server import ROUNDING, PlanChange, StreamingPool, StreamingServerSpec, engaged_s

_LOG = logging.getLogger("simnmt.world")
BLOCK = 65_536
"""Requests handed over at a time."""
PAUSE_AFTER_MS = 100
"""Time after which the C returns to Python, which handles signals there: an interrupt ends the run."""
EVENTS_A_LOOK = 256
"""Events after which the C looks at the clock; with an oracle's foresight, where events may take milliseconds, each."""
MOST_TARGETS, MOST_BOXES = 128, 32_768
"""Numbers of targets and boxes that the columns of a trail hold."""


def simulate(
    requests: Requests,
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
            refuse_if_chosen(engine, error)
            _LOG.debug("in SimPy, since %s", error)
    return simulation.simulate(requests, decide_for, beliefs, servers, **settings)


def simulate_compiled(
    requests: Requests,
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
    paths: MessagePaths | None = None,
    faults: Faults | None = None,
    allocations: int = -1,
    pause_after_ms: int = PAUSE_AFTER_MS,
) -> Trail:
    """Run every request through the compiled world, and return its trail; arguments as in `simulation.simulate`.

    `allocations`: of memory that succeed; below 0 all. `pause_after_ms`: see `PAUSE_AFTER_MS`; 0: pause between all events.
    Raises `UncompiledError` for a run that it does not cover, `MemoryError`, and `InputError` as `simulation.simulate` does.
    """
    cdll = library()
    if cdll is None:
        raise NoLibraryError
    check_run(requests, servers, deciders, workers, route, clients)
    if faults is not None:
        raise UncompiledError("faults")
    pools = [None if local is None else local.servers(deciders), *servers]
    _check(beliefs, requests, route, clients, pools)
    run = _Run(requests, beliefs, pools, deciders, workers, judged_share, allocations, has_messages=paths is not None)
    run.pause(pause_after_ms)
    run.meet_links(route, clients)
    if paths is not None:
        run.meet_messages(paths)
    checks = BlockChecks(route is None, beliefs.true_transfer or beliefs.true_backlog or judged_share > 0.0)
    with run.world(cdll) as world:
        for block in requests.blocks(BLOCK):
            choice = decide_for(block)
            checks.check(block, choice)
            run.go(cdll.simnmt_world_block, world, run.block(block, choice, expected_for, plan_beyond_for))
        run.go(cdll.simnmt_world_end, world)
        return run.trail(cdll, world)


def _check(
    beliefs: Beliefs,
    requests: Requests,
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
        requests: Requests,
        beliefs: Beliefs,
        pools: Sequence[Server | None],
        deciders: int,
        workers: int,
        judged_share: float,
        allocations: int,
        *,
        has_messages: bool = False,
    ) -> None:
        self._targets, self._pools = len(pools), pools
        self._batched = {target: pool for target, pool in enumerate(pools) if isinstance(pool, BatchPool)}
        self._streamed = {target: pool for target, pool in enumerate(pools) if isinstance(pool, StreamingPool)}
        if self._targets > MOST_TARGETS:
            raise UncompiledError(f"{self._targets} targets")
        self._kept: list[Any] = []
        """What the C points to."""
        self._judged_share = judged_share
        self._of_clients = dict[str, NDArray[Any]]()
        """Columns that only a closed loop has."""
        count = len(requests)
        is_open, streams = requests.arrival_s is not None, bool(self._streamed)
        optional = {
            "lost_s": judged_share > 0.0,
            "transfer_s": has_messages,
            **dict.fromkeys(("state", "stall_s", "deadline_missed"), streams),
        }
        recorded = frozenset[str]().union(*(pool.records for pool in pools if pool is not None))
        optional |= {name: name in recorded for name in ("execution_s", "first_token_s")}
        self._columns: dict[str, NDArray[Any]] = {
            name: COLUMNS[name].array(count) for name in c.TRAIL if optional.get(name, True)
        }
        estimates = [beliefs.estimate(number, target) for number in range(deciders) for target in range(1, self._targets)]
        settings = self._settings = c.WorldSettings()
        settings.targets, settings.deciders, settings.workers = self._targets, deciders, workers
        settings.discipline = c.OPEN_LOOP if is_open else c.BACK_TO_BACK
        settings.judged_limit = round(judged_share * 2**32) if is_open or streams else 0
        settings.true_transfer, settings.true_backlog = beliefs.true_transfer, beliefs.true_backlog
        settings.allocations = allocations
        settings.is_local = pools[0] is not None
        self._pool_settings = [c.PoolSettings() if pool is None else self._pool(pool) for pool in pools]
        settings.pools = array_of(c.PoolSettings, self._pool_settings, self._kept)
        settings.estimates = array_of(c.EstimateSettings, [estimate_settings(estimate) for estimate in estimates], self._kept)
        views = [None if view is None else view() for view in beliefs.views or [None] * self._targets]
        settings.parallel = array_of(c.NUMBER, [parallel_workers(view) for view in views], self._kept)
        if any(type(view) is BatchView for view in views):
            settings.batch_views = array_of(c.POINTER, [self._batch_view(view) for view in views], self._kept)
        if any(beliefs.plan_views):
            plans = [None if plan is None else plan() for plan in beliefs.plan_views]
            settings.plan_views = array_of(
                c.POINTER, [self._plan_view(target, plan) for target, plan in enumerate(plans)], self._kept
            )
        for name, column in self._columns.items():
            setattr(settings, name, column.ctypes.data)

    def meet_links(self, route: Route | None, clients: Clients | None) -> None:
        """Let the run look up its links, and let clients ask in a closed loop."""
        if isinstance(route, MovingRoute):
            made = c.Routes()
            made.hops = array_of(c.Hop, [self._hop(hop) for hop in route.hops], self._kept)
            if route.access is not None:
                made.access = array_of(c.Hop, [self._hop(route.access)], self._kept)
            made.token_bytes = c.address(np.array(route.token_bytes), self._kept, np.int64)
            made.src_len, made.tgt_len = (c.address(column, self._kept, np.int64) for column in (route.src_len, route.tgt_len))
            made.moments_s = c.address(route.moments_s, self._kept)
            made.half_overhead_s = c.addresses(route.half_overhead_s, self._kept)
            self._settings.routes = array_of(c.Routes, [made], self._kept)
        if clients is not None:
            assert route is not None
            self._settings.discipline = c.CLOSED_LOOP
            self._settings.judged_limit = round(self._judged_share * 2**32)
            self._settings.clients = array_of(c.Clients, [self._clients(clients)], self._kept)

    def meet_messages(self, paths: MessagePaths) -> None:
        """Let requests and answers meet each other on shared lines."""
        made = c.Paths()
        made.hops = array_of(c.Hop, [self._hop(hop) for hop in paths.hops], self._kept)
        made.uplinks = c.addresses([np.array(lines) for lines in paths.uplinks], self._kept, np.int64)
        made.lines = len(paths.capacities)
        made.capacities = array_of(c.Capacity, [self._capacity(capacity) for capacity in paths.capacities], self._kept)
        made.token_bytes = c.address(np.array(paths.token_bytes), self._kept, np.int64)
        made.src_len, made.tgt_len = (c.address(column, self._kept, np.int64) for column in (paths.src_len, paths.tgt_len))
        made.moments_s = c.address(paths.moments_s, self._kept)
        made.half_overhead_s = c.addresses(paths.half_overhead_s, self._kept)
        self._settings.paths = array_of(c.Paths, [made], self._kept)

    def _capacity(self, capacity: Capacity) -> c.Capacity:
        if isinstance(capacity, ConstantCapacity):
            return c.Capacity(bps=capacity.bps)
        if not isinstance(capacity, SeriesCapacity):
            raise UncompiledError("lines of another capacity")
        series = capacity.series
        columns = (c.address(np.asarray(column), self._kept) for column in (series.time_s, series.value, capacity.carried))
        return c.Capacity(len(series.time_s), 0.0, capacity.begin_s, series.duration_s, capacity.lap_bits, *columns)

    def _hop(self, hop: Hop) -> c.Hop:
        links = [
            c.Link(self._series(link.rtt), self._series(link.uplink_bps), self._series(link.downlink_bps)) for link in hop.links
        ]
        return c.Hop(
            len(links), len(hop.begin_s), array_of(c.Link, links, self._kept), c.address(np.array(hop.begin_s), self._kept)
        )

    def _series(self, series: Series | float) -> c.Series:
        if not isinstance(series, Series):
            return c.Series(1, 1.0, c.address(np.zeros(1), self._kept), c.address(np.array([series]), self._kept))
        columns = (c.address(column, self._kept) for column in (series.time_s, series.value))
        return c.Series(len(series.time_s), series.duration_s, *columns)

    def _clients(self, clients: Clients) -> c.Clients:
        count = len(self._columns["arrival_s"])
        first = np.argsort(clients.think_s[: clients.count], kind="stable")[:count]
        made = c.Clients(clients.count, clients.nodes, len(first), count)
        made.first, made.think_s = c.address(first, self._kept, np.int64), c.address(clients.think_s, self._kept)
        self._of_clients = {"node": np.zeros(count, np.int32), "decided_s": np.zeros(count)}
        for name, column in self._of_clients.items():
            setattr(made, name, column.ctypes.data)
        made.client_of, made.back_s = c.address(np.zeros(count), self._kept, np.int64), c.address(np.zeros(count), self._kept)
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

    def pause(self, after_ms: int) -> None:
        """Let the C return to Python after some time, at an event."""
        settings = self._settings
        foresees = settings.judged_limit or settings.true_backlog
        settings.events_a_look, settings.pause_after_ms = 1 if foresees or not after_ms else EVENTS_A_LOOK, after_ms

    def go(self, function: Callable[..., int], *arguments: Any) -> None:
        """Call a function of the C to its end, and raise what went wrong."""
        status = c.PAUSED
        while status == c.PAUSED:  # Python handles signals between two calls.
            status = function(*arguments)
        if status:
            raise MemoryError

    def block(
        self, block: Block, choice: Choice, expected_for: ExpectedFor | None, plan_beyond_for: PlanBeyondFor | None
    ) -> Any:
        """Return a block as the C reads it. Raises `UncompiledError` for a policy in Python."""
        self._kept_of_block = kept = list[Any]()
        made = c.Block()
        made.first, made.count = block.first, len(block)
        if isinstance(choice, LeastTotal):
            made.choice, made.weighed_s = c.LEAST_TOTAL, c.addresses(choice.execution_s, kept)
        elif isinstance(choice, Fixed):
            made.choice, made.chosen = c.ALWAYS, choice.target
        else:
            raise UncompiledError("a policy in Python")
        if block.arrival_s is not None:
            self._columns["arrival_s"][block.first : block.first + len(block)] = block.arrival_s
        made.arrival_s, made.access_s = c.address(block.arrival_s, kept), c.address(block.access_s, kept)
        made.node = c.address(block.node, kept, np.int32)
        if self._streamed:
            added = [
                self._streamed[target].row_columns(block, block.execution_s[target]) if target in self._streamed else None
                for target in range(self._targets)
            ]
            made.added = self._tables(added, kept)
        if plan_beyond_for is not None:
            made.beyond = self._tables(plan_beyond_for(block), kept)
        if self._batched:
            made.src_len, made.tgt_len = c.address(block.src_len, kept, np.int64), c.address(block.tgt_len, kept, np.int64)
            made.factor = c.addresses([self._factors(target, block) for target in range(self._targets)], kept)
        made.execution_s = c.addresses(block.execution_s, kept)
        made.uplink_s, made.downlink_s = (c.addresses((None, *ways_s), kept) for ways_s in (block.uplink_s, block.downlink_s))
        if expected_for is not None:
            made.expected = c.addresses(expected_for(block), kept)
        kept.append(made)
        return ctypes.byref(made)

    def _factors(self, target: int, block: Block) -> NDArray[np.float64] | None:
        """Return by how much each sentence takes longer than usual at a target; None if sentences do not vary there."""
        pool = self._batched.get(target)
        columns = [] if pool is None else pool.row_columns(block, block.execution_s[target])
        return columns[0] if columns else None

    def _tables(self, tables: Sequence[Sequence[NDArray[np.float64]] | None], kept: list[Any]) -> int:
        """Return the address of the addresses of columns, by target."""
        made = (c.POINTER * len(tables))(*(None if columns is None else c.addresses(columns, kept) for columns in tables))
        kept.append(made)
        return ctypes.addressof(made)

    def trail(self, cdll: ctypes.CDLL, world: int) -> Trail:
        """Return the trail of the run."""
        accounts: list[BatchAccount | BoxesUntil | None] = [None] * self._targets
        for target, pool in self._batched.items():
            accounts[target] = account_of(cdll, world, target, pool)
        for target, streamed in self._streamed.items():
            take_back(cdll, world, target, streamed)
            accounts[target] = streamed.account()
        trail = Trail.recorded(self._columns, tuple(accounts)).with_columns(**self._of_clients)
        return replace(trail, engine="compiled")

    def _pool(self, server: Server) -> c.PoolSettings:
        boxes, workers = len(server.boxes), 1
        balancer: Balancer = ByNode()
        cost, streaming, batching, enough = None, None, c.Batching(), 0
        if type(server) is BatchPool:
            kind, balancer, batched = c.BATCH_POOL, server.balancer, server.batched
            cost, batching = batch_cost(batched, self._kept), batching_settings(batched.batching)
            enough = enough_waiting(batched.batching)
        elif type(server) is StreamingPool:
            kind, balancer, streaming = c.STREAMING_POOL, server.balancer, self._streaming(server.streamed)
        elif type(server) is LeastWork:
            kind, boxes, workers = c.LEAST_WORK_POOL, server.count, server.workers
        elif type(server) is FifoPool:
            kind, workers, balancer = c.FIFO_POOL, server.workers, server.balancer
        else:
            raise UncompiledError(f"servers of the kind {type(server).__name__}")
        if type(balancer) not in c.BALANCERS or boxes > MOST_BOXES:
            raise UncompiledError(f"a balancer {type(balancer).__name__} of {boxes} boxes")
        settings = c.PoolSettings(kind, boxes, workers, c.BALANCERS[type(balancer)])
        settings.cost, settings.batching, settings.enough, settings.streaming = cost, batching, enough, streaming
        if isinstance(balancer, LeastLoadedOfDrawn):
            settings.drawn, settings.choices = len(balancer.choices), c.addresses(list(balancer.choices), self._kept, np.int16)
        return settings

    def _streaming(self, streamed: StreamingServerSpec) -> int:
        """Return the address of a target's sets of plans."""
        phases = streamed.phases()
        plans = [self._plans(*phase, change) for phase, change in zip(phases, (None, *streamed.changes), strict=True)]
        made = c.StreamingSettings(len(streamed.states), len(phases), streamed.columns, array_of(c.Plans, plans, self._kept))
        self._kept.append(made)
        return ctypes.addressof(made)

    def _plans(self, begin_s: float, streamed: StreamingServerSpec, offset: int, change: PlanChange | None) -> c.Plans:
        lifecycle, states = streamed.lifecycle, streamed.states
        made = c.Plans(begin_s, offset=offset, keeps_preload=lifecycle.keeps_preload)
        if change is not None:
            made.fill_s, made.fill_bytes = change.fill_s, change.fill_bytes
        made.within_s, made.slowing = streamed.deadline_s * ROUNDING, 1.0 - 1.0 / streamed.compute.slowed
        made.engagement_gap_s, made.reclaimed_after_s = lifecycle.engagement_gap_s, lifecycle.reclaimed_after_s
        made.engaged_s = engaged_s(lifecycle)
        made.read_s = c.address(np.array([state.read_s for state in states]), self._kept)
        for name in ("held_bytes", "kept_bytes", "streamed_bytes"):
            setattr(made, name, c.address(np.array([getattr(state, name) for state in states]), self._kept, np.int64))
        return made

    def _plan_view(self, target: int, view: Any) -> int | None:
        """Return the address of the plans of a target whose state a policy views."""
        if view is None:
            return None
        pool = self._streamed.get(target)
        if type(view) is not PlanView or pool is None or view.next_state != pool.streamed.lifecycle.next_state:
            raise UncompiledError(f"a view of the kind {type(view).__name__}")
        return int(self._pool_settings[target].streaming)

    def _batch_view(self, view: Any) -> int | None:
        """Return the address of what the views of a target's batch have in common; None for another view."""
        if type(view) is not BatchView:
            return None
        made = c.BatchViewSettings(view.size, view.threshold, view.servers, view.step_alone_s, view.alone_s, view.together_s)
        made.slower_s, made.end_s = (c.address(np.array(table), self._kept) for table in (view.slower_s, view.end_s))
        self._kept.append(made)
        return ctypes.addressof(made)
