"""Sources of different lengths as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simnmt.nmt.errors import NmtError


def pad(sources: Sequence[Sequence[int]], pad_token: int) -> tuple[Tensor, Tensor]:
    """int64 [batch, longest] and the sources' lengths [batch], on the CPU."""
    lengths = [len(source) for source in sources]
    longest = max(lengths)
    rows = [[*source, *[pad_token] * (longest - length)] for source, length in zip(sources, lengths, strict=True)]
    return torch.tensor(rows), torch.tensor(lengths)


def check_lengths(longest: int | None, src_len: int, steps: int) -> None:
    """Raise `NmtError` where a source or a target is longer than a model of `longest` positions takes."""
    if longest is not None and max(src_len, steps) > longest:
        side, length = ("source", src_len) if src_len > longest else ("target", steps)
        raise NmtError(f"a {side} of {length} tokens where the model has {longest} positions", remedy="shorten it")
