"""Which numbers of a device decide no verdict, and what is said of them instead."""

from __future__ import annotations

from collections.abc import Iterable

from simnmt.reproduce.topup.devices import Decoder

Cell = tuple[Decoder, str]
"""A device with a beam, and a set."""

LEAST_BATCHES = 40
"""Of fewer batches' sentences nothing is judged: the first batch, and the last, would weigh too much."""


def undecided(cell: Cell, sentences: int | None, *, refills: bool = True) -> str:
    """Why numbers of a device and a set decide no verdict; empty where they do. `refills`: they rest on what refills cost."""
    decoder, test_set = cell
    if decoder.extrapolates(test_set):
        return "extrapolated"
    if refills and not decoder.refilling_known:
        return "without what refills and the gaps between steps take, which was not measured"
    if sentences is not None and sentences < LEAST_BATCHES * decoder.batch:
        return f"of fewer than {LEAST_BATCHES} batches"
    return ""


def passed_over(told: Iterable[tuple[str, str]]) -> list[str]:
    """A sentence per reason. `told`: (reason, what would have been said)."""
    groups: dict[str, list[str]] = {}
    for reason, words in told:
        groups.setdefault(reason, []).append(words)
    return [f"{reason}, and no part of the verdict: {'; '.join(words)}" for reason, words in groups.items()]
