"""A claim of a paper beside our result, its verdict, and both as text for a terminal; Amdahl's law, which many claims use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simnmt.papers.kit.claims import (
    FAILS,
    HOLDS,
    UNCLEAR,
    UNKNOWN,
    ClaimRecord,
    Undecided,
    by_claim,
    describe_verdicts,
    end_to_end,
    format_claims,
    format_span,
    share_needed,
    worst_verdict,
)
from simnmt.results.statistics import CONFIDENCE, Estimate

__all__ = [
    "FAILS",
    "HOLDS",
    "UNCLEAR",
    "UNKNOWN",
    "ClaimRecord",
    "Undecided",
    "by_claim",
    "describe_verdicts",
    "end_to_end",
    "format_claims",
    "format_span",
    "share_needed",
    "worst_verdict",
]

Effect = Callable[[float], Estimate]
"""An effect with its interval of a given confidence."""


class Judgement(NamedTuple):
    """Our result on a claim, as a measurement decides it."""

    ours: str
    verdict: str
    why: str
    basis: str = ""
    """How our numbers are known, if the claim's other evidence does not say it."""


Judge = Callable[..., Judgement]
"""Called with a measurement; raises `Undecided` if it does not suffice."""
_Declare = Callable[[Judge], Judge]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper, and how a measurement decides it."""

    identifier: str
    claim: str
    published: str
    judge: Judge
    part: str = ""
    """The part of a study that decides it."""
    timed: bool = False
    """Disturbed rounds of its part cannot decide it."""
    hardware_dependent: bool | None = None
    """True if the claim depends on the devices; None: its records do that name a device."""

    def unknown(self, why: str, device: str = "", *, basis: str) -> ClaimRecord:
        """Return the record of a claim that nothing measured decides."""
        return ClaimRecord(
            self.identifier, self.claim, self.published, "", UNKNOWN, why, device, basis, self.hardware_dependent
        )

    def record(self, *measurement: object, device: str, basis: str = "measured", setting: str = "") -> ClaimRecord:
        """Return the record of the claim as the measurement decides it; the reason begins with `setting`."""
        try:
            ours, verdict, why, known = self.judge(*measurement)
        except Undecided as reason:
            return self.unknown(str(reason), device, basis=reason.basis or basis)
        why = "; ".join(filter(None, [setting, why]))
        known = known or basis
        judged = (ours, verdict, why, device, known, self.hardware_dependent)
        return ClaimRecord(self.identifier, self.claim, self.published, *judged)


class ClaimList(list[Claim]):
    """The claims that one kind of measurement decides, in the order in which they are declared."""

    def declare(self, identifier: str, claim: str, published: str = "", part: str = "", *, timed: bool = False) -> _Declare:
        """Return a decorator that adds a claim; the decorated function judges it."""

        def add(judge: Judge) -> Judge:
            self.append(Claim(identifier, claim, published, judge, part, timed))
            return judge

        return add


def holds_if(condition: bool) -> str:
    """Return the verdict of a claim that one truth value decides."""
    return HOLDS if condition else FAILS


def printed_claim(identifier: str, claim: str, published: str, ours: str, condition: bool, why: str) -> ClaimRecord:
    """Return the record of a claim that the paper's printed figures decide."""
    return ClaimRecord(identifier, claim, published, ours, holds_if(condition), why, basis="published")


def sign_verdict(effect: Estimate, *, or_zero: bool = False) -> str:
    """Return the verdict on "this effect is above 0", or with `or_zero` on "it is at least 0", by the interval of the effect.

    HOLDS and FAILS need an interval that lies on one side of 0; an interval with both signs in it is UNCLEAR. Without an
    interval, as from one replication, nothing shows how far chance moves the effect: its sign may refute the claim, not more.

    Example:
        >>> sign_verdict(Estimate(2.0, 1.5, 2.5)), sign_verdict(Estimate(2.0, -1.0, 5.0))
        ('holds', 'not distinguishable')
        >>> sign_verdict(Estimate(2.0, None, None))
        'not distinguishable'
    """
    low, high = effect.low, effect.high
    if low is None or high is None:
        return UNCLEAR if effect.mean > 0.0 or (or_zero and effect.mean == 0.0) else FAILS
    if low > 0.0 or (or_zero and low == 0.0):
        return HOLDS
    return FAILS if high < 0.0 or low == high == 0.0 else UNCLEAR


def verdict_among(effect: Effect, *, chances_to_hold: int = 1, chances_to_fail: int = 1, or_zero: bool = False) -> str:
    """Return the `sign_verdict` on one of several effects, by intervals that are wider the more effects may decide a claim.

    A claim on n effects that needs at least k above 0 holds where k of them HOLD, with n - k + 1 chances to hold, and fails
    where n - k + 1 FAIL, with k chances to fail. Either is then by accident in at most 2.5 % of cases, however the effects
    depend on each other: the 5 % that an interval may miss are divided by the chances (Bonferroni). Where all effects are
    needed, each must lie beyond its plain interval of 95 %; where one of n will do, beyond one of 100 - 5/n %.
    Source: Y. Benjamini, R. Heller, Screening for partial conjunction hypotheses, Biometrics 64 (2008), 1215-1222.
    """
    estimate = effect(_shared(chances_to_fail))
    verdict = sign_verdict(estimate, or_zero=or_zero)
    if verdict == FAILS or estimate.low is None:
        return verdict
    return HOLDS if sign_verdict(effect(_shared(chances_to_hold)), or_zero=or_zero) == HOLDS else UNCLEAR


def _shared(chances: int) -> float:
    """Return the confidence of each of several intervals that together miss no more often than one of `CONFIDENCE`."""
    return 1.0 - (1.0 - CONFIDENCE) / chances


def verdict_over_cases(cases: Iterable[Sequence[bool]]) -> str:
    """Return the verdict of several cases, each a truth value per seed or round; a case is clear if all its values agree."""
    return worst_verdict(HOLDS if all(seeds) else UNCLEAR if any(seeds) else FAILS for seeds in cases)
