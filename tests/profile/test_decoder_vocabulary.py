"""Decoders that restrict the vocabulary: how they are named, kept in files, chosen, and told to readers."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, checked_profile
from simnmt.profile.profile_variant import with_decoder
from tests.profile.made_decoder import (
    CLUSTERED,
    INT16,
    LISTED,
    MERGED,
    PLAIN,
    RUNGS,
    decoder_block,
    profile,
    restricted,
    variant,
    with_variants,
)
from tests.profile.made_profile import whole_profile


def restricted_profile(**more: Any) -> DeviceProfile:
    block = decoder_block() | {"variants": [*decoder_block()["variants"], *restricted(CLUSTERED), *restricted(LISTED)]}
    return checked_profile(whole_profile() | {"decoder": block | more})


def test_a_number_of_candidates_means_a_list_however_its_vocabulary_is_named() -> None:
    known = profile(decoder_block([DecoderSettings(candidates=500), DecoderSettings(candidates=500, fused=True)]))
    wanted = DecoderSettings(candidates=500, vocabulary="candidates", fused=True)
    assert with_decoder(known, wanted)[1].settings == DecoderSettings(candidates=500, fused=True)
    with pytest.raises(ValueError, match="contradict"):
        DecoderSettings(candidates=500, vocabulary="clustered")


def test_a_measured_vocabulary_gives_its_share_and_agreement_at_each_batch_size() -> None:
    moved, choice = with_decoder(restricted_profile(), CLUSTERED)
    assert choice.how == "measured"
    assert choice.shares == {"agreement": None, "identical": 0.93, "likeliest_active": 0.99}
    assert "99 %" in choice.fidelity and "93 %" in choice.fidelity
    document = choice.as_json()
    assert document["active_share"] == {"1": 0.05, "8": 0.12, "32": 0.36}
    assert (document["identical"], document["likeliest_active"]) == (0.93, 0.99)
    assert moved.plane.s_per_tgt_token < restricted_profile().plane.s_per_tgt_token


def test_noise_carries_its_agreement_and_identities_none() -> None:
    """XP-03: a variant that rounds has the agreement that was measured. The candidate list is no noise: the exact decoder has
    the same one.
    """
    for candidates in (None, 500):
        plain, merged, int16, polynomial = (
            settings.model_copy(update={"candidates": candidates}) for settings in (PLAIN, MERGED, INT16, RUNGS[3])
        )
        known = with_variants(*(variant(settings) for settings in (plain, merged, polynomial)), variant(int16, agreement=0.999))
        agreement = {settings: with_decoder(known, settings)[1].shares["agreement"] for settings in (merged, int16, polynomial)}
        assert agreement == {merged: None, int16: 0.999, polynomial: None}
        assert with_decoder(known, merged)[1].exact is (candidates is None)
