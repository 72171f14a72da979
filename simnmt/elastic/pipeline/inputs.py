"""What the turns of an engagement classify: texts by the store's own tokenizer, or tokens drawn where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simnmt.elastic.errors import ElasticError
from simnmt.elastic.tokenizer import padded

if TYPE_CHECKING:
    from simnmt.elastic.store.shard_store import ShardStore
    from simnmt.elastic.task import Text

Input = tuple[Tensor, Tensor]
"""Token ids and mask, [1, length]."""


def inputs_of(store: ShardStore, texts: Sequence[Text], length: int, turns: int, *, seed: int = 0) -> list[Input]:
    """One for each turn, padded to `length`; the last text repeats, and without texts tokens are drawn.

    Raises `ElasticError` for a length that the model has no positions for, and `StoreError` for texts and a store without a
    tokenizer.
    """
    configuration = store.configuration
    most = configuration.positions
    if not 1 <= length <= most:
        raise ElasticError(f"{length} padded tokens, the model takes 1 to {most}", remedy="give a --length within")
    if not texts:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(configuration.vocabulary, (turns, length), generator=generator)
        return [(row[None], torch.ones((1, length), dtype=torch.bool)) for row in ids]
    tokenizer = store.tokenizer()
    encoded = tokenizer.encode(list(texts), length)
    rows = [encoded[min(turn, len(encoded) - 1)] for turn in range(turns)]
    return [padded([row], tokenizer.padding, length) for row in rows]
