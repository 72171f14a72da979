"""Candidate lists: the only target tokens that the source tokens of a sentence may become (SHARP-02), learnt by IBM model 1.

In IBM model 1 each target token comes from one source token, all positions alike: p(t | s) = product over j of the mean over i
of p(t_j | s_i), learnt by expectation maximisation (Brown et al., The Mathematics of Statistical Machine Translation, 1993).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.bundle_file import BundleFile, control_tokens, fingerprint, read_bundle, write_bundle

if TYPE_CHECKING:
    from simnmt.nmt.translation import Translator

KIND = "candidates"
CANDIDATES = 20
"""Default number of target tokens per source token (SHARP-02)."""
_ARRAYS = ("starts", "columns", "always")


@dataclass(frozen=True, slots=True)
class CandidateLists:
    """The most probable target tokens of each source token, and those that every sentence may use."""

    starts: NDArray[np.int64]
    """[source tokens + 1]: the list of token i is `starts[i]` to `starts[i + 1]`."""
    columns: NDArray[np.int32]
    """Target tokens of all lists, the most probable of each first."""
    always: NDArray[np.int32]
    """Target tokens that are candidates of every sentence, ascending: end mark, unknown, and further requested ones."""
    vocab: int
    pairs: int | None = None
    """Sentence pairs from which the lists were learnt; None if they were not learnt."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a target token outside the vocabulary: kernels would read beyond their arrays."""
        for tokens in (self.columns, self.always):
            if tokens.size and not 0 <= tokens.min() <= tokens.max() < self.vocab:
                raise ValueError(f"target tokens are not all among the {self.vocab} of the vocabulary")

    def list_of(self, token: int) -> NDArray[np.int32]:
        """Return the candidates of one source token, the most probable first."""
        return self.columns[int(self.starts[token]) : int(self.starts[token + 1])]

    def of(self, source: Iterable[int]) -> NDArray[np.int32]:
        """Return the candidates of a sentence, ascending: those of its source tokens and of all sentences (SHARP-02)."""
        return np.unique(np.concatenate([self.always, *map(self.list_of, set(source))]))

    def save(self, path: str | os.PathLike[str], model: StepModel, note: Mapping[str, Any] | None = None) -> None:
        """Write the lists as a bundle of this model, whole or not at all; `note`: further facts, as JSON.

        Raises `NmtError` for a file that cannot be written.
        """
        tensors = {name: torch.from_numpy(getattr(self, name)) for name in _ARRAYS}
        write_bundle(path, KIND, {**fingerprint(model), "pairs": self.pairs, **(note or {})}, tensors)

    @classmethod
    def of_file(cls, file: BundleFile) -> CandidateLists:
        """Return the lists in a bundle; raises `ValueError` and others for content that does not fit together."""
        return cls(**{name: file.tensors[name].numpy() for name in _ARRAYS}, vocab=file.note["vocab"], pairs=file.note["pairs"])

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: StepModel | None = None) -> CandidateLists:
        """Read the lists that `save` wrote, and check them against a model if one is given; raises `NmtError`."""
        return read_bundle(path, {KIND: cls.of_file}, model)


def build_candidates(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    count: int = CANDIDATES,
    always: int = 0,
    iterations: int = 5,
    progress: Callable[[int], None] = lambda _: None,
) -> CandidateLists:
    """List the `count` most probable target tokens of each source token, by IBM model 1 of parallel lines.

    `targets[i]` translates `sources[i]`; pairs with an empty side are left out. The source's end mark has no list: it is the
    empty word of the alignment. `always`: most frequent target tokens that are candidates of every sentence. `progress` is
    called with the number of pairs done.

    Raises `NmtError` without any pair, and for more candidates than the vocabulary holds.
    """
    model = translator.model
    if not 1 <= count <= model.vocab or not 0 <= always <= model.vocab:
        what = f"{count:,} candidates, and {always:,} always, with a vocabulary of {model.vocab:,}"
        raise NmtError(what, remedy="give fewer, and 1 or more a token")
    # Targets without their end mark, which every list has.
    encoded = zip(translator.source.encode(sources), translator.target.encode(targets), strict=True)
    pairs = [(source, target[:-1]) for source, target in encoded if len(source) > 1 and len(target) > 1]
    if not pairs:
        raise NmtError("no sentence pair to align", remedy="give parallel text")
    table = ibm_model1(
        pairs,
        src_vocab=translator.source.size,
        tgt_vocab=translator.target.size,
        iterations=iterations,
        progress=lambda done: progress(len(pairs) * done // iterations),
    )
    seen = np.bincount(np.fromiter(chain.from_iterable(target for _, target in pairs), np.int64), minlength=model.vocab)
    frequent = np.argsort(-seen, kind="stable")[:always]
    every = [*control_tokens(model), *frequent[seen[frequent] > 0].tolist()]
    return candidate_lists(table, every, count=count, without=[translator.source.eos], pairs=len(pairs))


def candidate_lists(
    table: LexicalTable,
    always: Iterable[int],
    *,
    count: int = CANDIDATES,
    without: Sequence[int] = (),
    pairs: int | None = None,
) -> CandidateLists:
    """Return lists of the `count` most probable target tokens of each source token, of equals the lowest first.

    Tokens of probability 0 are left out, and the source tokens `without` have no list. `always`: candidates of every sentence;
    `pairs`: the sentence pairs of the table.
    """
    sources, targets = np.divmod(table.pairs, table.tgt_vocab)
    some = np.flatnonzero((table.probabilities > 0.0) & ~np.isin(sources, without))
    order = some[np.lexsort((targets[some], -table.probabilities[some], sources[some]))]
    sources, targets = sources[order], targets[order]
    kept = np.arange(len(sources)) - np.searchsorted(sources, sources) < count
    starts = np.searchsorted(sources[kept], np.arange(table.src_vocab + 1)).astype(np.int64)
    every = np.unique(np.fromiter(always, np.int32))
    return CandidateLists(starts, targets[kept].astype(np.int32), every, table.tgt_vocab, pairs)


Pair = tuple[Sequence[int], Sequence[int]]
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


def ibm_model1(
    pairs: Sequence[Pair], *, src_vocab: int, tgt_vocab: int, iterations: int, progress: Callable[[int], None] = lambda _: None
) -> LexicalTable:
    """Learn p(target token | source token) from sentence pairs without an empty side, from a uniform start.

    The end mark of the sources, if they have it, is the empty word, from which target tokens come that no word gives.
    `progress` is called with the number of iterations done.
    """
    block_of = np.cumsum([len(source) * len(target) for source, target in pairs]) // BLOCK
    groups = np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(block_of)) + 1)
    linked = [_links([pairs[at] for at in group], tgt_vocab) for group in groups]
    different = np.unique(np.concatenate([of_block for of_block, *_ in linked]))
    blocks = [
        (np.searchsorted(different, of_block).astype(np.int32)[links], begins, sizes)
        for of_block, links, begins, sizes in linked
    ]
    sources = different // tgt_vocab
    probabilities = np.full(len(different), 1.0 / tgt_vocab)
    for done in range(iterations):
        counts = np.zeros(len(different))
        for links, begins, sizes in blocks:
            shares = probabilities[links]
            shares /= np.repeat(np.add.reduceat(shares, begins), sizes)
            counts += np.bincount(links, weights=shares, minlength=len(different))
        totals = np.bincount(sources, weights=counts, minlength=src_vocab)[sources]
        probabilities = np.divide(counts, totals, out=np.zeros(len(counts)), where=totals > 0.0)
        progress(done + 1)
    return LexicalTable(different, probabilities, src_vocab, tgt_vocab)


def _links(text: Sequence[Pair], tgt_vocab: int) -> tuple[NDArray[np.int64], ...]:
    """Return the links of some sentences: all pairs of a source and a target position, ordered by target position.

    These are the different pairs of tokens, ascending; the pair of each link; and, of each target position, the first link and
    the number of links, one per source token.
    """
    src, tgt = (np.concatenate([np.asarray(side, np.int64) for side in sides]) for sides in zip(*text, strict=True))
    src_len, tgt_len = np.array([(len(source), len(target)) for source, target in text]).T
    sizes = np.repeat(src_len, tgt_len)
    begins = np.cumsum(sizes) - sizes
    first = np.repeat(np.cumsum(src_len) - src_len, tgt_len)
    within = np.arange(int(sizes.sum())) - np.repeat(begins, sizes)
    keys = src[np.repeat(first, sizes) + within] * tgt_vocab + np.repeat(tgt, sizes)
    pairs, links = np.unique(keys, return_inverse=True)
    return pairs, links.astype(np.int32), begins, sizes
