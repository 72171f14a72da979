"""Claims of a paper, and the one judge that sets them beside our facts.

A claim is one line: `value` (our effect, taken from the facts), and `holds` (which effects support it); its words are data.

Example:
    >>> claim = Claim("X-1", "It is twice as fast", "2.1", value=lambda facts: facts.ratio, holds=at_least(2.0))
    >>> class Box(Facts):
    ...     ratio = (1.9, 2.0, 2.1)  # by round
    >>> (record,) = judge([claim], [Box()])
    >>> record.ours, record.verdict
    ('2.00', 'not distinguishable')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any, Generic, TypeVar, cast

import numpy as np

from simnmt.papers.kit.paper import Paper, Unmeasured
from simnmt.results.statistics import Estimate

HOLDS, FAILS, UNCLEAR, UNKNOWN = "holds", "does not hold", "not distinguishable", "not measurable here"
"""The verdicts: UNCLEAR where repeats do not agree, UNKNOWN where nothing was measured that could decide."""
PARTLY = "holds in part"
"""Outcome of a claim that holds on some of its devices, models or data sets alone."""


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim of a paper beside our result and its verdict."""

    identifier: str
    """The requirement and a letter, such as `SHARP-11 (a)`."""
    claim: str
    published: str
    ours: str
    verdict: str
    why: str
    device: str = ""
    """Device, model, data set or profiles that the claim was judged on; empty if it needs none."""
    basis: str = "synthetic"
    """How our numbers are known: measured, inferred, published, synthetic, or `needs --option`."""

    @property
    def id(self) -> str:
        return f"{self.identifier}, {self.device}" if self.device else self.identifier

    def record(self) -> dict[str, Any]:
        """Return the record as the JSON document holds it."""
        fields = asdict(self)
        return {"id": self.id, "bare": fields.pop("identifier"), **fields}


class Undecided(Exception):
    """No measurement at hand decides a claim, or one case of it; the message is the reason."""

    def __init__(self, reason: str, basis: str = "", *, needed: bool = False) -> None:
        """Name the reason, and what would decide the claim, such as `needs --study`.

        `needed`: without this case the claim may fail, but not hold; else the other cases decide.
        """
        super().__init__(reason)
        self.basis, self.needed = basis, needed


Effect = bool | float | Sequence[bool] | Sequence[float] | Estimate | Undecided
"""What decides a claim or a case of it: one value, one a round or seed (clear if all agree), a value with its interval, or the
reason why nothing decides."""
Effects = Effect | Mapping[str, Effect]
"""One effect, or one a case, such as a rung or a data set."""


@dataclass(frozen=True, slots=True)
class Result:
    """Our result on a claim, where the effect alone does not say everything."""

    effects: Effects
    ours: str | None = None
    """Our figures; None: the paper's data have the words, or else the effects in the claim's form."""
    why: str = ""
    """The reason; empty: the paper's data have the words, if there are any."""
    words: str | None = "in every case looked at"
    """Opens the reason if all cases are clear; else it lists those that are not. None: the reason lists no case."""
    basis: str = ""
    """How our numbers are known, if not as the facts are."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Values that fill the words of the paper's data, beside `cases` and the number of them that are `holding`."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A judge: an effect supports the claim if it lies between `low` and `high`."""

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    """The bounds themselves do not support it."""
    spare: int = 0
    """Cases that need not hold."""

    def allows(self, value: float) -> bool:
        return self.low < value < self.high if self.strict else self.low <= value <= self.high

    def overall(self, verdicts: Iterable[str]) -> str:
        """Return the verdict of a claim by those of its cases."""
        outcomes = [verdict for verdict in verdicts if verdict != UNKNOWN]
        if not outcomes or not self.spare:
            return worst_verdict(outcomes)
        if outcomes.count(HOLDS) >= len(outcomes) - self.spare:
            return HOLDS
        return FAILS if outcomes.count(FAILS) > self.spare else UNCLEAR

    def verdict(self, effect: Effect) -> str:
        """Return the verdict on one effect.

        HOLDS and FAILS need values that agree, or an interval that lies inside or outside the bounds. Without an interval, as
        from one replication, nothing shows how far chance moves an estimate: it may refute the claim, not more.
        """
        if isinstance(effect, Undecided):
            return UNKNOWN
        if isinstance(effect, Estimate):
            low, high = effect.low, effect.high
            if low is None or high is None:
                return UNCLEAR if self.allows(effect.mean) else FAILS
            if self.allows(low) and self.allows(high):
                return HOLDS
            return FAILS if high < self.low or low > self.high or low == high else UNCLEAR
        values = list(effect) if isinstance(effect, Sequence) else [effect]
        supports = [value if isinstance(value, (bool, np.bool_)) else self.allows(value) for value in values]
        return HOLDS if all(supports) else UNCLEAR if any(supports) else FAILS


agrees = Bound()


def at_least(low: float) -> Bound:
    return Bound(low)


def above(low: float, spare: int = 0) -> Bound:
    """Judge effects by a strict lower bound, such as 0 for a sign; `spare`: see `Bound`."""
    return Bound(low, strict=True, spare=spare)


def at_most(high: float) -> Bound:
    return Bound(high=high)


def below(high: float) -> Bound:
    return Bound(high=high, strict=True)


def between(low: float, high: float) -> Bound:
    """Judge effects by a range, bounds included."""
    return Bound(low, high)


def about(value: float, tolerance: float) -> Bound:
    """Judge effects by their relative difference from a value."""
    return Bound(value * (1.0 - tolerance), value * (1.0 + tolerance))


class Facts:
    """What claims are judged on: one device, model or data set. Papers derive their own."""

    device: str = ""
    """Name in the record; empty if the claims need none."""
    basis: str = "measured"
    """How the numbers are known."""
    setting: str = ""
    """Words that open each reason."""

    def lacks(self, need: str) -> Undecided | None:
        """Return the reason why claims that need this part, or this option, cannot be judged; None if they can."""
        return None


class Printed(Facts):
    """The facts of claims that the paper's printed figures decide."""

    basis = "published"


F = TypeVar("F", bound=Facts)


@dataclass(frozen=True, slots=True)
class Claim(Generic[F]):
    """A claim of a paper, and which effects support it; `of_paper` adds the words."""

    identifier: str
    claim: str = ""
    published: str = ""
    value: Callable[[F], Result | Effects] = lambda facts: Undecided("nothing was measured")
    holds: Bound = agrees
    form: str = ".2f"
    """Format of our effects."""
    needs: str = ""
    """The part or the option without which the verdict is UNKNOWN (`Facts.lacks`)."""
    why: str = ""
    """The reason in words, with `{name}` for each of `Result.facts`."""
    ours: str = ""
    """The same for our figures."""

    def on(self, facts: F) -> ClaimRecord:
        """Return the record of the claim on these facts."""
        try:
            value = (facts.lacks(self.needs) if self.needs else None) or self.value(facts)
        except Undecided as reason:
            value = reason
        result = value if isinstance(value, Result) else Result(value)
        if result.effects == {}:
            result = Result(Undecided("nothing at hand decides it"))
        several = isinstance(result.effects, Mapping)
        cases = cast(Mapping[str, Effect], result.effects if several else {"": result.effects})
        verdicts = {case: self.holds.verdict(effect) for case, effect in cases.items()}
        undecided = {case: effect for case, effect in cases.items() if isinstance(effect, Undecided)}
        verdict = self.holds.overall(verdicts.values())
        if verdict != FAILS and any(reason.needed for reason in undecided.values()):
            verdict = UNKNOWN
        listed = "" if several else "; ".join(map(str, undecided.values()))
        if several and result.words is not None:
            listed = _list_cases(result.words, verdicts, undecided)
        values = {"cases": len(cases), "holding": [*verdicts.values()].count(HOLDS), **result.facts}
        ours, explanation = result.ours, result.why
        if several or not undecided:
            ours = (self.ours.format_map(values) or None) if ours is None else ours
            explanation = explanation or self.why.format_map(values)
        ours = format_effects(cases, self.form) if ours is None else ours
        why = "; ".join(filter(None, [facts.setting, listed, explanation]))
        basis = result.basis or (max(reason.basis for reason in undecided.values()) if undecided and verdict == UNKNOWN else "")
        head = (self.identifier, self.claim, self.published)
        return ClaimRecord(*head, ours, verdict, why, facts.device, basis or facts.basis)


def _list_cases(words: str, verdicts: Mapping[str, str], undecided: Mapping[str, Undecided]) -> str:
    listed: dict[str, list[str]] = {}
    for verdict, opening in ((FAILS, "not with"), (UNCLEAR, "unclear with")):
        listed[opening] = [case for case, outcome in verdicts.items() if outcome == verdict]
    clear = not any(listed.values()) and len(undecided) < len(verdicts)
    for case, reason in undecided.items():
        listed.setdefault(f"{reason}, and no part of the verdict:", []).append(case)
    return "; ".join([words] * clear + [f"{opening} {', '.join(cases)}" for opening, cases in listed.items() if cases])


def judge(claims: Iterable[Claim[F]], over: Sequence[F], missing: Undecided | None = None) -> list[ClaimRecord]:
    """Return the records of the claims on each of the facts; without facts, one a claim that names what is missing."""
    if over or missing is None:
        return [claim.on(facts) for claim in claims for facts in over]
    why, basis = str(missing), missing.basis
    return [ClaimRecord(claim.identifier, claim.claim, claim.published, "", UNKNOWN, why, basis=basis) for claim in claims]


def of_paper(paper: Paper, claims: Iterable[Claim[F]]) -> list[Claim[F]]:
    """Return the claims with their words, which the paper's data have by identifier (`ClaimWords`).

    In the claim `{low}` and `{high}` stand for the bounds of the judge, so that a bound is written once.
    """
    with_words = []
    for claim in claims:
        words = paper.claims[claim.identifier]
        text = words.claim.format(low=claim.holds.low, high=claim.holds.high)
        with_words.append(replace(claim, **words._replace(claim=text)._asdict()))
    return with_words


def unmeasured(claims: Iterable[Unmeasured]) -> list[ClaimRecord]:
    return [ClaimRecord(item.id, item.claim, item.published, "", UNKNOWN, item.why, basis="published") for item in claims]


def quartiles(values: Sequence[float]) -> tuple[float, ...]:
    """Return quartiles and median of a value measured by round: an effect that one disturbed round does not decide."""
    return tuple(float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))


def format_effects(cases: Mapping[str, Effect], form: str = ".2f") -> str:
    """Return the effects by case: a value, the median of several, or the mean of an interval."""
    texts = []
    for case, effect in cases.items():
        value: Any = effect.mean if isinstance(effect, Estimate) else effect
        value = median(value) if isinstance(value, Sequence) else value
        if not isinstance(value, Undecided):
            texts.append(f"{case} {value if isinstance(value, bool) else format(value, form)}".strip())
    return "; ".join(texts)


def format_span(values: Sequence[float], form: str = ".2f") -> str:
    """Return the least and the greatest value as `low to high`; one value if both read the same, `no` without values."""
    low, high = (format(value, form) for value in (min(values), max(values))) if values else ("no", "no")
    return low if low == high else f"{low} to {high}"


def worst_verdict(verdicts: Iterable[str]) -> str:
    """Return the worst of several cases' verdicts: a claim holds only if it holds in every case."""
    given = set(verdicts)
    return next((verdict for verdict in (FAILS, UNCLEAR, HOLDS) if verdict in given), UNKNOWN)


def end_to_end(share: float, speed_up: float) -> float:
    """Return the speed-up of the whole, by Amdahl's law, if a `share` of its time gets `speed_up` times as fast (FNI-17)."""
    return 1.0 / (1.0 - share + share / speed_up)


def share_needed(whole: float, part: float) -> float:
    """Return the share of the time that a part had if its speed-up makes the whole so fast; above 1 if no share does."""
    return (1.0 - 1.0 / whole) / (1.0 - 1.0 / part)


def by_claim(records: Iterable[ClaimRecord]) -> list[list[ClaimRecord]]:
    """Group the records by claim, in the order of the first record of each claim."""
    groups: dict[str, list[ClaimRecord]] = {}
    for record in records:
        groups.setdefault(record.identifier, []).append(record)
    return list(groups.values())


def outcome(records: Sequence[ClaimRecord]) -> str:
    """Return the verdict on a claim in all configurations that can be judged: the worst of them, or PARTLY."""
    judged = [record.verdict for record in records if record.verdict != UNKNOWN]
    return PARTLY if HOLDS in judged and set(judged) != {HOLDS} else worst_verdict(judged)


def describe_verdicts(records: Iterable[ClaimRecord]) -> str:
    """Return how many claims hold, do not hold, and so on; one judged on several devices, models or data sets counts once."""
    claims = by_claim(records)
    outcomes, verdicts = list(map(outcome, claims)), sum(map(len, claims))
    in_part = f"{outcomes.count(PARTLY)} in some configurations alone, " if PARTLY in outcomes else ""
    over = f" ({verdicts} verdicts in all configurations)" if verdicts > len(outcomes) else ""
    return (
        f"{outcomes.count(HOLDS)} of {len(outcomes)} claims hold, {in_part}{outcomes.count(FAILS)} do not, "
        f"{outcomes.count(UNCLEAR)} {UNCLEAR}, {outcomes.count(UNKNOWN)} {UNKNOWN}{over}"
    )


def format_claims(records: Sequence[ClaimRecord]) -> str:
    """Return a line per claim, with our figures or else the reason."""
    return "\n".join(
        f"{record.verdict.capitalize()}: {record.id}. {record.claim} ({record.ours or record.why})."
        for claim in by_claim(records)
        for record in claim
    )
