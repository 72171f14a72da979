"""What a recurrent encoder pays for padding, though it is given packed sequences: copies, and what attention prepares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from simnmt.calibrate.settings import Settings
from simnmt.costs import DecodingCost, EncoderCost, StepCost
from simnmt.costs.profile import PACKING
from simnmt.costs.profile_blocks import EncoderBlock, StepBlock
from simnmt.nmt.engine import EngineAccount
from simnmt.nmt.errors import OutOfMemory

BATCHES = (8, 32)
SHORTEST, LONGEST = 4, 64
REPEATS = 9


@runtime_checkable
class Encodes(Protocol):
    """An engine that encodes sentences of different lengths together."""

    account: EngineAccount

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        """Seconds of one call of the encoder."""


def mixed_encodings(engine: object, settings: Settings, most: int) -> list[tuple[list[int], float]]:
    """(source lengths, median seconds) of batches of mixed lengths, evenly spaced in their logarithm; none where nothing is
    packed."""
    if not isinstance(engine, Encodes) or engine.account.architecture.get("kind") not in PACKING:
        return []
    found = []
    for batch in (each for each in BATCHES if each <= most):
        src_lens = [round(each) for each in np.geomspace(SHORTEST, min(LONGEST, settings.max_src_len), batch).tolist()]
        try:
            times_s = [engine.encoding_s(src_lens) for _ in range(1 + REPEATS)]
        except OutOfMemory:
            break
        found.append((src_lens, float(np.median(times_s[1:]))))
    return found


def padding_share(mixed: Sequence[tuple[list[int], float]], step: StepBlock, encoder: EncoderBlock) -> float | None:
    """Share of the padding's cost that batches of mixed lengths paid, by relative error; None without any."""
    packed, padded = (DecodingCost(StepCost.of(step), EncoderCost.of(encoder), packs=packs) for packs in (True, False))
    above, below = 0.0, 0.0
    for src_lens, seconds in mixed:
        saved = (padded.encode_s(src_lens) - packed.encode_s(src_lens)) / seconds
        above += saved * (1.0 - packed.encode_s(src_lens) / seconds)
        below += saved * saved
    return min(max(above / below, 0.0), 1.0) if below else None
