"""Which targets of a decider answer: one that fails is left out, and tried again after ever longer pauses.

`ServerHealth` has no clock and no network. The live gateway and the reference world hold the same object, and give it moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

UNREACHABLE_S = 1e6
"""Delay of a target that is left out: no policy that compares delays chooses it."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each try to reach a target that is left out; the last for all further ones."""
TRY_S = 5.0
"""Time within which a target must answer a try."""


_NEVER = 0, 0.0, -inf
"""The past of a target that was never left out."""


@dataclass(slots=True)
class _Absence:
    """The present time of one target out of use."""

    since_s: float
    next_try_s: float
    tries: int = 0


class ServerHealth:
    """The targets of one decider that are out of use. Moments are seconds, and must not decrease for one target.

    Example:
        >>> health = ServerHealth()
        >>> health.failed(1, 9.5, 10.0), health.left_out, health.next_try_s(1)
        (True, [1], 11.0)
        >>> health.try_failed(1, 11.2)
        >>> health.next_try_s(1)
        13.2
        >>> health.answered(1, 13.4)
        >>> health.left_out, health.times(1), round(health.seconds(1, 99.0), 6)
        ([], 1, 3.4)
    """

    def __init__(self) -> None:
        self.left_out: list[int] = []
        """Targets that are out of use now, in their order."""
        self._absences: dict[int, _Absence] = {}
        self._past: dict[int, tuple[int, float, float]] = {}
        """By target, the times that it was put back in use, the seconds that it had been out of use, and when it was last put
        back."""

    def failed(
        self,
        target: int,
        sent_s: float,
        now_s: float,
        status: int = 502,
        *,
        hurried: bool = False,
        retry_after_s: float | None = None,
    ) -> bool:
        """Take in that a request was not answered, and return whether the target is left out from now on.

        A target stays in use if it only refused this request, or had little time for it. What was sent before the target was
        left out changes nothing, whether it fails while the target is out of use or later.

        Args:
            target: its number.
            sent_s: when the request was sent.
            now_s: the moment.
            status: the status of HTTP: 504 for no answer in time, 400 and 413 for a refused request.
            hurried: whether the answer was not waited for as long as usual.
            retry_after_s: the pause before the first try that the target asks for.
        """
        *_, back_s = self._past.get(target, _NEVER)
        if target in self._absences or sent_s < back_s or status in (400, 413) or (status == 504 and hurried):
            return False
        pause_s = PAUSES_S[0] if retry_after_s is None else retry_after_s
        self._absences[target] = _Absence(now_s, now_s + pause_s)
        self.left_out = sorted(self._absences)
        return True

    def next_try_s(self, target: int) -> float:
        """Return the moment of the next try to reach a target that is left out."""
        return self._absences[target].next_try_s

    def try_failed(self, target: int, now_s: float) -> None:
        """Take in that a target did not answer a try."""
        absence = self._absences[target]
        absence.tries += 1
        absence.next_try_s = now_s + PAUSES_S[min(absence.tries, len(PAUSES_S) - 1)]

    def answered(self, target: int, now_s: float) -> None:
        """Put a target that answered a try back in use."""
        self._past[target] = self.times(target), self.seconds(target, now_s), now_s
        del self._absences[target]
        self.left_out = sorted(self._absences)

    def times(self, target: int) -> int:
        """Return how often a target was left out."""
        return self._past.get(target, _NEVER)[0] + (target in self._absences)

    def seconds(self, target: int, until_s: float) -> float:
        """Return the seconds until a moment for which a target was left out."""
        absence = self._absences.get(target)
        past_s = self._past.get(target, _NEVER)[1]
        return past_s if absence is None else past_s + max(until_s - absence.since_s, 0.0)
