"""What a profile tells of the ways to write its decoder: measured variants exactly, the rest refused."""

from __future__ import annotations

import pytest

from simnmt.profile.blocks import ProfileError
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile, checked_profile
from simnmt.profile.profile_variant import as_calibrated, with_decoder
from tests.profile.made_decoder import (
    BATCHES,
    BEAMS_BY_FUSED,
    EVERYTHING,
    FUSED,
    PLAIN,
    decoder_block,
    profile,
    stages_s,
    variant,
    with_variants,
)


@pytest.mark.parametrize("settings", BEAMS_BY_FUSED[1:], ids=DecoderSettings.describe)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_measured_variant_multiplies_a_step_with_its_gap_by_the_measured_ratio(settings: DecoderSettings, batch: int) -> None:
    calibrated = profile()
    moved, choice = with_decoder(calibrated, settings)
    assert (choice.how, choice.exact) == ("measured", True)
    before, after = calibrated.decoding_cost, moved.decoding_cost
    ratio = sum(stages_s(settings, batch)) / sum(stages_s(PLAIN, batch))
    for position in (0, 16, 40):
        assert after.steps_at(batch)(position, position) == pytest.approx(ratio * before.steps_at(batch)(position, position))
    assert after.beam == settings.beam


def test_single_sentences_take_the_ratio_at_batch_1_for_each_target_token() -> None:
    calibrated = profile()
    moved, _ = with_decoder(calibrated, FUSED)
    ratio = sum(stages_s(FUSED)) / sum(stages_s(PLAIN))
    assert moved.plane.s_per_tgt_token == pytest.approx(ratio * calibrated.plane.s_per_tgt_token)
    assert (moved.plane.s_per_src_token, moved.plane.s_fixed) == (calibrated.plane.s_per_src_token, calibrated.plane.s_fixed)
    assert moved.residual == calibrated.residual


def test_between_batch_sizes_the_times_of_variant_and_base_are_interpolated() -> None:
    """Not their ratio: of steps that are linear in the batch it is no line."""
    ratios = {1: 0.9, 8: 0.8, 32: 0.5}
    variants = [variant(PLAIN, batch) for batch in BATCHES]
    variants += [variant(PLAIN, batch, times=ratio) | {"settings": FUSED.model_dump()} for batch, ratio in ratios.items()]
    calibrated = with_variants(*variants)
    moved, _ = with_decoder(calibrated, FUSED)
    plain_s = {batch: sum(stages_s(PLAIN, batch)) for batch in (8, 16, 32)}
    ratios[16] = (2.0 * 0.8 * plain_s[8] + 0.5 * plain_s[32]) / 3.0 / plain_s[16]
    for batch, ratio in ratios.items():
        after_s, before_s = (changed.decoding_cost.steps_at(batch)(5, 5) for changed in (moved, calibrated))
        assert after_s == pytest.approx(ratio * before_s)


OF_BEAM_5 = {name: EVERYTHING[name] | {"beam": 5} for name in ("engine", "step")}


def test_a_profile_gives_the_decoder_with_which_its_costs_were_measured() -> None:
    """With variants or without, and not where no engine is recorded."""
    choice = as_calibrated(profile())
    assert choice is not None
    assert (choice.how, choice.exact, choice.short) == ("base", True, "decoder beam 1, plain: as calibrated, exact")
    sharp = {"backend": "sharp", "decoder": {"gemm": "float32", "candidates": 500}}
    choice = as_calibrated(checked_profile(EVERYTHING | {"engine": EVERYTHING["engine"] | sharp}))
    assert choice is not None
    assert choice.short == "decoder beam 1, float32, 500 candidates: as calibrated, exact, among its candidates"
    assert not choice.exact
    choice = as_calibrated(
        checked_profile(EVERYTHING | {"engine": EVERYTHING["engine"] | {"compute_type": "int8", "fused": True}})
    )
    assert choice is not None
    assert choice.short == "decoder beam 1, fused: as calibrated, exact but for rounding in int8"
    assert as_calibrated(checked_profile(EVERYTHING | {"engine": None})) is None


def of_beam_5() -> DeviceProfile:
    variants = [variant(settings, times=0.1) for settings in BEAMS_BY_FUSED]
    block = {"kind": "measured", "base": DecoderSettings(beam=5).model_dump(), "variants": variants}
    return profile(block, **OF_BEAM_5)


def test_settings_without_a_beam_mean_no_other_than_the_profiles() -> None:
    """Fusing a decoder of beam 5 must not turn it into a greedy one unasked."""
    with pytest.raises(ProfileError) as refused:
        with_decoder(of_beam_5(), FUSED)
    assert "beam: 5" in str(refused.value)
    assert with_decoder(of_beam_5(), DecoderSettings(beam=1, fused=True))[1].short.endswith("(the profile is of beam 5)")
    assert with_decoder(of_beam_5(), DecoderSettings(beam=5, fused=True))[1].how == "measured"


LISTED = DecoderSettings(candidates=500)


def of_500_candidates(*others: DecoderSettings) -> DeviceProfile:
    kept = [settings.model_copy(update={"candidates": 500}) for settings in (FUSED, *others)]
    return profile(decoder_block([LISTED, *kept]))


def test_frequent_words_that_are_not_named_are_those_measured_where_there_is_one_number() -> None:
    few, more = (DecoderSettings(embeddings="frequent", frequent_words=words) for words in (2_000, 4_000))
    frequent = DecoderSettings(embeddings="frequent")
    _, choice = with_decoder(of_500_candidates(few), frequent)
    assert (choice.how, choice.settings.frequent_words) == ("measured", 2_000)
    assert with_decoder(profile(decoder_block([few, more])), frequent)[1].how == "base", "of two the base's"
    with pytest.raises(ProfileError):
        with_decoder(of_500_candidates(), frequent)
    with pytest.raises(ProfileError):
        with_decoder(of_500_candidates(few), DecoderSettings(embeddings="frequent", frequent_words=3_000))


@pytest.mark.parametrize(
    "noise", [{"gemm": "int16"}, {"activations": "table"}, {"activations": "polynomial"}, {"vocabulary": "clustered"}]
)
def test_identities_are_exact_and_noise_is_not(noise: dict[str, str]) -> None:
    """XP-03, SHARP-10: fusing, pre-computation and merging leave every translation as it is."""
    identities = DecoderSettings(beam=5, fused=True, embeddings="precomputed", attention="precomputed", merge=True)
    noisy = identities.model_copy(update=noise)
    assert identities.exact and not noisy.exact and noisy.noise == tuple(noise)
    listed = identities.model_copy(update={"candidates": 500})
    assert not listed.exact and listed.noise == (), "a list says what may be chosen, and rounds nothing"
