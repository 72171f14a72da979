"""Active columns by the lists of candidate words of the sentences under way (SHARP-02)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.nmt.vocabulary.subset import Active, RestrictedVocabulary, VocabularySubset
from simnmt.nmt.vocabulary.subset_account import SubsetAccount

if TYPE_CHECKING:
    from simnmt.costs.projection_cost import ProjectionCost
    from simnmt.nmt.vocabulary.sub_matrix_cache import SubMatrixCache


class Lists(Protocol):
    """Candidates of a sentence by its source tokens."""

    @property
    def vocab(self) -> int:
        """Target tokens known."""

    def of(self, source: Iterable[int]) -> NDArray[np.int32]:
        """Ascending."""


def listed(
    lists: Lists,
    *,
    label: str = "candidates",
    scatter: bool = False,
    audit: bool = False,
    cost: ProjectionCost | None = None,
    cache: SubMatrixCache | None = None,
    account: SubsetAccount | None = None,
) -> RestrictedVocabulary:
    """The union of the lists of the sentences under way; options as of `RestrictedVocabulary`."""

    own = object()

    def begin() -> VocabularySubset:
        return ListedColumns(label, lists, own)

    return RestrictedVocabulary(
        label=label,
        vocab=lists.vocab,
        width=None,
        begin=begin,
        reads_sources=True,
        scatter=scatter,
        audit=audit,
        cost=cost,
        cache=cache,
        account=account,
    )


class ListedColumns:
    """See `VocabularySubset`; changes as sentences come and go, and not between two steps of the same ones."""

    def __init__(self, label: str, lists: Lists, own: Hashable) -> None:
        """`own`: what tells these lists from others, which have other columns for the same sentences."""
        self.label = label
        self._lists, self._of = lists, own
        self._own: list[NDArray[np.int32]] = []
        """The list of each sentence."""
        self._sources: list[tuple[int, ...]] = []
        self._active: Active | None = None
        """Of the sentences under way, once they were asked for."""

    def columns(self, hidden: Tensor) -> Active:
        """See `VocabularySubset`."""
        if self._active is None:
            own = self._own
            union = own[0] if len(own) == 1 else np.unique(np.concatenate(own)) if own else np.empty(0, np.int32)
            key = self._of, frozenset(self._sources)
            self._active = Active(torch.tensor(union, dtype=torch.int32, device=hidden.device), key)
        return self._active

    def join(self, sources: Sequence[Sequence[int]], beam: int) -> None:
        """See `VocabularySubset`. Raises `ValueError` for a sentence without its tokens."""
        if not all(map(len, sources)):
            raise ValueError("a sentence joins without its source tokens: hand the SlotDecoder the vocabulary as well")
        self._own += [self._lists.of(source) for source in sources]
        self._sources += [tuple(sorted(set(source))) for source in sources]
        self._active = None

    def leave(self, order: Sequence[int]) -> None:
        """See `VocabularySubset`."""
        self._own = [self._own[slot] for slot in order]
        self._sources = [self._sources[slot] for slot in order]
        self._active = None
