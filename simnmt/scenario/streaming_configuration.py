"""What a scenario says of a device whose model does not stay in memory and is streamed from its disk in shards (STI)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from simnmt.configuration import Configuration

MEGABYTE = 10**6
"""Bytes of an MB."""
Megabytes = Annotated[float, Field(ge=0.0, le=1e7)]
Deadline = Annotated[float, Field(ge=1e-3, le=1e9)]
"""Milliseconds."""
Seconds = Annotated[float, Field(ge=0.0, le=1e9)]
Tokens = Annotated[int, Field(ge=1, le=10**6)]


class StreamingChange(Configuration):
    """Another deadline, another preload buffer or both, from a moment of the run on (STI-18)."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"properties": {name: {"type": "null"} for name in ("deadline_ms", "preload_mb")}}}
    )

    at_s: Annotated[float, Field(gt=0.0, le=1e9)]
    """Seconds after the run began."""
    deadline_ms: Deadline | None = None
    """Left out: as before."""
    preload_mb: Megabytes | None = Field(default=None, validate_default=True)
    """Likewise."""

    @field_validator("preload_mb")
    @classmethod
    def _changes_something(cls, preload_mb: float | None, info: ValidationInfo) -> float | None:
        if preload_mb is None and "deadline_ms" in info.data and info.data["deadline_ms"] is None:
            raise PydanticCustomError("no_change", "a change of neither deadline_ms nor preload_mb (give one, or remove it)")
        return preload_mb


class StreamingConfiguration(Configuration):
    """A model streamed from the disk, planned against a deadline and a preload buffer (STI-10 to STI-18)."""

    deadline_ms: Deadline
    """Within which a box is to answer a request of the planned lengths; decides how many layers and slices are computed."""
    preload_mb: Megabytes
    """Buffer of shards that stay in memory between engagements; 0: none."""
    cache_mb: Megabytes | None = Field(default=None, validate_default=True)
    """What the buffer may grow to from turn to turn of an engagement; left out: `preload_mb`."""
    engagement_gap_s: Seconds = 30.0
    """Requests that a box begins within this time after the one before ended are turns of one engagement."""
    keeps_preload: bool = True
    """Whether a box keeps its preload buffer when an engagement is over; else the next one finds the model cold."""
    keeps_cache: bool = False
    """Whether it keeps the enlarged buffer too, with all that the last turn left in it; needs `keeps_preload`."""
    reclaimed_after_s: Seconds | None = Field(default=300.0, validate_default=True)
    """Idle for longer than this, a box loses the memory of its model whatever it keeps: the next request finds it cold; null:
    never."""
    cold_read_mb: Megabytes | None = None
    """What a cold start reads first of all, beside the plan's shards; left out: what the profile's block `sti` says is in no
    shard (embeddings, norms, head); 0: that outlives the shards."""
    similar_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Of the most shards that can be computed in time, the share that a deeper submodel may lack and be taken."""
    fills_deadline: bool = False
    """Beyond the paper: whether the pipeline may wait for reads as long as the deadline allows."""
    src_len: Tokens | None = None
    """Source tokens that the plans are made for; left out: those that 95 % of the workload's sources do not exceed."""
    tgt_len: Tokens | None = None
    """Target tokens, the decoder's steps, that the plans are made for; left out: likewise of its targets."""
    changes: list[StreamingChange] = Field(default_factory=list, max_length=1_000)
    """Of deadline and preload buffer during the run, in order of time; the model is planned anew at each."""

    @field_validator("keeps_cache")
    @classmethod
    def _keeps_what_it_enlarges(cls, keeps_cache: bool, info: ValidationInfo) -> bool:
        if keeps_cache and info.data.get("keeps_preload") is False:
            what = "a box that gives its preload buffer back keeps no cache (set keeps_preload: true, or leave keeps_cache out)"
            raise PydanticCustomError("cache_without_preload", what)
        return keeps_cache

    @field_validator("changes")
    @classmethod
    def _in_order(cls, changes: list[StreamingChange], info: ValidationInfo) -> list[StreamingChange]:
        for before, after in pairwise(changes):
            if after.at_s <= before.at_s:
                what = "a change at {after} s after one at {before} s (order them by time, one for each moment)"
                raise PydanticCustomError(
                    "changes_out_of_order", what, {"after": f"{after.at_s:g}", "before": f"{before.at_s:g}"}
                )
        cache_mb = info.data.get("cache_mb")
        for change in changes:
            if cache_mb is not None and change.preload_mb is not None and change.preload_mb > cache_mb:
                what = (
                    "cache_mb of {cache} MB cannot hold the {preload} MB from {at} s on (give as much or more, or leave it out)"
                )
                given = {"cache": f"{cache_mb:g}", "preload": f"{change.preload_mb:g}", "at": f"{change.at_s:g}"}
                raise PydanticCustomError("cache_too_small", what, given)
        return changes

    def phases(self) -> list[tuple[float, StreamingConfiguration]]:
        """Return the moments at which the model is planned, the first at 0 s, each with the settings from then on.

        A change that leaves deadline and buffer as they are is none.
        """
        phases = [(0.0, self)]
        for change in self.changes:
            settings = phases[-1][1]
            given = {name: value for name in ("deadline_ms", "preload_mb") if (value := getattr(change, name)) is not None}
            changed = settings.model_copy(update=given)
            if changed != settings:
                phases.append((change.at_s, changed))
        return phases

    @field_validator("cache_mb")
    @classmethod
    def _holds_the_preload(cls, cache_mb: float | None, info: ValidationInfo) -> float | None:
        preload_mb = info.data.get("preload_mb")
        if cache_mb is not None and preload_mb is not None and cache_mb < preload_mb:
            what = "{cache} MB cannot hold the {preload} MB of preload_mb (give as much or more, or leave it out)"
            raise PydanticCustomError("cache_too_small", what, {"cache": f"{cache_mb:g}", "preload": f"{preload_mb:g}"})
        return cache_mb

    @field_validator("reclaimed_after_s")
    @classmethod
    def _outlasts_an_engagement(cls, reclaimed_after_s: float | None, info: ValidationInfo) -> float | None:
        gap_s = info.data.get("engagement_gap_s")
        if reclaimed_after_s is not None and gap_s is not None and reclaimed_after_s < gap_s:
            what = (
                "memory reclaimed after {idle} s ends engagements before their engagement_gap_s of {gap} s does (give as much "
                "or more, or a shorter engagement_gap_s)"
            )
            raise PydanticCustomError("reclaimed_too_soon", what, {"idle": f"{reclaimed_after_s:g}", "gap": f"{gap_s:g}"})
        return reclaimed_after_s

    @property
    def cold_read_bytes(self) -> int | None:
        """Beside shards; None: as the profile says."""
        return None if self.cold_read_mb is None else round(self.cold_read_mb * MEGABYTE)

    @property
    def preload_bytes(self) -> int:
        """Of the buffer between engagements."""
        return round(self.preload_mb * MEGABYTE)

    @property
    def cache_bytes(self) -> int:
        """Of the buffer within an engagement."""
        return self.preload_bytes if self.cache_mb is None else round(self.cache_mb * MEGABYTE)

    @property
    def deadline_s(self) -> float:
        """T."""
        return self.deadline_ms / 1e3
