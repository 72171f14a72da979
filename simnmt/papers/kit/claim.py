"""A claim of a paper beside our result, its verdict, and both as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from simnmt.results.statistics import CONFIDENCE, Estimate

Records = list[dict[str, Any]]
Effect = Callable[[float], Estimate]
"""An effect with its interval of a given confidence."""

HOLDS, FAILS, UNCLEAR, UNKNOWN = "holds", "does not hold", "not distinguishable", "not measurable here"
"""The verdicts: UNCLEAR where repeats do not agree, UNKNOWN where nothing was measured that could decide."""


def claim_record(
    identifier: str,
    claim: str,
    theirs: str,
    ours: str,
    verdict: bool | str,
    why: str,
    *,
    device: str = "",
    basis: str = "synthetic",
) -> dict[str, Any]:
    """One claim on one device, or on none; `verdict`: one of the four, True and False for the first two."""
    return {
        "id": f"{identifier}, {device}" if device else identifier,
        "bare": identifier,
        "device": device,
        "claim": claim,
        "published": theirs,
        "ours": ours,
        "verdict": verdict if isinstance(verdict, str) else HOLDS if verdict else FAILS,
        "why": why,
        "hardware_dependent": bool(device),
        "basis": basis,
    }


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


def describe_verdicts(records: Sequence[Mapping[str, Any]]) -> str:
    """Return how many claims hold, hold in some configurations alone, do not hold, and so on.

    A claim that is judged on several devices, models or data sets counts once: it holds where it does in all of them that can
    be judged.
    """
    verdicts: dict[str, list[str]] = {}
    for record in records:
        verdicts.setdefault(record["bare"], []).append(record["verdict"])
    outcomes = [_over_configurations(claim_verdicts) for claim_verdicts in verdicts.values()]
    partly = outcomes.count(_PARTLY)
    parts = [
        f"{outcomes.count(HOLDS)} of {len(outcomes)} claims hold",
        *([f"{partly} in some configurations alone"] if partly else []),
        f"{outcomes.count(FAILS)} do not",
        f"{outcomes.count(UNCLEAR)} are not distinguishable",
        f"{outcomes.count(UNKNOWN)} not measurable here",
    ]
    over = f" ({len(records)} verdicts in all configurations)" if len(records) > len(outcomes) else ""
    return f"{', '.join(parts)}{over}"


_PARTLY = "in part"


def _over_configurations(verdicts: Sequence[str]) -> str:
    judged = [verdict for verdict in verdicts if verdict != UNKNOWN]
    if HOLDS in judged and set(judged) != {HOLDS}:
        return _PARTLY
    return worst_verdict(judged)


def format_claims(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per claim, and how many hold."""
    lines = [
        f"{str(record['verdict']).capitalize()}: {record['id']}. {record['claim']} ({record['ours'] or record['why']})."
        for record in records
    ]
    return "\n".join([*lines, f"{describe_verdicts(records)}."])
