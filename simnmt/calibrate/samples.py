"""What was measured: single timings, readings of the reference cell, and their statistics over repeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simnmt.calibrate.plan import Bench
from simnmt.nmt.engine import Timing, Work


@dataclass(frozen=True, slots=True)
class Sample:
    """One work, timed once."""

    bench: Bench
    attempt: int
    stretch: int
    index: int
    """Within the stretch."""
    work: Work
    timing: Timing | None
    """None where memory did not suffice."""

    def as_json(self) -> dict[str, Any]:
        """A line of the journal."""
        work = self.work
        line: dict[str, Any] = {
            "bench": self.bench,
            "attempt": self.attempt,
            "stretch": self.stretch,
            "index": self.index,
            "work": [work.src_len, work.tgt_len, work.batch, work.beam],
        }
        if self.timing is None:
            return line | {"out_of_memory": True}
        steps_s = self.timing.steps_s
        # Single steps are used by the step bench alone; elsewhere their sum tells the gaps between them.
        kept = {"steps_s": steps_s} if self.bench == "step" else {"steps_sum_s": None if steps_s is None else sum(steps_s)}
        return line | {"total_s": self.timing.total_s, "encode_s": self.timing.encode_s} | kept

    @classmethod
    def of_json(cls, line: dict[str, Any]) -> Sample:
        """Back from the journal; the sum of steps comes back as one step."""
        timing = None
        if not line.get("out_of_memory"):
            steps = line.get("steps_s")
            if steps is None and line.get("steps_sum_s") is not None:
                steps = [line["steps_sum_s"]]
            timing = Timing(line["total_s"], line["encode_s"], None if steps is None else tuple(steps))
        return cls(line["bench"], line["attempt"], line["stretch"], line["index"], Work(*line["work"]), timing)


@dataclass(frozen=True, slots=True)
class Reading:
    """The reference cell, timed a few times on end."""

    bench: Bench
    attempt: int
    position: int
    """0 before the first stretch of the attempt, k after its k-th."""
    total_s: tuple[float, ...]

    @property
    def least_s(self) -> float:
        """What counts."""
        return min(self.total_s)

    def as_json(self) -> dict[str, Any]:
        """A line of the journal."""
        return {"bench": self.bench, "attempt": self.attempt, "reading": self.position, "total_s": self.total_s}

    @classmethod
    def of_json(cls, line: dict[str, Any]) -> Reading:
        """Back from the journal."""
        return cls(line["bench"], line["attempt"], line["reading"], tuple(line["total_s"]))


@dataclass(frozen=True, slots=True)
class Cell:
    """All repeats of one work."""

    work: Work
    timings: tuple[Timing, ...]
    disturbed: bool
    """No repeat of it was free of disturbance."""
    total_s: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total_s", tuple(timing.total_s for timing in self.timings))

    @property
    def min_s(self) -> float:
        """The least of the repeats."""
        return min(self.total_s)

    def statistics(self) -> dict[str, float | int]:
        """Minimum, quantiles and mean of the repeats, by the keys of a profile's samples."""
        return {"repeats": len(self.total_s)} | spread_s(self.total_s)


def spread_s(seconds: Sequence[float]) -> dict[str, float]:
    """Minimum, quantiles and mean, by the keys of a profile's samples."""
    low, p25, median, p75, p95 = np.quantile(seconds, [0.0, 0.25, 0.5, 0.75, 0.95]).tolist()
    mean = float(np.mean(seconds))
    return {"min_s": low, "p25_s": p25, "median_s": median, "p75_s": p75, "p95_s": p95, "mean_s": mean}


def of_cells(samples: Iterable[Sample], disturbed: Iterable[tuple[int, int]]) -> list[Cell]:
    """Repeats by work, sorted by it. `disturbed`: (attempt, stretch) that do not count where the work has others."""
    spoilt = set(disturbed)
    by_work: dict[Work, list[tuple[bool, Timing]]] = {}
    for sample in samples:
        if sample.timing is not None:
            by_work.setdefault(sample.work, []).append(((sample.attempt, sample.stretch) in spoilt, sample.timing))
    cells = []
    for work, repeats in by_work.items():
        calm = tuple(timing for bad, timing in repeats if not bad)
        cells.append(Cell(work, calm or tuple(timing for _, timing in repeats), disturbed=not calm))
    return sorted(cells, key=lambda cell: (cell.work.batch, cell.work.beam, cell.work.src_len, cell.work.tgt_len))
