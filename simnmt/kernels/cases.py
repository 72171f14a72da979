"""Cases in which kernels are measured, with their baselines, errors and least work, and the caches of the processor.

`simnmt.calibrate.kernel_bench` measures the cases by the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from simnmt.kernels.native_library import level_name

Run = Callable[[], object]

UNKNOWN_CACHE_BYTES = 32 * 2**20
"""Assumed size of the last-level cache if the system does not give it."""


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Linux' description of the caches of the first CPU."""


def last_cache_bytes() -> int:
    """Return the size of the largest cache of the first CPU."""
    return max(_cache_sizes(), default=UNKNOWN_CACHE_BYTES)


def nearer_cache_bytes() -> int:
    """Return the size of the largest cache but the last of the first CPU; if only the last is known, an eighth of it."""
    last = last_cache_bytes()
    return max((size for size in _cache_sizes() if size < last), default=last // 8)


def _cache_sizes() -> list[int]:
    texts = [file.read_text().strip() for file in CACHES.glob("index*/size")]
    return [int(text[:-1]) * {"K": 2**10, "M": 2**20}.get(text[-1], 1) for text in texts if text[:-1].isdigit()]


def one_after_another(runs: Sequence[Run]) -> Run:
    """Return a callable that calls all of `runs` in order."""

    def run() -> None:
        for call in runs:
            call()

    return run if len(runs) > 1 else runs[0]


Memory = Literal["hot", "beyond"]
"""Data in the cache, as the previous call left them, or more data than a last-level cache holds."""


def target_at(*, avx512: float, avx2: float) -> float | None:
    """Return the target at the level of the kernels; None at a level for which none was measured."""
    return {"AVX-512": avx512, "AVX2": avx2}.get(level_name())


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of our runs compared with a baseline of the same case."""

    ours: str
    """Name of our run."""
    baseline: str
    """Name of the baseline, and of its run unless `baseline_runs` names runs."""
    bytes_moved: int
    """Bytes that one call reads and writes with any code, each once."""
    baseline_runs: tuple[str, ...] = ()
    """Runs of several methods for the baseline; the fastest one counts."""
    target: float | None = None
    """Least ratio to the baseline; None if the ratio is only reported."""
    what: str = ""
    """Description of our run if a case has several."""
    error: float = 0.0
    """Error against the reference, in the measure of the kernel's bound."""
    error_bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One size of a kernel's input: allocated inputs and outputs, the calls timed on them, and the comparisons."""

    text: str
    memory: Memory
    """Where weights or products are read from."""
    runs: Mapping[str, Run]
    comparisons: tuple[Comparison, ...]
    before: Mapping[str, Run] = field(default_factory=dict)
    """By run: what is called untimed before each call, to restore what it overwrites."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the registry."""

    name: str
    meaning: str
    source: str
    """Ids of the requirements."""
    bound: str
    """Bound of its error against the reference, in words; a case gives it in numbers."""
    baselines: tuple[str, str]
    cases: Callable[..., Iterator[Case]]
    """Yields the cases for a number of threads, and of given sizes; builds each in its turn, because not all may fit memory."""
