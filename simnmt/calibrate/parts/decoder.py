"""Decode steps by decoder settings: the block `decoder` of a profile (XP-03)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from simnmt.calibrate.decoder_variants import decoder_block
from simnmt.calibrate.harness import Case, nothing
from simnmt.calibrate.parts import Bench, Blocks, Cases, Part
from simnmt.profile.decoder_block import DecoderBlock


def cases(bench: Bench) -> Cases:
    """Return all variants as one case: each of them alternates with the base by itself, since both must fit into memory."""

    def variants() -> dict[str, Any]:
        block, remarks = decoder_block(bench.engine, bench.settings, bench.most_batch, bench.listener)
        return {"block": None if block is None else block.model_dump_json(), "remarks": remarks}

    return {"variants": Case(variants, prepare=nothing)}


def fit(frame: pd.DataFrame, bench: Bench) -> Blocks:
    """Return `decoder`."""
    content = frame["block"].iloc[0]
    bench.remarks += frame["remarks"].iloc[0]
    return {"decoder": None if content is None else DecoderBlock.model_validate_json(content)}


PARTS = (Part("decoder", ("decoder",), cases, fit, order=7, apart=lambda settings: True),)
