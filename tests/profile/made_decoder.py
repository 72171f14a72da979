"""Decoders made of numbers: stages by batch size, factors of each option, and variants with a part of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, checked_profile
from tests.profile.made_profile import whole_profile

STAGES_S = (0.002, 0.001, 0.0006)
"""Body, product and search of the base at batch 1."""
FACTORS: dict[tuple[str, Any], tuple[float, float, float]] = {
    ("beam", 5): (2.0, 1.5, 5.0),
    ("fused", True): (1.0, 1.0, 0.2),
    ("gemm", "int16"): (0.5, 0.4, 1.0),
    ("merge", True): (0.9, 1.0, 1.0),
    ("activations", "polynomial"): (0.8, 1.0, 1.0),
    ("activations", "table"): (0.9, 1.0, 1.0),
}
BATCHES = (1, 8, 32)
BEAMS_BY_FUSED = tuple(DecoderSettings(beam=beam, fused=fused) for beam in (1, 5) for fused in (False, True))
"""What a calibration with torch measures."""


def stages_s(settings: DecoderSettings, batch: int = 1) -> tuple[float, float, float]:
    """What the decoder takes."""
    parts = [part * (1.0 + 0.05 * (batch - 1)) for part in STAGES_S]
    for (option, value), factors in FACTORS.items():
        if getattr(settings, option) == value:
            parts = [part * factor for part, factor in zip(parts, factors, strict=True)]
    body, product, search = parts
    return body, product, search


def variant(settings: DecoderSettings, batch: int = 1, times: float = 1.0, **more: Any) -> dict[str, Any]:
    """A variant as a profile holds it, `times` as slow as its options make it."""
    body, product, search = (times * part for part in stages_s(settings, batch))
    parts = {"body_s": body, "product_s": product, "search_s": search}
    return {"settings": settings.model_dump(), "batch": batch} | parts | more


def decoder_block(
    settings: Iterable[DecoderSettings] = BEAMS_BY_FUSED, batches: Sequence[int] = BATCHES, **more: Any
) -> dict[str, Any]:
    """The content of a block; its base is the first of the settings."""
    base, *others = settings
    variants = [variant(decoder, batch) for decoder in (base, *others) for batch in batches]
    return {"kind": "measured", "base": base.model_dump(), "src_len": 20, "repeats": 7, "variants": variants} | more


EVERYTHING = whole_profile()
PLAIN, FUSED = DecoderSettings(), DecoderSettings(fused=True)
INT16, MERGED = DecoderSettings(gemm="int16"), DecoderSettings(merge=True)
RUNGS = (PLAIN, INT16, MERGED, DecoderSettings(activations="polynomial"))


def profile(block: dict[str, Any] | None = None, **blocks: Any) -> DeviceProfile:
    """A whole profile with this block `decoder`, or a made one, and further blocks replaced."""
    content = EVERYTHING | {"decoder": decoder_block() if block is None else block} | blocks
    content["overheads"] = {
        "step_gap_s": {"value": 0.0006, "kind": "measured"},
        "step_gap_s_per_sentence": {"value": 0.00003, "kind": "measured"},
        **blocks.get("overheads", {}),
    }
    return checked_profile(content)


def with_variants(*variants: dict[str, Any], **more: Any) -> DeviceProfile:
    """A whole profile whose decoder has these variants, the first of them its base."""
    return profile({"kind": "measured", "base": variants[0]["settings"], "variants": list(variants)} | more)


CLUSTERED, LISTED = DecoderSettings(vocabulary="clustered"), DecoderSettings(vocabulary="candidates")
VOCAB = 12_000
SHARES = {1: 0.05, 8: 0.12, 32: 0.36}
"""By batch: the union grows."""


def restricted(settings: DecoderSettings) -> list[dict[str, Any]]:
    """One at each batch size: the product in proportion to the share, and a fixed part for choosing columns."""
    restrictions = []
    for batch, mean in SHARES.items():
        body, product, search = stages_s(DecoderSettings(), batch)
        product = 2e-5 + product * mean
        parts = {"body_s": body, "product_s": product, "search_s": search * mean}
        restrictions.append(
            {
                "settings": settings.model_dump(),
                "batch": batch,
                **parts,
                "likeliest_active": 0.99,
                "identical": 0.93,
                "active_share": mean,
            }
        )
    return restrictions
