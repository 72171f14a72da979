"""A recorded trace of requests, played again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt import streams
from simnmt.workload.arrivals.errors import ArrivalsError
from simnmt.workload.arrivals.process import ArrivalsConfiguration, OpenProcess, Times
from simnmt.workload.arrivals.recording import SIZE_COLUMNS, Form, Recording, read_recording


class Recorded(ArrivalsConfiguration):
    """The requests of a recorded trace, which begins anew after its last; each further replication starts elsewhere on it."""

    kind: Literal["recorded"]
    file: str = Field(min_length=1)
    """Path, relative to the scenario file; plain or gzip."""
    form: Form = "auto"
    """What the file holds: requests with their tokens (`azure`: CSV, `mooncake`: JSONL), `counts` per window, `times` alone."""
    lengths: Literal["independent", "rank"] = "independent"
    """Lengths drawn from the corpus whatever the trace says, or the corpus's at the `rank` of the request's input tokens."""
    speed: float | None = Field(default=None, ge=1e-6, le=1e6)
    """How many times faster than recorded; 1 when left out."""
    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e9)
    """Instead of `speed`: as fast as makes this the mean rate over the trace."""
    spread_s: float | None = Field(default=None, ge=0, le=1e9)
    """Recorded seconds over which requests of one time are spread evenly, at most to the next time; left out: the width of a
    window of counts, or of the grid that the times are rounded to."""

    @model_validator(mode="after")
    def _one_speed(self) -> Recorded:
        if self.rate_rps is not None and self.speed is not None:
            raise PydanticCustomError("speed_or_rate", "give speed or rate_rps, not both")
        return self

    def process(self, base: Path) -> RecordedProcess:
        """The process, its trace read. Raises `ArrivalsError`."""
        recording = read_recording(base / self.file, self.form)
        if self.lengths == "rank" and recording.size_tokens is None:
            what = f"lengths: rank needs the tokens of each request, the trace ({recording.form}) has none"
            remedy = f"give a column {SIZE_COLUMNS[0]}, or lengths: independent"
            raise ArrivalsError(what, path=base / self.file, remedy=remedy)
        speed = self.speed or 1.0
        if self.rate_rps is not None:
            speed = self.rate_rps / (len(recording.time_s) / recording.duration_s)
        step_s = recording.step_s if self.spread_s is None else self.spread_s
        return RecordedProcess(
            recording.time_s / speed,
            None if step_s == 0 else _widths(recording, step_s) / speed,
            recording.duration_s / speed,
            _ranks(recording.size_tokens) if self.lengths == "rank" and recording.size_tokens is not None else None,
            _said(recording, speed, step_s, self.lengths),
        )

    def input_paths(self, base: Path) -> list[Path]:
        """The trace."""
        return [base / self.file]

    def resolved(self, base: Path) -> Recorded:
        """The same with an absolute path."""
        return self.model_copy(update={"file": str((base / self.file).absolute())})


@dataclass(frozen=True, slots=True, eq=False)
class RecordedProcess(OpenProcess):
    """The trace as it is played."""

    time_s: Times
    """Shape (requests,), ascending."""
    width_s: Times | None
    """Over how long after its time each request may have come, the same for all of one time; None where times are exact."""
    duration_s: float
    """After which the trace begins anew."""
    rank: tuple[Times, Times] | None
    """Share of the trace's requests that are shorter than each, and of those as long as it; None for independent lengths."""
    account: str
    """One sentence for a reader."""

    def __post_init__(self) -> None:
        for column in (self.time_s, self.width_s, *(self.rank or ())):
            if column is not None:
                column.setflags(write=False)

    @property
    def mean_rate_rps(self) -> float:
        """Over a whole lap."""
        return len(self.time_s) / self.duration_s

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Arrival times in seconds, shape (size,), sorted."""
        first, begin_s = self._start(seed, replication, stream_name)
        if self.width_s is None:
            return self._laid(np.zeros(size), first, begin_s)
        # Requests of one time are sorted among each other, so all of the last time are drawn: else a longer run would differ.
        drawn = self._whole_times(first + size) - first if size else 0
        within = streams.draw(seed, replication, stream_name, drawn, lambda generator, count: generator.random(count))
        return self._laid(within, first, begin_s)[:size]

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """The rank in [0, 1) of each request's input tokens within the trace, ties broken at random, shape (size,).

        Over a lap the ranks are spread evenly, so that the corpus's own lengths come out, in the trace's order of sizes.
        """
        if self.rank is None:
            return None
        below, equal = self.rank
        first, _ = self._start(seed, replication, stream_name)
        name = f"{stream_name}/size ties"
        rank = streams.draw(seed, replication, name, size, lambda generator, count: generator.random(count))
        for start in range(0, size, streams.BLOCK):
            block = rank[start : start + streams.BLOCK]
            request = np.arange(first + start, first + start + len(block)) % len(self.time_s)
            block *= equal[request]
            block += below[request]
        return np.minimum(rank, np.nextafter(1.0, 0.0), out=rank)

    def _start(self, seed: int, replication: int, stream_name: str) -> tuple[int, float]:
        """The first request of a run and the moment on the trace that is its time 0: any moment of the trace alike.

        A run that would begin within a window begins with it, since nobody knows which of its requests are over.
        """
        if replication == 0:
            return 0, 0.0
        moment_s = float(streams.stream(seed, replication, f"{stream_name}/trace start").random()) * self.duration_s
        after = int(np.searchsorted(self.time_s, moment_s, side="right"))
        if after and self.width_s is not None and moment_s < self.time_s[after - 1] + self.width_s[after - 1]:
            begin_s = float(self.time_s[after - 1])
            return int(np.searchsorted(self.time_s, begin_s)), begin_s
        return after, moment_s

    def _whole_times(self, end: int) -> int:
        """The least number of requests, from the trace's start, that is at least `end` and cuts no time apart."""
        laps, last = divmod(end - 1, len(self.time_s))
        return laps * len(self.time_s) + int(np.searchsorted(self.time_s, self.time_s[last], side="right"))

    def _laid(self, within: Times, first: int, begin_s: float) -> Times:
        """When requests `first` and on come, each at its share `within` of its width; written over `within`."""
        for start in range(0, len(within), streams.BLOCK):
            block = within[start : start + streams.BLOCK]
            lap, request = np.divmod(np.arange(first + start, first + start + len(block)), len(self.time_s))
            if self.width_s is not None:
                block *= self.width_s[request]
            block += self.time_s[request] + (lap * self.duration_s - begin_s)
        if self.width_s is not None:
            within.sort(kind="stable")  # nearly sorted, which it takes five times faster than the default
        return within


def _widths(recording: Recording, step_s: float) -> Times:
    """Each request's width: a step, at most to the next time of the trace."""
    time_s, of_request = np.unique(recording.time_s, return_inverse=True)
    to_next = np.diff(time_s, append=recording.duration_s)
    widths: Times = np.minimum(to_next, step_s)[of_request]
    return widths


def _ranks(size_tokens: Times) -> tuple[Times, Times]:
    _, of_request, count = np.unique(size_tokens, return_inverse=True, return_counts=True)
    below = np.cumsum(count) - count
    return below[of_request] / len(size_tokens), count[of_request] / len(size_tokens)


def _said(recording: Recording, speed: float, step_s: float, lengths: str) -> str:
    requests = len(recording.time_s)
    said = [
        f"arrivals of a recorded trace ({recording.kind}), {recording.source}: {requests:,} requests in "
        f"{recording.duration_s:,.0f} s, {requests / recording.duration_s * speed:.4g} requests/s",
        _burstiness(recording),
    ]
    if speed != 1:
        said.append(f"played {speed:.4g} times as fast")
    if step_s:
        said.append(f"requests of one time spread evenly over {step_s:g} s")
    ranked = "lengths by the rank of the input tokens" if lengths == "rank" else "lengths drawn independently"
    return "; ".join([*said, ranked, "after its end it begins anew, and each further replication starts elsewhere on it"])


def _burstiness(recording: Recording) -> str:
    if recording.step_s:
        count = np.unique(recording.time_s, return_counts=True)[1]
        windows = recording.duration_s / recording.step_s
        mean = len(recording.time_s) / windows
        variance = float(count @ count) / windows - mean**2
        return f"variance over mean of the counts per {recording.step_s:g} s {variance / mean:.3g}, where Poisson has 1"
    gap_s = np.diff(recording.time_s)
    return f"coefficient of variation of the gaps {gap_s.std() / gap_s.mean():.3g}"
