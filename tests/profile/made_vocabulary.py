"""Variants of a decoder that restrict the vocabulary, made of numbers."""

from __future__ import annotations

from typing import Any

from simnmt.profile.decoder_block import ActiveShare
from simnmt.profile.decoder_settings import DecoderSettings
from tests.profile.made_decoder import stages_s

CLUSTERED, LISTED = DecoderSettings(vocabulary="clustered"), DecoderSettings(vocabulary="candidates")
VOCAB = 12_000
SHARES = {1: 0.05, 8: 0.12, 32: 0.36}
"""By batch: the union grows."""
BY_SENTENCE = (0.01, 0.03, 0.06, 0.1)
S_PER_SHARE = 0.001


def restricted(
    settings: DecoderSettings, s_per_share: float = S_PER_SHARE, by_sentence: tuple[float, ...] | None = BY_SENTENCE
) -> list[dict[str, Any]]:
    """One at each batch size: the product in proportion to the share, and a fixed part for choosing columns."""
    found = []
    for batch, mean in SHARES.items():
        body, product, search = stages_s(DecoderSettings(), batch)
        product = 2e-5 + product * mean
        share = ActiveShare.of(
            [round(VOCAB * mean * times) for times in (0.5, 1.0, 1.5)],
            VOCAB,
            by_sentence=by_sentence if batch == 1 else None,
            s_per_share=s_per_share,
        )
        parts = {"body_s": body, "product_s": product, "search_s": search * mean}
        found.append(
            {
                "settings": settings.model_dump(),
                "batch": batch,
                **parts,
                "likeliest_active": 0.99,
                "identical": 0.93,
                "active": share.model_dump(),
            }
        )
    return found
