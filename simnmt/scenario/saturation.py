"""How long a batching server would need for some sentences, were it never short of them: what its load is reckoned by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simnmt.scenario.build import Decoding
from simnmt.world.decode_all import decode_all

SAMPLE = 2_000
"""Sentences decoded, where there are as many, to learn what they take."""
LEAST_BATCHES = 4
"""Where there are fewer."""


def saturated_s(decoding: Decoding, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64]) -> float:
    """Seconds of one server for these sentences in the long run, its batches as full as its batching lets them get.

    Of many an even sample is decoded, few are decoded again and again, in either case a whole number of batches or
    collections, and the time is scaled by the target tokens. They are decoded once and twice over, and what the second time
    adds is taken: that has neither a first batch nor a last one.
    """
    count = len(tgt_len)
    if count == 0:
        return 0.0
    together = decoding.batching.collected or decoding.batching.size
    most, least = max(SAMPLE, 16 * decoding.batching.size), max(count, LEAST_BATCHES * decoding.batching.size)
    wanted = -(-min(most, least) // together) * together
    rows = np.arange(wanted) % count if count < wanted else (np.arange(wanted) * (count / wanted)).astype(np.int64)
    source, target = np.asarray(src_len)[rows], np.asarray(tgt_len)[rows]
    once_s, twice_s = (
        decode_all(decoding.batching, decoding.cost, np.tile(source, times), np.tile(target, times)).total_s for times in (1, 2)
    )
    tokens, of_sample = int(np.sum(tgt_len + 1)), int(np.sum(target + 1))
    return max(twice_s - once_s, 0.0) * tokens / of_sample
