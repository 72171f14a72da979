"""Lexical tables: the probability that a source token becomes each target token, learnt from parallel text (SHARP-02).

In IBM model 1 each target token comes from one source token, all positions alike: p(t | s) = product over j of the mean over i
of p(t_j | s_i), learnt by expectation maximisation (Brown et al., The Mathematics of Statistical Machine Translation, 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.nmt.errors import NmtError

Pair = tuple[Sequence[int], Sequence[int]]

EM_ITERATIONS = 5
BLOCK = 4_000_000
"""Links of a block of sentences, which bound the memory of an iteration, about 40 bytes a link."""


class LexicalTable(NamedTuple):
    """p(target token | source token) without context (SHARP-02)."""

    pairs: NDArray[np.int64]
    """Source token x `tgt_vocab` + target token of each pair that the text has, ascending."""
    probabilities: NDArray[np.float64]
    """Those of the pairs of one source token sum to 1."""
    src_vocab: int
    tgt_vocab: int


def alignable(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Pair]:
    """Return the pairs without an empty side. Raises `NmtError` for unequal numbers of sides, and without any pair."""
    if len(sources) != len(targets):
        raise NmtError(f"{len(sources):,} sources but {len(targets):,} targets", remedy="line i must translate line i")
    pairs = [pair for pair in zip(sources, targets, strict=True) if all(map(len, pair))]
    if not pairs:
        raise NmtError("no sentence pair to align", remedy="give parallel text")
    return pairs


def ibm_model1(
    pairs: Sequence[Pair],
    *,
    src_vocab: int,
    tgt_vocab: int,
    iterations: int = EM_ITERATIONS,
    progress: Callable[[int], None] = lambda _: None,
) -> LexicalTable:
    """Learn p(target token | source token) from sentence pairs of `alignable`, from a uniform start.

    The end mark of the sources, if they have it, is the empty word, from which target tokens come that no word gives.
    `progress` is called with the number of iterations done.
    """
    block_of = np.cumsum([len(source) * len(target) for source, target in pairs]) // BLOCK
    groups = np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(block_of)) + 1)
    blocks = [_links([pairs[at] for at in group], tgt_vocab) for group in groups]
    different = np.unique(np.concatenate([block.pairs for block in blocks]))
    blocks = [block._replace(links=np.searchsorted(different, block.pairs).astype(np.int32)[block.links]) for block in blocks]
    sources = different // tgt_vocab
    probabilities = np.full(len(different), 1.0 / tgt_vocab)
    for done in range(iterations):
        counts = np.zeros(len(different))
        for block in blocks:
            linked = probabilities[block.links]
            linked /= np.repeat(np.add.reduceat(linked, block.begins), block.sizes)
            counts += np.bincount(block.links, weights=linked, minlength=len(different))
        totals = np.bincount(sources, weights=counts, minlength=src_vocab)[sources]
        probabilities = np.divide(counts, totals, out=np.zeros(len(counts)), where=totals > 0.0)
        progress(done + 1)
    return LexicalTable(different, probabilities, src_vocab, tgt_vocab)


class _Block(NamedTuple):
    """Links of some sentences: all pairs of a source and a target position, ordered by target position."""

    pairs: NDArray[np.int64]
    """Different pairs of tokens, ascending."""
    links: NDArray[np.int32]
    """The pair of each link."""
    begins: NDArray[np.int64]
    """The first link of each target position."""
    sizes: NDArray[np.int64]
    """The links of each target position: one per source token."""


def _links(text: Sequence[Pair], tgt_vocab: int) -> _Block:
    src = np.concatenate([np.asarray(source, np.int64) for source, _ in text])
    tgt = np.concatenate([np.asarray(target, np.int64) for _, target in text])
    src_len, tgt_len = np.array([(len(source), len(target)) for source, target in text]).T
    sizes = np.repeat(src_len, tgt_len)
    begins = np.cumsum(sizes) - sizes
    first = np.repeat(np.cumsum(src_len) - src_len, tgt_len)
    within = np.arange(int(sizes.sum())) - np.repeat(begins, sizes)
    keys = src[np.repeat(first, sizes) + within] * tgt_vocab + np.repeat(tgt, sizes)
    pairs, links = np.unique(keys, return_inverse=True)
    return _Block(pairs, links.astype(np.int32), begins, sizes)
