"""What every kernel promises: a reference, a bound of its error, its bytes and operations, and named baselines to beat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from simnmt.kernels.measurement import Number, Run

Memory = Literal["hot", "cold", "beyond"]
"""Data as the call before left them, in the cache; from memory, since others were used meanwhile; or data that a last-level
cache does not hold, all or in part."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one call has to do whatever the code."""

    bytes_moved: int
    """Read and written, each once a step."""
    multiply_adds: int = 0
    number: Number = "float32"
    """What is multiplied."""
    steps: int = 1
    """Of a decoder, that many times all this: a step finds in the cache what the one before left there."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run of a contest held against others of it."""

    ours: str
    """Name of the run."""
    baseline: str
    """What it is held against."""
    ways: tuple[str, ...]
    """The baseline's runs: several ways to do it, of which the fastest counts."""
    work: Work
    """Of our run."""
    target: float | None = None
    """Times as fast as the baseline at least; None where the figure is only reported."""
    what: str = ""
    """What our run is, where a case has several."""
    remark: str = ""
    """What else is to be known of our run."""
    error: float = 0.0
    """Found against the reference, in the measure of the kernel's bound."""
    error_bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Contest:
    """Inputs and outputs that stand ready, and the calls that are timed on them."""

    runs: Mapping[str, Run]
    comparisons: tuple[Comparison, ...]
    before: Mapping[str, Run] = field(default_factory=dict)
    """By run: done untimed ahead of every call of it, to restore what it overwrites."""


@dataclass(frozen=True, slots=True)
class Case:
    """One size of a kernel's input."""

    text: str
    memory: Memory
    """Where weights or products come from."""
    level: str
    """Compiled level that our run takes, or `none` for the fallbacks."""
    build: Callable[[], Contest]
    """Makes the contest when its turn comes: the inputs of all cases together would not fit everywhere."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the registry."""

    name: str
    meaning: str
    source: str
    """Ids of the requirements."""
    reference: str
    """What it is tested against."""
    bound: str
    """Of its error against the reference, in words; a case says it in figures."""
    cost: str
    """Bytes and operations, in words."""
    baselines: tuple[str, str]
    cases: Callable[[int], Iterator[Case]]
    """By the number of threads; empty where the kernel cannot be measured here."""
    device: str = "cpu"
