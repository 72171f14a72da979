"""Judge a claim on a device case by case, a beam and a test set each; the worst decided case counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.published import SETS
from simnmt.papers.kit.claim import FAILS, HOLDS, UNCLEAR, UNKNOWN, ClaimRecord, verdict_over_cases, worst_verdict
from simnmt.papers.kit.page import grouped

LEAST_BATCHES = 40
"""Fewest batches that decide a verdict: with fewer, the first and the last batch would weigh too much."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a claim, such as a beam and a test set."""

    name: str
    ours: str
    """Our figures as text."""
    verdict: str
    reason: str = ""
    """Reason why the case does not hold or is undecided; empty: the usual reason of its verdict."""


_USUAL_REASONS = {FAILS: "it does not hold", UNCLEAR: "not in every seed"}
_OUTCOMES = {HOLDS: "in every case looked at", UNKNOWN: "nothing that could decide it was measured"}
_KINDS = ("synthetic", "published", "inferred", "measured")
"""Origins of figures, the least certain first."""


def case_name(beam: int, test_set: str) -> str:
    """Return the name of a case, such as `Europarl, beam 5`."""
    return f"{SETS[test_set].name}, beam {beam}"


def case_over_seeds(decoder: Decoder, test_set: str, ours: str, holds: Sequence[bool], reason: str = "") -> Case:
    """Return a case that is clear if all its seeds agree."""
    return Case(case_name(decoder.beam, test_set), ours, verdict_over_cases([holds]), reason)


def undecided_reason(decoder: Decoder, test_set: str, sentences: int | None, *, refills: bool = True) -> str:
    """Return the reason why figures of a device on a set decide no verdict, or an empty text.

    Args:
        decoder: the device with its beam.
        test_set: key of the set.
        sentences: most sentences timed per set; None: all of them.
        refills: whether the figures depend on the cost of refills.
    """
    if decoder.extrapolates(test_set):
        return "extrapolated"
    if refills and not decoder.refills_known:
        return "without the cost of refills and of the gaps between steps, which was not measured"
    return too_few_reason(decoder, sentences)


def too_few_reason(decoder: Decoder, sentences: int | None) -> str:
    """Return the reason why the timed sentences are too few for a verdict on a device, or an empty text."""
    too_few = sentences is not None and sentences < LEAST_BATCHES * decoder.batch
    return f"of fewer than {LEAST_BATCHES} batches" if too_few else ""


def undecided(case: Case, reason: str) -> Case:
    """Return the case, without a verdict if `reason` is not empty."""
    return replace(case, verdict=UNKNOWN, reason=reason) if reason else case


def device_claim(
    decoders: Sequence[Decoder], identifier: str, claim: str, published: str, cases: Iterable[Case], notes: Iterable[str] = ()
) -> ClaimRecord:
    """Return the record of a claim on one device. `notes`: further sentences of `why`; empty ones are left out."""
    cases = list(cases)
    verdict = worst_verdict(case.verdict for case in cases)
    undecided_cases = grouped([case for case in cases if case.verdict == UNKNOWN], "reason")
    others = grouped([case for case in cases if case.verdict in _USUAL_REASONS], "verdict", "reason")
    why = [
        _OUTCOMES.get(verdict, ""),
        *(
            f"{reason or _USUAL_REASONS[outcome]}: {', '.join(case.name for case in group)}"
            for (outcome, reason), group in others.items()
        ),
        *(
            f"{reason}, and no part of the verdict: {'; '.join(f'{case.name}: {case.ours}' for case in group)}"
            for (reason,), group in undecided_cases.items()
        ),
        *notes,
    ]
    kinds = {decoder.kind for decoder in decoders}
    return ClaimRecord(
        identifier,
        claim,
        published,
        "; ".join(f"{case.name}: {case.ours}" for case in cases if case.verdict != UNKNOWN),
        verdict,
        "; ".join(filter(None, why)),
        device=decoders[0].device,
        basis=next(kind for kind in _KINDS if kind in kinds),
    )
