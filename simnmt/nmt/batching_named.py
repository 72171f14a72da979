"""The batching that a user names on the command line."""

from __future__ import annotations

from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.nmt.errors import NmtError

COLLECTED_BATCHES = 10
"""Of maxi-batching by default, as the paper on top-up batching collects 1,280 sentences for batches of 128 (FNI-09)."""
MOST = 1_000_000_000
"""Sentences of a batch: more than any memory holds; a collection of them is still a number that `islice` takes."""
_PRESETS = {"half-empty": half_empty, "immediate": immediate}


def batching_named(kind: str = "maxi", size: int = 64, *, threshold: str | None = None, collect: int | None = None) -> Batching:
    """Of lines that are all at hand, or come as fast as they are read. Raises `NmtError` for what makes no batch.

    `kind`: mini, maxi or top-up. `threshold`, of top-up: half-empty (the default), immediate or a number. `collect`: lines that
    are sorted by length before they are cut into batches; of maxi by default those of ten batches, of top-up none. Words may be
    spelled with an underscore, as in a scenario.
    """
    kind = kind.replace("_", "-")
    if kind not in ("mini", "maxi", "top-up"):
        raise NmtError(f"no batching {kind}", remedy="take mini, maxi or top-up")
    if threshold is not None and kind != "top-up":
        raise NmtError(f"{kind} batching has no threshold", remedy="leave it out, or take top-up")
    if collect is not None and kind == "mini":
        raise NmtError("mini batching collects nothing", remedy="leave it out, or take maxi")
    _check("--batch", size, 1, MOST)
    if kind == "mini":
        return mini(size)
    if kind == "maxi" and collect is None:
        collect = COLLECTED_BATCHES * size
    if collect is not None:
        _check("--collect", collect, size, COLLECTED_BATCHES * MOST, f" with batches of {size:,}")
        if kind == "maxi":
            return maxi(size, collect)
    return top_up(size, _sentences("half-empty" if threshold is None else threshold, size), collect)


def _sentences(threshold: str, size: int) -> int:
    if (preset := threshold.replace("_", "-")) in _PRESETS:
        return _PRESETS[preset](size)
    try:
        sentences = int(threshold)
    except ValueError:
        raise NmtError(f"no threshold {threshold}", remedy="take half-empty, immediate or a number of sentences") from None
    _check("--threshold", sentences, 0, size - 1, f" with batches of {size:,}")
    return sentences


def _check(option: str, value: int, least: int, most: int, beside: str = "") -> None:
    if not least <= value <= most:
        within = f"{least:,} to {most:,}" if least < most else f"{least:,}"
        raise NmtError(f"{option} {value:,} is out of range{beside}", remedy=f"give {within}")
