"""Tables 2 and 3 on a device: stage seconds times the steps with so many active, and Amdahl's prediction (FNI-15, FNI-17)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from simnmt.papers.fni import offline
from simnmt.papers.fni.devices import FusedDecoder, fused_decoders
from simnmt.papers.fni.offline import lengths_of
from simnmt.papers.fni.stages import gains, over_steps, speeds, stages
from simnmt.profile.decoder_block import DecoderVariant, Fidelity
from simnmt.profile.decoder_settings import DecoderSettings
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


def test_seconds_of_a_stage_that_is_linear_in_the_batch_are_those_of_all_tokens(decoders: list[FusedDecoder]) -> None:
    """Each step of k sentences takes k times a row's product: in all a row's product per token."""
    tokens = int(lengths_of("europarl", 1)[1].sum())
    assert {each.beam for each in decoders} == {1, 5}
    for each in decoders:
        own = stages(each, "europarl", 1)
        assert own.layer.product_s == pytest.approx(tokens * each.beam * PRODUCT_S)
        assert own.layer.three_s == pytest.approx(tokens * each.beam * THREE_S)
        assert own.layer.ratio == pytest.approx({1: 4.0, 5: 2.5}[each.beam])


def _steps(*seconds: tuple[int, float, float]) -> DecoderChoice:
    """(batch, product, whole step)."""
    plain = DecoderSettings()
    variants = [
        DecoderVariant(
            settings=plain, batch=batch, step_s=step_s, body_s=step_s - product_s, product_s=product_s, search_s=1e-12
        )
        for batch, product_s, step_s in seconds
    ]
    steps = tuple(VariantStep(variant.batch, variant, variant) for variant in variants)
    return DecoderChoice(plain, plain, "base", steps, Fidelity(plain))


def test_a_stage_has_its_variants_share_of_the_steps_that_were_calibrated_and_between_sizes_both_are_on_a_line() -> None:
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
def test_however_the_variants_were_measured_shares_are_theirs_and_seconds_the_calibrated_steps(times: float) -> None:
    """A block measured on a busier box once left less than nothing for what a step does beside its output layer."""
    (like, _), _ = fused_decoders([fused_profile()])
    (own, _), _ = fused_decoders([fused_profile(times=times)])
    expected, found = stages(like, "europarl", 1), stages(own, "europarl", 1)
    assert found.shares == pytest.approx(expected.shares, rel=0.02) and min(found.shares.values()) > 0.0
    assert found.total_s == pytest.approx(expected.total_s, rel=0.02)
    assert found.layer.ratio == pytest.approx(4.0)
    assert own.against_step == pytest.approx(dict.fromkeys((1, 8, 32), times), rel=0.02)


def test_shares_are_1_together_and_simulated_is_what_the_saved_seconds_make() -> None:
    """FNI-17; with the product as taken and, as in the paper, left alone."""
    decoders, _ = fused_decoders([fused_profile(product_fused=0.8)])
    assert {each.beam for each in decoders} == {1, 5}
    for each in decoders:
        own = stages(each, "opensubtitles", 1)
        assert sum(own.shares.values()) == pytest.approx(1.0)
        in_three_s, in_product_s = own.layer.three_s - own.layer.fused_s, own.layer.product_s - own.layer.product_fused_s
        assert in_product_s == pytest.approx(0.2 * own.layer.product_s)
        assert own.predicted_product_left_alone == pytest.approx(own.total_s / (own.total_s - in_three_s))
        found = gains(speeds(each, "opensubtitles", (1,)), each.device, each.beam, "opensubtitles")
        expected = own.total_s / (own.total_s - in_three_s - in_product_s)
        assert own.predicted == pytest.approx(expected)
        assert 1.0 + found.fused_maxi.mean == pytest.approx(expected, rel=0.01)


def test_both_variants_take_the_same_batches() -> None:
    """The base is known up to batches of 128, its variants up to 32: compared with larger batches, fusing looked slower."""
    (one, five), _ = fused_decoders([fused_profile()])
    assert one.plain.batch == one.fused.batch == five.plain.batch == five.fused.batch == 32
    found = gains(speeds(one, "europarl", (1,)), one.device, 1, "europarl")
    assert found.fused.mean > 0.0


def test_profiles_that_do_not_tell_of_fusing_are_named() -> None:
    only_one, plain = fused_profile("alone", {1: 4.0}), fused_profile("plain")
    assert plain.decoder is not None
    never = tuple(each for each in plain.decoder.variants if not each.settings.fused)
    plain = plain.model_copy(update={"decoder": plain.decoder.model_copy(update={"variants": never})})
    found, left_out = fused_decoders([profile("silent"), only_one, plain])
    assert [(each.device, each.beam) for each in found] == [("alone", 1)]
    assert any("silent, plain" in words for words in left_out) and len(left_out) == 2
    assert any("alone, beam 5: " in words for words in left_out)


def test_a_variant_that_was_not_measured_is_composed_and_says_so() -> None:
    (one, five), _ = fused_decoders([fused_profile(beam_5_fused=False)])
    assert one.measured and not five.measured
    assert five.fused.kind in ("synthetic", "inferred") and "composed" in five.fused_choice.short
