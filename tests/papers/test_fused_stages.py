"""Tables 2 and 3 on a device: stage seconds by batch size times the steps of that size, and Amdahl's prediction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.papers.fni import offline
from simnmt.papers.fni.devices import FusedDecoder, fused_decoders
from simnmt.papers.fni.offline import lengths_of
from simnmt.papers.fni.stages import over_plain, over_steps, speeds, stages
from simnmt.papers.kit.claim import end_to_end, share_needed
from simnmt.profile.decoder_block import DecoderVariant, Fidelity
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.doubts import against_step
from simnmt.profile.profile_variant import DecoderChoice, VariantStep
from simnmt.results.device_accounts import BatchAccount
from tests.papers.fni_stand_ins import PRODUCT_S, THREE_S, fused_profile, profile


@pytest.fixture(scope="module", autouse=True)
def small_sets() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(offline, "SENTENCES", {"europarl": 1_500, "opensubtitles": 1_500})
        yield


@pytest.fixture(scope="module")
def decoders() -> list[FusedDecoder]:
    return fused_decoders([fused_profile()])[0]


def test_a_stage_linear_in_the_batch_takes_the_seconds_of_all_tokens(decoders: list[FusedDecoder]) -> None:
    """Each step of k sentences takes k times the product of a row, so each token takes the product of a row."""
    tokens = int(lengths_of("europarl", 1)[1].sum())
    assert {decoder.beam for decoder in decoders} == {1, 5}
    for decoder in decoders:
        layer = stages(decoder, "europarl", 1).layer
        assert layer.product_s == pytest.approx(tokens * decoder.beam * PRODUCT_S)
        assert layer.three_s == pytest.approx(tokens * decoder.beam * THREE_S)
        assert layer.ratio == pytest.approx({1: 4.0, 5: 2.5}[decoder.beam])


def _steps(*seconds: tuple[int, float, float]) -> DecoderChoice:
    """Return a choice with steps of these batch sizes, seconds of the product and seconds of the whole step."""
    plain = DecoderSettings()
    variants = [
        DecoderVariant(
            settings=plain, batch=batch, step_s=step_s, body_s=step_s - product_s, product_s=product_s, search_s=1e-12
        )
        for batch, product_s, step_s in seconds
    ]
    steps = tuple(VariantStep(variant.batch, variant, variant) for variant in variants)
    return DecoderChoice(plain, plain, "base", steps, Fidelity(plain))


def test_a_stage_takes_its_variants_share_of_the_calibrated_steps_interpolated_between_sizes() -> None:
    account = BatchAccount(
        size=4, steps=np.array([0, 2, 0, 3, 5]), step_s=np.array([0.0, 60.0, 0.0, 120.0, 200.0]), encode_s=0.0, refill_s=0.0,
        encodings=0, refills=0, src_tokens=0, padded_tokens=0, sentences=0,
    )  # fmt: skip
    known = _steps((1, 10.0, 40.0), (3, 20.0, 60.0))
    assert over_steps(known, "product_s", known, account) == pytest.approx(60 / 4 + 120 / 3 + 200 / 3)
    assert over_steps(_steps((1, 10.0, 40.0), (5, 30.0, 120.0)), "product_s", known, account) == pytest.approx(
        60 / 4 + 120 * 20 / 60 + 200 * 25 / 60
    )


@pytest.mark.parametrize("times", [0.5, 1.0, 3.0])
def test_shares_are_those_of_the_variants_and_seconds_those_of_the_calibrated_steps(times: float) -> None:
    """A block measured on a busier box once left negative seconds for the part of a step beside its output layer."""
    (calm, _), _ = fused_decoders([fused_profile()])
    (busy, _), _ = fused_decoders([fused_profile(times=times)])
    expected, measured = stages(calm, "europarl", 1), stages(busy, "europarl", 1)
    assert measured.shares == pytest.approx(expected.shares, rel=0.02) and min(measured.shares.values()) > 0.0
    assert measured.total_s == pytest.approx(expected.total_s, rel=0.02)
    assert measured.layer.ratio == pytest.approx(4.0)
    assert against_step(busy.profile) == pytest.approx(dict.fromkeys((1, 8, 32), times), rel=0.02)


def test_shares_sum_to_1_and_the_simulated_gain_follows_from_the_saved_seconds() -> None:
    """FNI-17; with the product as timed and, as in the paper, left alone."""
    decoders, _ = fused_decoders([fused_profile(product_fused=0.8)])
    assert {decoder.beam for decoder in decoders} == {1, 5}
    for decoder in decoders:
        cell = stages(decoder, "opensubtitles", 1)
        assert sum(cell.shares.values()) == pytest.approx(1.0)
        in_three_s, in_product_s = cell.layer.three_s - cell.layer.fused_s, cell.layer.product_s - cell.layer.product_fused_s
        assert in_product_s == pytest.approx(0.2 * cell.layer.product_s)
        assert cell.predicted_product_left_alone == pytest.approx(cell.total_s / (cell.total_s - in_three_s))
        expected = cell.total_s / (cell.total_s - in_three_s - in_product_s)
        assert cell.predicted == pytest.approx(expected)
        assert fused_gain(decoder, "opensubtitles", "maxi") == pytest.approx(expected - 1.0, abs=0.01 * expected)


def fused_gain(decoder: FusedDecoder, test_set: str, strategy: str) -> float:
    return over_plain(speeds(decoder, test_set, (1,)), (decoder.device, decoder.beam, test_set, strategy, True)).mean


def test_both_variants_take_the_same_batches() -> None:
    """The base is known up to batches of 128, its variants up to 32: compared with larger batches, fusing looked slower."""
    (one, five), _ = fused_decoders([fused_profile()])
    assert one.plain.batch == one.fused.batch == five.plain.batch == five.fused.batch == 32
    assert fused_gain(one, "europarl", "mini") > 0.0


def test_profiles_without_a_fused_variant_are_named() -> None:
    only_one, plain = fused_profile("alone", {1: 4.0}), fused_profile("plain")
    assert plain.decoder is not None
    not_fused = tuple(variant for variant in plain.decoder.variants if not variant.settings.fused)
    plain = plain.model_copy(update={"decoder": plain.decoder.model_copy(update={"variants": not_fused})})
    decoders, left_out = fused_decoders([profile("silent"), only_one, plain])
    assert [(decoder.device, decoder.beam) for decoder in decoders] == [("alone", 1)]
    assert any("silent, plain" in message for message in left_out) and len(left_out) == 2
    assert any("alone, beam 5: " in message for message in left_out)


def test_a_beam_whose_fused_variant_was_not_measured_is_left_out() -> None:
    decoders, left_out = fused_decoders([fused_profile(beam_5_fused=False)])
    assert [decoder.beam for decoder in decoders] == [1] and len(left_out) == 1


def test_half_of_the_time_made_twice_as_fast() -> None:
    assert end_to_end(0.5, 2.0) == pytest.approx(4 / 3)
    assert end_to_end(0.0, 9.0) == 1.0 and end_to_end(1.0, 9.0) == pytest.approx(9.0)


@given(st.floats(0.01, 1.0), st.floats(1.01, 100.0))
def test_the_share_that_a_gain_needs_is_the_one_it_came_from(share: float, part: float) -> None:
    assert share_needed(end_to_end(share, part), part) == pytest.approx(share, rel=1e-6)


@given(st.floats(0.0, 1.0), st.floats(1.0, 1e6))
def test_no_part_makes_the_whole_faster_than_itself_or_than_what_remains(share: float, part: float) -> None:
    whole = end_to_end(share, part)
    assert whole * (1 + 1e-12) >= 1.0 and whole <= part * (1 + 1e-12) and whole * (1 - share) <= 1 + 1e-12
