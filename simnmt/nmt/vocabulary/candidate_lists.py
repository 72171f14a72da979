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

from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.alignment import LexicalTable
from simnmt.nmt.vocabulary.bundle_file import Fingerprint, read_bundle, write_bundle

KIND = "candidates"
"""The kind of these bundles."""
CANDIDATES = 20
"""Default number of target tokens per source token (SHARP-02)."""


@dataclass(frozen=True, slots=True)
class CandidateLists:
    """The most probable target tokens of each source token, and those that every sentence may use."""

    starts: NDArray[np.int64]
    """[source tokens + 1]: the list of token i is `starts[i]` to `starts[i + 1]`."""
    columns: NDArray[np.int32]
    """Target tokens of all lists, the most probable of each first."""
    probabilities: NDArray[np.float32]
    """Their probabilities among all translations of the source token."""
    always: NDArray[np.int32]
    """Target tokens that are candidates of every sentence, ascending: end mark, unknown, and further requested ones."""
    vocab: int
    """Target tokens of the vocabulary."""
    pairs: int | None = None
    """Sentence pairs from which the lists were learnt; None if they were not learnt."""

    def __post_init__(self) -> None:
        tokens = np.concatenate((self.columns, self.always))
        if (
            any(getattr(self, name).dtype != kind or getattr(self, name).ndim != 1 for name, kind in _ARRAYS.items())
            or len(self.starts) < 2
            or (self.starts[0], self.starts[-1]) != (0, len(self.columns))
            or (np.diff(self.starts) < 0).any()
            or len(self.probabilities) != len(self.columns)
            or (len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.vocab)
        ):
            raise NmtError("candidate lists that do not fit together", remedy="build them again")

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
        return sum(array.nbytes for array in (self.starts, self.columns, self.probabilities, self.always))

    def list_of(self, token: int) -> NDArray[np.int32]:
        """Return the candidates of one source token, the most probable first."""
        return self.columns[int(self.starts[token]) : int(self.starts[token + 1])]

    def of(self, source: Iterable[int]) -> NDArray[np.int32]:
        """Return the candidates of a sentence, ascending: at most `count` per source token, and those of all sentences
        (SHARP-02).

        Raises `NmtError` for a token beyond the source vocabulary.
        """
        tokens = set(source)
        if tokens and not 0 <= min(tokens) <= max(tokens) < self.src_vocab:
            what = f"a source token that is none of {self.src_vocab:,}"
            raise NmtError(what, remedy="build the lists for this model's vocabulary")
        return np.unique(np.concatenate([self.always, *map(self.list_of, tokens)]))

    def save(self, path: str | os.PathLike[str], model: StepModel, note: Mapping[str, Any] | None = None) -> None:
        """Write the lists as a bundle of this model, whole or not at all; `note`: further facts, as JSON.

        Raises `NmtError` for a file that cannot be written, and for a model of another vocabulary.
        """
        self._check(model)
        sizes = {"src_vocab": self.src_vocab, "pairs": self.pairs}
        bundle_note = {**asdict(Fingerprint.of(model)), **sizes, **(note or {})}
        tensors = {name: torch.from_numpy(getattr(self, name)) for name in _ARRAYS}
        write_bundle(path, KIND, bundle_note, tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: StepModel | None = None) -> CandidateLists:
        """Read the lists that `save` wrote, and check them against a model if one is given.

        Raises `NmtError` for a file that is not such a bundle or is damaged, and for another model or vocabulary.
        """
        file = read_bundle(path, KIND)
        try:
            fingerprint = Fingerprint.of_note(file.note)
            if not isinstance(file.note["pairs"], int | None):
                raise ValueError("pairs of another type")
            arrays = {name: file.tensors[name].numpy() for name in _ARRAYS}
            lists = cls(**arrays, vocab=fingerprint.vocab, pairs=file.note["pairs"])
        except (KeyError, TypeError, ValueError, NmtError):
            raise NmtError("damaged", path=path, remedy="build it again with simnmt vocab build") from None
        if model is not None:
            fingerprint.check(model, path)
            lists._check(model, path)
        return lists

    def _check(self, model: StepModel, path: str | os.PathLike[str] | None = None) -> None:
        """Raise `NmtError` for a model of another vocabulary."""
        sizes = model.architecture.src_vocab, model.vocab
        if sizes != (self.src_vocab, self.vocab):
            lists_of = f"lists of {self.src_vocab:,} source and {self.vocab:,} target tokens"
            what = f"{lists_of}, a model of {sizes[0]:,} and {sizes[1]:,}"
            raise NmtError(what, path=path, remedy="build lists for this model")


_ARRAYS = {"starts": np.int64, "columns": np.int32, "probabilities": np.float32, "always": np.int32}
"""The arrays of a bundle and their types."""


def candidate_lists(
    table: LexicalTable,
    always: Iterable[int],
    *,
    count: int = CANDIDATES,
    without: Iterable[int] = (),
    pairs: int | None = None,
) -> CandidateLists:
    """Return lists of the `count` most probable target tokens of each source token, with no list for those `without`.

    `always`: candidates of every sentence; `pairs`: the sentence pairs of the table. Raises `NmtError` for too large a count.
    """
    if not 1 <= count <= table.tgt_vocab:
        raise NmtError(f"{count:,} candidates with a vocabulary of {table.tgt_vocab:,}", remedy="give fewer, and 1 or more")
    every = np.unique(np.fromiter(always, np.int32))
    return CandidateLists(*table.best(count, without), every, table.tgt_vocab, pairs)


def most_frequent(targets: Iterable[Sequence[int]], count: int, vocab: int) -> NDArray[np.int32]:
    """Return the `count` most frequent tokens of the text, ascending; of equally frequent ones the lowest."""
    seen = np.bincount(np.fromiter(chain.from_iterable(targets), np.int64), minlength=vocab)
    some = np.argsort(-seen, kind="stable")[:count]
    return np.sort(some[seen[some] > 0]).astype(np.int32)
