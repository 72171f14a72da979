"""What a decider believes of the transfer time to one target: the last measurement, a mean of them, or one that probes renew.

Source: CNMT-11. Pure: the world and the live gateway hold the same objects and tell them what they heard and when.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf


class TransferEstimate:
    """The transfer time believed in, learnt from the answers of requests that were sent.

    With weight 1 the last measurement wins, to the bit, which is C-NMT's own estimate. Below 1 each measurement moves the
    estimate by that share of the way towards itself, so that k measurements leave (1 - weight)**k of the first belief.
    """

    __slots__ = ("_weight", "measured_at_s", "next_s", "value_s")

    def __init__(self, initial_s: float, weight: float = 1.0) -> None:
        self.value_s = initial_s
        """Transfer time believed in, both ways together."""
        self.measured_at_s = 0.0
        """When the last measurement came; 0 for the initial belief."""
        self.next_s = inf
        """Before this moment the belief changes by nothing but `learn`."""
        self._weight = weight

    def learn(self, transfer_s: float, at_s: float) -> None:
        """An answer came at `at_s` and carried this measurement; moments must not decrease."""
        if self._weight == 1.0:
            self.value_s = transfer_s
        else:
            self.value_s += self._weight * (transfer_s - self.value_s)
        self.measured_at_s = at_s

    def refresh(self, now_s: float) -> None:
        """Take in what came by itself until now: nothing, here."""


class ProbedEstimate(TransferEstimate):
    """The same, asking by itself where nothing is heard: after `interval_s` of silence a probe is sent.

    A probe is a round trip without payload. Every answer heard, a request's or a probe's, starts the timer anew; while a probe
    is under way none other is sent. No event is needed: what the timer did since the last decision is worked out at the next
    one, probe by probe, each at the moment it would have had.
    """

    __slots__ = ("_answered_at_s", "_interval_s", "_probe_s", "_rtt_s", "probes_sent")

    def __init__(self, initial_s: float, interval_s: float, rtt_s: Callable[[float], float], weight: float = 1.0) -> None:
        """`rtt_s`: the true round-trip time of a probe sent at a moment, both in seconds."""
        super().__init__(initial_s, weight)
        self.probes_sent = 0
        self.next_s = interval_s
        self._interval_s = interval_s
        self._rtt_s = rtt_s
        self._answered_at_s = inf
        """When the probe under way will be answered; inf while there is none."""
        self._probe_s = 0.0
        """The round trip of the probe under way."""

    def learn(self, transfer_s: float, at_s: float) -> None:
        """As above; what probes told before that moment is taken in first."""
        if self.next_s <= at_s:
            self.refresh(at_s)
        super().learn(transfer_s, at_s)
        if self._answered_at_s == inf:
            self.next_s = at_s + self._interval_s

    def refresh(self, now_s: float) -> None:
        """Let the timer run until now; costs one look at the network per probe sent."""
        while self.next_s <= now_s:
            if self._answered_at_s == inf:
                self._probe_s = self._rtt_s(self.next_s)
                self.next_s += self._probe_s
                self._answered_at_s = self.next_s
                self.probes_sent += 1
            else:
                self._answered_at_s = inf
                super().learn(self._probe_s, self.next_s)
                self.next_s += self._interval_s
