"""Engagements: memory states of a streamed model, and a request's latency in each (STI-12, STI-17, STI-18, XP-04).

A box is cold, or in the first or a later turn of an engagement. Each state has its own reads. A layer is computed after it
has been read and the layer before it has been computed, so a request ends at the latest of two times: all its computing after
its turn has come, and, for each layer, its read followed by all computing from that layer on. Both are known in advance, so
the world keeps only two times for each box: when its disk and when its processor become free. A decoder reads its layers in
the first step; later steps only compute. While the disk reads, computing may take longer; all that ends after the reads then
ends later by the same amount.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.profile.streaming_cost import Shard, StiCost
from simnmt.streaming.plan.streaming_plan import StreamingPlan, bytes_held, evicted, loads_s, make_plan, memory_of
from simnmt.streaming.plan.timeline import Timeline, timeline

COLD, FIRST_TURN = 0, 1
"""States of a box: nothing in memory; the preload buffer alone. State k is that of an engagement's k-th turn."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How an app's memory comes and goes.

    Turns that follow each other within `engagement_gap_s` belong to one engagement, in which the enlarged buffer keeps what
    was read. After it the buffer holds the preloaded shards alone, or nothing where `keeps_preload` is false; and once the app
    has been idle for longer than `reclaimed_after_s` the system takes that too. A cold start executes the plan of the first
    turn and reads all of it, which fills the buffer. Raises `ValueError` for times below 0.
    """

    last: int
    """The last state: from that turn on nothing changes."""
    engagement_gap_s: float
    reclaimed_after_s: float = inf
    keeps_preload: bool = True

    def __post_init__(self) -> None:
        if self.last < FIRST_TURN:
            raise ValueError("there is at least a first turn")
        if not (self.engagement_gap_s >= 0.0 and self.reclaimed_after_s >= 0.0):
            raise ValueError("idle times of 0 or more")

    def next_state(self, state: int, idle_s: float) -> int:
        """The state of a request whose turn comes so long after the end of one in `state`; below 0 while that is under way.

        Infinity: the first one ever, which finds nothing.
        """
        if idle_s > self.reclaimed_after_s or idle_s == inf:
            return COLD
        if idle_s > self.engagement_gap_s:
            return FIRST_TURN if self.keeps_preload else COLD
        turn = state if state > FIRST_TURN else FIRST_TURN
        return turn + 1 if turn < self.last else turn


Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlannedCompute:
    """Times of what a plan's submodel computes, whatever has to be read; of a checked cost.

    Encoder layers take their time for the next greater padded length; beyond the greatest, in proportion to the tokens.
    """

    layers: int
    """Of the encoder."""
    lengths: tuple[int, ...]
    """Padded source tokens, rising."""
    layer_s: tuple[float, ...]
    """Seconds of one encoder layer, by padded length."""
    decoder_layers: int = 0
    step_s: float = 0.0
    """Of one decoder layer for one token."""
    once_s: float = 0.0
    """Of one decoder layer besides, once a request, ahead of its first step: unpacking, the source's keys and values."""
    embed_s: tuple[float, ...] = ()
    """Before the first layer, by padded length; empty: 0."""
    head_s: float = 0.0
    """After the last layer, of each step; of an encoder alone, once."""
    slowed: float = 1.0
    """Times as long that all of this takes while the disk reads."""

    @property
    def whole_step_s(self) -> float:
        """Seconds of a decoder step that reads nothing; 0 without a decoder."""
        return self.decoder_layers * self.step_s + self.head_s if self.decoder_layers else 0.0

    @property
    def first_step_s(self) -> float:
        """Seconds of all that follows the encoder in the first pass: the decoder's first step, or the head."""
        return self.decoder_layers * (self.once_s + self.step_s) + self.head_s

    def encoder_layer_s(self, src_len: ArrayLike) -> Column:
        """Seconds of one encoder layer by source tokens; shape kept."""
        return self._by_length(self.layer_s, src_len)

    def embedding_s(self, src_len: ArrayLike) -> Column:
        """Seconds before the first layer likewise."""
        return self._by_length(self.embed_s or (0.0,) * len(self.lengths), src_len)

    def _by_length(self, seconds_by_length: tuple[float, ...], src_len: ArrayLike) -> Column:
        length = np.asarray(src_len, np.float64)
        padded = np.asarray(self.lengths, np.float64)
        at = np.minimum(np.searchsorted(padded, length), len(padded) - 1)
        seconds: Column = np.asarray(seconds_by_length)[at] * np.maximum(length / padded[at], 1.0)
        return seconds

    def first_pass_s(self, src_len: ArrayLike) -> Column:
        """Seconds of the encoder and the first step of the decoder, with nothing to be read."""
        return self.embedding_s(src_len) + self.layers * self.encoder_layer_s(src_len) + self.first_step_s

    def after_step_s(self, tgt_len: ArrayLike | None, step: float = 1.0) -> Column:
        """Seconds of the decoder's steps after so many; an output takes one at least, and without a decoder there are none."""
        if tgt_len is None or not self.decoder_layers:
            return np.zeros(())
        later: Column = self.whole_step_s * np.maximum(np.asarray(tgt_len, np.float64) - step, 0.0)
        return later

    def in_memory_s(self, src_len: ArrayLike, tgt_len: ArrayLike | None = None) -> Column:
        """Seconds of a request with nothing to be read: what a plane that knows of no disk stands for."""
        return self.first_pass_s(src_len) + self.after_step_s(tgt_len)


@dataclass(frozen=True, slots=True)
class StreamedState:
    """What a box has to read for a request, by what its memory holds when the request's turn comes.

    Raises `ValueError` where the first load does not hold what is read ahead.
    """

    name: str
    load_s: tuple[float, ...]
    """Seconds to read each layer's share that is not held: the encoder's layers, then the decoder's."""
    held_bytes: int = 0
    """In the preload buffer when it begins."""
    kept_bytes: int = 0
    """In the buffer after it, while the engagement lasts."""
    streamed_bytes: int = 0
    """Read for it."""
    ahead_s: float = 0.0
    """Of the first load, what nothing can be computed without: a cold start's embeddings."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.ahead_s <= sum(self.load_s[:1]):
            raise ValueError(f"{self.ahead_s:g} s read ahead, which are no part of the first load")

    @property
    def read_s(self) -> float:
        """For which the disk is busy."""
        return sum(self.load_s)

    def from_read_s(
        self, compute: PlannedCompute, src_len: ArrayLike, tgt_len: ArrayLike | None = None, factor: ArrayLike = 1.0
    ) -> Column:
        """Seconds from the begin of its reads until it would end if only these held it up; 0 where nothing is read.

        `factor`: on all computing, of each request. Raises `ValueError` where loads and layers do not fit.
        """
        if len(self.load_s) != compute.layers + compute.decoder_layers:
            raise ValueError(f"{len(self.load_s)} loads of {compute.layers} + {compute.decoder_layers} layers")
        scale = np.asarray(factor, np.float64)
        layer_s, step_s = compute.encoder_layer_s(src_len) * scale, compute.first_step_s * scale
        decoder_layer_s = (compute.once_s + compute.step_s) * scale
        latest_s: Column = np.zeros(np.broadcast_shapes(layer_s.shape, scale.shape))
        for layer, (load_s, read_s) in enumerate(zip(self.load_s, accumulate(self.load_s), strict=True)):
            if load_s == 0.0:
                continue  # no later than the layer before, and less is computed after it
            if layer < compute.layers:
                after_s = (compute.layers - layer) * layer_s + step_s
            else:
                after_s = step_s - (layer - compute.layers) * decoder_layer_s
            latest_s = np.maximum(latest_s, read_s / compute.slowed + after_s)
        if self.ahead_s:
            latest_s = np.maximum(latest_s, self.ahead_s / compute.slowed + compute.first_pass_s(src_len) * scale)
        later_s = compute.after_step_s(tgt_len) * scale + self.slowing_s(compute)
        return np.where(latest_s > 0.0, latest_s + later_s, 0.0)

    def slowing_s(self, compute: PlannedCompute) -> float:
        """Seconds that computing which goes on until the reads are done, or longer, ends later because of them."""
        return self.read_s * (1.0 - 1.0 / compute.slowed)

    def alone_s(self, compute: PlannedCompute, src_len: ArrayLike, tgt_len: ArrayLike | None = None) -> Column:
        """Seconds of a request at a box that has nothing else to do: reads and computing begin together."""
        computed_s = compute.in_memory_s(src_len, tgt_len) + self.slowing_s(compute)
        return np.maximum(self.from_read_s(compute, src_len, tgt_len), computed_s)

    def pipeline(self, compute: PlannedCompute, src_len: int, tgt_len: int | None = None) -> Timeline:
        """Of one request of which `alone_s` is the latency, layer by layer: the encoder's, then the decoder's first step.

        Its embedding begins once what is read ahead is there, so that `before_s` is when it ends.
        """
        encoder_s = [float(compute.encoder_layer_s(src_len))] * compute.layers
        decoder_s = [compute.once_s + compute.step_s] * compute.decoder_layers
        after_s = compute.head_s + float(compute.after_step_s(tgt_len))
        before_s = self.ahead_s / compute.slowed + float(compute.embedding_s(src_len))
        return timeline(self.load_s, [*encoder_s, *decoder_s], after_s, compute.slowed, before_s=before_s)


@dataclass(frozen=True, slots=True)
class Engagement:
    """What a streamed model does in the turns of an engagement, begun cold or not."""

    plans: tuple[StreamingPlan, ...]
    """Of the first turn, the second and so on; the last one repeats."""
    compute: PlannedCompute
    """The same in every turn: the first plan's submodel."""
    states: tuple[StreamedState, ...]
    """Cold, then one per plan."""
    working_bytes: int
    """One layer of float32 weights at the plan's width, beside the preload buffer (STI-16)."""


def engagement(
    cost: StiCost,
    deadline_s: float,
    preload_bytes: int,
    cache_bytes: int | None = None,
    *,
    length: int,
    similar: float = 0.0,
    steps: float = 1.0,
    fills_deadline: bool = False,
    cold_read_s: float = 0.0,
) -> Engagement:
    """Plan every turn of an engagement, in which the buffer may hold `cache_bytes`; left out: no more than before it.

    The first plan is made for a buffer filled as planned, and a cold start, which finds it empty, executes the same: plans are
    made beforehand (STI-18). Later turns are planned on what the buffer truly holds, until it holds the same again.
    `cold_read_s`: what a cold start has to read besides, before anything is computed: embeddings are among it. The other
    arguments are those of `make_plan`. Raises `PlanError`.
    """
    capacity_bytes = max(preload_bytes, cache_bytes or 0)
    plan_turn = partial(make_plan, cost, deadline_s, length=length, steps=steps, fills_deadline=fills_deadline)
    first = plan_turn(preload_bytes, similar=similar)
    contents = {shard: bits for shard, bits in first.bits.items() if shard in first.preloaded}
    plans, held = [first], [contents]
    kept = evicted(cost, first.bits, capacity_bytes)
    while kept != held[-1]:
        plan = plan_turn(capacity_bytes, cached=kept, size=(first.layers, first.slices_per_layer))
        plans.append(plan)
        held.append(kept)
        kept = evicted(cost, plan.bits, capacity_bytes)
    after = [*held[1:], kept]
    cold = _state(cost, "cold", first, {}, after[0], cold_read_s)
    turns = (
        _state(cost, f"turn {number}", plan, before, later)
        for number, (plan, before, later) in enumerate(zip(plans, held, after, strict=True), start=1)
    )
    return Engagement(tuple(plans), planned_compute(cost, first), (cold, *turns), memory_of(cost, first).working_bytes)


def planned_compute(cost: StiCost, plan: StreamingPlan) -> PlannedCompute:
    """What a plan's submodel computes, for requests of any length."""
    slices, lengths = plan.slices_per_layer, tuple(sorted(cost.comp_s))
    return PlannedCompute(
        layers=plan.layers,
        lengths=lengths,
        layer_s=tuple(cost.comp_s[length][slices - 1] for length in lengths),
        decoder_layers=len(plan.layer_indices) - plan.layers,
        step_s=cost.step_s(slices),
        once_s=cost.once_s(slices),
        embed_s=tuple(cost.t_embed(length) for length in lengths),
        head_s=cost.head_s,
        slowed=cost.slowing(slices),
    )


def _state(
    cost: StiCost, name: str, plan: StreamingPlan, held: dict[Shard, int], kept: dict[Shard, int], ahead_s: float = 0.0
) -> StreamedState:
    first_s, *others_s = loads_s(cost, plan.bits, frozenset(held))
    streamed = {shard: bits for shard, bits in plan.bits.items() if shard not in held}
    return StreamedState(
        name=name,
        load_s=(ahead_s + first_s, *others_s),
        held_bytes=bytes_held(cost, held),
        kept_bytes=bytes_held(cost, kept),
        streamed_bytes=bytes_held(cost, streamed),
        ahead_s=ahead_s,
    )
