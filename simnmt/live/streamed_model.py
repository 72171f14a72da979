"""A streamed model as a live engine drives it: real reads, real buffers, and the memory states of the simulation.

One request after another runs through the pipelined executor. Its state follows from the lifecycle that the simulation uses:
cold, the first turn of an engagement, a later turn. What a state means for the memory is really done: within an engagement the
enlarged buffer keeps the shards that were read; after it, the buffer is evicted to its size between engagements; a reclaimed
memory is freed, and a cold start reads everything. Between two requests nothing of the store is left in the page cache.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import torch

from simnmt.base.errors import SimnmtError
from simnmt.live.engine_process import EngineSettings, ServedModel
from simnmt.live.streamed_settings import StreamedSettings, describe_states
from simnmt.live.text import LabelCodec
from simnmt.nmt.engine import DecodeRequest, Hypothesis
from simnmt.nmt.whole_batch_decoder import WholeBatchDecoder
from simnmt.profile.disk_block import TokenBucket
from simnmt.streaming import page_cache
from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
from simnmt.streaming.encoder.tokenizer import padded, tokenizer_from
from simnmt.streaming.errors import StoreError
from simnmt.streaming.pipeline.shard_reader import sleep_until
from simnmt.streaming.pipeline.turns import EngagementSettings, TurnRunner
from simnmt.streaming.plan.engagement import COLD
from simnmt.streaming.store.index import RESIDENT
from simnmt.streaming.store.shard_store import ShardStore

SETTLE_S = 1e-3
"""Time by which an idle model changes its memory later than its state changes, so that no request meets it too early."""


class StreamedModel:
    """A model with the memory of its box; moments are of the monotonic clock, as those of requests."""

    def __init__(
        self, store: ShardStore, settings: StreamedSettings, threads: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make the first plan; the model is cold. Raises as `TurnRunner`."""
        self.settings, self.clock = settings, clock
        engaged = EngagementSettings(
            settings.deadline_s,
            settings.preload_bytes,
            settings.length,
            settings.cache_bytes,
            pace_bytes_per_s=settings.pace_bytes_per_s,
            threads=threads,
            fills_deadline=settings.fills_deadline,
            similar=settings.similar,
        )
        self.turns = TurnRunner(store, settings.cost, engaged)
        self._store = store
        self._encoder: ElasticEncoder | None = None
        """None while the memory is reclaimed."""
        self._state, self._free_s = COLD, -inf
        """State of the last request, and when it ended."""
        self._engaged = False
        """Whether the buffer holds what the last turn left."""
        self._drop_due = False
        """Whether pages of the shards are to be dropped when the model is idle."""
        self._dropped = False
        """Whether nothing of the shards is in the page cache; measured, dropping takes 2 ms, which an idle model has."""
        positions = store.configuration.positions
        self.lengths = sorted({length for length in (*settings.cost.comp_s, settings.length) if length <= positions})
        """Padded lengths: those of the profile, and that of the plans."""
        self.tokenizer = tokenizer_from(store.beside())
        """None for random weights."""
        self._padding = 0 if self.tokenizer is None else self.tokenizer.padding

    def classify(self, requests: Sequence[DecodeRequest]) -> list[Hypothesis]:
        """Classify requests one after another; each hypothesis holds the class, and reports the state.

        Raises `StoreError` if the model cannot be read, after which the model is cold.
        """
        return [self._classify(request) for request in requests]

    def _classify(self, request: DecodeRequest) -> Hypothesis:
        idle_s = request.arrived_s - self._free_s
        state = COLD if self._encoder is None else self.settings.lifecycle.next_state(self._state, idle_s)
        try:
            logits = self._turn(request.source, state, idle_s)
        except (SimnmtError, OSError) as error:
            self.reclaim()
            print(f"simnmt: {error}", file=sys.stderr, flush=True)  # with the path, which is not the clients' business
            raise StoreError("the model cannot be read from its store") from None
        self._state, self._free_s, self._engaged = state, self.clock(), True
        best = int(logits.argmax())
        return Hypothesis((best,), float(logits.log_softmax(0)[best]), 1, (state,))

    def _turn(self, source: Sequence[int], state: int, idle_s: float) -> torch.Tensor:
        lifecycle = self.settings.lifecycle
        continues = state != COLD and idle_s <= lifecycle.engagement_gap_s
        if state == COLD:
            self.reclaim()
            self._encoder = self._load_resident()
        elif not continues and self._engaged:
            self._end_engagement()
        assert self._encoder is not None
        ids = source[: self.lengths[-1]]
        length = next(length for length in self.lengths if length >= len(ids))
        token_ids, mask = padded([ids], self._padding, length)
        dropped, self._dropped, self._drop_due = self._dropped, False, True
        turn = self.turns.run(self._encoder, token_ids, mask, continues=continues, dropped=dropped)
        return turn.execution.logits[0]

    def rest(self, now_s: float) -> float:
        """Give back the memory that an idle model loses by now; return when it loses the next."""
        lifecycle, idle_s = self.settings.lifecycle, now_s - self._free_s
        if self._drop_due:  # once: some file systems drop nothing, and each attempt takes its time
            self._drop_due = False
            self._dropped = page_cache.drop(self._store.file) == 0
        if self._encoder is None:
            return inf
        if idle_s >= lifecycle.reclaimed_after_s + SETTLE_S:
            self.reclaim()
            return inf
        if self._engaged and idle_s >= lifecycle.engagement_gap_s + SETTLE_S:
            try:
                self._end_engagement()
            except (SimnmtError, OSError) as error:
                self.reclaim()
                print(f"simnmt: {error}", file=sys.stderr, flush=True)
                return inf
        ends_s = lifecycle.engagement_gap_s if self._engaged else inf
        return self._free_s + min(ends_s, lifecycle.reclaimed_after_s) + SETTLE_S

    def _end_engagement(self) -> None:
        """Keep the preloaded shards alone, or nothing."""
        if self.settings.lifecycle.keeps_preload:
            self.turns.fill()
            self._engaged, self._dropped, self._drop_due = False, False, True
        else:
            self.reclaim()

    def reclaim(self) -> None:
        """Free all memory of the model: the next request finds it cold."""
        self.turns.clear()
        if self.settings.reads_resident:
            self._encoder = None
        self._state, self._free_s, self._engaged = COLD, -inf, False

    def _load_resident(self) -> ElasticEncoder:
        """Read what is in no shard, at the pace of the reads, unless it stays in memory."""
        if self._encoder is not None:
            return self._encoder
        pace, begin_s = self.settings.pace_bytes_per_s, self.clock()
        path = self._store.path / RESIDENT
        with path.open("rb") as file:
            page_cache.drop(file.fileno())
        encoder = ElasticEncoder(self._store.configuration, self._store.resident())
        if pace is not None and self.settings.reads_resident:
            sleep_until(TokenBucket(pace).end_s(begin_s, path.stat().st_size), self.clock)
        return encoder

    def warm_up(self) -> None:
        """Execute an engagement from a cold start to its last state, and reclaim the memory.

        The plans of all states are made then, and every kernel has run once. Raises as `TurnRunner.run`.
        """
        source = [1] * self.settings.length
        for state in range(self.settings.lifecycle.last + 1):
            self._turn(source, state, 0.0)
        self.reclaim()

    def about(self) -> dict[str, Any]:
        """Return the task and the plan of the first turn, as JSON."""
        plan, settings = self.turns.first_plan, self.settings
        bits = {str(bits): count for bits, count in sorted(Counter(plan.bits.values()).items())}
        sizes = {"layers": plan.layers, "slices": plan.slices_per_layer, "shards_by_bits": bits, "length": plan.length}
        memory = {"preload_bytes": settings.preload_bytes, "cache_bytes": settings.cache_bytes}
        times_s = {"deadline_s": plan.deadline_s, "predicted_s": round(plan.latency_s, 6)}
        return {"task": "classification", "plan": sizes | times_s | memory | describe_states(settings)}


def load_streamed(streamed: StreamedSettings, settings: EngineSettings) -> ServedModel:
    """Open the store, execute one engagement, and return the model, cold.

    Raises `StreamingError` for a store of another model than the profile's, `StoreError` for a damaged one, and `PlanError`.
    """
    store, threads = ShardStore.open(settings.model), settings.threads or 1
    if streamed.fingerprint is not None:
        store.check_model(streamed.fingerprint)
    model = StreamedModel(store, streamed, threads)
    model.warm_up()
    codec = LabelCodec(model.tokenizer, store.label_names, store.configuration.vocabulary, model.lengths[-1])
    weights = "random" if model.tokenizer is None else "checkpoint"
    block = streamed.engine_block(store.fingerprint, weights=weights)
    return ServedModel(partial(WholeBatchDecoder, model.classify), block, None, codec, model.rest, model.about())
