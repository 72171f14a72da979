"""The sharp decoder's techniques, in the order in which the paper puts one upon another (SHARP-11)."""

from __future__ import annotations

from typing import Any, Literal

from simnmt.costs.decoder_settings import DecoderSettings

RUNGS = ("baseline", "int16", "embeddings", "attention", "activations", "merge")
"""Of the ladder, each on top of those before it."""
IDENTITIES = ("embeddings", "attention", "merge")
"""Those that change no translation beside the rung before (SHARP-06, 07, 09)."""


def techniques(
    embeddings: Literal["precomputed", "frequent"] = "frequent",
    activations: Literal["library", "table", "polynomial"] = "polynomial",
) -> dict[str, dict[str, Any]]:
    """What each rung changes of the settings before it, but for the baseline, which changes nothing."""
    changes: tuple[dict[str, Any], ...] = (
        {"gemm": "int16"},
        {"embeddings": embeddings},
        {"attention": "precomputed"},
        {"activations": activations},
        {"merge": True},
    )
    return dict(zip(RUNGS[1:], changes, strict=True))


def ladder(base: DecoderSettings, changes: dict[str, dict[str, Any]] | None = None) -> dict[str, DecoderSettings]:
    """Settings by rung, the baseline's being `base`; `changes`: other than those that `techniques()` gives."""
    found = {RUNGS[0]: base}
    for rung, change in (techniques() if changes is None else changes).items():
        base = base.model_copy(update=change)
        found[rung] = base
    return found
