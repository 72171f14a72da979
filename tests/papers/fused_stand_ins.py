"""A device whose decoder's variants were never measured."""

from __future__ import annotations

from simnmt.profile.decoder_block import DecoderBlock, DecoderVariant
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.device_profile import DeviceProfile
from tests.papers.topup_stand_ins import profile

BATCHES = (1, 8, 32)
FIXED_S, BODY_S, PRODUCT_S, THREE_S = 2e-3, 2.6e-5, 5e-5, 2.5e-5
"""Of a step, and of a row in it: together what `profile` and its gaps say of a step with beam 1."""


def fused_profile(
    name: str = "made-up",
    ratios: dict[int, float] | None = None,
    *,
    beam_5_fused: bool = True,
    box: str = "a made-up box",
    times: float = 1.0,
    product_fused: float = 1.0,
) -> DeviceProfile:
    """A step of 2 ms and 0.1 ms a row, a good part of it in the output layer.

    `ratios`: of three steps to fused, by beam; `times`: what the variants take over what the calibrated steps do;
    `product_fused`: of the product as the fused layer takes it to the plain one.
    """
    by_beam = {1: 4.0, 5: 2.5} if ratios is None else ratios
    variants = [
        _variant(beam, batch, ratio if fused else None, times, product_fused if fused else 1.0)
        for beam, ratio in by_beam.items()
        for batch in BATCHES
        for fused in (False, True)
        if not fused or beam == 1 or beam_5_fused
    ]
    block = DecoderBlock(kind="synthetic", base=DecoderSettings(), src_len=20, repeats=5, variants=tuple(variants))
    return profile(name, box=box).model_copy(update={"decoder": block})


def _variant(beam: int, batch: int, ratio: float | None, times: float, product: float) -> DecoderVariant:
    rows = beam * batch
    parts_s = FIXED_S + BODY_S * rows, product * PRODUCT_S * rows, THREE_S * rows / (ratio or 1.0)
    body_s, product_s, search_s = (times * part_s for part_s in parts_s)
    return DecoderVariant(
        settings=DecoderSettings(beam=beam, fused=ratio is not None),
        batch=batch,
        step_s=body_s + product_s + search_s,
        body_s=body_s,
        product_s=product_s,
        search_s=search_s,
    )
