"""A claim of a paper beside our result, its verdict, and both as text for a terminal; Amdahl's law, which many claims use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simnmt.results.statistics import CONFIDENCE, Estimate

Effect = Callable[[float], Estimate]
"""An effect with its interval of a given confidence."""

HOLDS, FAILS, UNCLEAR, UNKNOWN = "holds", "does not hold", "not distinguishable", "not measurable here"
"""The verdicts: UNCLEAR where repeats do not agree, UNKNOWN where nothing was measured that could decide."""
PARTLY = "holds in part"
"""Outcome of a claim that holds on some of its devices, models or data sets alone."""


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim of a paper beside our result and its verdict, on one device or on none."""

    identifier: str
    """The requirement and a letter, such as `SHARP-11 (a)`."""
    claim: str
    """The paper's claim in plain words."""
    published: str
    ours: str
    verdict: str
    """One of the four."""
    why: str
    device: str = ""
    """Device, model, data set or profiles that the claim was judged on; empty if it needs none."""
    basis: str = "synthetic"
    """How our numbers are known: measured, inferred, published, synthetic, or `needs --option`."""
    hardware_dependent: bool | None = None
    """None: it is, if it names a device."""

    @property
    def id(self) -> str:
        """Identifier and device."""
        return f"{self.identifier}, {self.device}" if self.device else self.identifier

    def record(self) -> dict[str, Any]:
        """Return the record as the JSON document holds it."""
        return {
            "id": self.id,
            "bare": self.identifier,
            "device": self.device,
            "claim": self.claim,
            "published": self.published,
            "ours": self.ours,
            "verdict": self.verdict,
            "why": self.why,
            "hardware_dependent": bool(self.device) if self.hardware_dependent is None else self.hardware_dependent,
            "basis": self.basis,
        }


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


class Undecided(Exception):
    """No measurement at hand decides a claim; the message is the reason."""

    def __init__(self, reason: str, basis: str = "") -> None:
        """`basis`: what decides the claim, such as `needs --study`, if it is not the basis of the claim's other evidence."""
        super().__init__(reason)
        self.basis = basis


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


def format_span(values: Sequence[float], form: str = ".2f") -> str:
    """Return the least and the greatest value as `low to high`; one value if both read the same, `no` without values."""
    low, high = (format(value, form) for value in (min(values), max(values))) if values else ("no", "no")
    return low if low == high else f"{low} to {high}"


def end_to_end(share: float, speed_up: float) -> float:
    """Return the speed-up of the whole, by Amdahl's law, if a `share` of its time gets `speed_up` times as fast (FNI-17)."""
    return 1.0 / (1.0 - share + share / speed_up)


def share_needed(whole: float, part: float) -> float:
    """Return the share of the time that a part had if its speed-up `part` (not 1) makes the whole `whole` times as fast.

    The result is above 1 if no share explains the speed-up.
    """
    return (1.0 - 1.0 / whole) / (1.0 - 1.0 / part)


def holds_if(condition: bool) -> str:
    """Return the verdict of a claim that one truth value decides."""
    return HOLDS if condition else FAILS


def printed_claim(identifier: str, claim: str, published: str, ours: str, condition: bool, why: str) -> ClaimRecord:
    """Return the record of a claim that the paper's printed figures decide."""
    return ClaimRecord(identifier, claim, published, ours, holds_if(condition), why, basis="published")


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """One claim with its records on all devices, models or data sets that it was judged on."""

    records: Sequence[ClaimRecord]

    @property
    def identifier(self) -> str:
        """The requirement and a letter."""
        return self.records[0].identifier

    @property
    def claim(self) -> str:
        """The paper's claim in plain words."""
        return self.records[0].claim

    @property
    def published(self) -> str:
        """The paper's printed result."""
        return self.records[0].published

    @property
    def outcome(self) -> str:
        """The verdict in all configurations that can be judged: the worst of them, or PARTLY."""
        judged = [record.verdict for record in self.records if record.verdict != UNKNOWN]
        return PARTLY if HOLDS in judged and set(judged) != {HOLDS} else worst_verdict(judged)

    @property
    def evidence(self) -> str:
        """Our figure if there is one record, else how many configurations agree with the claim."""
        if len(self.records) == 1:
            (record,) = self.records
            return (record.ours or record.why).partition("; ")[0]
        judged = [record.verdict for record in self.records if record.verdict != UNKNOWN]
        return f"holds in {judged.count(HOLDS)} of {len(judged)} configurations that can be judged"


def judged_claims(records: Iterable[ClaimRecord]) -> list[JudgedClaim]:
    """Group the records by claim, in the order of the first record of each claim."""
    groups: dict[str, list[ClaimRecord]] = {}
    for record in records:
        groups.setdefault(record.identifier, []).append(record)
    return [JudgedClaim(group) for group in groups.values()]


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


def worst_verdict(verdicts: Iterable[str]) -> str:
    """Return the worst of several cases' verdicts: a claim holds only if it holds in every case."""
    present = list(verdicts)
    return next((verdict for verdict in (FAILS, UNCLEAR, HOLDS) if verdict in present), UNKNOWN)


def describe_verdicts(records: Iterable[ClaimRecord]) -> str:
    """Return how many claims hold, hold in some configurations alone, do not hold, and so on.

    A claim that is judged on several devices, models or data sets counts once.
    """
    claims = judged_claims(records)
    outcomes = [claim.outcome for claim in claims]
    verdicts = sum(len(claim.records) for claim in claims)
    partly = outcomes.count(PARTLY)
    parts = [
        f"{outcomes.count(HOLDS)} of {len(outcomes)} claims hold",
        *([f"{partly} in some configurations alone"] if partly else []),
        f"{outcomes.count(FAILS)} do not",
        f"{outcomes.count(UNCLEAR)} not distinguishable",
        f"{outcomes.count(UNKNOWN)} not measurable here",
    ]
    over = f" ({verdicts} verdicts in all configurations)" if verdicts > len(outcomes) else ""
    return f"{', '.join(parts)}{over}"


def format_claims(records: Sequence[ClaimRecord], *, explain: bool = False) -> str:
    """Return a line per claim, with the reason beside our figures if `explain`, and how many hold."""
    lines = [
        f"{record.verdict.capitalize()}: {record.id}. {record.claim} "
        f"({'; '.join(filter(None, [record.ours, record.why])) if explain else record.ours or record.why})."
        for claim in judged_claims(records)
        for record in claim.records
    ]
    return "\n".join([*lines, f"{describe_verdicts(records)}."])
