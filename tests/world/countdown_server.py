"""A batched server that counts every active sentence down at every step: slow, and easy to believe.

It asks the same batcher and reads the same closed forms as `simnmt.world.batch_server`, so its completion times are to be the
same to the bit; what it does not do is skip a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from simnmt.batching import Batcher, Batching, Encode
from simnmt.world.batch_server import ServerCost


class _Sentence:
    __slots__ = ("joined", "left", "request", "src_len")

    def __init__(self, request: int, src_len: int, left: int, joined: int) -> None:
        self.request, self.src_len, self.left, self.joined = request, src_len, left, joined


class CountdownServer:
    """Runs when it is made, until all sentences are done; the arguments are those of `simnmt.world.batch_pool`."""

    def __init__(
        self,
        batching: Batching,
        cost: ServerCost,
        src_len: Sequence[int],
        tgt_len: Sequence[int],
        arrival_s: Sequence[float] | None = None,
    ) -> None:
        self._src_len, self._tgt_len = src_len, tgt_len
        self._arrival_s = [0.0] * len(src_len) if arrival_s is None else arrival_s
        self.finish_s = [float("nan")] * len(src_len)
        """When each was done."""
        self.begin_s = self.finish_s.copy()
        """When its encoding began."""
        self.first_s = self.finish_s.copy()
        """When its first step ended; NaN without one."""
        self.steps = [0] * (batching.size + 1)
        """Steps by the sentences active in them."""
        self._batcher, self._cost = Batcher(batching), cost
        self._arrived, self._waiting = 0, 0
        self._steps_take = {active: cost.steps_at(active) for active in range(1, batching.size + 1)}
        self._run()

    def _run(self) -> None:
        active: list[_Sentence] = []
        batching, next_move, arrivals = self._batcher.batching, self._batcher.next, self._arrival_s
        count, threshold, capped = len(arrivals), batching.threshold, batching.padded_tokens is not None
        steps_take, steps_with = self._steps_take, self.steps
        weighs_sources, leave_s = any(self._cost.source_s(1, longest) for longest in (1, 2)), self._cost.leave_s
        now_s, base_s, more_s, step, since, position = 0.0, 0.0, 0.0, 0, 0, 0
        take_s, arrived_next_s = None, arrivals[0] if count else 0.0
        closed, asked, asked_s, due_s = False, False, 0.0, 0.0
        while True:
            if not closed and arrived_next_s <= now_s:
                arrived_next_s = self._arrive(now_s)
                closed = self._arrived == count
                asked = False
            # Who was told to go on asks again when somebody has come or is done, or has waited long enough.
            if self._waiting and len(active) <= threshold and (not asked or asked_s < due_s <= now_s):
                longest = max((each.src_len for each in active), default=0) if capped else 0
                move = next_move(len(active), now_s, longest)
                if isinstance(move, Encode):
                    for request in move.requests:
                        self.begin_s[request] = now_s
                    now_s += self._cost.encode_s([self._src_len[request] for request in move.requests])
                    take_s = None
                    continue
                if move is not None:
                    now_s += self._cost.refill_s(len(move.requests))
                    take_s = None
                    self._join(active, move.requests, step, now_s)
                    continue
                asked, asked_s, due_s = True, now_s, self._batcher.due_s
            if not active:
                if closed and not self._waiting:
                    return
                now_s = self._batcher.due_s if closed else min(arrived_next_s, self._batcher.due_s)
                asked = False
                continue
            if take_s is None:
                take_s, base_s, since = steps_take[len(active)], now_s, 0
                if weighs_sources:
                    more_s = self._cost.source_s(len(active), max(each.src_len for each in active))
                position = step - min(each.joined for each in active)
            since += 1
            steps_with[len(active)] += 1
            taken_s = take_s(position, position + since - 1) + since * more_s
            for each in active:
                each.left -= 1
            done = [each for each in active if each.left == 0]
            now_s = base_s + (taken_s + leave_s if done else taken_s)
            if since == 1:
                for each in active:
                    if each.joined == step:
                        self.first_s[each.request] = now_s
            step += 1
            if done:
                for each in done:
                    self.finish_s[each.request] = now_s
                active = [each for each in active if each.left > 0]
                take_s, asked = None, False

    def _arrive(self, now_s: float) -> float:
        """Tell the batcher of those who have come by now; returns when the next comes."""
        arrivals, arrived = self._arrival_s, self._arrived
        while arrived < len(arrivals) and arrivals[arrived] <= now_s:
            self._batcher.arrive(arrived, self._src_len[arrived], arrivals[arrived])
            arrived += 1
            self._waiting += 1
        self._arrived = arrived
        if arrived < len(arrivals):
            return arrivals[arrived]
        self._batcher.close()
        return now_s

    def _join(self, active: list[_Sentence], joining: Sequence[int], step: int, now_s: float) -> None:
        for request in joining:
            self._waiting -= 1
            if self._tgt_len[request]:
                active.append(_Sentence(request, self._src_len[request], self._tgt_len[request], step))
            else:
                self.finish_s[request] = now_s
