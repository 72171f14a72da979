"""Candidate lists: the only target tokens that the source tokens of a sentence may become (SHARP-02)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.alignment import LexicalTable
from simnmt.nmt.vocabulary.bundle_file import BundleFile, Fingerprint, load_bundle, write_bundle

KIND = "candidates"
"""The kind of these bundles."""
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
    """Target tokens of the vocabulary."""
    pairs: int | None = None
    """Sentence pairs from which the lists were learnt; None if they were not learnt."""

    @property
    def src_vocab(self) -> int:
        """Source tokens of the vocabulary."""
        return len(self.starts) - 1

    @property
    def count(self) -> int:
        """Length of the longest list of a source token."""
        return int(np.diff(self.starts).max())

    @property
    def nbytes(self) -> int:
        """Return the bytes held."""
        return sum(array.nbytes for array in (self.starts, self.columns, self.always))

    def list_of(self, token: int) -> NDArray[np.int32]:
        """Return the candidates of one source token, the most probable first."""
        return self.columns[int(self.starts[token]) : int(self.starts[token + 1])]

    def of(self, source: Iterable[int]) -> NDArray[np.int32]:
        """Return the candidates of a sentence, ascending: at most `count` per source token, and those of all sentences
        (SHARP-02).
        """
        return np.unique(np.concatenate([self.always, *map(self.list_of, set(source))]))

    def save(self, path: str | os.PathLike[str], model: StepModel, note: Mapping[str, Any] | None = None) -> None:
        """Write the lists as a bundle of this model, whole or not at all; `note`: further facts, as JSON.

        Raises `NmtError` for a file that cannot be written.
        """
        tensors = {name: torch.from_numpy(getattr(self, name)) for name in _ARRAYS}
        write_bundle(path, KIND, {**asdict(Fingerprint.of(model)), "pairs": self.pairs, **(note or {})}, tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: StepModel | None = None) -> CandidateLists:
        """Read the lists that `save` wrote, and check them against a model if one is given.

        Raises `NmtError` for a file that is not such a bundle or is damaged, and for another model.
        """

        def lists_of(file: BundleFile) -> CandidateLists:
            arrays = {name: file.tensors[name].numpy() for name in _ARRAYS}
            return cls(**arrays, vocab=file.note["vocab"], pairs=file.note["pairs"])

        return load_bundle(path, KIND, lists_of, model)


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


def most_frequent(targets: Iterable[Sequence[int]], count: int, vocab: int) -> NDArray[np.int32]:
    """Return the `count` most frequent tokens of the text, ascending; of equally frequent ones the lowest."""
    seen = np.bincount(np.fromiter(chain.from_iterable(targets), np.int64), minlength=vocab)
    some = np.argsort(-seen, kind="stable")[:count]
    return np.sort(some[seen[some] > 0]).astype(np.int32)
