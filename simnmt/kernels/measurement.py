"""Measurement of kernels: what every kernel promises, callables timed in turn, and the box's copy and product rates.

A kernel has a reference, a bound of its error, its bytes and operations, and named baselines to beat. Callables take turns,
so that a disturbance slows all of them and their ratios stay.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Run = Callable[[], object]

LEAST_S = 0.1
"""Each callable is timed for as long at least, in more rounds than were asked for where it is short."""
MOST_ROUNDS = 20
"""Times the rounds that were asked for, at most."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every callable in every round."""

    of: Mapping[str, tuple[float, ...]]

    @property
    def rounds(self) -> int:
        """Of each callable."""
        return len(next(iter(self.of.values())))

    def median_s(self, name: str) -> float:
        """Of one callable."""
        return statistics.median(self.of[name])

    def least_s(self, name: str) -> float:
        """Of one callable: what it takes where nothing disturbs it."""
        return min(self.of[name])

    def ratio(self, theirs: str, ours: str) -> float:
        """How many times as long `theirs` takes: the median of the rounds' ratios, since a round's two meet the same box."""
        return statistics.median(b / a for a, b in zip(self.of[ours], self.of[theirs], strict=True))


def interleaved(
    runs: Mapping[str, Run],
    rounds: int,
    before: Mapping[str, Run] | None = None,
    *,
    warm: bool = False,
    least_s: float = LEAST_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time each callable once a round, after one untimed run of each; what is in `before` is done untimed ahead of its own.

    Who begins moves by one from round to round, so that none always follows the same other. `warm`: each is run untimed right
    before it is timed too, so that it finds its data as it leaves them itself; else as the others leave them, whose data may
    have pushed its own out of the cache.
    """
    if rounds < 1 or not runs:
        raise ValueError("give at least one round and one callable")
    names, seconds_by_name = list(runs), {name: list[float]() for name in runs}
    restoring = before or {}

    def timed(name: str) -> float:
        restore = restoring.get(name)
        for again in (False, True) if warm else (True,):
            if restore is not None:
                restore()
            if not again:
                runs[name]()
        start_s = clock()
        runs[name]()
        return clock() - start_s

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


@contextmanager
def library_threads(count: int) -> Iterator[None]:
    """Hold torch and the BLAS of numpy to `count` threads until the block ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


Number = Literal["float32", "int16"]

SIZES_BYTES = tuple(2**power for power in range(18, 25, 2))
"""Of the copies within the cache: 256 KiB to 16 MiB."""
UNKNOWN_CACHE_BYTES = 32 * 2**20
"""Taken for the last-level cache where the system does not tell."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates of one box, the best of a few runs."""

    threads: int
    """That copy."""
    cache_bytes: int
    """Of the last-level cache; what is called cold or beyond it is several times as large."""
    copies: tuple[tuple[int, float], ...]
    """(bytes read and written, bytes/s) of copies that fit into the cache, ascending; the last one just so."""
    copy_bytes_per_s: float
    """Of a copy beyond the cache, bytes read and bytes written both counted, as STREAM does."""
    float32_per_s: float
    """Multiply-adds per second of one thread with data in the cache, by the library's product or ours: the faster one."""
    int16_per_s: float | None
    """The same of our int16 product; None without compiled kernels."""

    def bytes_per_s(self, size_bytes: float, *, cold: bool) -> float:
        """Of a copy that moves as many bytes, from memory or from whatever cache holds it."""
        if not cold:
            for size, rate in self.copies:
                if size_bytes <= size:
                    return rate
            if size_bytes <= self.cache_bytes:
                return self.copies[-1][1]
        return self.copy_bytes_per_s

    def least_s(self, size_bytes: float, multiply_adds: float, *, cold: bool, number: Number = "float32") -> float:
        """The time below which the box cannot do it: the longer one of moving the bytes and of multiplying."""
        rate = self.float32_per_s if number == "float32" or self.int16_per_s is None else self.int16_per_s
        return max(size_bytes / self.bytes_per_s(size_bytes, cold=cold), multiply_adds / rate)

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)


def measure_roofline(
    threads: int = 1, ours: Callable[[int], tuple[float, float] | None] = lambda rounds: None, rounds: int = 7
) -> Roofline:
    """Measure the rates, in one or two seconds. `ours`: returns the rates of our products in float32 and in int16."""
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


def last_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the largest cache of the first CPU."""
    sizes = []
    for file in folder.glob("index*/size"):
        text = file.read_text().strip()
        if text[:-1].isdigit():
            sizes.append(int(text[:-1]) * {"K": 2**10, "M": 2**20}.get(text[-1], 1))
    return max(sizes, default=UNKNOWN_CACHE_BYTES)


def _copy(size_bytes: int, rounds: int) -> float:
    """Bytes per second, read and written ones together, of the better of two libraries' copies."""
    source, target = np.ones(size_bytes // 8, np.float32), np.empty(size_bytes // 8, np.float32)
    source_tensor, target_tensor = torch.from_numpy(source), torch.from_numpy(target)
    repeats = max(1, 2**21 // size_bytes)

    def by_numpy() -> None:
        for _ in range(repeats):
            np.copyto(target, source)

    def by_torch() -> None:
        for _ in range(repeats):
            target_tensor.copy_(source_tensor)

    times = interleaved({"numpy": by_numpy, "torch": by_torch}, rounds, least_s=0.02)
    return repeats * size_bytes / min(times.least_s("numpy"), times.least_s("torch"))


def _products(rounds: int, size: int = 256) -> float:
    left, right, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    times = interleaved({"torch": lambda: torch.mm(left, right, out=out)}, rounds, least_s=0.05)
    return size**3 / times.least_s("torch")


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
