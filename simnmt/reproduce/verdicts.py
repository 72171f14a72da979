"""One claim of a paper beside ours, and its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Records = list[dict[str, Any]]

HOLDS, FAILS, UNCLEAR, UNKNOWN = "holds", "does not hold", "not distinguishable", "not measurable here"
"""The verdicts: UNCLEAR where repeats do not agree, UNKNOWN where nothing was measured that could decide."""


def record_of(
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


def together(cases: Iterable[Sequence[bool]]) -> str:
    """The verdict of several cases, each a truth value per seed or round: a case is clear where all say the same."""
    return worst(HOLDS if all(seeds) else UNCLEAR if any(seeds) else FAILS for seeds in cases)


def worst(verdicts: Iterable[str]) -> str:
    """Of several cases' verdicts the one that counts: a claim holds where it does in all of them."""
    found = list(verdicts)
    return next((each for each in (FAILS, UNCLEAR, HOLDS) if each in found), UNKNOWN)


def counted(records: Sequence[Mapping[str, Any]]) -> str:
    """How many hold, do not hold, and are not measurable here."""
    verdicts = [record["verdict"] for record in records]
    found = [verdicts.count(each) for each in (HOLDS, FAILS, UNCLEAR, UNKNOWN)]
    return "{} of {} claims hold, {} do not, {} are not distinguishable, {} not measurable here".format(
        found[0], len(verdicts), *found[1:]
    )
