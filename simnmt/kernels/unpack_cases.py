"""Benchmark cases of unpacking: a shard and a layer of BERT's base size, at every width, against two ways in torch (STI-06)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.contract import Case, Comparison, Contest, Work
from simnmt.kernels.measurement import Run
from simnmt.kernels.native_library import at_once, level_name
from simnmt.kernels.unpack import ALIGNED, PACKED_BITS, Place, unpack

WORD = {2: (1, 4), 3: (3, 4), 4: (1, 2), 5: (5, 2), 6: (3, 2)}
"""By bits: bytes after which words of whole codes begin anew, and codes a word; a table has an entry for each word."""
OURS, BY_CODES, BY_WORDS = "unpack", "torch, a code at a time", "torch, a word of codes at a time"


@dataclass(frozen=True, slots=True)
class RandomShard:
    """Random codes, centroids and outliers of one width."""

    bits: int
    weights: int
    codes: NDArray[np.uint8]
    centroids: NDArray[np.float32]
    outlier_at: NDArray[np.int32]
    outlier_values: NDArray[np.float32]

    @staticmethod
    def of(bits: int, weights: int, outlier_share: float = 0.0015, seed: int = 1) -> RandomShard:
        """`weights`: a multiple of 8. The share of outliers is the published one."""
        draw = np.random.default_rng(seed)
        outliers = round(outlier_share * weights)
        return RandomShard(
            bits,
            weights,
            draw.integers(0, 256, weights * bits // ALIGNED, np.uint8),
            np.sort(draw.normal(0.0, 0.04, 1 << bits)).astype(np.float32),
            np.sort(draw.choice(weights, outliers, replace=False)).astype(np.int32),
            draw.normal(0.0, 0.2, outliers).astype(np.float32),
        )

    def ours(self, out: NDArray[np.float32], start: int = 0) -> Run:
        """Return a run that unpacks six segments with the kernel, one after another from `start` of `out`."""
        length = self.weights // 6 // ALIGNED * ALIGNED
        begins = [segment * length for segment in range(6)] + [self.weights]
        places: list[Place] = [(low, start + low, high - low) for low, high in itertools.pairwise(begins)]
        outliers = self.outlier_at, self.outlier_values
        arguments = (self.codes, self.bits, self.centroids, *outliers, out, np.array(places, np.int64))
        return lambda: unpack(*arguments)

    def torchs(self, out: Tensor) -> dict[str, Run]:
        """Return runs that unpack with torch into the first `weights` of `out`; all tables are prepared beforehand."""
        codes, centroids = torch.from_numpy(self.codes), torch.from_numpy(self.centroids)
        at, values = torch.from_numpy(self.outlier_at).long(), torch.from_numpy(self.outlier_values)
        flat = out[: self.weights]

        def laid(look_up: Callable[[], object]) -> Run:
            def run() -> None:
                look_up()
                flat.index_copy_(0, at, values)

            return run

        period, codes_per_word = WORD[self.bits]
        table, words = word_table(centroids, self.bits, codes_per_word), flat.view(-1, codes_per_word)
        shifts = torch.arange(ALIGNED) * self.bits

        def by_codes() -> None:
            eights = sum(codes[byte :: self.bits].long() << 8 * byte for byte in range(self.bits))
            indices = (torch.as_tensor(eights)[:, None] >> shifts & (1 << self.bits) - 1).view(-1)
            torch.index_select(centroids, 0, indices, out=flat)

        def by_words() -> None:
            torch.index_select(table, 0, words_of(codes, self.bits, period, codes_per_word), out=words)

        return {BY_CODES: laid(by_codes), BY_WORDS: laid(by_words)}


def word_table(centroids: Tensor, bits: int, codes_per_word: int) -> Tensor:
    """Return the weights of all words of `codes_per_word` codes, [2^(bits x codes_per_word), codes_per_word]."""
    word = torch.arange(1 << bits * codes_per_word)
    return centroids[word[:, None] >> torch.arange(codes_per_word) * bits & (1 << bits) - 1]


def words_of(codes: Tensor, bits: int, period: int, codes_per_word: int) -> Tensor:
    """Return the words of a stream of codes, int32."""
    width = bits * codes_per_word
    if width == 8:
        return codes.int()
    parts = codes.view(-1, period).int()
    columns = []
    for word in range(8 * period // width):
        low = word * width
        first, last = low // 8, (low + width - 1) // 8
        column = parts[:, first] >> low % 8
        for byte in range(first + 1, last + 1):
            column = column | parts[:, byte] << 8 * byte - low
        columns.append(column & (1 << width) - 1)
    return torch.stack(columns, 1).view(-1)


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
        drawn = [RandomShard.of(bits, weights, seed=1 + shard) for shard in range(shards)]
        ours, theirs = f"{bits} bits", [f"{bits} bits, {method}" for method in (BY_CODES, BY_WORDS)]
        pieces = [drawn_shard.ours(out, start=i * weights) for i, drawn_shard in enumerate(drawn)]
        shares = [_one_after_another(pieces[part::threads]) for part in range(min(threads, shards))]
        runs[ours] = partial(at_once, shares)
        parts = [drawn_shard.torchs(torch.from_numpy(out)[i * weights :]) for i, drawn_shard in enumerate(drawn)]
        for name, method in zip(theirs, (BY_CODES, BY_WORDS), strict=True):
            runs[name] = _one_after_another([part[method] for part in parts])
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
        for call in runs:
            call()

    return run if len(runs) > 1 else runs[0]


def _error(drawn: RandomShard) -> float:
    """Return the largest difference of a weight from what numpy computes bit by bit."""
    unpacked = np.empty(drawn.weights, np.float32)
    drawn.ours(unpacked)()
    stream = np.unpackbits(drawn.codes, bitorder="little").reshape(drawn.weights, drawn.bits)
    wanted = drawn.centroids[stream @ (1 << np.arange(drawn.bits))]
    wanted[drawn.outlier_at] = drawn.outlier_values
    return float(np.abs(unpacked - wanted).max())
