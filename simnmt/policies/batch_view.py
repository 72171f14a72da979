"""A batched target as a decider believes it to stand: who is in the batch, who waits, and what both will cost (XP-01)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from itertools import pairwise


class BatchView:
    """What a request will take at a batched target beyond the plane, by what the target last reported.

    Four beliefs, each as simple as the facts allow:

    - **Who is there.** One's own that have no answer yet, which the decider counts itself, and others: what reports say beyond
      one's own. The last report counts as far as it is fresh, the mean of reports as far as it is old: half of what the last
      one says beyond the mean is forgotten after the time that a request is usually away, half of the mean after 64 times that.
      (Others fewer than none stand for one's own on the way there or back.)
    - **How long a request waits.** As many as are beyond the threshold have to end first, one after the other as fast as their
      batch ends them: a mean output's steps over the sentences that share them. Where servers report longer waits, as they
      do of batches that are not refilled, it is made longer in proportion; never shorter, as a report knows only of the
      wait for the encoder, and who is encoded may still lie waiting for a place.
    - **How slow its steps are.** Those of a batch halfway between the one it finds, itself included, and the one that requests
      usually leave behind.
    - **How often it is held up.** Where a running batch is refilled, as many join during a request's stay as end, and nothing
      is decoded while they are encoded: one by one while there is room, many at once while they queue.

    Nobody there and nothing known of others: 0, the plane itself. Asked and told, it costs 2 us a request, whatever the queue.
    `docs/policies.md` says how near it comes to the truth.
    """

    __slots__ = (
        "_alone_s",
        "_end_s",
        "_heard_s",
        "_last_others",
        "_left_behind",
        "_lengthened",
        "_mean_others",
        "_modelled_s",
        "_reports",
        "_sent",
        "_servers",
        "_size",
        "_slower_s",
        "_step_alone_s",
        "_tgt_len",
        "_threshold",
        "_time_away_s",
        "_together_s",
        "_under_way",
        "_waited_s",
    )

    MEMORY, PRIOR = 64, 8
    """Reports over which all that is learnt is learnt; waits just as modelled, of a mean output's time each, that are supposed
    before."""
    KEPT = 1.0 - 1.0 / MEMORY
    """Of a sum, with each report."""

    def __init__(
        self,
        step_s: Callable[[int], float],
        size: int,
        threshold: int = 0,
        servers: int = 1,
        joining_s: Callable[[int], float] = lambda sentences: 0.0,
    ) -> None:
        """`step_s`: seconds of a decode step, gap included, by the sentences in it, 1 to `size`; `threshold`: of its batcher;
        `servers`: how many share what is sent to the target; `joining_s`: seconds in which so many are encoded and join."""
        of = [step_s(active) for active in range(1, size + 1)]
        self._step_alone_s = of[0]
        self._slower_s = [0.0, 0.0, 0.0]
        """What a step takes beyond one at batch 1, by twice the sentences in it."""
        for before_s, at_s in pairwise(of):
            self._slower_s += [(before_s + at_s) / 2.0 - of[0], at_s - of[0]]
        self._end_s = [of[0], *(at_s / active for active, at_s in enumerate(of, start=1))]
        """Time between two ends, per token of a mean output, by the sentences in the batch."""
        self._alone_s, self._together_s = (joining_s(1), joining_s(size) / size) if threshold else (0.0, 0.0)
        """How long each that joins holds a running batch up: one by one, and with many."""
        self._size, self._threshold, self._servers = size, threshold, servers
        self._forget()

    def blank(self) -> BatchView:
        """A view of the same target that has heard of nothing; what it costs is kept once for both."""
        other = copy(self)
        other._forget()
        return other

    def _forget(self) -> None:
        self._sent, self._reports, self._tgt_len = 0, 0, 1.0
        """Requests sent and reported, and the mean length predicted of the former."""
        self._under_way: dict[int, tuple[float, float]] = {}
        """Of each request that is not reported: when it was sent, and the wait modelled for it."""
        self._last_others, self._mean_others, self._heard_s = 0.0, 0.0, 0.0
        self._left_behind, self._time_away_s = 0.0, 0.0
        """Means of the batch that a request leaves behind, and of the time from sending it to its answer."""
        self._waited_s, self._modelled_s, self._lengthened = 0.0, 0.0, 1.0
        """Sums of the waits reported, and of those modelled for the same requests, old ones fading; and their ratio."""

    def added_s(self, at_s: float, tgt_len_predicted: float) -> float:
        """Seconds beyond the plane at batch 1 that a request now sent is believed to take: waiting, and slower steps."""
        present = self._present(at_s)
        if present == 0.0:
            return 0.0
        twice = min(present + 1.0, float(self._size))
        left_behind = self._left_behind + 1.0
        twice += left_behind if left_behind < twice else twice
        slower_s = self._slower_s[int(twice + 0.5)]
        each_s = self._together_s if present > self._threshold else self._alone_s
        slower_s += each_s * (twice / 2.0 - 1.0) / self._tgt_len
        return self._wait_s(present) * self._lengthened + tgt_len_predicted * slower_s

    def sent(self, now_s: float, tgt_len_predicted: float) -> int:
        """Note a request that is sent; returns its number, to be handed back to `reported`."""
        number = self._sent
        self._sent = number + 1
        memory = number + 1 if number < self.MEMORY else self.MEMORY
        # An output takes a step at least.
        self._tgt_len += (max(tgt_len_predicted, 1.0) - self._tgt_len) / memory
        self._under_way[number] = now_s, self._wait_s(self._present(now_s))
        return number

    def reported(self, number: int, wait_s: float, active: int, waiting: int, at_s: float) -> None:
        """An answer came at `at_s`: how long its request had waited there until its encoding began, and how many were left in
        its batch, and waited, when it was done."""
        sent_s, modelled_s = self._under_way.pop(number)
        self._reports += 1
        memory = self._reports if self._reports < self.MEMORY else self.MEMORY
        self._time_away_s += (at_s - sent_s - self._time_away_s) / memory
        self._left_behind += (active - self._left_behind) / memory
        self._last_others = active + waiting - len(self._under_way) / self._servers
        self._mean_others += (self._last_others - self._mean_others) / memory
        self._heard_s = at_s
        waited_s = self._waited_s = self._waited_s * self.KEPT + wait_s
        modelled_s = self._modelled_s = self._modelled_s * self.KEPT + modelled_s
        if waited_s > modelled_s:
            prior_s = self.PRIOR * self._tgt_len * self._step_alone_s
            self._lengthened = (waited_s + prior_s) / (modelled_s + prior_s)
        else:
            self._lengthened = 1.0

    def _present(self, at_s: float) -> float:
        """Sentences believed at a server, at least 0."""
        others, age_s, away_s = self._last_others, at_s - self._heard_s, self._time_away_s
        if age_s > 0.0 < away_s:
            mean, long_s = self._mean_others, self.MEMORY * away_s
            others = (others - mean) * away_s / (away_s + age_s) + mean * long_s / (long_s + age_s)
        present = len(self._under_way) / self._servers + others
        return present if present > 0.0 else 0.0

    def _wait_s(self, present: float) -> float:
        """The wait of one who finds so many, before it is lengthened."""
        beyond = present - self._threshold
        if beyond <= 0.0:
            return 0.0
        return beyond * self._tgt_len * self._end_s[int(present) if present < self._size else self._size]
