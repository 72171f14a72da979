"""The compiled engine: hand a run to the C in `compiled/`, and take its trail back.

The C runs what scenarios use every day, with plain rules as columns, and calls Python back for a policy that decides by a
function. It makes the choices of the reference, and gives times that agree to 1e-9. To read it, start with
`compiled/settings.h`, then `traffic.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.devices import Batched, Fifo, Kind, Slots, Streamed
from simnmt.devices.device import Balancer, ByNode, InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.devices.models import Models
from simnmt.devices.stream import ROUNDING, StreamBox, boxes_until, engaged_s
from simnmt.devices.translation_cache import CacheConfiguration
from simnmt.network.link import Hop, MovingRoute
from simnmt.network.series import Series
from simnmt.policies.batch_view import BatchView
from simnmt.policies.decision import Decide, DecisionView, Fixed, LeastTotal
from simnmt.policies.estimates import QuantileEstimate, TransferEstimate
from simnmt.policies.views import BacklogView, PlanView
from simnmt.results.columns import DEFERRED_COLUMNS, recorder
from simnmt.results.device_accounts import BatchAccount, BoxesUntil
from simnmt.results.requests import Block, Trail
from simnmt.world.cached import cached_columns
from simnmt.world.checks import BlockChecks
from simnmt.world.compiled_batches import account_of, batch_cost, batching_settings, classes_of
from simnmt.world.deciders import Beliefs, checked_target
from simnmt.world.inputs import Clients, PolicySetup, World
from simnmt.world.structures import NUMBER, POINTER, DecideCallback, PinnedMemory, UncompiledError, c, library

BLOCK = 65_536
"""Requests handed over at a time."""
PAUSE_AFTER_MS = 100
"""Time after which the C returns to Python, which handles signals there: an interrupt ends the run."""
EVENTS_A_LOOK = 256
"""Events after which the C looks at the clock."""
MOST_TARGETS, MOST_BOXES = 128, 32_768
"""Numbers of targets and boxes that the columns of a trail hold."""
BALANCERS: dict[type[Balancer], int] = {
    ByNode: c.BY_NODE,
    InTurn: c.IN_TURN,
    LeastLoadedOfDrawn: c.LEAST_LOADED_OF_DRAWN,
    LeastWork: c.LEAST_WORK,
}


NOT_COMPILED = "the compiled engine is not compiled"


def simulate_compiled(
    world: World, policy: PolicySetup, judged_share: float = 0.0, *, pause_after_ms: int = PAUSE_AFTER_MS
) -> Trail:
    """Run every request through the compiled engine, and return its trail, as `simulate_reference` does.

    `pause_after_ms`: see `PAUSE_AFTER_MS`; 0: pause between all events. Raises `UncompiledError` for a run that it does not
    cover, `MemoryError`, what a policy in Python raises, and `InputError` as the reference does.
    """
    cdll = library()
    if cdll is None:
        raise UncompiledError(NOT_COMPILED)
    requests, route = world.requests, world.route
    if world.faults is not None:
        raise UncompiledError("faults are simulated by the reference alone")
    if world.has_caches and world.clients is not None:
        raise UncompiledError("caches of a closed loop are simulated by the reference alone")
    if any(cache is not None and cache.miss_ms for cache in world.caches):
        raise UncompiledError("decisions that wait for the look-up in a cache are simulated by the reference alone")
    if world.clients is not None and (world.refuses or requests.patience_s is not None):
        raise UncompiledError("clients of a closed loop that are refused or give up are simulated by the reference alone")
    if route is not None and not isinstance(route, MovingRoute):
        raise UncompiledError("links are looked up by a function")
    if requests.arrival_s is None and world.clients is None and any(any(beliefs.views) for beliefs in policy.beliefs):
        raise UncompiledError("views have no meaning back to back")
    if policy.second_for is not None and any(isinstance(kind, Streamed) or _loads_models(kind) for kind in world.local):
        raise UncompiledError("second decisions after a model was streamed or loaded are in the reference alone")
    run = _Run(world, policy, judged_share, pause_after_ms)
    run.meet_links(route, world.clients)
    knows_truth = any(beliefs.knows_truth for beliefs in policy.beliefs)
    checks = BlockChecks(route is None, foresees=knows_truth or judged_share > 0.0)
    with run.world(cdll) as address:
        # Where links are looked up during the run, their times are kept by request, and requests that are refused or sent on
        # are decided on again: the run is one block then.
        is_whole = world.refuses or route is not None or policy.second_for is not None
        for block in requests.blocks(max(len(requests), 1) if is_whole else BLOCK):
            choice, second = policy.decide_for(block), None if policy.second_for is None else policy.second_for(block)
            checks.check(block, choice, second)
            run.call_to_end(cdll.simnmt_world_block, address, run.block(block, choice, second))
        run.call_to_end(cdll.simnmt_world_end, address)
        return run.trail(cdll, address)


class _Run:
    """One run: the structures that the C reads, and the arrays behind them, which live as long."""

    def __init__(self, world: World, policy: PolicySetup, judged_share: float, pause_after_ms: int) -> None:
        requests, self._kinds = world.requests, [*world.local, *world.kinds]
        self._world, self._policy, self._targets, self._memory = world, policy, 1 + len(world.kinds), PinnedMemory()
        if self._targets > MOST_TARGETS:
            raise UncompiledError(f"{self._targets} targets are more than the compiled engine holds")
        plain = [type(kind) is Fifo and kind.models is None and not kind.keeps_queue for kind in world.local]
        pools = [*world.kinds, *(kind for kind, is_plain in zip(world.local, plain, strict=True) if not is_plain)]
        if any(kind.boxes > MOST_BOXES for kind in pools):
            raise UncompiledError(f"more than {MOST_BOXES} boxes of a target are in the reference alone")
        optional = frozenset[str]().union(*(kind.records for kind in self._kinds))
        judged = {"decision_regret_s"} if judged_share > 0.0 else frozenset[str]()
        limited = {"outcome", "tries", "retry_s"} if world.refuses else set[str]()
        twice = () if policy.second_for is None else DEFERRED_COLUMNS
        self._columns = dict(recorder(len(requests), optional.union(judged, limited, cached_columns(world), twice)))
        if requests.arrival_s is not None:
            self._columns["arrival_s"] = np.ascontiguousarray(requests.arrival_s, np.float64)
        self._node: NDArray[np.int32] | None = None
        self._decided_s: NDArray[np.float64] | None = None
        self._links: list[NDArray[np.float64] | None] = []
        self._raised: BaseException | None = None
        """What a policy in Python raised."""
        self._decide: Callable[[int, Any], int] | None = None
        """The policy in Python, prepared for the present block."""
        streams = any(isinstance(kind, Streamed) for kind in self._kinds)
        settings = self._settings = c.WorldSettings()
        settings.targets, settings.deciders, settings.group_count = self._targets, world.deciders, len(world.local)
        settings.discipline = c.BACK_TO_BACK if requests.arrival_s is None else c.OPEN_LOOP
        is_paced = requests.arrival_s is not None or world.clients is not None
        settings.judged_limit = round(judged_share * 2**32) if is_paced or streams else 0
        settings.events_a_look, settings.pause_after_ms = EVENTS_A_LOOK if pause_after_ms else 1, pause_after_ms
        settings.passes_on, settings.retries = world.passes_on, len(requests.retry_after_s)
        if world.refuses:
            self._decided_s = self._columns["arrival_s"].copy()
            settings.decided_s = self._decided_s.ctypes.data
        self._pools = [self._pool(kind) for kind in world.kinds]
        settings.pools = self._memory.array(c.PoolSettings, self._pools)
        caches = world.caches or [None] * len(world.local)
        groups = [self._group(*group) for group in zip(world.local, policy.beliefs, caches, strict=True)]
        if world.has_caches:
            settings.sentence = self._memory.address(requests.sentence, np.int64)
        settings.groups = self._memory.array(c.DeciderGroup, groups)
        estimates = [
            beliefs.estimate(number, target)
            for kind, beliefs in zip(world.local, policy.beliefs, strict=True)
            for number in range(kind.boxes)
            for target in range(1, self._targets)
        ]
        settings.estimates = self._memory.array(c.EstimateSettings, [_estimate_settings(estimate) for estimate in estimates])
        self._shown = (ctypes.c_double * (4 * self._targets + 3))()
        settings.shown = ctypes.addressof(self._shown)
        callback = DecideCallback(self._called_back)
        self._memory.append(callback)
        settings.decide = ctypes.cast(callback, ctypes.c_void_p)
        filled = {name for name, _ in c.WorldSettings._fields_}
        for name, column in self._columns.items():
            if name not in filled:
                raise UncompiledError(f"the column {name} is filled in the reference alone")
            setattr(settings, name, column.ctypes.data)

    def meet_links(self, route: MovingRoute | None, clients: Clients | None) -> None:
        """Let the run look up its links, and let clients ask in a closed loop."""
        memory, count = self._memory, len(self._columns["arrival_s"])
        if route is not None:
            routes = c.Routes()
            routes.hops = memory.array(c.Hop, [self._hop(hop) for hop in route.hops])
            if route.access is not None:
                routes.access = memory.array(c.Hop, [self._hop(route.access)])
            routes.token_bytes = memory.address(np.array(route.token_bytes), np.int64)
            routes.src_len, routes.tgt_len = (memory.address(column, np.int64) for column in (route.src_len, route.tgt_len))
            routes.moments_s = memory.address(route.moments_s)
            routes.half_overhead_s = memory.addresses(route.half_overhead_s)
            self._settings.routes = memory.structure(routes)
            self._links = [None, *(np.zeros(count) for _ in range(self._targets - 1))]
        if clients is not None:
            self._settings.discipline = c.CLOSED_LOOP
            self._node, self._decided_s = np.zeros(count, np.int32), np.zeros(count)
            first = np.argsort(clients.think_s[: clients.count], kind="stable")[:count]
            settings = c.Clients(clients.count, clients.nodes, len(first), count)
            settings.first, settings.think_s = memory.address(first, np.int64), memory.address(clients.think_s)
            settings.decided_s = memory.address(self._decided_s)
            settings.client_of, settings.back_s = (
                memory.address(np.zeros(count, np.int64), np.int64),
                memory.address(np.zeros(count)),
            )
            self._settings.clients = memory.structure(settings)

    def _hop(self, hop: Hop) -> Any:
        links = [
            c.Link(*(self._series(series) for series in (link.rtt, link.uplink_bps, link.downlink_bps))) for link in hop.links
        ]
        begin_s = self._memory.address(np.array(hop.begin_s))
        return c.Hop(len(links), len(hop.begin_s), self._memory.array(c.Link, links), begin_s)

    def _series(self, series: Series | float) -> Any:
        if not isinstance(series, Series):
            return c.Series(1, 1.0, self._memory.address(np.zeros(1)), self._memory.address(np.array([series])))
        columns = (self._memory.address(column) for column in (series.time_s, series.value))
        return c.Series(len(series.time_s), series.duration_s, *columns)

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

    def call_to_end(self, function: Callable[..., int], *arguments: Any) -> None:
        """Call a function of the C to its end, and raise what went wrong."""
        status = c.PAUSED
        while status == c.PAUSED:  # Python handles signals between two calls.
            status = function(*arguments)
        if self._raised is not None:
            raise self._raised
        if status:
            raise MemoryError

    def block(self, block: Block, choice: Decide, second: LeastTotal | None) -> Any:
        """Return a block as the C reads it."""
        memory = self._memory_of_block = PinnedMemory()
        settings = c.Block()
        settings.first, settings.count = block.first, len(block)
        if isinstance(choice, LeastTotal):
            settings.choice, settings.weighed_s = c.LEAST_TOTAL, memory.addresses(choice.execution_s)
        elif isinstance(choice, Fixed):
            settings.choice, settings.chosen = c.ALWAYS, choice.target
        else:
            settings.choice, self._decide = c.CALLED, choice
        if second is not None:
            settings.second_s = memory.addresses(second.execution_s)
        settings.retry_after_s = memory.addresses(block.retry_after_s)
        settings.patience_s = memory.address(block.patience_s)
        settings.arrival_s, settings.access_s = memory.address(block.arrival_s), memory.address(block.access_s)
        settings.node = memory.address(block.node if self._node is None else self._node, np.int32)
        decider = None if self._world.decider is None else self._world.decider[block.first : block.first + len(block)]
        settings.decider = memory.address(decider, np.int32)
        settings.model = memory.address(block.model, np.int64)
        settings.document = memory.address(block.document if self._world.decides_by_document else None, np.int32)
        settings.priority = memory.address(block.priority, np.int8)
        self._set_device_columns(settings, block, decider)
        if self._policy.plan_beyond_for is not None:
            settings.beyond = memory.tables(self._policy.plan_beyond_for(block))
        settings.execution_s = memory.addresses(block.execution_s)
        settings.uplink_s, settings.downlink_s = (
            memory.addresses([None if column is None else column.copy() for column in self._links] or (None, *ways_s))
            for ways_s in (block.uplink_s, block.downlink_s)
        )
        if self._policy.expected_for is not None:
            settings.expected = memory.addresses(self._policy.expected_for(block))
        memory.append(settings)
        return ctypes.byref(settings)

    def _set_device_columns(self, settings: Any, block: Block, decider: NDArray[np.int32] | None) -> None:
        """Set the columns that boxes which batch or stream need of the requests of a block; `decider`: of each request."""
        memory, groups, first = self._memory_of_block, len(self._world.local), 0
        added, factors, tokens = ([list[Floats]() for _ in range(self._targets)] for _ in range(3))
        for number, kind in enumerate(self._kinds):
            rows: slice | NDArray[np.int64] = slice(None)
            target, begin = max(number - groups + 1, 0), first
            first += kind.boxes
            if not isinstance(kind, Batched | Slots | Streamed):
                continue
            if number < groups > 1:
                assert decider is not None
                rows = np.flatnonzero((decider >= begin) & (decider < first))
            src_len, execution_s = block.src_len[rows], block.execution_s[target][rows]
            tgt_len = None if block.tgt_len is None else block.tgt_len[rows]
            if isinstance(kind, Streamed):
                _put(added[target], kind.row_columns(src_len, tgt_len, execution_s), rows, len(block))
            elif isinstance(kind, Slots):
                assert tgt_len is not None
                _put(tokens[target], kind.tokens(src_len, tgt_len), rows, len(block))
            else:
                assert tgt_len is not None
                factor = kind.factors(src_len, tgt_len, execution_s, None if block.model is None else block.model[rows])
                _put(factors[target], [] if factor is None else [factor], rows, len(block))
                settings.src_len, settings.tgt_len = (
                    memory.address(length, np.int64) for length in (block.src_len, block.tgt_len)
                )
        settings.added = memory.tables([columns or None for columns in added])
        settings.prompt, settings.output = (
            memory.addresses([columns[place] if columns else None for columns in tokens], np.int64) for place in range(2)
        )
        settings.factor = memory.addresses([columns[0] if columns else None for columns in factors])

    def _called_back(self, in_block: int) -> int:
        """Return the decision of a policy in Python, or -1. What it raises is kept, and raised when the C has returned."""
        assert self._decide is not None
        try:
            return checked_target(self._decide(in_block, self._input_of_decision()), self._targets)
        except BaseException as error:  # an interrupt as well: no exception crosses the C
            self._raised = error
            return -1

    def _input_of_decision(self) -> Any:
        targets, shown = self._targets, self._shown
        delay_s = shown[:targets]
        if not shown[4 * targets + 2]:
            return delay_s
        rtt_s, age_s, wait_s = (shown[number * targets : (number + 1) * targets] for number in (1, 2, 3))
        reports = [None if isnan(wait) else wait for wait in wait_s]
        return DecisionView(delay_s, shown[4 * targets], shown[4 * targets + 1], rtt_s, age_s, reports)

    def trail(self, cdll: ctypes.CDLL, world: int) -> Trail:
        """Return the trail of the run."""
        accounts = list[BatchAccount | BoxesUntil | None]()
        for pool, kind in enumerate(self._kinds):
            if isinstance(kind, Batched | Slots):
                accounts.append(_account(cdll, world, pool, kind))
            else:
                accounts.append(_streamed_until(cdll, world, pool, kind) if isinstance(kind, Streamed) else None)
        groups = len(self._world.local)
        by_target = [accounts[:groups], *([account] for account in accounts[groups:])]
        trail = replace(Trail.recorded(self._columns, by_target), engine="compiled", engine_reason="")
        return trail if self._decided_s is None else trail.with_columns(node=self._node, decided_s=self._decided_s)

    def _group(self, kind: Kind, beliefs: Beliefs, cache: CacheConfiguration | None) -> Any:
        """Return the settings of a group of deciders."""
        memory, none = self._memory, [None] * self._targets
        group = c.DeciderGroup(self._pool(kind), beliefs.true_transfer, beliefs.true_backlog, beliefs.shows_view)
        views = [None if view is None else view() for view in beliefs.views or none]
        if any(view is not None and type(view) not in (BacklogView, BatchView) for view in views):
            raise UncompiledError("the policy has a view of another kind")
        group.parallel = memory.array(NUMBER, [view.parallel if type(view) is BacklogView else 0 for view in views])
        group.batch_views = memory.array(POINTER, [self._batch_view(view) for view in views])
        if cache is not None:
            settings = c.CacheSettings(cache.entries, cache.coalesce, cache.lifetime_s, cache.hit_s)
            group.cache = memory.structure(settings)
        plans = [None if plan is None else plan() for plan in beliefs.plan_views or none]
        targets = zip([kind, *self._world.kinds], [group.pool, *self._pools], plans, strict=True)
        group.plan_views = memory.array(POINTER, [_plan_view(*target) for target in targets])
        return group

    def _pool(self, kind: Kind) -> Any:
        balancer = kind.balancer
        if type(balancer) not in BALANCERS:
            raise UncompiledError(f"a balancer {type(balancer).__name__} is not in the compiled engine")
        settings = c.PoolSettings(c.FIFO_POOL, kind.boxes, 1, BALANCERS[type(balancer)])
        if type(kind) is Fifo:
            settings.workers = kind.workers
            if kind.models is not None and kind.models.loads:
                settings.kind, settings.models = c.MODEL_POOL, self._models(kind.models)
            if kind.keeps_queue:
                settings.kind, settings.classes = c.QUEUE_POOL, classes_of(kind.max_wait_s, self._memory)
                settings.factor_count = len(kind.occupancy_factors)
                settings.factors = self._memory.address(np.array(kind.occupancy_factors))
        elif isinstance(kind, Batched):
            if kind.models is not None:
                costs = [batch_cost(kind.batching, cost, self._memory) for cost in kind.costs]
                settings.models = self._models(kind.models, costs)
            settings.kind, settings.cost = c.BATCH_POOL, batch_cost(kind.batching, kind.cost, self._memory)
            settings.batching = batching_settings(kind.batching, kind.ends_together, self._memory)
            settings.full_step_s = kind.full_step_s
        elif isinstance(kind, Slots):
            settings.kind, settings.slots, settings.full_step_s = c.SLOT_POOL, self._slots(kind), kind.full_step_s
        elif isinstance(kind, Streamed):
            if kind.changes:
                raise UncompiledError("plans that change are in the reference alone")
            settings.kind, settings.stream = c.STREAM_POOL, self._stream(kind)
        else:
            raise UncompiledError(f"the execution kind {kind.name} is in the reference alone")
        if (max_waiting := getattr(kind, "max_waiting", None)) is not None:
            if _loads_models(kind):
                raise UncompiledError("limits of boxes that load models are in the reference alone")
            settings.max_waiting = max_waiting
        if isinstance(balancer, LeastLoadedOfDrawn):
            settings.drawn = balancer.choices.shape[1]
            settings.choices = self._memory.addresses(list(balancer.choices.T), np.int16)
        return settings

    def _models(self, models: Models, costs: Sequence[int] = ()) -> int:
        """Return the address of a target's models; `costs`: addresses of their costs if they are decoded in batches."""
        settings = c.ModelSettings(len(models.size_bytes), models.memory_bytes, models.evict == "never")
        settings.of_workload, settings.size_bytes = (
            self._memory.address(np.array(column), np.int64) for column in (models.of_workload, models.size_bytes)
        )
        settings.load_s = self._memory.address(np.array(models.load_s))
        if models.second_of_workload:
            settings.second_of_workload = self._memory.address(np.array(models.second_of_workload), np.int64)
        if costs:
            settings.costs = self._memory.array(ctypes.c_void_p, costs)
        return self._memory.structure(settings)

    def _slots(self, kind: Slots) -> int:
        """Return the address of the limits and costs of a target with slots."""
        limits, cost = kind.limits, kind.cost
        settings = c.SlotSettings(limits.slots, limits.chunk, limits.context or 0, limits.cached_prefix)
        for name in ("s_per_prompt_token", "s_per_context_token", "request_s"):
            setattr(settings, name, getattr(cost, name))
        settings.step_s = self._memory.address(np.array(cost.step_s))
        return self._memory.structure(settings)

    def _stream(self, kind: Streamed) -> int:
        """Return the address of a target's plans."""
        lifecycle, states = kind.lifecycle, kind.states
        settings = c.StreamSettings(len(states), kind.columns, lifecycle.keeps_preload)
        settings.within_s, settings.slowing = kind.deadline_s * ROUNDING, 1.0 - 1.0 / kind.compute.slowed
        settings.engagement_gap_s, settings.reclaimed_after_s = lifecycle.engagement_gap_s, lifecycle.reclaimed_after_s
        settings.engaged_s = engaged_s(lifecycle)
        settings.read_s = self._memory.address(np.array([state.read_s for state in states]))
        for name in ("held_bytes", "kept_bytes", "streamed_bytes"):
            setattr(settings, name, self._memory.address(np.array([getattr(state, name) for state in states]), np.int64))
        return self._memory.structure(settings)

    def _batch_view(self, view: Any) -> int | None:
        """Return the address of what the views of a target's batch have in common; None for another view."""
        if type(view) is not BatchView:
            return None
        settings = c.BatchViewSettings(
            view.size, view.threshold, view.servers, view.step_alone_s, view.alone_s, view.together_s
        )
        settings.slower_s, settings.end_s = (self._memory.address(np.array(table)) for table in (view.slower_s, view.end_s))
        return self._memory.structure(settings)


def _loads_models(kind: Kind) -> bool:
    models: Models | None = getattr(kind, "models", None)
    return models is not None and models.loads


def _plan_view(kind: Kind, pool: Any, view: Any) -> int | None:
    """Return the address of the plans of a target whose state a policy views."""
    if view is None:
        return None
    if type(view) is not PlanView or not isinstance(kind, Streamed) or view.next_state != kind.lifecycle.next_state:
        raise UncompiledError("the policy views states in another way")
    return int(pool.stream)


def _put(columns: list[Floats], values: Sequence[Floats], rows: slice | NDArray[np.int64], count: int) -> None:
    """Put values of some of `count` requests into columns, which are made as needed."""
    if isinstance(rows, slice):
        columns[:] = values
        return
    columns += [np.ones(count) for _ in range(len(values) - len(columns))]
    for column, value in zip(columns, values, strict=False):
        column[rows] = value


def _estimate_settings(estimate: TransferEstimate) -> Any:
    if type(estimate) is QuantileEstimate:
        return c.EstimateSettings(estimate.value_s, 1.0, estimate.quantile, estimate.window, c.QUANTILE)
    if type(estimate) is TransferEstimate:
        return c.EstimateSettings(estimate.value_s, estimate.weight, kind=c.WEIGHTED)
    raise UncompiledError(f"an estimate of the kind {type(estimate).__name__} is in the reference alone")


def _account(cdll: ctypes.CDLL, world: int, pool: int, kind: Batched | Slots) -> BatchAccount:
    """Return the account of all boxes of a target."""
    accounts = []
    for box in range(kind.boxes):
        copied = c.Account()
        cdll.simnmt_world_account(world, pool, box, ctypes.byref(copied))
        accounts.append(account_of(copied, kind.limits.slots if isinstance(kind, Slots) else kind.batching.size))
    return accounts[0].merged(accounts[1:])


def _streamed_until(cdll: ctypes.CDLL, world: int, pool: int, kind: Streamed) -> BoxesUntil:
    """Return the totals of a target's boxes, brought into the states that they have in the compiled engine."""
    boxes = []
    for number in range(kind.boxes):
        copied = c.StreamBox()
        cdll.simnmt_world_stream(world, pool, number, ctypes.byref(copied))
        counts = np.ctypeslib.as_array(ctypes.cast(copied.counts, ctypes.POINTER(ctypes.c_int64)), (len(kind.states),)).tolist()
        boxes.append(StreamBox(kind))
        boxes[-1].set_totals(copied, counts)
    return boxes_until(kind, boxes)
