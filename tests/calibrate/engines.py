"""A box and a model made of numbers: known plane, drift, disturbances, and a batch size for which memory does not suffice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.settings import Settings
from simnmt.nmt.engine import EngineAccount, Timing, Work
from simnmt.nmt.errors import OutOfMemory

PLANE = (0.0004, 0.008, 0.003)
"""Seconds per source token, per target token, fixed."""


ACCOUNT = EngineAccount(
    model="gru", architecture={"kind": "fake"}, weights="random", vocab=32_000, backend="torch", compute_type="float32",
    device="cpu", device_name="Abacus 3000", threads=1, versions={"abacus": "3.0"},
)  # fmt: skip


class FakeEngine:
    """Runs nothing and says how long it took: seeded, so that the same calls give the same times.

    `disturbance(call)`: factor on the time of the call of that number. `most_batch`: larger ones raise `OutOfMemory`.
    `gap_s`: a step adds to the whole beside itself, and `gap_s_per_sentence` for each of its batch. `refill_s`: fixed, and
    for each sentence, of joining and of leaving; None for a backend that refills no batch. `attention_s`: a source token beyond
    20 adds to a step for each sentence. `stop_at`: the call that is interrupted, by `stop`. `account`: changes of `ACCOUNT`.
    """

    def __init__(
        self,
        plane: tuple[float, float, float] = PLANE,
        *,
        noise: float = 0.002,
        disturbance: Callable[[int], float] = lambda call: 1.0,
        most_batch: int = 1_000_000,
        gap_s: float = 0.0,
        gap_s_per_sentence: float = 0.0,
        refill_s: tuple[float, float, float, float] | None = None,
        growth: float = 0.001,
        attention_s: float = 0.0,
        tells_steps: bool = True,
        stop_at: int | None = None,
        stop: type[BaseException] | BaseException = KeyboardInterrupt,
        **account: Any,
    ) -> None:
        self.plane, self.account = plane, replace(ACCOUNT, **account)
        self.calls, self.joinings, self.closed = list[Work](), list[tuple[int, int]](), False
        self._noise, self._disturbance, self._random = noise, disturbance, np.random.default_rng(0)
        self._most_batch, self._growth, self._attention_s = most_batch, growth, attention_s
        self._gap_s, self._gap_s_per_sentence, self._tells_steps = gap_s, gap_s_per_sentence, tells_steps
        self._stop_at, self._stop = stop_at, stop
        if tells_steps:
            self.in_turn_s = self._in_turn_s
        if refill_s is not None:
            self.joining_timer, self._refill_s = self._joining_timer, refill_s

    def step_s(self, batch: int, position: int) -> float:
        """One decode step: a row costs a twentieth of a step, a token that is out `growth`."""
        return self.plane[1] * (1.0 + 0.05 * (batch - 1)) * (1.0 + self._growth * position)

    def encode_s(self, batch: int, src_len: int) -> float:
        """The encoder, without what happens once."""
        return self.plane[0] * src_len * batch

    def run(self, work: Work) -> Timing:
        call = len(self.calls)
        if self._stop_at is not None and call >= self._stop_at:
            raise self._stop
        self.calls.append(work)
        if work.batch > self._most_batch:
            raise OutOfMemory("no room")
        # Noise only ever makes slower, as on a real box.
        factor = (1.0 + abs(self._random.normal(0.0, self._noise))) * self._disturbance(call)
        attended_s = self._attention_s * work.batch * (work.src_len - 20)
        steps_s = tuple(factor * (self.step_s(work.batch, position) + attended_s) for position in range(work.tgt_len))
        encode_s = factor * self.encode_s(work.batch, work.src_len)
        gap_s = self._gap_s + self._gap_s_per_sentence * work.batch
        total_s = encode_s + sum(steps_s) + factor * (self.plane[2] + gap_s * work.tgt_len)
        return Timing(total_s, encode_s, steps_s) if self._tells_steps else Timing(total_s, None, None)

    def _in_turn_s(self, first: Work, second: Work) -> list[tuple[float, float]]:
        pairs = []
        for position in range(1, first.tgt_len):
            both = (self.run(replace(work, tgt_len=position + 1)).steps_s or () for work in (first, second))
            pairs.append(tuple(steps_s[position] for steps_s in both))
        return pairs  # type: ignore[return-value]

    def _joining_timer(self, joining: int, others: int, *, src_len: int, beam: int) -> Callable[[], dict[str, float]]:
        if joining + others > self._most_batch:
            raise OutOfMemory("no room")
        self.joinings.append((joining, others))
        join, join_each, leave, leave_each = self._refill_s
        return lambda: {"join_s": join + join_each * joining, "leave_s": leave + leave_each * joining}

    def close(self) -> None:
        self.closed = True


QUICK = Settings("gru", mode="quick", threads=1)
BOX = BoxDescription(
    machine="x86_64", system="Linux 6.1", cpu_model="Abacus 3000", logical_cores=4, allowed_cpus=(0, 1, 2, 3),
    governor="performance", frequency_mhz=3000.0, load_average=(0.1, 0.2, 0.3),
)  # fmt: skip
