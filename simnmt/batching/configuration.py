"""The batching settings of a scenario: one configuration model per kind, and the batcher settings made from it."""

from __future__ import annotations

import json
from math import inf
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from simnmt.base.configuration import Configuration
from simnmt.batching.batcher import MAXI, Batching, half_empty, immediate

MOST = 65_536
"""Largest batch, and largest collection, that a scenario may ask for."""
PRESETS = {"half_empty": half_empty, "immediate": immediate}
"""Thresholds by name, as functions of the batch size."""

_Count = Annotated[int, Field(ge=1, le=MOST)]


class _Batching(Configuration):
    """Settings of any batching."""

    size: _Count = 32
    """Most sentences decoded together; 1: one after the other. A beam counts as one sentence."""
    longest_wait_ms: Annotated[float, Field(ge=0.0, le=1e9)] | None = 0.0
    """How long the first waiting sentence may wait for company; 0: sentences are taken as soon as the server is free; null:
    until the batch, or the collection, is full or no more sentences come."""
    padded_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Most source tokens, padding to the longest included, that are encoded or decoded together; a longer sentence goes alone.
    null: no such limit."""
    encode: _Count | None = None
    """Most sentences that are encoded in one call; null: as many as are decoded together."""

    @property
    def batching(self) -> Batching:
        """The settings of the batcher."""
        wait_s = inf if self.longest_wait_ms is None else self.longest_wait_ms / 1e3
        collected: int | None = getattr(self, "collect", None)
        return Batching(self.size, self._threshold, collected, wait_s, self.padded_tokens, self.encode)

    @property
    def _threshold(self) -> int:
        return 0

    @model_validator(mode="after")
    def _makes_batches(self) -> Self:
        try:
            _ = self.batching
        except ValueError as error:
            raise PydanticCustomError("no_batch", "{error}", {"error": str(error)}) from error
        return self


class MiniBatching(_Batching):
    """Batches in the order of arrival; one begins when the one before is done (FNI-08)."""

    kind: Literal["mini"]


class MaxiBatching(_Batching):
    """Collect, sort by source length, cut into batches; one begins when the one before is done (FNI-09)."""

    kind: Literal["maxi"]
    collect: Annotated[int, Field(ge=1, le=MOST)] = MAXI
    """Sentences that are collected and sorted before the first of them is taken."""


class TopUpBatching(_Batching):
    """A running batch is refilled when few enough of its sentences are left (FNI-10)."""

    kind: Literal["top_up"]
    threshold: Literal["half_empty", "immediate"] | int = "half_empty"
    """Most sentences left in the batch when it is refilled: `half_empty` is half of `size`, rounded down (the authors' choice),
    `immediate` one less than `size`, so that each finished sentence is replaced at once."""
    collect: _Count | None = None
    """Sentences that are collected and sorted by source length before the first of them is taken; null: sentences are taken in
    the order of arrival."""
    refill: Literal["measured", "free"] = "measured"
    """Cost of joining a batch: the `measured` cost of the profile's device, which it then must have; or `free`, whatever the
    profile says."""

    @field_validator("threshold", mode="before")
    @classmethod
    def _named_or_counted(cls, threshold: object) -> object:
        # A union of both kinds would complain once for each.
        if threshold in PRESETS if isinstance(threshold, str) else type(threshold) is int and threshold >= 0:
            return threshold
        what = f"must be one of {', '.join(PRESETS)} or a number of sentences, got {json.dumps(threshold)}"
        raise PydanticCustomError("threshold_unknown", what)

    @property
    def _threshold(self) -> int:
        return PRESETS[self.threshold](self.size) if isinstance(self.threshold, str) else self.threshold


BatchingConfiguration = Annotated[MiniBatching | MaxiBatching | TopUpBatching, Field(discriminator="kind")]
"""Settings under a device's `batching` in a scenario."""
