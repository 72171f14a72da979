"""The batching that a user names on the command line."""

from __future__ import annotations

from simnmt.batching import Batching, half_empty, immediate, maxi, mini, top_up
from simnmt.nmt.errors import NmtError

COLLECTED_BATCHES = 10
"""Of maxi-batching by default, as the paper on top-up batching collects 1,280 sentences for batches of 128 (FNI-09)."""
_PRESETS = {"half-empty": half_empty, "immediate": immediate}


def batching_named(kind: str = "maxi", size: int = 64, *, threshold: str | None = None, collect: int | None = None) -> Batching:
    """Of lines that are all at hand, or come as fast as they are read. Raises `NmtError` for what makes no batch.

    `kind`: mini, maxi or top-up. `threshold`, of top-up: half-empty (the default), immediate or a number. `collect`: lines that
    are sorted by length before they are cut into batches; of maxi by default those of ten batches, of top-up none.
    """
    if kind not in ("mini", "maxi", "top-up"):
        raise NmtError(f"no batching {kind}", remedy="take mini, maxi or top-up")
    if threshold is not None and kind != "top-up":
        raise NmtError(f"{kind} batching has no threshold", remedy="leave it out, or take top-up")
    if collect is not None and kind == "mini":
        raise NmtError("mini batching collects nothing", remedy="leave it out, or take maxi")
    try:
        if kind == "mini":
            return mini(size)
        if kind == "maxi":
            return maxi(size, COLLECTED_BATCHES * size if collect is None else collect)
        return top_up(size, _sentences(threshold or "half-empty", size), collect)
    except ValueError as error:
        raise NmtError(str(error), remedy="give another number") from None


def _sentences(threshold: str, size: int) -> int:
    if threshold in _PRESETS:
        return _PRESETS[threshold](size)
    try:
        return int(threshold)
    except ValueError:
        raise NmtError(f"threshold {threshold}", remedy="half-empty, immediate or a number of sentences") from None
