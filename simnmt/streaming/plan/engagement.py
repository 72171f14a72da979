"""Engagements: memory states of a streamed model, and a request's latency in each (STI-12, STI-17, STI-18, XP-04).

A box is cold, or in the first or a later turn of an engagement. Each state has its own reads. A layer is computed after it
has been read and the layer before it has been computed, so a request ends at the latest of these times: all its computing after
the processor becomes free, and, for each layer, the read of the layer followed by all computing from that layer on. These times
are known in advance, so the world keeps only two times for each box: when its disk and when its processor become free. A
decoder reads its layers in the first step; later steps only compute. While the disk reads, computing may take longer; all
computing that ends after the reads then ends later by the same amount.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats
from simnmt.profile.streaming_block import Shard, StiCost
from simnmt.streaming.plan.streaming_plan import StreamingPlan, bytes_held, evicted, loads_s, make_plan, memory_of
from simnmt.streaming.plan.timeline import Timeline, Work, timeline

COLD, FIRST_TURN = 0, 1
"""States of a box: nothing in memory; only the preload buffer. State k belongs to the k-th turn of an engagement."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The rules by which an app keeps and loses the memory of its shards.

    Turns that follow each other within `engagement_gap_s` belong to one engagement, in which the enlarged buffer keeps the
    shards that were read. After it the buffer holds only the preloaded shards, or nothing unless `keeps_preload`. If the app is
    idle for longer than `reclaimed_after_s`, the system reclaims all memory. A cold start executes the plan of the first turn
    and reads all its shards, which fills the buffer.
    """

    last: int
    """The last state: later turns have the same state."""
    engagement_gap_s: float
    reclaimed_after_s: float = inf
    keeps_preload: bool = True

    def next_state(self, state: int, idle_s: float) -> int:
        """Return the state of a request that begins `idle_s` seconds after a request in `state` ended.

        `idle_s` is below 0 if the earlier request is still running, and infinite for the first request of a box.
        """
        if idle_s > self.reclaimed_after_s or idle_s == inf:
            return COLD
        if idle_s > self.engagement_gap_s:
            return FIRST_TURN if self.keeps_preload else COLD
        turn = state if state > FIRST_TURN else FIRST_TURN
        return turn + 1 if turn < self.last else turn


@dataclass(frozen=True, slots=True)
class PlannedCompute:
    """Computing times of the submodel of a plan, without reads.

    An encoder layer takes the time of the next greater padded length; beyond the greatest, in proportion to the tokens.
    """

    layers: int
    lengths: tuple[int, ...]
    layer_s: tuple[float, ...]
    """Seconds of one encoder layer, by padded length."""
    decoder_layers: int = 0
    step_s: float = 0.0
    """Seconds of one decoder layer for one token."""
    once_s: float = 0.0
    """Further seconds of one decoder layer before its first step: unpacking, keys and values of the source."""
    embed_s: tuple[float, ...] = ()
    """Seconds before the first layer, by padded length; empty: 0."""
    head_s: float = 0.0
    """Seconds after the last layer, in each decoder step; once without a decoder."""
    slowed: float = 1.0
    """Factor on all these times while the disk reads."""

    @property
    def first_step_s(self) -> float:
        """Seconds after the encoder in the first pass: the first decoder step, or the head."""
        return self.decoder_layers * (self.once_s + self.step_s) + self.head_s

    def encoder_layer_s(self, src_len: ArrayLike) -> Floats:
        return self._by_length(self.layer_s, src_len)

    def embedding_s(self, src_len: ArrayLike) -> Floats:
        return self._by_length(self.embed_s or (0.0,) * len(self.lengths), src_len)

    def _by_length(self, seconds_by_length: tuple[float, ...], src_len: ArrayLike) -> Floats:
        length = np.asarray(src_len, np.float64)
        padded = np.asarray(self.lengths, np.float64)
        at = np.minimum(np.searchsorted(padded, length), len(padded) - 1)
        seconds: Floats = np.asarray(seconds_by_length)[at] * np.maximum(length / padded[at], 1.0)
        return seconds

    def first_pass_s(self, src_len: ArrayLike) -> Floats:
        """Return the seconds of the encoder and the first decoder step without reads."""
        return self.embedding_s(src_len) + self.layers * self.encoder_layer_s(src_len) + self.first_step_s

    def after_step_s(self, tgt_len: ArrayLike | None, step: float = 1.0) -> Floats:
        """Return the seconds of the decoder steps after `step` steps; 0 without a decoder."""
        if tgt_len is None or not self.decoder_layers:
            return np.zeros(())
        step_s = self.decoder_layers * self.step_s + self.head_s
        later: Floats = step_s * np.maximum(np.asarray(tgt_len, np.float64) - step, 0.0)
        return later

    def in_memory_s(self, src_len: ArrayLike, tgt_len: ArrayLike | None = None) -> Floats:
        """Return the seconds of a request without reads, which an execution plane predicts."""
        return self.first_pass_s(src_len) + self.after_step_s(tgt_len)


@dataclass(frozen=True, slots=True)
class StreamedState:
    """The reads of a request for one content of the memory of its box."""

    name: str
    load_s: tuple[float, ...]
    """Seconds to read the missing shards of each layer: encoder layers, then decoder layers."""
    held_bytes: int = 0
    """Bytes in the preload buffer before the request."""
    kept_bytes: int = 0
    """Bytes in the buffer after the request, during the engagement."""
    streamed_bytes: int = 0
    ahead_s: float = 0.0
    """Part of the first load that precedes all computing: the embeddings of a cold start."""

    @property
    def read_s(self) -> float:
        return sum(self.load_s)

    def from_read_s(
        self, compute: PlannedCompute, src_len: ArrayLike, tgt_len: ArrayLike | None = None, factor: ArrayLike = 1.0
    ) -> Floats:
        """Return the seconds from the first read to the end if the processor is free; 0 if nothing is read.

        `factor` multiplies all computing times of each request.
        """
        scale = np.asarray(factor, np.float64)
        layer_s, step_s = compute.encoder_layer_s(src_len) * scale, compute.first_step_s * scale
        decoder_layer_s = (compute.once_s + compute.step_s) * scale
        latest_s: Floats = np.zeros(np.broadcast_shapes(layer_s.shape, scale.shape))
        for layer, (load_s, read_s) in enumerate(zip(self.load_s, accumulate(self.load_s), strict=True)):
            if load_s == 0.0:
                continue  # the layer before it is as late, and more computing follows it
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
        """Return by how many seconds the reads delay the end of computing that outlasts them."""
        return self.read_s * (1.0 - 1.0 / compute.slowed)

    def alone_s(self, compute: PlannedCompute, src_len: ArrayLike, tgt_len: ArrayLike | None = None) -> Floats:
        """Return the seconds of a request at an idle box, where reads and computing begin together."""
        computed_s = compute.in_memory_s(src_len, tgt_len) + self.slowing_s(compute)
        return np.maximum(self.from_read_s(compute, src_len, tgt_len), computed_s)

    def pipeline(self, compute: PlannedCompute, src_len: int, tgt_len: int | None = None) -> Timeline:
        """Return the timeline of one request at an idle box: encoder layers, then the first decoder step.

        The embedding begins after the reads of `ahead_s`. The latency of the timeline is `alone_s`.
        """
        encoder_s = [float(compute.encoder_layer_s(src_len))] * compute.layers
        decoder_s = [compute.once_s + compute.step_s] * compute.decoder_layers
        after_s = compute.head_s + float(compute.after_step_s(tgt_len))
        before_s = self.ahead_s / compute.slowed + float(compute.embedding_s(src_len))
        return timeline(self.load_s, Work([*encoder_s, *decoder_s], after_s, compute.slowed, before_s))


@dataclass(frozen=True, slots=True)
class Engagement:
    """Plans, computing times and states of a streamed model in the turns of an engagement."""

    plans: tuple[StreamingPlan, ...]
    """Plans of the first, second and later turns; the last plan repeats."""
    compute: PlannedCompute
    """Computing times of the submodel, which all turns share."""
    states: tuple[StreamedState, ...]
    """The cold state, then one state per plan."""
    working_bytes: int
    """Bytes of one layer in float32 at the width of the plan, besides the preload buffer (STI-16)."""


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
    """Return the plans and states of all turns of an engagement; arguments without a note as in `make_plan`.

    The first plan assumes a buffer filled as planned. A cold start finds it empty and executes the same plan, because plans are
    made in advance (STI-18). Later turns are planned with the true contents of the buffer, until the contents repeat.
    `cache_bytes`: capacity of the buffer during the engagement, None for `preload_bytes`; `cold_read_s`: seconds of further
    reads of a cold start before all computing, such as embeddings. Raises `PlanError`.
    """
    capacity_bytes = max(preload_bytes, cache_bytes or 0)
    plan_turn = partial(make_plan, cost, deadline_s, length=length, steps=steps, fills_deadline=fills_deadline)
    first = plan_turn(preload_bytes, similar=similar)
    contents = {shard: bits for shard, bits in first.bits.items() if shard in first.preloaded}
    plans, held = [first], [contents]  # `held` ends with the contents after the last plan
    while (kept := evicted(cost, plans[-1].bits, capacity_bytes)) != held[-1]:
        held.append(kept)
        plans.append(plan_turn(capacity_bytes, cached=kept, size=(first.layers, first.slices_per_layer)))
    held.append(kept)
    cold = _state(cost, "cold", first, {}, held[1], cold_read_s)
    turns = (_state(cost, f"turn {k}", plan, held[k - 1], held[k]) for k, plan in enumerate(plans, start=1))
    slices, lengths = first.slices_per_layer, tuple(sorted(cost.comp_s))
    compute = PlannedCompute(
        layers=first.layers,
        lengths=lengths,
        layer_s=tuple(cost.comp_s[length][slices - 1] for length in lengths),
        decoder_layers=len(first.layer_indices) - first.layers,
        step_s=cost.step_s(slices),
        once_s=cost.once_s(slices),
        embed_s=tuple(cost.t_embed(length) for length in lengths),
        head_s=cost.head_s,
        slowed=cost.slowing(slices),
    )
    return Engagement(tuple(plans), compute, (cold, *turns), memory_of(cost, first).working_bytes)


def _state(
    cost: StiCost, name: str, plan: StreamingPlan, held: dict[Shard, int], kept: dict[Shard, int], ahead_s: float = 0.0
) -> StreamedState:
    first_s, *others_s = loads_s(cost, plan.bits, frozenset(held))
    streamed = {shard: bits for shard, bits in plan.bits.items() if shard not in held}
    held_bytes, kept_bytes, streamed_bytes = (bytes_held(cost, contents) for contents in (held, kept, streamed))
    return StreamedState(name, (ahead_s + first_s, *others_s), held_bytes, kept_bytes, streamed_bytes, ahead_s)
