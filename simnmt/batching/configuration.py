"""The scenario's batching settings: one configuration model for each kind, and the batcher settings made from it."""

from __future__ import annotations

import json
from math import inf
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from simnmt.base.configuration import Configuration
from simnmt.batching.batcher import MAXI, Batching, half_empty, immediate

MOST = 65_536
"""Largest batch, and collection, that may be asked for."""
PRESETS = {"half_empty": half_empty, "immediate": immediate}
"""Thresholds by name, given the size of a batch."""

_Count = Annotated[int, Field(ge=1, le=MOST)]


class _Batching(Configuration):
    """What may be said of any batching."""

    size: _Count = 32
    """Most sentences decoded together; 1: one after the other. A beam counts as one sentence."""
    longest_wait_ms: Annotated[float, Field(ge=0.0, le=1e9)] | None = 0.0
    """How long the first that waits may wait for company before what waits is taken; 0: whoever waits is taken as soon as the
    server is free; null: until the batch, or the collection, is full or nothing more comes."""
    padded_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Most source tokens, padding to the longest included, that are encoded or decoded together; a longer sentence goes alone.
    null: no such limit."""
    encode: _Count | None = None
    """Most sentences that are encoded in one call; null: as many as are decoded together."""


class _Collecting(_Batching):
    @field_validator("collect", mode="after", check_fields=False)
    @classmethod
    def _fills_a_batch(cls, collect: int | None, info: ValidationInfo) -> int | None:
        size = info.data.get("size", 1)
        if collect is not None and collect < size:
            what = "{collect} are too few for one batch of {size} (give {size} or more)"
            raise PydanticCustomError("collect_below_size", what, {"collect": collect, "size": size})
        return collect


class MiniBatching(_Batching):
    """Batches in the order of arrival; one begins when the one before is done (FNI-08)."""

    kind: Literal["mini"]


class MaxiBatching(_Collecting):
    """Collect, sort by source length, cut into batches; one begins when the one before is done (FNI-09)."""

    kind: Literal["maxi"]
    collect: Annotated[int, Field(ge=1, le=MOST, validate_default=True)] = MAXI
    """Sentences that are collected and sorted before the first of them is taken."""


class TopUpBatching(_Collecting):
    """A running batch is refilled when few enough of its sentences are left (FNI-10)."""

    kind: Literal["top_up"]
    threshold: Literal["half_empty", "immediate"] | int = "half_empty"
    """The batch is refilled when at most so many sentences are left in it: `half_empty` is half of `size`, rounded down (the
    authors' choice), `immediate` one less than `size`, so that each sentence that is done is replaced at once."""
    collect: _Count | None = None
    """Sentences that are collected and sorted by source length before the first of them is taken; null: none, they are taken
    as they arrive."""
    refill: Literal["measured", "free"] = "measured"
    """What it costs that encoded sentences join a batch: as the profile's device was `measured`, which it then must have been;
    or `free`, whatever the profile says."""

    @field_validator("threshold", mode="before")
    @classmethod
    def _named_or_counted(cls, threshold: object) -> object:
        # A union of both kinds would complain once for each.
        if threshold in PRESETS if isinstance(threshold, str) else type(threshold) is int:
            return threshold
        what = "must be one of {names} or a number of sentences, got {got}"
        raise PydanticCustomError("threshold_unknown", what, {"names": ", ".join(PRESETS), "got": json.dumps(threshold)})

    @field_validator("threshold", mode="after")
    @classmethod
    def _below_the_batch(cls, threshold: str | int, info: ValidationInfo) -> str | int:
        size = info.data.get("size")
        if isinstance(threshold, int) and size is not None and not 0 <= threshold < size:
            what = "a batch of {size} sentences is refilled with {most} of them left at most, not {threshold} ({remedy})"
            remedy = f"give 0 to {size - 1}, half_empty or immediate"
            context = {"threshold": threshold, "size": size, "most": size - 1, "remedy": remedy}
            raise PydanticCustomError("threshold_outside_batch", what, context)
        return threshold


BatchingConfiguration = Annotated[MiniBatching | MaxiBatching | TopUpBatching, Field(discriminator="kind")]
"""What a scenario may say under a device's `batching`."""


def batching_of(configuration: MiniBatching | MaxiBatching | TopUpBatching) -> Batching:
    """The batching that a configuration describes."""
    wait_ms = configuration.longest_wait_ms
    return Batching(
        configuration.size,
        _threshold(configuration),
        getattr(configuration, "collect", None),
        inf if wait_ms is None else wait_ms / 1e3,
        configuration.padded_tokens,
        configuration.encode,
    )


def _threshold(configuration: MiniBatching | MaxiBatching | TopUpBatching) -> int:
    if not isinstance(configuration, TopUpBatching):
        return 0
    threshold = configuration.threshold
    return PRESETS[threshold](configuration.size) if isinstance(threshold, str) else threshold
