"""The columns that each cluster activates: what its members' likeliest tokens were (FVP-04)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from simnmt.kernels.column_sets import ColumnSets
from simnmt.nmt.errors import NmtError


def active_sets(labels: Tensor, top: Tensor, clusters: int, always: Iterable[int], *, vocab: int) -> ColumnSets:
    """Of each cluster the union of its members' tokens, and the tokens `always` in it (FVP-04).

    `labels`: int64 [n], the cluster of each context; `top`: int32 [n, K], its tokens. Raises `NmtError` for a cluster without
    a member, and for a token that the vocabulary has not.
    """
    members = torch.bincount(labels, minlength=clusters)
    if len(members) > clusters or not bool(members.all()):
        empty = int((members == 0).nonzero()[0]) if len(members) == clusters else int(labels.max())
        raise NmtError(f"cluster {empty:,} of {clusters:,} has no member", remedy="ask for fewer clusters")
    control = torch.tensor(sorted(set(always)), dtype=torch.int64)
    for tokens in (top, control):
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab:
            raise NmtError(f"tokens beyond a vocabulary of {vocab:,}", remedy="collect the contexts with this model")
    held = (labels[:, None] * vocab + top).view(-1)
    added = (torch.arange(clusters)[:, None] * vocab + control).view(-1)
    pairs = torch.unique(torch.cat((held, added)))
    starts = torch.zeros(clusters + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(pairs.div(vocab, rounding_mode="floor"), minlength=clusters).cumsum(0)
    return ColumnSets(starts, pairs.remainder(vocab).to(torch.int32), vocab)
