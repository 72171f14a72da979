"""Tables 2 and 3 on a device: stage seconds times the steps with so many active, and Amdahl's prediction (FNI-15, FNI-17)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from simnmt.reproduce.amdahl import end_to_end
from simnmt.reproduce.fused.devices import FusedDecoder, fused_decoders
from simnmt.reproduce.fused.speeds import gains, speeds
from simnmt.reproduce.fused.stages import over_steps, stages
from simnmt.reproduce.topup import occupancies
from simnmt.reproduce.topup.occupancies import lengths_of
from simnmt.results.batches import BatchAccount
from tests.reproduce.fused_stand_ins import PRODUCT_S, THREE_S, fused_profile
from tests.reproduce.topup_stand_ins import profile


@pytest.fixture(scope="module", autouse=True)
def small_sets() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(occupancies, "SENTENCES", {"europarl": 1_500, "opensubtitles": 1_500})
        yield


@pytest.fixture(scope="module")
def decoders() -> list[FusedDecoder]:
    return fused_decoders([fused_profile()])[0]


def test_seconds_of_a_stage_that_is_linear_in_the_batch_are_those_of_all_tokens(decoders: list[FusedDecoder]) -> None:
    """Each step of k sentences takes k times a row's product: in all a row's product per token."""
    tokens = int(lengths_of("europarl", 1)[1].sum())
    for each in decoders:
        own = stages(each, "europarl", 1)
        assert own.product_s == pytest.approx(tokens * each.beam * PRODUCT_S)
        assert own.three_s == pytest.approx(tokens * each.beam * THREE_S)
        assert own.ratio == pytest.approx({1: 4.0, 5: 2.5}[each.beam])


def test_between_measured_batch_sizes_a_stage_is_on_a_line() -> None:
    account = BatchAccount(
        size=4, steps=np.array([0, 2, 0, 3, 5]), step_s=np.zeros(5), encode_s=0.0, refill_s=0.0, encodings=0, refills=0,
        src_tokens=0, padded_tokens=0, sentences=0, tokens=0, busy_s=0.0,
    )  # fmt: skip
    assert over_steps([1, 3], [10.0, 20.0], account) == pytest.approx(2 * 10 + 3 * 20 + 5 * 20)
    assert over_steps([1, 5], [10.0, 30.0], account) == pytest.approx(2 * 10 + 3 * 20 + 5 * 25)


def test_shares_are_1_together_and_what_is_simulated_is_what_amdahl_predicts(decoders: list[FusedDecoder]) -> None:
    """Both rest on the same stages (FNI-17)."""
    for each in decoders:
        own = stages(each, "opensubtitles", 1)
        assert sum(own.shares.values()) == pytest.approx(1.0)
        assert own.output_share == pytest.approx(sum(list(own.shares.values())[-2:]))
        assert own.predicted == pytest.approx(end_to_end(own.output_share, own.layer_ratio))
        found = gains(speeds(each, "opensubtitles", (1,)), each.device, each.beam, "opensubtitles")
        assert 1.0 + found.fused_maxi.mean == pytest.approx(own.predicted, rel=0.01)


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
