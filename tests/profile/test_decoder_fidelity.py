"""How far a variant of a decoder is to be trusted: errors of composing it, and what its techniques do to translations."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.decoder_block import DecoderBlock, compose, composition_error
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_summary import facts
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from tests.profile.made_decoder import (
    BATCHES,
    BOTH,
    EVERYTHING,
    FUSED,
    INT16,
    MERGED,
    PLAIN,
    RUNGS,
    decoder_block,
    profile,
    stages_s,
    variant,
    with_variants,
)


def block_of(content: dict[str, Any]) -> DecoderBlock:
    return DecoderBlock.model_validate_json(json.dumps(content))


def test_effects_multiply_within_a_stage_and_stages_add() -> None:
    """Made so that the model holds, a variant that nobody measured is told to the digits."""
    composition = compose(block_of(decoder_block(RUNGS, (1,))).at(1), BOTH)
    assert composition is not None
    assert (composition.body_s, composition.product_s, composition.search_s) == pytest.approx(
        (0.002 * 0.5 * 0.9, 0.001 * 0.4, 0.0006)
    )
    moved, choice = with_decoder(profile(decoder_block(RUNGS)), BOTH)
    assert choice.how == "composed"
    assert [step.variant.step_s for step in choice.steps] == pytest.approx([sum(stages_s(BOTH, batch)) for batch in BATCHES])
    assert (moved.execution.kind, moved.step and moved.step.kind) == ("inferred", "inferred")


def test_variants_of_the_wanted_beam_alone_are_used_if_they_suffice() -> None:
    """With more hypotheses 16 bits pay otherwise: what they pay with a single one must not blur it."""
    of_five = {settings: settings.model_copy(update={"beam": 5}) for settings in (PLAIN, INT16, MERGED, BOTH)}
    pay_less = variant(of_five[INT16], times=1.5)
    others = [variant(settings) for settings in (PLAIN, INT16, of_five[PLAIN], of_five[MERGED])]
    content = {"kind": "measured", "base": PLAIN.model_dump(), "variants": [*others, pay_less]}
    composition = compose(block_of(content).at(1), of_five[BOTH])
    assert composition is not None
    assert composition.step_s == pytest.approx(1.5 * sum(stages_s(of_five[BOTH])))
    content["variants"] = [variant(settings) for settings in (PLAIN, INT16, of_five[PLAIN])]
    composition = compose(block_of(content).at(1), of_five[INT16])
    assert composition is not None, "else by those of all beams"
    assert composition.step_s == pytest.approx(sum(stages_s(of_five[INT16])))


@given(st.floats(0.5, 2.0), st.floats(0.5, 2.0))
def test_least_squares_spread_what_does_not_multiply(off: float, other: float) -> None:
    """Of a full 2 x 2 the fitted logarithms miss all four alike, by a quarter of the interaction."""
    corners = [(PLAIN, 1.0), (INT16, off), (MERGED, other), (BOTH, 1.0)]
    block = {
        "kind": "measured",
        "base": PLAIN.model_dump(),
        "variants": [variant(options, times=t) for options, t in corners],
    }
    composition = compose(block_of(block).at(1), BOTH)
    assert composition is not None
    body_s = stages_s(BOTH)[0]
    assert np.log(composition.body_s / body_s) == pytest.approx(np.log(off * other) / 4, abs=1e-9)


def test_the_error_of_composing_is_that_on_each_measured_variant_left_out() -> None:
    """Both together take a tenth more than their effects say: of the four left out, two come out too long, two too short."""
    block = block_of(
        {"kind": "measured", "base": PLAIN.model_dump()}
        | {"variants": [variant(PLAIN), variant(INT16), variant(MERGED), variant(BOTH, times=1.1)]}
    )
    error = composition_error(block)
    assert error is not None
    assert (error.judged, error.most) == (4, pytest.approx(0.1))
    assert error.mean == pytest.approx((2 * 0.1 + 2 * (1.0 - 1.0 / 1.1)) / 4)
    assert composition_error(block, beam=1) == replace(error, beam=1)
    assert composition_error(block, beam=5) is None
    assert composition_error(block_of(decoder_block(RUNGS))) is None


def test_a_composed_variant_describes_its_error() -> None:
    judged = (*RUNGS, BOTH)
    third = DecoderSettings(gemm="int16", merge=True, activations="polynomial")
    _, choice = with_decoder(profile(decoder_block(judged)), third)
    assert "composed of the measured effects of its options" in choice.describe()
    assert re.search(
        r"the error is \S+ % on average, \S+ % at most, on 12 measured steps of beam 1, each left out in turn$",
        choice.describe(),
    )
    _, choice = with_decoder(profile(decoder_block(RUNGS)), third)
    assert "the error is not known" in choice.describe()
    _, choice = with_decoder(profile(decoder_block(judged)), BOTH)
    assert "composed" not in choice.describe()


def test_noise_carries_its_agreement_and_identities_none() -> None:
    """XP-03: of a composed variant the agreements of what makes noise are multiplied; unknown ones make all unknown."""
    table = DecoderSettings(activations="table")
    variants = [variant(PLAIN), variant(MERGED), variant(INT16, agreement=0.999), variant(table, agreement=0.998)]

    def choice(settings: DecoderSettings) -> DecoderChoice:
        return with_decoder(with_variants(*variants, variant(RUNGS[3])), settings)[1]

    assert (choice(MERGED).fidelity.describe(), choice(INT16).fidelity.describe()) == (
        "exact",
        "99.9 % of tokens as the exact decoder's",
    )
    both = choice(DecoderSettings(gemm="int16", activations="table", merge=True))
    assert both.fidelity.agreement == pytest.approx(0.999 * 0.998)
    assert both.fidelity.describe() == "99.7 % of tokens as the exact decoder's, its techniques' agreements multiplied"
    assert choice(RUNGS[3]).fidelity.describe() == "not exact (activations), agreement not measured"
    both = choice(DecoderSettings(gemm="int16", activations="polynomial"))
    assert both.fidelity.describe() == "not exact (gemm, activations), agreement not measured"


def test_agreement_is_known_with_a_candidate_list_which_is_mentioned_separately() -> None:
    """All of a sharp profile's variants have one: what rounds is held against the exact decoder with the same list."""
    listed = {settings: settings.model_copy(update={"candidates": 500}) for settings in (PLAIN, MERGED, INT16, RUNGS[3])}
    variants = [variant(listed[PLAIN]), variant(listed[MERGED]), variant(listed[INT16], agreement=0.999)]
    with_lists = with_variants(*variants, variant(listed[RUNGS[3]], agreement=0.998))

    def fidelity(**options: Any) -> str:
        return with_decoder(with_lists, DecoderSettings(candidates=500, **options))[1].fidelity.describe()

    assert fidelity(merge=True) == "exact, among its candidates"
    assert fidelity(gemm="int16") == "99.9 % of tokens as the exact decoder's, among its candidates"
    assert fidelity(gemm="int16", activations="polynomial", merge=True) == (
        "99.7 % of tokens as the exact decoder's, its techniques' agreements multiplied, among its candidates"
    )
    assert not with_decoder(with_lists, listed[MERGED])[1].exact
    assert dict(facts(with_lists))[f"decoder {listed[INT16].describe()}"].endswith(
        "; 99.9 % of tokens as the exact decoder's, among its candidates"
    )


def test_techniques_that_were_held_together_need_no_product() -> None:
    """Whatever identities stood beside them: a quick calibration never has a polynomial alone."""
    together = DecoderSettings(gemm="int16", activations="polynomial", merge=True)
    tried = with_variants(
        variant(PLAIN), variant(MERGED), variant(INT16), variant(RUNGS[3]), variant(together, agreement=0.997)
    )
    _, choice = with_decoder(tried, together.model_copy(update={"merge": False}))
    assert (choice.how, choice.fidelity.describe()) == ("composed", "99.7 % of tokens as the exact decoder's")


def in_type(compute_type: str, block: dict[str, Any] | None = None) -> DeviceProfile:
    return profile(block, engine=EVERYTHING["engine"] | {"compute_type": compute_type})


def test_an_engine_that_rounds_is_not_exact_whatever_the_techniques() -> None:
    """XP-03: fusing changes nothing, and 8 bits do."""
    rounding = in_type("bfloat16")
    _, choice = with_decoder(rounding, FUSED)
    assert (choice.exact, choice.fidelity.describe()) == (False, "exact but for rounding in bfloat16")
    assert choice.as_json()["exact"] is False
    assert dict(facts(rounding))["decoder beam 1, fused"].endswith("; exact but for rounding in bfloat16")
    polynomial = RUNGS[3]
    _, choice = with_decoder(in_type("int8", decoder_block([PLAIN, polynomial])), polynomial)
    assert choice.fidelity.describe() == "not exact (activations), agreement not measured, rounding in int8 aside"
    named = decoder_block([DecoderSettings(gemm="int16"), DecoderSettings(gemm="float32")])
    assert with_decoder(in_type("int16", named), DecoderSettings(gemm="float32"))[1].fidelity.describe() == "exact"
