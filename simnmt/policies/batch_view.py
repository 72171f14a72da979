"""A decider's estimate of the batch of a batched target, from its own requests and the reports in answers (XP-01)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from itertools import pairwise


class BatchView:
    """One decider's estimate of the time beyond the plane at a batched target, from the target's last reports.

    Four estimates, each as simple as the facts allow:

    - **Sentences present.** The decider counts its own requests without an answer; reports give the others. The last report
      counts in proportion to its freshness, the mean of reports in proportion to its age: half of what the last one says beyond
      the mean is forgotten after the time that a request is usually away, half of the mean after 64 times that. (A negative
      number of others stands for own requests on the way there or back.)
    - **Wait of a request.** Sentences beyond the threshold have to end first, one after the other as fast as their batch ends
      them: the steps of a mean output over the sentences that share them. If servers report longer waits, as for batches that
      are not refilled, the wait is made longer in proportion; never shorter, as a report covers only the wait for the encoder,
      and an encoded sentence may still wait for a place.
    - **Slower steps.** The steps of a batch halfway between the one it meets, itself included, and the one that requests
      usually leave behind.
    - **Interruptions.** If a running batch is refilled, as many sentences join during a request's stay as end, and none is
      decoded while they are encoded: one by one while there is room, many at once while they queue.

    Without sentences present and known others the result is 0, the plane itself. `docs/reference/policies.md` compares the
    estimate with the truth.
    """

    at_entry = False
    """`sent` and `added_s` take the present."""
    MEMORY, PRIOR = 64, 8
    """Reports over which everything is learnt; and the number of assumed earlier waits that equalled the model, of a mean
    output's time each."""
    KEPT = 1.0 - 1.0 / MEMORY
    """Share of a sum that is kept with each report."""

    def __init__(
        self,
        step_s: Callable[[int], float],
        size: int,
        threshold: int = 0,
        servers: int = 1,
        joining_s: Callable[[int], float] = lambda sentences: 0.0,
    ) -> None:
        """`step_s`: seconds of a decode step, gap included, by the sentences in it, 1 to `size`; `threshold`: of its batcher;
        `servers`: how many share the requests to the target; `joining_s`: seconds in which a number of sentences are encoded
        and join."""
        step_times_s = [step_s(active) for active in range(1, size + 1)]
        self.step_alone_s = step_times_s[0]
        self.slower_s = [0.0, 0.0, 0.0]
        """Seconds of a step beyond one at batch 1, by twice the sentences in it."""
        for before_s, at_s in pairwise(step_times_s):
            self.slower_s += [(before_s + at_s) / 2.0 - self.step_alone_s, at_s - self.step_alone_s]
        self.end_s = [self.step_alone_s, *(at_s / active for active, at_s in enumerate(step_times_s, start=1))]
        """Time between two ends, per token of a mean output, by the sentences in the batch."""
        self.alone_s, self.together_s = (joining_s(1), joining_s(size) / size) if threshold else (0.0, 0.0)
        """Seconds by which each joining sentence interrupts a running batch: one by one, and with many."""
        self.size, self.threshold, self.servers = size, threshold, servers
        self._forget()

    def blank(self) -> BatchView:
        """Return a view of the same target without reports; both share the tables of costs."""
        other = copy(self)
        other._forget()
        return other

    def _forget(self) -> None:
        self._sent, self._reports, self._tgt_len = 0, 0, 1.0
        """Requests sent and reported, and the mean predicted length of the former."""
        self._under_way: dict[int, tuple[float, float]] = {}
        """For each request without a report: when it was sent, and its modelled wait."""
        self._last_others, self._mean_others, self._heard_s = 0.0, 0.0, 0.0
        self._left_behind, self._time_away_s = 0.0, 0.0
        """Mean batch that a request leaves behind, and mean time from sending it to its answer."""
        self._waited_s, self._modelled_s, self._lengthened = 0.0, 0.0, 1.0
        """Sums of the reported waits and of the modelled waits of the same requests, old ones fading; and their ratio."""

    def added_s(self, at_s: float, tgt_len_predicted: float) -> float:
        """Return the estimated seconds beyond the plane at batch 1 of a request sent now: waiting, and slower steps."""
        present = self._present(at_s)
        if present == 0.0:
            return 0.0
        twice = min(present + 1.0, float(self.size))
        left_behind = self._left_behind + 1.0
        twice += left_behind if left_behind < twice else twice
        slower_s = self.slower_s[int(twice + 0.5)]
        each_s = self.together_s if present > self.threshold else self.alone_s
        slower_s += each_s * (twice / 2.0 - 1.0) / self._tgt_len
        return self._wait_s(present) * self._lengthened + tgt_len_predicted * slower_s

    def sent(self, now_s: float, tgt_len_predicted: float) -> int:
        """Note a request that is sent; return its number, for `reported`."""
        number = self._sent
        self._sent = number + 1
        memory = number + 1 if number < self.MEMORY else self.MEMORY
        # An output takes a step at least.
        self._tgt_len += (max(tgt_len_predicted, 1.0) - self._tgt_len) / memory
        self._under_way[number] = now_s, self._wait_s(self._present(now_s))
        return number

    def reported(self, number: int, wait_s: float, report: tuple[int, ...], at_s: float) -> None:
        """Take in an answer that came at `at_s`: how long its request waited for its encoding, and as `report` how many
        sentences were left in its batch, and waited, when it was done."""
        active, waiting = report
        sent_s, modelled_s = self._under_way.pop(number)
        self._reports += 1
        memory = self._reports if self._reports < self.MEMORY else self.MEMORY
        self._time_away_s += (at_s - sent_s - self._time_away_s) / memory
        self._left_behind += (active - self._left_behind) / memory
        self._last_others = active + waiting - len(self._under_way) / self.servers
        self._mean_others += (self._last_others - self._mean_others) / memory
        self._heard_s = at_s
        waited_s = self._waited_s = self._waited_s * self.KEPT + wait_s
        modelled_s = self._modelled_s = self._modelled_s * self.KEPT + modelled_s
        if waited_s > modelled_s:
            prior_s = self.PRIOR * self._tgt_len * self.step_alone_s
            self._lengthened = (waited_s + prior_s) / (modelled_s + prior_s)
        else:
            self._lengthened = 1.0

    def lost(self, number: int) -> None:
        """Forget a request that was never answered."""
        self._under_way.pop(number, None)

    def _present(self, at_s: float) -> float:
        """Return the estimated number of sentences at a server, at least 0."""
        others, age_s, away_s = self._last_others, at_s - self._heard_s, self._time_away_s
        if age_s > 0.0 < away_s:
            mean, long_s = self._mean_others, self.MEMORY * away_s
            others = (others - mean) * away_s / (away_s + age_s) + mean * long_s / (long_s + age_s)
        present = len(self._under_way) / self.servers + others
        return present if present > 0.0 else 0.0

    def _wait_s(self, present: float) -> float:
        """Return the wait of a request that meets `present` sentences, before it is lengthened."""
        beyond = present - self.threshold
        if beyond <= 0.0:
            return 0.0
        return beyond * self._tgt_len * self.end_s[int(present) if present < self.size else self.size]
