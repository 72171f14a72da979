"""The options of a decoder."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from simnmt.profile.decoder_settings import DecoderSettings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (DecoderSettings(), "beam 1, plain"),
        (DecoderSettings(beam=5, fused=True), "beam 5, fused"),
        (DecoderSettings(beam=6, embeddings="frequent", attention="precomputed", merge=True),
         "beam 6, 8,000 embeddings kept, attention kept, states merged"),
        (DecoderSettings(gemm="int16", activations="table", candidates=500),
         "beam 1, int16, table activations, 500 candidates"),
    ],
)  # fmt: skip
def test_settings_say_in_words_what_they_change(settings: DecoderSettings, words: str) -> None:
    assert settings.describe() == words


def test_identities_are_exact_and_noise_is_not() -> None:
    """XP-03, SHARP-10: fusing, pre-computation and merging leave every translation as it is."""
    identities = DecoderSettings(
        beam=5, fused=True, gemm="float32", embeddings="precomputed", attention="precomputed", merge=True
    )
    assert identities.exact
    for noise in ({"gemm": "int16"}, {"activations": "table"}, {"activations": "polynomial"}):
        assert not identities.model_copy(update=noise).exact
        assert identities.model_copy(update=noise).noise == tuple(noise)
    listed = identities.model_copy(update={"candidates": 500})
    assert not listed.exact
    assert listed.noise == (), "a list says what may be chosen, and rounds nothing"


def test_settings_serve_as_keys_and_refuse_what_they_do_not_know() -> None:
    assert {DecoderSettings(beam=5): 1}[DecoderSettings(beam=5)] == 1
    with pytest.raises(ValidationError, match="fuse"):
        DecoderSettings.model_validate({"fuse": True})
