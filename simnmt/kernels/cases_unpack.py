"""The cases of unpacking: a shard and a layer of BERT's base size, at every width, against torch (STI-06)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.interleaved import Run
from simnmt.kernels.native_at import level_name
from simnmt.kernels.unpack import ALIGNED, PACKED_BITS, at_once
from simnmt.kernels.unpack_ways import BY_CODES, BY_WORDS, DrawnShard

SHARD_WEIGHTS = 589_824
"""STI-01: a twelfth of a layer."""
SHARDS = 12
TORCH, FEWEST_BITS, COPY = "torch", "the same at 2 bits", "copy of as many weights"
TARGET, EVEN_TARGET = 2.0, 0.8
"""Times as fast as torch; and 6 bits as fast as 2, a quarter longer at most."""


def unpack_cases(threads: int, weights: int = SHARD_WEIGHTS) -> Iterator[Case]:
    """One shard, in the cache; and the twelve of a layer, into the 28 MB of a working buffer, divided among `threads`."""
    yield Case("a shard", "hot", level_name(), partial(_contest, weights, 1, threads))
    yield Case("a layer of 12 shards", "beyond", level_name(), partial(_contest, weights, SHARDS, threads))


def _contest(weights: int, shards: int, threads: int) -> Contest:
    out, source = np.zeros(weights * shards, np.float32), np.zeros(weights * shards, np.float32)
    runs: dict[str, Run] = {COPY: partial(np.copyto, out, source)}
    comparisons = []
    for bits in PACKED_BITS:
        drawn = [DrawnShard.of(bits, weights, seed=1 + shard) for shard in range(shards)]
        ours, theirs = f"{bits} bits", [f"{bits} bits, {way}" for way in (BY_CODES, BY_WORDS)]
        pieces = [each.ours(out, start=i * weights) for i, each in enumerate(drawn)]
        shares = [_one_after_another(pieces[part::threads]) for part in range(min(threads, shards))]
        runs[ours] = partial(at_once, shares)
        parts = [each.torchs(torch.from_numpy(out)[i * weights :]) for i, each in enumerate(drawn)]
        for name, way in zip(theirs, (BY_CODES, BY_WORDS), strict=True):
            runs[name] = _one_after_another([part[way] for part in parts])
        work = Work(shards * (4 * weights + weights * bits // ALIGNED))
        against = partial(Comparison, ours, work=work, what=ours, error=_error(drawn[0]))
        comparisons.append(against(TORCH, tuple(theirs), target=TARGET))
        if bits != PACKED_BITS[0]:
            even = EVEN_TARGET if bits == PACKED_BITS[-1] else None
            comparisons.append(against(FEWEST_BITS, (f"{PACKED_BITS[0]} bits",), target=even))
        comparisons.append(against(COPY, (COPY,)))
    return Contest(runs, tuple(comparisons))


def _one_after_another(runs: list[Run]) -> Run:
    def run() -> None:
        for each in runs:
            each()

    return run if len(runs) > 1 else runs[0]


def _error(drawn: DrawnShard) -> float:
    """Largest difference of a weight from what numpy finds bit by bit."""
    found = np.empty(drawn.weights, np.float32)
    drawn.ours(found)()
    stream = np.unpackbits(drawn.codes, bitorder="little").reshape(drawn.weights, drawn.bits)
    wanted = drawn.centroids[stream @ (1 << np.arange(drawn.bits))]
    wanted[drawn.outlier_at] = drawn.outlier_values
    return float(np.abs(found - wanted).max())
