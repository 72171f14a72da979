"""What the techniques of a decoder do to translations."""

from __future__ import annotations

from typing import Any

from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_summary import facts
from simnmt.profile.profile_variant import DecoderChoice, with_decoder
from tests.profile.made_decoder import (
    EVERYTHING,
    FUSED,
    INT16,
    MERGED,
    PLAIN,
    RUNGS,
    decoder_block,
    profile,
    variant,
    with_variants,
)


def test_noise_carries_its_agreement_and_identities_none() -> None:
    """XP-03: a variant that rounds has the agreement that was measured, with the same noise and whatever identities."""
    both = DecoderSettings(gemm="int16", merge=True)
    variants = [variant(PLAIN), variant(MERGED), variant(INT16, agreement=0.999), variant(both)]

    def choice(settings: DecoderSettings) -> DecoderChoice:
        return with_decoder(with_variants(*variants, variant(RUNGS[3])), settings)[1]

    assert (choice(MERGED).fidelity.describe(), choice(INT16).fidelity.describe()) == (
        "exact",
        "99.9 % of tokens as the exact decoder's",
    )
    assert choice(both).fidelity.agreement == 0.999
    assert choice(RUNGS[3]).fidelity.describe() == "not exact (activations), agreement not measured"


def test_agreement_is_known_with_a_candidate_list_which_is_mentioned_separately() -> None:
    """All of a sharp profile's variants have one: what rounds is held against the exact decoder with the same list."""
    listed = {settings: settings.model_copy(update={"candidates": 500}) for settings in (PLAIN, MERGED, INT16, RUNGS[3])}
    variants = [variant(listed[PLAIN]), variant(listed[MERGED]), variant(listed[INT16], agreement=0.999)]
    with_lists = with_variants(*variants, variant(listed[RUNGS[3]], agreement=0.998))

    def fidelity(**options: Any) -> str:
        return with_decoder(with_lists, DecoderSettings(candidates=500, **options))[1].fidelity.describe()

    assert fidelity(merge=True) == "exact, among its candidates"
    assert fidelity(gemm="int16") == "99.9 % of tokens as the exact decoder's, among its candidates"
    assert not with_decoder(with_lists, listed[MERGED])[1].exact
    assert dict(facts(with_lists))[f"decoder {listed[INT16].describe()}"].endswith(
        "; 99.9 % of tokens as the exact decoder's, among its candidates"
    )


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
