"""Lexical tables: the probability that a source token becomes each target token, learnt from parallel text (SHARP-02).

In IBM model 1 each target token comes from one source token, all positions alike: p(t | s) = product over j of the mean over i
of p(t_j | s_i), learnt by expectation maximisation (Brown et al., The Mathematics of Statistical Machine Translation, 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.nmt.errors import NmtError

Pair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class LexicalTable:
    """p(target token | source token) without context, as a sparse matrix with a row per source token (SHARP-02).

    Every source has an end mark: the row of that token is the empty word, from which target tokens come that no word gives.
    """

    starts: NDArray[np.int64]
    """[source tokens + 1]: row i is `starts[i]` to `starts[i + 1]`; the row of an unseen source token is empty."""
    tokens: NDArray[np.int32]
    """Target tokens of all rows, ascending in each."""
    probabilities: NDArray[np.float64]
    """Their probabilities; each row that is not empty sums to 1."""
    tgt_vocab: int
    """Target tokens of the vocabulary."""

    @property
    def src_vocab(self) -> int:
        """Source tokens of the vocabulary."""
        return len(self.starts) - 1

    def best(self, count: int, without: Iterable[int] = ()) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Return the `count` most probable target tokens of each row, the best first, of equals the lowest first.

        The result is starts, target tokens and probabilities. Tokens of probability 0 are left out, and the rows of the source
        tokens `without` are empty.
        """
        rows = np.repeat(np.arange(self.src_vocab), np.diff(self.starts))
        some = np.flatnonzero((self.probabilities > 0.0) & ~np.isin(rows, list(without)))
        rows = rows[some]
        order = np.lexsort((self.tokens[some], -self.probabilities[some], rows))
        some, rows = some[order], rows[order]
        sizes = np.bincount(rows, minlength=self.src_vocab)
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = some[rank < count]
        starts = np.concatenate(([0], np.cumsum(np.minimum(sizes, count)))).astype(np.int64)
        return starts, self.tokens[kept], self.probabilities[kept].astype(np.float32)


def alignable(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Pair]:
    """Return the pairs without an empty side. Raises `NmtError` for unequal numbers of sides."""
    if len(sources) != len(targets):
        raise NmtError(f"{len(sources):,} sources but {len(targets):,} targets", remedy="line i must translate line i")
    pairs = zip(sources, targets, strict=True)
    return [pair for pair in pairs if all(map(len, pair))]


def lexical_table(pairs: NDArray[np.int64], counts: NDArray[np.float64], src_vocab: int, tgt_vocab: int) -> LexicalTable:
    """Return the table of expected counts; `pairs` are source token x `tgt_vocab` + target token, each once and ascending."""
    sources = pairs // tgt_vocab
    totals = np.bincount(sources, weights=counts, minlength=src_vocab)
    starts = np.searchsorted(sources, np.arange(src_vocab + 1)).astype(np.int64)
    shares = np.divide(counts, totals[sources], out=np.zeros(len(counts)), where=totals[sources] > 0.0)
    return LexicalTable(starts, (pairs % tgt_vocab).astype(np.int32), shares, tgt_vocab)


EM_ITERATIONS = 5
BLOCK = 4_000_000
"""Links of a block of sentences, which bound the memory of an iteration, about 40 bytes a link."""


class IbmModel1(NamedTuple):
    """The result of IBM model 1."""

    table: LexicalTable
    log_likelihood: tuple[float, ...]
    """Natural logarithm, of the whole text: before the first iteration, and after each; it never falls."""


def ibm_model1(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    src_vocab: int,
    tgt_vocab: int,
    iterations: int = EM_ITERATIONS,
    progress: Callable[[int], None] = lambda _: None,
) -> IbmModel1:
    """Learn p(target token | source token) from sentence pairs, from a uniform start.

    The end mark of the sources, if they have it, is the empty word. Sentences with an empty side are left out. `progress` is
    called with the number of iterations done. Raises `NmtError` for unequal numbers of sources and targets, and without any
    pair.
    """
    if iterations < 1:
        raise NmtError(f"iterations is {iterations}", remedy="give 1 or more")
    text = alignable(sources, targets)
    if not text:
        raise NmtError("no sentence pair to align", remedy="give parallel text")
    blocks = [_Block.of(part, tgt_vocab) for part in _groups(text)]
    pairs = np.unique(np.concatenate([block.pairs for block in blocks]))
    places = [np.searchsorted(pairs, block.pairs).astype(np.int32) for block in blocks]
    probabilities = np.full(len(pairs), 1.0 / tgt_vocab)
    likelihoods: list[float] = []
    for done in range(iterations):
        counts, likelihood = _expected_counts(blocks, places, probabilities)
        likelihoods.append(likelihood)
        probabilities = lexical_table(pairs, counts, src_vocab, tgt_vocab).probabilities
        progress(done + 1)
    likelihoods.append(_expected_counts(blocks, places, probabilities)[1])
    return IbmModel1(lexical_table(pairs, probabilities, src_vocab, tgt_vocab), tuple(likelihoods))


@dataclass(frozen=True, slots=True)
class _Block:
    """Links of some sentences: all pairs of a source and a target position, ordered by target position."""

    pairs: NDArray[np.int64]
    """Different pairs of tokens, ascending."""
    links: NDArray[np.int32]
    """The pair of each link."""
    begins: NDArray[np.int64]
    """The first link of each target position."""
    sizes: NDArray[np.int64]
    """The links of each target position: one per source token."""

    @classmethod
    def of(cls, text: Sequence[Pair], tgt_vocab: int) -> _Block:
        src = np.concatenate([np.asarray(source, np.int64) for source, _ in text])
        tgt = np.concatenate([np.asarray(target, np.int64) for _, target in text])
        src_len, tgt_len = np.array([(len(source), len(target)) for source, target in text]).T
        sizes = np.repeat(src_len, tgt_len)
        begins = np.cumsum(sizes) - sizes
        first = np.repeat(np.cumsum(src_len) - src_len, tgt_len)
        within = np.arange(int(sizes.sum())) - np.repeat(begins, sizes)
        keys = src[np.repeat(first, sizes) + within] * tgt_vocab + np.repeat(tgt, sizes)
        pairs, links = np.unique(keys, return_inverse=True)
        return cls(pairs, links.astype(np.int32), begins, sizes)


def _groups(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in groups of about `BLOCK` links."""
    group, links = list[Pair](), 0
    for pair in pairs:
        group.append(pair)
        links += len(pair[0]) * len(pair[1])
        if links >= BLOCK:
            yield group
            group, links = [], 0
    if group:
        yield group


def _expected_counts(
    blocks: Sequence[_Block], places: Sequence[NDArray[np.int32]], probabilities: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return the expected number of links of each pair, and the log-likelihood of the text."""
    counts, likelihood = np.zeros(len(probabilities)), 0.0
    for block, place in zip(blocks, places, strict=True):
        block_probabilities = probabilities[place]
        linked = block_probabilities[block.links]
        sums = np.add.reduceat(linked, block.begins)
        likelihood += float(np.log(sums / block.sizes).sum())
        linked /= np.repeat(sums, block.sizes)
        counts[place] += np.bincount(block.links, weights=linked, minlength=len(place))
    return counts, likelihood
