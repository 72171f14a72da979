"""What was measured: single timings, readings of the reference cell, and all repeats of a cell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

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
        return line | {name: getattr(self.timing, name) for name in ("total_s", "encode_s", "steps_s")}

    @classmethod
    def of_json(cls, line: dict[str, Any]) -> Sample:
        """Back from the journal."""
        timing = None
        if not line.get("out_of_memory"):
            steps_s = line["steps_s"]
            timing = Timing(line["total_s"], line["encode_s"], None if steps_s is None else tuple(steps_s))
        return cls(line["bench"], line["attempt"], line["stretch"], line["index"], Work(*line["work"]), timing)


def kept(bench: Bench, timing: Timing) -> Timing:
    """What of a timing is used: single steps by the step bench alone, elsewhere their sum, which tells of the gaps."""
    if bench == "step" or timing.steps_s is None:
        return timing
    return Timing(timing.total_s, timing.encode_s, (sum(timing.steps_s),))


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
