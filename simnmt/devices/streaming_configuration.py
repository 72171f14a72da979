"""The `sti` settings of a device that streams its model: the deadline, the buffers, and changes of them during the run."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from simnmt.base.configuration import Configuration, misfit

MEGABYTE = 10**6
"""Bytes of an MB."""
Megabytes = Annotated[float, Field(ge=0.0, le=1e7)]
Deadline = Annotated[float, Field(ge=1e-3, le=1e9)]
"""Milliseconds."""
Seconds = Annotated[float, Field(ge=0.0, le=1e9)]
Tokens = Annotated[int, Field(ge=1, le=10**6)]


class StreamingChange(Configuration):
    """A change of the deadline, the preload buffer or both during the run (STI-18)."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"properties": {name: {"type": "null"} for name in ("deadline_ms", "preload_mb")}}}
    )

    at_s: Annotated[float, Field(gt=0.0, le=1e9)]
    """Seconds after the run began."""
    deadline_ms: Deadline | None = None
    """Left out: as before."""
    preload_mb: Megabytes | None = None
    """Left out: as before."""

    @model_validator(mode="after")
    def _changes_something(self) -> StreamingChange:
        if self.deadline_ms is None and self.preload_mb is None:
            raise misfit("", "give deadline_ms, preload_mb or both")
        return self


class StreamingConfiguration(Configuration):
    """A model streamed from the disk, planned against a deadline and a preload buffer (STI-10 to STI-18)."""

    deadline_ms: Deadline
    """Time within which a box should answer a request of the planned lengths; decides how many layers and slices are
    computed."""
    preload_mb: Megabytes
    """Buffer of shards that stay in memory between engagements; 0: none."""
    cache_mb: Megabytes | None = None
    """Size to which the buffer may grow from turn to turn of an engagement; left out: `preload_mb`."""
    engagement_gap_s: Seconds = 30.0
    """Requests that a box begins within this time after the end of the one before are turns of one engagement."""
    keeps_preload: bool = True
    """Whether a box keeps its preload buffer after an engagement; else the next one finds the model cold."""
    keeps_cache: bool = False
    """Whether it also keeps the enlarged buffer, with all shards of the last turn; needs `keeps_preload`."""
    reclaimed_after_s: Seconds | None = 300.0
    """Idle time after which a box loses the memory of its model in any case, so that the next request finds it cold; null:
    never."""
    cold_read_mb: Megabytes | None = None
    """Data that a cold start reads first, beside the plan's shards; left out: the part of the model that is in no shard
    (embeddings, norms, head), from the profile's block `sti`; 0: that part stays in memory."""
    similar_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Prefer a deeper submodel if it has at most this share fewer shards than the largest one that meets the deadline."""
    fills_deadline: bool = False
    """Beyond the paper: whether the pipeline may wait for reads as long as the deadline allows."""
    src_len: Tokens | None = None
    """Source tokens for which plans are made; left out: a length that 95 % of the workload's sources do not exceed."""
    tgt_len: Tokens | None = None
    """Target tokens, the decoder's steps, for which plans are made; left out: a length that 95 % of the targets do not
    exceed."""
    changes: list[StreamingChange] = Field(default_factory=list, max_length=1_000)
    """Changes of deadline and preload buffer during the run, in order of time; the model is planned anew at each."""

    @model_validator(mode="after")
    def _settings_fit(self) -> StreamingConfiguration:
        largest_mb = max([self.preload_mb, *(change.preload_mb or 0.0 for change in self.changes)])
        if self.cache_mb is not None and self.cache_mb < largest_mb:
            key = "cache_mb" if self.cache_mb < self.preload_mb else "changes"
            raise misfit(key, f"{self.cache_mb:g} MB of cache_mb cannot hold the {largest_mb:g} MB of preload_mb")
        if self.keeps_cache and not self.keeps_preload:
            raise misfit("keeps_cache", "a box that gives its preload buffer back keeps no cache")
        if self.reclaimed_after_s is not None and self.reclaimed_after_s < self.engagement_gap_s:
            raise misfit("reclaimed_after_s", f"ends engagements before engagement_gap_s, {self.engagement_gap_s:g} s, does")
        if any(after.at_s <= before.at_s for before, after in pairwise(self.changes)):
            raise misfit("changes", "order them by time, one for each moment")
        return self

    def phases(self) -> list[tuple[float, StreamingConfiguration]]:
        """Return the moments at which the model is planned, the first at 0 s, each with the settings from then on.

        A change to the same deadline and buffer is ignored.
        """
        phases = [(0.0, self)]
        for change in self.changes:
            changed = phases[-1][1].model_copy(update=change.model_dump(exclude={"at_s"}, exclude_none=True))
            if changed != phases[-1][1]:
                phases.append((change.at_s, changed))
        return phases

    @property
    def cold_read_bytes(self) -> int | None:
        """Bytes that a cold start reads beside shards; None: those of the profile."""
        return None if self.cold_read_mb is None else round(self.cold_read_mb * MEGABYTE)

    @property
    def preload_bytes(self) -> int:
        """Size of the buffer between engagements."""
        return round(self.preload_mb * MEGABYTE)

    @property
    def cache_bytes(self) -> int:
        """Size of the buffer within an engagement."""
        return self.preload_bytes if self.cache_mb is None else round(self.cache_mb * MEGABYTE)

    @property
    def deadline_s(self) -> float:
        """The deadline T of the paper."""
        return self.deadline_ms / 1e3
