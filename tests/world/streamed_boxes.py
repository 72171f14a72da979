"""Streamed devices for tests, and boxes in SimPy that read and compute layer by layer and step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from simnmt.devices import Streamed
from simnmt.results.requests import Requests
from simnmt.streaming.plan.engagement import Lifecycle, PlannedCompute, StreamedState

COMPUTE = PlannedCompute(2, (8, 16), (0.100, 0.150), 2, step_s=0.020, once_s=0.003, embed_s=(0.008, 0.012), head_s=0.005)
"""Two encoder and two decoder layers; a step takes 45 ms, the first 6 more."""
STATES = (
    StreamedState("cold", (0.30, 0.12, 0.08, 0.08), 0, 300, 900),
    StreamedState("turn 1", (0.0, 0.12, 0.08, 0.08), 200, 300, 700),
    StreamedState("turn 2", (0.0, 0.10, 0.06, 0.12), 300, 350, 700),
    StreamedState("turn 3", (0.0, 0.0, 0.0, 0.30), 350, 350, 650),
)
STREAMED = Streamed(COMPUTE, STATES, Lifecycle(3, 5.0, 60.0), 1.2, 10.0, 1_000)


def asked(
    requests: int = 400,
    gap_s: float = 1.5,
    seed: int = 1,
    nodes: int = 4,
    streamed: Streamed = STREAMED,
    open_loop: bool = True,
) -> Requests:
    """Engagements of one to three turns with pauses in between, to gateways and a cloud that both compute what is planned."""
    random = np.random.default_rng(seed)
    pauses_s = np.where(random.random(requests) < 0.5, random.exponential(20.0 * gap_s, requests), 0.0)
    arrival_s = np.cumsum(random.exponential(gap_s, requests) + pauses_s)
    src_len, tgt_len = random.integers(1, 30, requests), random.integers(0, 30, requests)
    execution_s = streamed.compute.in_memory_s(src_len, tgt_len) * random.lognormal(0.0, 0.2, (2, requests))
    uplink_s, downlink_s = 0.05 * random.lognormal(0.0, 0.5, (2, requests))
    node = random.integers(0, nodes, requests).astype(np.int32)
    return Requests(
        src_len,
        tuple(execution_s),
        (uplink_s,),
        (downlink_s,),
        arrival_s if open_loop else None,
        node,
        tgt_len=tgt_len,
    )


@dataclass
class SlowBox:
    """A disk and a processor as SimPy resources; a request is two processes that hand each layer over."""

    environment: simpy.Environment
    streamed: Streamed
    computing: simpy.Resource = field(init=False)
    reading: simpy.Resource = field(init=False)
    last_end_s: float | None = None
    state: int = 0
    under_way: int = 0
    had_turn: simpy.Event | None = None

    def __post_init__(self) -> None:
        self.computing, self.reading = simpy.Resource(self.environment), simpy.Resource(self.environment)

    def next_state(self) -> int:
        """As the definition has it, in words."""
        rules = self.streamed.lifecycle
        idle_s = 0.0 if self.under_way else self.environment.now - (self.last_end_s or 0.0)
        never_used = self.last_end_s is None and not self.under_way
        if never_used or idle_s > rules.reclaimed_after_s:
            return 0
        if idle_s > rules.engagement_gap_s:
            return 1 if rules.keeps_preload else 0
        return min(max(self.state, 1) + 1, rules.last)

    def enter(self, src_len: int, tgt_len: int, factor: float, outcome: dict[str, Any]) -> None:
        """Let a request arrive, and fill `outcome`."""
        outcome["state"] = self.state = self.next_state()
        self.under_way += 1
        before, self.had_turn = self.had_turn, self.environment.event()
        layers = self.streamed.compute.layers + self.streamed.compute.decoder_layers
        # The first event: reading has begun; its value: when what is ahead of all is there, and when all is.
        loaded = [self.environment.event() for _ in range(1 + layers)]
        self.environment.process(self._reads(self.streamed.states[self.state], loaded, before))
        self.environment.process(self._computes(src_len, tgt_len, factor, loaded, self.had_turn, outcome))

    def _reads(self, state: StreamedState, loaded: list[simpy.Event], before: simpy.Event | None) -> Any:
        with self.reading.request() as turn:
            yield turn
            if before is not None:
                yield before
            loaded[0].succeed((self.environment.now + state.ahead_s, self.environment.now + sum(state.load_s)))
            for each_s, done in zip(state.load_s, loaded[1:], strict=True):
                yield self.environment.timeout(each_s)
                done.succeed()

    def _computes(
        self,
        src_len: int,
        tgt_len: int,
        factor: float,
        loaded: list[simpy.Event],
        turn_came: simpy.Event,
        outcome: dict[str, Any],
    ) -> Any:
        clock, compute = self.environment, self.streamed.compute
        entry_s, worked_s = clock.now, 0.0
        padded = min((length for length in compute.lengths if length >= src_len), default=compute.lengths[-1])
        at, grown = compute.lengths.index(padded), max(1.0, src_len / padded) * factor
        with self.computing.request() as turn:
            yield turn
            turn_came.succeed()
            outcome["queue_s"] = clock.now - entry_s
            begin_s = clock.now
            ahead_until_s, read_until_s = yield loaded[0]
            if ahead_until_s > clock.now:
                yield clock.timeout(ahead_until_s - clock.now)

            def works(work_s: float) -> simpy.Event:
                """Slower while its own reads go on."""
                nonlocal worked_s
                worked_s += work_s
                until_s = clock.now + compute.slowed * work_s
                if until_s > read_until_s:
                    beside_s = max(read_until_s - clock.now, 0.0)
                    until_s = clock.now + beside_s + (work_s - beside_s / compute.slowed)
                return clock.timeout(until_s - clock.now)

            yield works(compute.embed_s[at] * grown)
            for layer in range(compute.layers):
                yield loaded[1 + layer]
                yield works(compute.layer_s[at] * grown)
            for step in range(max(tgt_len, 1) if compute.decoder_layers else 1):
                for layer in range(compute.decoder_layers):
                    yield loaded[1 + compute.layers + layer]
                    yield works((compute.step_s + (compute.once_s if step == 0 else 0.0)) * factor)
                yield works(compute.head_s * factor)
                if step == 0:
                    outcome["first_token_s"] = clock.now - entry_s
                if step + 1 <= self.streamed.deadline_steps:
                    outcome["deadline_missed"] = clock.now - entry_s > self.streamed.deadline_s
            outcome["execution_s"] = clock.now - begin_s
            outcome["stall_s"] = clock.now - begin_s - worked_s
            self.last_end_s = clock.now
            self.under_way -= 1
