"""Random small worlds for hypothesis: columns, boxes, policies and beliefs, for comparisons of the engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
from hypothesis import strategies as st

from simnmt.batching.slots import SlotLimits
from simnmt.devices import Batched, Fifo, Slots, Streamed
from simnmt.devices.device import ByNode, InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.devices.models import Models
from simnmt.devices.translation_cache import CacheConfiguration
from simnmt.network.link import Hop, Link, MovingRoute
from simnmt.network.series import BandwidthSeries, RttSeries
from simnmt.policies import (
    BacklogView,
    BatchView,
    Fixed,
    LeastTotal,
    PlanView,
    QuantileEstimate,
    TransferEstimate,
)
from simnmt.profile.cost import CostTable, DecodingCost
from simnmt.profile.slots_block import SlotsCost, TokenCount
from simnmt.results.requests import Block, Requests, Trail
from simnmt.streaming.plan.engagement import Lifecycle
from simnmt.world.deciders import Beliefs
from simnmt.world.inputs import Clients
from tests.batching.one_server import batchings
from tests.world.batched_worlds import EIGHTHS, LEAVING, LEAVING_EIGHTHS, cost
from tests.world.streamed_boxes import COMPUTE, STATES

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class World:
    """The arguments of a run."""

    parts: tuple[Any, ...]
    settings: dict[str, Any]
    description: str

    def __repr__(self) -> str:
        return self.description

    def run(self, simulate: Callable[..., Trail]) -> Trail:
        """Run it once."""
        return simulate(*self.parts, **self.settings)


def seconds(random: np.random.Generator, grid: bool, size: int, most_s: float = 1.0) -> np.ndarray:
    """Times of any value, or on a grid of eighths, where ties and zeros are common."""
    return random.integers(0, round(8 * most_s) + 1, size) / 8.0 if grid else random.uniform(0.0, most_s, size)


def estimates() -> st.SearchStrategy[Callable[[float], TransferEstimate]]:
    """How all deciders of a world estimate transfer times, from an initial value; windows that fill and that do not."""
    quantiles, windows = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]), st.sampled_from([1, 4, 32])
    return st.one_of(
        st.builds(lambda weight: partial(TransferEstimate, weight=weight), st.sampled_from([0.125, 0.5, 1.0])),
        st.builds(lambda quantile, window: partial(QuantileEstimate, quantile=quantile, window=window), quantiles, windows),
    )


@st.composite
def costs(draw: Draw) -> DecodingCost:
    """Costs of batches: linear ones in eighths and off them, and tables with packed or padded encoders."""
    kind = draw(st.sampled_from(["linear", "eighths", "leaving", "leaving eighths", "table", "table"]))
    if kind != "table":
        return {"linear": cost(), "eighths": EIGHTHS, "leaving": LEAVING, "leaving eighths": LEAVING_EIGHTHS}[kind]
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def table(batches: int, lengths: int) -> CostTable:
        knots = (np.sort(random.choice(np.arange(1.0, 20.0), size, replace=False)) for size in (batches, lengths))
        return CostTable(*knots, random.uniform(0.01, 0.2, (batches, lengths)))

    step, encoder = (table(draw(st.integers(1, 4)), draw(st.integers(1, 4))) for _ in range(2))
    return DecodingCost(
        step,
        encoder,
        mean_over_usual=1.125,
        gap_s_per_sentence=0.01,
        refill_s_fixed=0.02,
        leave_s=draw(st.sampled_from([0.0, 0.03])),
        packs=draw(st.booleans()),
        padding_share=0.25,
        src_len=draw(st.sampled_from([None, 4])),
        s_per_row_src_token=0.002,
    )


def batch_view(batched: Batched, servers: int) -> Callable[[], BatchView]:
    """The view of a batch, as a policy has it."""
    batching, of_steps = batched.batching, batched.cost
    step_s = lambda active: of_steps.steps_at(active)(0, 4) / 5  # noqa: E731
    joining_s = lambda sentences: of_steps.encode_s([5] * sentences) + of_steps.refill_s(sentences)  # noqa: E731
    return BatchView(step_s, batching.size, batching.threshold, servers, joining_s).blank


def slots_view(kind: Slots, servers: int) -> Callable[[], BatchView]:
    """The view of slots, as a policy has it."""
    slots, read_s = kind.limits.slots, 5 * kind.cost.s_per_prompt_token
    return BatchView(kind.cost.step_s.__getitem__, slots, slots - 1, servers, lambda requests: requests * read_s).blank


@st.composite
def slots_specs(draw: Draw, grid: bool, refuses: bool) -> Slots:
    """Boxes with a few slots, whose prompts take one iteration or several; times in eighths if those of the world are."""
    slots = draw(st.integers(1, 4))
    limits = SlotLimits(
        slots,
        slots + draw(st.integers(0, 12)),
        draw(st.sampled_from([None, 4, 12, 20])) if refuses else None,
        draw(st.sampled_from([0, 0, 3])),
    )
    unit_s = 0.125 if grid else 0.0173
    steps = tuple(unit_s * draw(st.integers(1, 3)) for _ in range(slots + 1))
    costs = (unit_s * draw(st.sampled_from([0.0, 1.0, 0.25])) for _ in range(3))
    counts = (
        TokenCount(fixed=draw(st.sampled_from([0.0, 2.0])), per_token=draw(st.sampled_from([1.0, 1.4]))) for _ in range(2)
    )
    return Slots(limits, SlotsCost(steps, *costs), *counts)


@st.composite
def streamed_specs(draw: Draw) -> Streamed:
    """Streamed models that cool within the seconds of a run, with and without slower computing."""
    compute = replace(COMPUTE, slowed=draw(st.sampled_from([1.0, 1.25])))
    lifecycle = Lifecycle(
        3, draw(st.sampled_from([0.0, 0.5, 5.0])), draw(st.sampled_from([1.0, 10.0, inf])), keeps_preload=draw(st.booleans())
    )
    return Streamed(compute, STATES, lifecycle, 1.2, draw(st.sampled_from([1.0, 10.0])), 1_000, 50)


def moving_route(
    random: np.random.Generator, grid: bool, count: int, targets: int, nodes: int, columns: dict[str, Any]
) -> MovingRoute:
    """Links whose times change with the moment, some with own links and overheads."""

    def series(kind: type[RttSeries] | type[BandwidthSeries], most: float) -> Any:
        samples = int(random.integers(1, 5))
        times = np.arange(samples) * (0.5 if grid else float(random.uniform(0.1, 1.0)))
        value = random.integers(1, 5, samples) * most / 4 if grid else random.uniform(0.1, 1.0, samples) * most
        return kind("made", "synthetic", "", times, value)

    def bandwidth() -> Any:
        return series(BandwidthSeries, 1e4) if random.random() < 0.6 else 4096.0

    def hop() -> Hop:
        count = nodes if random.random() < 0.3 else 1
        links = tuple(Link(series(RttSeries, 0.5), *(bandwidth() for _ in range(2))) for _ in range(count))
        return Hop(links, tuple(seconds(random, grid, count, 3.0).tolist()))

    lengths = (columns["src_len"], columns["tgt_len"] if columns["tgt_len"] is not None else columns["src_len"])
    access = hop() if random.random() < 0.5 else None
    halves_s = tuple(seconds(random, grid, count, 0.25) if random.random() < 0.3 else None for _ in range(targets))
    moments_s = seconds(random, grid, count, 9.0) if random.random() < 0.3 else None
    token_bytes = tuple(random.integers(2, 5, targets).tolist())
    return MovingRoute(access, tuple(hop() for _ in range(targets - 1)), token_bytes, *lengths, moments_s, halves_s)


WORKLOADS = 3
"""Workloads of the requests of a world whose boxes hold several models."""


def served_by_class(kind: Any, max_wait_s: tuple[float, ...]) -> Any:
    """Boxes that serve classes in turn; streamed models serve in the order of arrival."""
    if isinstance(kind, Batched):
        return replace(kind, batching=replace(kind.batching, max_wait_s=max_wait_s))
    return replace(kind, max_wait_s=max_wait_s) if isinstance(kind, Fifo) else kind


def slowed(kind: Any, factors: tuple[float, ...]) -> Any:
    """First-in first-out boxes in which executions take longer, or shorter, the more requests there are; others as they are."""
    return replace(kind, occupancy_factors=factors) if isinstance(kind, Fifo) else kind


@st.composite
def models(draw: Draw, pivots: bool = False) -> Models:
    """As many models as workloads or fewer, with memory for one, some or all of them; loads may take no time.

    `pivots`: requests of some workloads may need two models.
    """
    of_workload = tuple(draw(st.integers(0, WORKLOADS - 1)) for _ in range(WORKLOADS))
    sizes = tuple(draw(st.integers(1, 3)) for _ in range(WORKLOADS))
    evict = draw(st.sampled_from(["lru", "lru", "lru", "never"]))
    needed = sum(sizes) if evict == "never" else max(sizes)
    load_s = tuple(draw(st.sampled_from([0.0, 0.125, 0.25, 1.0, 2.5, 0.3])) for _ in range(WORKLOADS))
    second = ()
    if pivots and draw(st.booleans()):
        second = tuple(draw(st.sampled_from([-1, *{*range(WORKLOADS)} - {first}])) for first in of_workload)
        needed = sum(sizes) if evict == "never" else sum(sorted(sizes)[-2:])
    return Models(of_workload, sizes, load_s, needed + draw(st.integers(0, 3)), evict, second)


@st.composite
def batches_of_models(draw: Draw, varies: st.SearchStrategy[bool]) -> Batched:
    """Batches of several models, whose costs may differ."""
    by_model = tuple(draw(costs()) for _ in range(WORKLOADS))
    return Batched(draw(batchings()), by_model[0], draw(varies), models=draw(models()), costs=by_model)


def cache_settings(grid: bool) -> st.SearchStrategy[CacheConfiguration | None]:
    """Caches that evict within a run and whose translations grow too old; times on a grid if the others are."""
    lifetimes_s, hits_ms = ([0.25, 1.0], [0.0, 125.0]) if grid else ([0.31, 1.7], [0.0, 0.3, 70.0])
    settings = st.builds(
        CacheConfiguration,
        entries=st.sampled_from([1, 2, 5, 40]),
        ttl_s=st.none() | st.sampled_from(lifetimes_s),
        hit_ms=st.sampled_from(hits_ms),
        coalesce=st.booleans(),
    )
    return st.none() | settings


SPECIAL = {
    "plain": (),
    "batches": ("batches",),
    "streams": ("streams",),
    "models": ("models",),
    "slots": ("slots",),
    "model batches": ("batches", "models"),
    "all": ("batches", "slots", "streams", "models"),
}
"""Kinds of boxes that a world may have, beside first-in first-out ones."""


@st.composite
def random_worlds(draw: Draw, special: str | None = None) -> World:
    """Targets of every kind behind every balancer, with every estimate and choice, in every discipline.

    `special`: a key of `SPECIAL`; None: any.
    """
    kinds_of_boxes = SPECIAL[draw(st.sampled_from(list(SPECIAL))) if special is None else special]
    streams, slotted = "streams" in kinds_of_boxes, "slots" in kinds_of_boxes
    batches = "batches" in kinds_of_boxes or slotted
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    grid, discipline = draw(st.booleans()), draw(st.sampled_from(["open", "closed"] + ["back to back"] * (not batches)))
    is_open, queues = discipline == "open", discipline != "back to back"
    count = draw(st.sampled_from([1] * 5 + [4])) * draw(st.integers(0, 60))
    targets, has_decider = draw(st.integers(1, 5)), is_open and draw(st.booleans())
    groups = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(1, 3)) if has_decider else 1)]
    deciders = sum(groups)
    workers, nodes, load = draw(st.integers(1, 3)), draw(st.integers(1, 7)), draw(st.sampled_from([0.3, 1.0, 4.0, inf]))
    balancers = [draw(st.sampled_from([ByNode, InTurn, LeastWork, LeastLoadedOfDrawn])) for _ in range(1, targets)]
    boxes = [draw(st.integers(1, 4)) for _ in balancers]
    # A sentence alone that varies ends at a moment of the grid but for rounding, which would order it and what happens then.
    varies = st.just(False) if grid else st.booleans()
    of_kind: dict[str, st.SearchStrategy[Any]] = {
        "batches": st.builds(Batched, batchings(), costs(), varies, ends_together=st.booleans()),
        "slots": slots_specs(grid, is_open),
        "streams": streamed_specs(),
        "models": st.builds(Fifo, workers=st.integers(1, 2), models=models(pivots=True)),
    }
    if {"batches", "models"} <= {*kinds_of_boxes}:
        of_kind["batches"] |= batches_of_models(varies)
    any_spec = st.one_of(st.none(), *(of_kind[kind] for kind in kinds_of_boxes))
    local_specs, specs = [draw(any_spec) for _ in groups], [draw(any_spec) for _ in balancers]
    local_workers, specs_by_target = [draw(st.integers(1, 3)) for _ in groups], [local_specs, *([spec] for spec in specs)]
    estimate = draw(estimates())
    policy = draw(st.sampled_from(["fixed", "least", "least", "oracle"]))
    judged_share = draw(st.sampled_from([0.0, 0.5, 1.0])) if queues else float(streams and draw(st.booleans()))
    drawn = draw(st.integers(1, 2))
    # Where links and planes hardly differ, the least view decides.
    spread = draw(st.sampled_from([1.0, 0.125, 0.0]))
    begins_s = draw(st.sampled_from([0.0, 0.0, 1e6]))

    def arrivals() -> Any:
        """Sorted moments; late in a long run sums of seconds are rounded more, and with an infinite load all come at once."""
        lasts_s = 0.0 if load == inf else max(count / load / deciders, 1.0)
        return begins_s + np.sort(seconds(random, grid, count, lasts_s))

    limits = st.sampled_from([None, 1, 1, 2, 5]) if is_open and draw(st.booleans()) else st.none()
    retries = draw(st.integers(0, 3)) if is_open else 0

    def limited(kind: Any) -> Any:
        """A kind that refuses requests; in the compiled engine none that streams or loads models does."""
        loads = getattr(kind, "models", None) is not None and kind.models.loads
        return kind if isinstance(kind, Streamed) or loads else replace(kind, max_waiting=draw(limits))

    columns = {
        "src_len": random.integers(0, 9, count),
        "execution_s": tuple(seconds(random, grid, count) for _ in range(targets)),
        "uplink_s": tuple(spread * seconds(random, grid, count, 0.5) for _ in balancers),
        "downlink_s": tuple(spread * seconds(random, grid, count, 0.5) for _ in balancers),
        "arrival_s": arrivals() if is_open else None,
        "node": random.integers(0, nodes, count).astype(np.int32) if nodes > 1 else None,
        "access_s": seconds(random, grid, count, 0.5) if not queues and draw(st.booleans()) else None,
        "tgt_len": random.integers(0, 12, count) if batches or streams else None,
    }
    if retries:  # of some requests, no further try
        pauses_s = (seconds(random, grid, count) for _ in range(retries))
        columns["retry_after_s"] = tuple(np.where(random.random(count) < 0.2, inf, pause_s) for pause_s in pauses_s)
        columns["patience_s"] = seconds(random, grid, count, 2.0) if draw(st.booleans()) else None
    has_documents = is_open and draw(st.booleans())
    if has_documents:
        document = np.cumsum(random.random(count) < 0.4).astype(np.int32)
        first = np.searchsorted(document, document)  # sentences of a document arrive with the first one
        columns |= {"document": document, "arrival_s": columns["arrival_s"][first]}
    if "models" in kinds_of_boxes and draw(st.booleans()):
        columns["model"] = random.integers(0, WORKLOADS, count)
    waits_s = draw(st.sampled_from([(inf,), (inf,), (inf, inf), (inf, 0.5), (0.125, 0.0, inf), (inf, 1.0, 0.3)]))
    if len(waits_s) > 1:
        columns["priority"] = random.integers(0, len(waits_s), count).astype(np.int8)
    if batches or streams:
        columns["src_len"] = random.integers(0, 16, count)
    route = None
    if targets > 1 and (discipline == "closed" or (not queues and draw(st.booleans()))):
        route = moving_route(random, grid, count, targets, nodes, columns)
    clients = None
    if discipline == "closed" and route is not None:
        asking = draw(st.integers(1, 12))
        clients = Clients(asking, nodes, seconds(random, grid, asking + count, 3.0))
    elif discipline == "closed":
        columns["arrival_s"] = arrivals()
    caches = ()
    if clients is None and draw(st.sampled_from([False, False, True])):
        caches = tuple(None if isinstance(spec, Streamed) else draw(cache_settings(grid)) for spec in local_specs)
        if draw(st.sampled_from([True, True, True, False])):
            columns["sentence"] = random.integers(0, draw(st.sampled_from([1, 4, 30])), count).astype(np.int32)
    weighed_s = [spread * seconds(random, grid, count) for _ in range(targets)]
    # A policy that minimises a percentile compares other times than it expects; where targets batch it expects tokens.
    expects_weighed = draw(st.booleans())
    expected_columns = [
        seconds(random, grid, count, 12.0)
        if any(isinstance(spec, Batched | Slots) for spec in of_target)
        else (column if expects_weighed else seconds(random, grid, count))
        for of_target, column in zip(specs_by_target, weighed_s, strict=True)
    ]
    kinds = []
    for balancer, of_pool, spec in zip(balancers, boxes, specs, strict=True):
        choices = random.integers(0, of_pool, (count, drawn)).astype(np.int16)
        one = LeastLoadedOfDrawn(choices) if balancer is LeastLoadedOfDrawn else balancer()
        kind = Fifo(of_pool, workers, one) if spec is None else replace(spec, boxes=of_pool, balancer=one)
        kind = limited(kind)
        kinds.append(served_by_class(kind, waits_s) if draw(st.booleans()) else kind)
    local = [
        limited(Fifo(size, workers) if spec is None else replace(spec, boxes=size))
        for size, workers, spec in zip(groups, local_workers, local_specs, strict=True)
    ]
    local = [served_by_class(kind, waits_s) if draw(st.booleans()) else kind for kind in local]
    factors = draw(st.sampled_from([(), (), (1.0, 1.5, 2.0), (1.0, 0.5, 0.75, 3.0)]))
    kinds, local = (
        [slowed(kind, factors) if draw(st.booleans()) else kind for kind in of_targets] for of_targets in (kinds, local)
    )

    def of_block(columns: list[np.ndarray]) -> Callable[[Block], list[np.ndarray]]:
        return lambda block: [column[block.first : block.first + len(block)] for column in columns]

    choice = {
        "fixed": lambda block: Fixed(targets - 1),
        "least": lambda block: LeastTotal(of_block(weighed_s)(block)),
        "oracle": lambda block: LeastTotal(block.execution_s),
    }[policy]

    def beliefs_of(group: int) -> Beliefs:
        """The beliefs of the deciders of a group: a gap analysis lets C-NMT know the truth of one quantity at a time."""
        initial_s = spread * seconds(random, grid, groups[group] * targets)
        of_targets, servers = [local_specs[group], *specs], [1, *boxes]
        parallel = [local_workers[group], *(of_pool * workers for of_pool in boxes)]
        sees = [queues and policy == "least" and draw(st.booleans()) for _ in range(targets)]
        knows = streams and policy == "least" and draw(st.booleans())
        views = (
            batch_view(spec, servers[target])
            if isinstance(spec, Batched)
            else (slots_view(spec, servers[target]) if isinstance(spec, Slots) else partial(BacklogView, parallel[target]))
            for target, spec in enumerate(of_targets)
        )
        plans = (
            partial(PlanView, spec.lifecycle.next_state, len(spec.states)) if isinstance(spec, Streamed) else None
            for spec in of_targets
        )
        return Beliefs(
            lambda decider, target: estimate(float(initial_s[decider * targets + target])),
            views=tuple(view if is_seen else None for view, is_seen in zip(views, sees, strict=True)) if any(sees) else (),
            plan_views=tuple(plans) if knows else (),
            true_transfer=policy == "oracle" or (policy == "least" and draw(st.sampled_from([False, False, True]))),
            true_backlog=(queues or streams)
            and (policy == "oracle" or (policy == "least" and draw(st.sampled_from([False, False, False, True])))),
        )

    def beyond_for(block: Block) -> list[Any]:
        """What the first streamed model of a target adds: those of all groups have as many states."""
        streamed = ([spec for spec in of_target if isinstance(spec, Streamed)] for of_target in specs_by_target)
        return [of_target[0].beyond_s(block.src_len) if of_target else None for of_target in streamed]

    beliefs = [beliefs_of(group) for group in range(len(groups))]
    models_of_deciders = [getattr(kind, "models", None) for kind in local]
    loads = any(isinstance(kind, Streamed) for kind in local) or any(
        one is not None and one.loads for one in models_of_deciders
    )
    # What a translation costs that the decider has made: nothing, more than any other device, or something between.
    keeping_s = np.where(random.random(count) < 0.5, seconds(random, grid, count), random.choice([-inf, inf], count))
    second_s = [keeping_s, *(spread * seconds(random, grid, count) for _ in balancers)]
    decides_again = not loads and draw(st.sampled_from([False, False, True]))
    settings = {
        "second_for": (lambda block: LeastTotal(of_block(second_s)(block))) if decides_again else None,
        "expected_for": of_block(expected_columns) if any(any(group.views) for group in beliefs) else None,
        "judged_share": judged_share,
        "local": local,
        "decider": random.integers(0, deciders, count).astype(np.int32) if has_decider else None,
        "route": route,
        "clients": clients,
        "caches": caches,
        "passes_on": draw(st.booleans()),
        "plan_beyond_for": beyond_for if any(any(group.plan_views) for group in beliefs) else None,
        "decides_by_document": has_documents and draw(st.booleans()),
    }
    what = f"{count} requests, {balancers} x {boxes} {specs}, deciders {local}, {workers} workers, {estimate}, {policy}"
    description = f"{what}, {discipline}, {beliefs}, judged={judged_share}, from {begins_s} s, load {load}, spread {spread}"
    description += f", {caches}, by document: {settings['decides_by_document']}, decides again: {decides_again}"
    return World((Requests(**columns), choice, beliefs, kinds), settings, description)
