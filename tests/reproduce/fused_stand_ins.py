"""A device whose decoder's variants were never measured."""

from __future__ import annotations

from simnmt.costs import DeviceProfile
from simnmt.costs.decoder_block import DecoderBlock, DecoderVariant
from simnmt.costs.decoder_settings import DecoderSettings
from tests.reproduce.topup_stand_ins import profile

BATCHES = (1, 8, 32)
BODY_S, PRODUCT_S, THREE_S = 1e-4, 5e-5, 2.5e-5
"""Of a row."""


def fused_profile(
    name: str = "made-up", ratios: dict[int, float] | None = None, *, beam_5_fused: bool = True, box: str = "a made-up box"
) -> DeviceProfile:
    """A step of 2 ms and 0.1 ms a row, a good part of it in the output layer; `ratios`: of three steps to fused, by beam."""
    by_beam = {1: 4.0, 5: 2.5} if ratios is None else ratios
    variants = [
        _variant(beam, batch, ratio if fused else None)
        for beam, ratio in by_beam.items()
        for batch in BATCHES
        for fused in (False, True)
        if not fused or beam == 1 or beam_5_fused
    ]
    block = DecoderBlock(kind="synthetic", base=DecoderSettings(), src_len=20, repeats=5, variants=tuple(variants))
    return profile(name, box=box).model_copy(update={"decoder": block})


def _variant(beam: int, batch: int, ratio: float | None) -> DecoderVariant:
    rows = beam * batch
    body_s, product_s, search_s = 1e-3 + BODY_S * rows, PRODUCT_S * rows, THREE_S * rows / (ratio or 1.0)
    return DecoderVariant(
        settings=DecoderSettings(beam=beam, fused=ratio is not None),
        batch=batch,
        step_s=body_s + product_s + search_s,
        body_s=body_s,
        product_s=product_s,
        search_s=search_s,
    )
