"""Sharding a model: every shard at every fidelity, layer by layer, whole at the end or to be gone on with (STI-05)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from simnmt.costs.shard_geometry import BITS
from simnmt.elastic.encoder_weights import EncoderWeights


def write_store(
    weights: EncoderWeights,
    path: str | os.PathLike[str],
    *,
    bits: Sequence[int] = BITS,
    beside: Mapping[str, bytes] | None = None,
    progress: Callable[[int, int], None] | None = None,
    resume: bool = True,
) -> None:
    """Write the shards of a model to the new folder `path`, which is there in the end, whole, or not at all.

    What is done lies in `path` with `.partial` added until then, and an interrupted run goes on from it unless `resume` is
    False. `beside`: small files that are stored along by their names, a tokenizer's. `progress`: layers done, of all. Raises
    `StoreError` for a layer that cannot be quantised, for an unfinished store of another model or of other bits, and where
    there is no room.
    """
    raise NotImplementedError
