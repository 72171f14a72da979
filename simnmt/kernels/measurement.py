"""Measurement of kernels: interleaved timing, the box's copy and product rates, and the records of kernels and their cases.

A kernel has a reference, an error bound, bytes and operations, and named baselines. The timed calls alternate, so that a
disturbance slows all of them and their ratios stay the same.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from simnmt.kernels.native_library import level_name

Run = Callable[[], object]
Name = TypeVar("Name", bound=Hashable)

LEAST_S = 0.1
"""Least time for which each callable is timed; a short one gets more rounds than requested."""
MOST_ROUNDS = 20
"""Greatest multiple of the requested rounds."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every callable in every round."""

    of: Mapping[Any, tuple[float, ...]]
    """By the names of the callables."""

    @property
    def rounds(self) -> int:
        """Number of rounds, the same for all callables."""
        return len(next(iter(self.of.values())))

    def median_s(self, name: Hashable) -> float:
        """Return the median seconds of one callable."""
        return statistics.median(self.of[name])

    def least_s(self, name: Hashable) -> float:
        """Return the least seconds of one callable: its time without a disturbance."""
        return min(self.of[name])

    def ratio(self, theirs: Hashable, ours: Hashable) -> float:
        """Return how many times as long `theirs` takes as `ours`: the median of the ratios of each round."""
        return statistics.median(b / a for a, b in zip(self.of[ours], self.of[theirs], strict=True))


def interleaved(
    runs: Mapping[Name, Run],
    rounds: int,
    before: Mapping[Name, Run] | None = None,
    *,
    warm: bool = False,
    least_s: float = LEAST_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time each callable once per round, after one untimed run of each.

    The first callable changes from round to round, so that none always follows the same other.

    Args:
        runs: the callables by name.
        rounds: least number of rounds.
        before: by name, what runs untimed before each run of a callable, to restore what it overwrites.
        warm: run each callable untimed directly before its timed run too, so that it finds its data as its own run leaves
            them. Otherwise it finds them as the others leave them, whose data may have replaced them in the cache.
        least_s: least time for which each callable is timed.
        clock: seconds.
    """
    if rounds < 1 or not runs:
        raise ValueError("give at least one round and one callable")
    names, seconds_by_name = list(runs), {name: list[float]() for name in runs}
    restoring = before or {}

    def timed(name: Name) -> float:
        for _ in range(1 + warm):
            restoring.get(name, _nothing)()
            start_s = clock()
            runs[name]()
            took_s = clock() - start_s
        return took_s

    collecting = gc.isenabled()
    gc.disable()
    try:
        for name in names:
            timed(name)
        for number in range(MOST_ROUNDS * rounds):
            if number >= rounds and all(sum(times) >= least_s for times in seconds_by_name.values()):
                break
            first = number % len(names)
            for name in names[first:] + names[:first]:
                seconds_by_name[name].append(timed(name))
    finally:
        if collecting:
            gc.enable()
    return Times({name: tuple(times) for name, times in seconds_by_name.items()})


def _nothing() -> None:
    pass


@contextmanager
def library_threads(count: int) -> Iterator[None]:
    """Limit torch and the BLAS of numpy to `count` threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


Number = Literal["float32", "int16"]

SIZES_BYTES = tuple(2**power for power in range(18, 25, 2))
"""Sizes of the copies within the cache: 256 KiB to 16 MiB."""
UNKNOWN_CACHE_BYTES = 32 * 2**20
"""Assumed size of the last-level cache if the system does not give it."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates of one box, each the best of a few runs."""

    threads: int
    """Threads of the copies."""
    cache_bytes: int
    """Size of the last-level cache; data called cold or beyond it are several times as large."""
    copies: tuple[tuple[int, float], ...]
    """(bytes read and written, bytes/s) of copies that fit into the cache, ascending; the last one fills it."""
    copy_bytes_per_s: float
    """Rate of a copy larger than the cache; bytes read and bytes written both count, as in STREAM."""
    float32_per_s: float
    """Multiply-adds per second of one thread with data in the cache, by the faster of the library's product and ours."""
    int16_per_s: float | None
    """Multiply-adds per second of our int16 product; None without compiled kernels."""

    def bytes_per_s(self, size_bytes: float, *, cold: bool) -> float:
        """Return the rate of a copy of this size, from memory or from the cache that holds it."""
        if cold or size_bytes > self.cache_bytes:
            return self.copy_bytes_per_s
        return next((rate for size, rate in self.copies if size_bytes <= size), self.copies[-1][1])

    def least_s(self, size_bytes: float, multiply_adds: float, *, cold: bool, number: Number = "float32") -> float:
        """Return the least time on this box: the longer of moving the bytes and of multiplying."""
        rate = self.float32_per_s if number == "float32" or self.int16_per_s is None else self.int16_per_s
        return max(size_bytes / self.bytes_per_s(size_bytes, cold=cold), multiply_adds / rate)


def measure_roofline(
    threads: int = 1, ours: Callable[[int], tuple[float, float] | None] = lambda rounds: None, rounds: int = 7
) -> Roofline:
    """Measure the rates in one or two seconds. `ours` returns the rates of our products in float32 and int16."""
    cache_bytes = last_cache_bytes()
    with library_threads(1):
        library, our_rates = _products(rounds), ours(rounds)
    with library_threads(threads):
        return Roofline(
            threads=threads,
            cache_bytes=cache_bytes,
            copies=tuple((size, _copy(size, rounds)) for size in (*SIZES_BYTES, cache_bytes) if size <= cache_bytes),
            copy_bytes_per_s=_copy(8 * cache_bytes, rounds),
            float32_per_s=library if our_rates is None else max(library, our_rates[0]),
            int16_per_s=None if our_rates is None else our_rates[1],
        )


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Linux' description of the caches of the first CPU."""


def last_cache_bytes(folder: Path = CACHES) -> int:
    """Return the size of the largest cache of the first CPU."""
    return max(_cache_sizes(folder), default=UNKNOWN_CACHE_BYTES)


def nearer_cache_bytes(folder: Path = CACHES) -> int:
    """Return the size of the largest cache but the last of the first CPU; if only the last is known, an eighth of it."""
    last = last_cache_bytes(folder)
    return max((size for size in _cache_sizes(folder) if size < last), default=last // 8)


def _cache_sizes(folder: Path) -> list[int]:
    texts = [file.read_text().strip() for file in folder.glob("index*/size")]
    return [int(text[:-1]) * {"K": 2**10, "M": 2**20}.get(text[-1], 1) for text in texts if text[:-1].isdigit()]


def _copy(size_bytes: int, rounds: int) -> float:
    """Return the bytes read and written per second by the faster of the copies of numpy and torch."""
    source, target = np.ones(size_bytes // 8, np.float32), np.empty(size_bytes // 8, np.float32)
    copies: dict[str, Run] = {
        "numpy": partial(np.copyto, target, source),
        "torch": partial(torch.from_numpy(target).copy_, torch.from_numpy(source)),
    }
    repeats = max(1, 2**21 // size_bytes)
    runs = {name: one_after_another([copy] * repeats) for name, copy in copies.items()}
    times = interleaved(runs, rounds, least_s=0.02)
    return repeats * size_bytes / min(map(times.least_s, runs))


def one_after_another(runs: Sequence[Run]) -> Run:
    """Return a callable that calls all of `runs` in order."""

    def run() -> None:
        for call in runs:
            call()

    return run if len(runs) > 1 else runs[0]


def _products(rounds: int, size: int = 256) -> float:
    left, right, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    times = interleaved({"torch": lambda: torch.mm(left, right, out=out)}, rounds, least_s=0.05)
    return size**3 / times.least_s("torch")


Memory = Literal["hot", "cold", "beyond"]
"""Data in the cache, as the previous call left them; data in memory, because others were used meanwhile; or more data than a
last-level cache holds."""


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes and operations that one call needs with any code."""

    bytes_moved: int
    """Bytes read and written, each once per step."""
    multiply_adds: int = 0
    number: Number = "float32"
    """Type of the numbers that are multiplied."""
    steps: int = 1
    """Steps of a decoder, each with this work: a step finds in the cache the data of the step before."""


def target_at(level: str, *, avx512: float, avx2: float, portable: float | None = None) -> float | None:
    """Return the target at a level of the kernels; None at a level for which none was measured."""
    return {"avx512": avx512, "avx2": avx2, "portable": portable}.get(level)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of our runs compared with a baseline of the same case."""

    ours: str
    """Name of our run."""
    baseline: str
    """Name of the baseline, and of its run unless `baseline_runs` names runs."""
    work: Work
    """Work of our run."""
    baseline_runs: tuple[str, ...] = ()
    """Runs of several methods for the baseline; the fastest one counts."""
    target: float | None = None
    """Least ratio to the baseline; None if the ratio is only reported."""
    what: str = ""
    """Description of our run if a case has several."""
    remark: str = ""
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
    level: str = field(default_factory=level_name)
    """Compiled level of our runs, or `none` for the fallbacks."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the registry."""

    name: str
    meaning: str
    source: str
    """Ids of the requirements."""
    reference: str
    """What the tests compare it with."""
    bound: str
    """Bound of its error against the reference, in words; a case gives it in numbers."""
    cost: str
    """Bytes and operations, in words."""
    baselines: tuple[str, str]
    cases: Callable[[int], Iterator[Case]]
    """Yields the cases for a number of threads; builds each when its turn comes, because all inputs may not fit memory."""
    device: str = "cpu"
    compiled_only: bool = False
    """True if the fallbacks are not worth measuring."""
