"""Decoders that restrict the vocabulary: how they are named, kept in files, chosen, and told to readers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from simnmt.profile.blocks import ProfileError
from simnmt.profile.decoder_block import ActiveShare
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import checked_profile
from simnmt.profile.profile_summary import facts
from simnmt.profile.profile_variant import with_decoder
from tests.profile.made_decoder import BEAMS_BY_FUSED, decoder_block, variant
from tests.profile.made_profile import whole_profile
from tests.profile.made_vocabulary import CLUSTERED, LISTED, VOCAB, restricted

SAID = "likeliest token of all active in 99 % of its own steps, 93 % of sentences as the exact decoder's"


def profile(**more: Any) -> DeviceProfile:
    block = decoder_block() | {"variants": [*decoder_block()["variants"], *restricted(CLUSTERED), *restricted(LISTED)]}
    return checked_profile(whole_profile() | {"decoder": block | more})


def test_a_number_of_candidates_means_a_list() -> None:
    """As profiles had it before a vocabulary had a name, and files of then stay as they are."""
    listed = DecoderSettings(candidates=500)
    assert listed.vocabulary == "candidates"
    assert listed == DecoderSettings(candidates=500, vocabulary="candidates")
    assert listed.model_dump()["vocabulary"] == "candidates"
    assert DecoderSettings.model_validate_json(listed.model_dump_json()) == listed
    assert DecoderSettings.model_validate(CLUSTERED.model_dump()) == CLUSTERED
    assert listed.model_copy(update={"candidates": None}) == DecoderSettings()
    assert DecoderSettings().model_copy(update={"candidates": 500}) == listed


@pytest.mark.parametrize("vocabulary", ["full", "clustered"])
def test_candidates_of_another_vocabulary_are_refused_in_one_line(vocabulary: str) -> None:
    with pytest.raises(ValidationError, match=f"candidates: 500 beside vocabulary: {vocabulary} contradict each other"):
        DecoderSettings.model_validate({"candidates": 500, "vocabulary": vocabulary})


def test_a_restricted_vocabulary_is_not_an_identity() -> None:
    """XP-03: approximations carry their agreement; a fixed list is told apart, as before."""
    assert [each.exact for each in (CLUSTERED, LISTED, DecoderSettings(candidates=9))] == [False] * 3
    assert CLUSTERED.noise == LISTED.noise == ("vocabulary",)
    assert DecoderSettings(candidates=9).noise == ()
    assert (CLUSTERED.describe(), LISTED.describe()) == ("beam 1, clustered vocabulary", "beam 1, candidate lists")


def test_a_measured_vocabulary_gives_its_share_and_agreement_at_each_batch_size() -> None:
    moved, choice = with_decoder(profile(), CLUSTERED)
    assert (choice.how, choice.fidelity.agreement, choice.fidelity.likeliest_active, choice.fidelity.identical) == (
        "measured",
        None,
        0.99,
        0.93,
    )
    assert choice.fidelity.describe() == SAID
    assert choice.describe_active() == "5 % of 12,000 tokens active on average at batch 1, 12 % at batch 8, 36 % at batch 32"
    assert choice.describe_active() in choice.describe()
    told = json.loads(json.dumps(choice.as_json()))
    assert told["active_share"] == {"1": pytest.approx(0.05), "8": pytest.approx(0.12), "32": pytest.approx(0.36)}
    assert (told["identical"], told["likeliest_active"]) == (0.93, 0.99)
    assert moved.plane.s_per_tgt_token < profile().plane.s_per_tgt_token


def test_an_agreement_of_tokens_is_described_as_such() -> None:
    """Only of what was teacher-forced: one less the misses of a decoder's own path is another number."""
    forced = [each | {"agreement": 0.98, "likeliest_active": None} for each in restricted(CLUSTERED)]
    _, choice = with_decoder(profile(variants=[*decoder_block()["variants"], *forced]), CLUSTERED)
    assert choice.fidelity.describe() == "98 % of tokens as the exact decoder's, 93 % of sentences"


def test_an_exact_decoder_does_not_mention_vocabularies() -> None:
    _, choice = with_decoder(profile(), DecoderSettings(fused=True))
    assert choice.describe_active() == ""
    assert (choice.as_json()["active_share"], choice.as_json()["identical"]) == ({}, None)


def test_an_unnamed_vocabulary_is_that_of_the_profile() -> None:
    fixed = DecoderSettings(candidates=500)
    settings = (fixed, fixed.model_copy(update={"fused": True}))
    listed = checked_profile(whole_profile() | {"decoder": decoder_block(settings)})
    _, choice = with_decoder(listed, DecoderSettings(fused=True))
    assert choice.settings == settings[1]
    _, choice = with_decoder(listed, DecoderSettings(vocabulary="candidates", fused=True))
    assert choice.settings == settings[1]
    with pytest.raises(ProfileError, match="was not measured"):
        with_decoder(listed, DecoderSettings(vocabulary="full", fused=True))


def test_a_vocabulary_that_was_not_measured_is_refused_with_those_that_were() -> None:
    plain = checked_profile(whole_profile() | {"decoder": decoder_block(BEAMS_BY_FUSED)})
    with pytest.raises(ProfileError, match="was not measured") as raised:
        with_decoder(plain, CLUSTERED)
    assert raised.value.remedy is not None
    assert "--vocabulary" in raised.value.remedy


def test_inspecting_a_profile_shows_active_shares() -> None:
    told = dict(facts(profile()))["decoder beam 1, clustered vocabulary"]
    assert "5 % of 12,000 tokens active" in told
    assert SAID in told


def test_a_full_vocabulary_has_no_active_share() -> None:
    share = ActiveShare.of([9], VOCAB).model_dump()
    block = decoder_block((DecoderSettings(),)) | {"variants": [variant(DecoderSettings(), active=share)]}
    with pytest.raises(ProfileError, match="only a restricted vocabulary has an active share"):
        checked_profile(whole_profile() | {"decoder": block})
