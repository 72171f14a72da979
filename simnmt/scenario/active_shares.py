"""What each request takes more or less where its device restricts the vocabulary: drawn once, the same for every device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_choice import DecoderChoice
from simnmt.scenario.build import Case

STREAM = "active share"
"""Of the draws: how much of the vocabulary a sentence needs is the sentence's own, so one draw serves all devices."""
MoreSeconds = NDArray[np.float64]


def more_s_per_tgt_token(case: Case, requests: int, uniform: Callable[[int], NDArray[np.float64]]) -> list[MoreSeconds | None]:
    """Per target, seconds above the mean for each target token of so many requests; None where they do not differ.

    `uniform`: draws so many numbers in [0, 1); not called where no device needs them. A device that batches takes what its
    steps take on the average of all sentences that share them (XP-01), so that its requests do not differ either.
    """
    differ = [
        decoder is not None and decoder.varies and decoding is None
        for decoder, decoding in zip(case.decoders, case.decoding, strict=True)
    ]
    if not any(differ):
        return [None] * len(differ)
    drawn = uniform(requests)
    return [
        decoder.more_s_per_tgt_token(drawn) if decoder is not None and own else None
        for decoder, own in zip(case.decoders, differ, strict=True)
    ]


def of_shares(decoder: DecoderChoice, *, together: bool) -> str:
    """What a reader must know of how the active share enters the times; `together`: the device batches. Empty: nothing."""
    if together and decoder.active_words:
        return "a step takes the mean over active shares of as many sentences as decode together, which grow with their number"
    if together or not decoder.varies:
        return ""
    assert decoder.alone is not None and decoder.alone.active is not None and decoder.alone.active.by_sentence is not None
    least, *_, most = (100 * share for share in decoder.alone.active.by_sentence)
    return (
        f"a request's active share is drawn from those of single sentences, {least:.3g} to {most:.3g} %, whatever its length,"
        " and moves its steps along a line through timed steps; policies reckon with the mean"
    )
