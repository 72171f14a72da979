"""Lexical tables: how probably a source token becomes each target token, learnt from parallel text (SHARP-02).

By IBM model 1, each target token comes from one token of the source, all positions alike: p(t | s) = product over j of the
mean over i of p(t_j | s_i), learnt by expectation maximisation (Brown et al., The Mathematics of Statistical Machine
Translation, 1993). Or by how much a trained model looks at each source token along the given translations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel, pad

Pair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class LexicalTable:
    """p(target token | source token) without context, sparse, a row per source token (SHARP-02).

    The end mark of the sources stands in each of them: its row is that of the empty word, which target tokens come from that no
    word of the source gives.
    """

    starts: NDArray[np.int64]
    """[source tokens + 1]: row i lies from `starts[i]` to `starts[i + 1]`; a source token that was never seen has none."""
    tokens: NDArray[np.int32]
    """Target tokens of all rows, ascending in each."""
    probabilities: NDArray[np.float64]
    """Theirs; each row that is not empty sums to 1."""
    tgt_vocab: int
    """Target tokens known."""

    @property
    def src_vocab(self) -> int:
        """Source tokens known."""
        return len(self.starts) - 1

    def best(self, count: int, without: Iterable[int] = ()) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """Starts, target tokens and probabilities of the `count` most probable of each row, the best first, ties lowest first.

        Of probability 0 there are none, and none of the source tokens `without` any.
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


def alignable(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], longest: int | None = None) -> list[Pair]:
    """The pairs that have two sides, neither longer than `longest`. Raises `NmtError` where the sides are not equally many."""
    if len(sources) != len(targets):
        raise NmtError(f"{len(sources):,} sources but {len(targets):,} targets", remedy="line i must translate line i")
    pairs = zip(sources, targets, strict=True)
    return [pair for pair in pairs if all(map(len, pair)) and (longest is None or max(map(len, pair)) <= longest)]


def lexical_table(pairs: NDArray[np.int64], counts: NDArray[np.float64], src_vocab: int, tgt_vocab: int) -> LexicalTable:
    """The table of expected counts: `pairs` are source token x `tgt_vocab` + target token, each once and ascending."""
    sources = pairs // tgt_vocab
    totals = np.bincount(sources, weights=counts, minlength=src_vocab)
    starts = np.searchsorted(sources, np.arange(src_vocab + 1)).astype(np.int64)
    shares = np.divide(counts, totals[sources], out=np.zeros(len(counts)), where=totals[sources] > 0.0)
    return LexicalTable(starts, (pairs % tgt_vocab).astype(np.int32), shares, tgt_vocab)


EM_ITERATIONS = 5
BLOCK = 4_000_000
"""Links of a block of sentences: what bounds the memory of an iteration, about 40 bytes a link."""


@dataclass(frozen=True, slots=True)
class IbmModel1:
    """What was learnt."""

    table: LexicalTable
    log_likelihood: tuple[float, ...]
    """Natural, of the whole text: before the first iteration, and after each; never falls."""


def ibm_model1(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    src_vocab: int,
    tgt_vocab: int,
    iterations: int = EM_ITERATIONS,
    progress: Callable[[int], None] = lambda _: None,
) -> IbmModel1:
    """Learn p(target token | source token) from sentence pairs, all probabilities alike at first.

    The end mark of the sources, where they have it, is the empty word. Sentences of which a side is empty teach nothing.
    `progress` is told how many iterations are done.

    Raises `NmtError` where the two sides are not equally many, where no pair is left, and for tokens beyond a vocabulary.
    """
    if iterations < 1:
        raise NmtError(f"iterations is {iterations}", remedy="give 1 or more")
    blocks = [_Block.of(*part, tgt_vocab) for part in _groups(alignable(sources, targets))]
    if not blocks:
        raise NmtError("no sentence pair to align", remedy="give parallel text")
    for block in blocks:
        block.check(src_vocab, tgt_vocab)
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
    """Some sentences: their links are all pairs of a source and a target position, those of one target position together."""

    pairs: NDArray[np.int64]
    """Different pairs of tokens, ascending."""
    links: NDArray[np.int32]
    """Of each link, its pair."""
    begins: NDArray[np.int64]
    """Of each target position, its first link."""
    sizes: NDArray[np.int64]
    """Of each target position, its links: the tokens of the source."""
    ranges: tuple[tuple[int, int], tuple[int, int]]
    """Least and largest source token, and target token."""

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], tgt_vocab: int) -> _Block:
        src = np.concatenate([np.asarray(source, np.int64) for source in sources])
        tgt = np.concatenate([np.asarray(target, np.int64) for target in targets])
        src_len = np.array([len(source) for source in sources])
        tgt_len = np.array([len(target) for target in targets])
        sizes = np.repeat(src_len, tgt_len)
        begins = np.cumsum(sizes) - sizes
        first = np.repeat(np.cumsum(src_len) - src_len, tgt_len)
        within = np.arange(int(sizes.sum())) - np.repeat(begins, sizes)
        keys = src[np.repeat(first, sizes) + within] * tgt_vocab + np.repeat(tgt, sizes)
        pairs, links = np.unique(keys, return_inverse=True)
        ranges = (int(src.min()), int(src.max())), (int(tgt.min()), int(tgt.max()))
        return cls(pairs, links.astype(np.int32), begins, sizes, ranges)

    def check(self, src_vocab: int, tgt_vocab: int) -> None:
        """Raise `NmtError` for a token beyond its vocabulary."""
        for side, (least, largest), vocab in zip(("source", "target"), self.ranges, (src_vocab, tgt_vocab), strict=True):
            if least < 0 or largest >= vocab:
                what = f"a {side} token {least if least < 0 else largest} of a vocabulary of {vocab:,}"
                raise NmtError(what, remedy="encode the text with the model's own subwords")


def _groups(pairs: Iterable[Pair]) -> Iterator[tuple[list[Sequence[int]], list[Sequence[int]]]]:
    """The pairs, in groups of about `BLOCK` links."""
    group: tuple[list[Sequence[int]], list[Sequence[int]]] = [], []
    links = 0
    for source, target in pairs:
        group[0].append(source)
        group[1].append(target)
        links += len(source) * len(target)
        if links >= BLOCK:
            yield group
            group, links = ([], []), 0
    if group[0]:
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


BATCH = 64
"""Sentence pairs aligned together."""
MERGED = 4_000_000
"""Links that are held before they are added up."""


@torch.inference_mode()
def attention_alignment(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> LexicalTable:
    """p(target token | source token) by how much the model looks at a source token when it is fed the reference.

    `sources` with their end marks, `targets` without; pairs with an empty side, or longer than the model takes, are left out.
    `progress` is told how many pairs are done. Raises `NmtError` for a model without attention, and where no pair is left.
    """
    pairs = alignable(sources, targets, model.max_positions)
    if not pairs:
        raise NmtError("no sentence pair to align", remedy="give parallel text")
    pairs.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
    sums = _Sums()
    for first in range(0, len(pairs), BATCH):
        batch = pairs[first : first + BATCH]
        src, src_lengths = pad([source for source, _ in batch], model.pad_token)
        tgt, tgt_lengths = pad([target for _, target in batch], model.pad_token)
        tgt_in = torch.cat((torch.full((len(batch), 1), model.start_token), tgt[:, :-1]), dim=1)
        where = model.device
        weights = model.attention(src.to(where), src_lengths.to(where), tgt_in.to(where)).float().cpu()
        inside = torch.arange(tgt.shape[1]) < tgt_lengths[:, None]
        within = inside[:, :, None] & (torch.arange(src.shape[1]) < src_lengths[:, None])[:, None, :]
        keys = src[:, None, :] * model.vocab + tgt[:, :, None]
        sums.add(keys[within].numpy(), weights[within].numpy())
        progress(first + len(batch))
    return lexical_table(*sums.total(), model.architecture.src_vocab, model.vocab)


def can_attend(model: object) -> TypeGuard[StepModel]:
    """Return whether the model has attention."""
    return isinstance(model, StepModel) and model.attends


@torch.inference_mode()
def attended_positions(model: StepModel, source: Sequence[int], target: Sequence[int]) -> list[int]:
    """Return the source position that the step of each target token looks at most; the first of equals.

    Feeding a finished translation again is cheaper than keeping the weights of each step of each search: they are wanted of the
    few translations that hold an unknown word.

    Args:
        model: a model with attention (`can_attend`).
        source: tokens, the end mark included.
        target: tokens, without the end mark.
    """
    src = torch.tensor([source], device=model.device)
    tgt_in = torch.tensor([[model.start_token, *target[:-1]]], device=model.device)
    weights = model.attention(src, torch.tensor([len(source)], device=model.device), tgt_in)
    positions: list[int] = weights[0].argmax(dim=1).tolist()
    return positions


@dataclass(slots=True)
class _Sums:
    """Sums by key, of more keys than are wanted in memory at once."""

    keys: list[NDArray[np.int64]] = field(default_factory=list)
    weights: list[NDArray[np.float64]] = field(default_factory=list)
    held: int = 0

    def add(self, keys: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
        self.keys.append(keys)
        self.weights.append(weights.astype(np.float64))
        self.held += len(keys)
        if self.held >= MERGED:
            self._merge()

    def _merge(self) -> None:
        keys, places = np.unique(np.concatenate(self.keys), return_inverse=True)
        sums = np.zeros(len(keys))
        sums += np.bincount(places, weights=np.concatenate(self.weights), minlength=len(keys))
        self.keys, self.weights, self.held = [keys], [sums], 0

    def total(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Keys, ascending, and their sums."""
        self._merge()
        return self.keys[0], self.weights[0]
