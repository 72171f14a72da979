"""`kernels bench`: every kernel's cases against named baselines, and against the copy rates of the box."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from simnmt.base.errors import InputError
from simnmt.calibrate import harness
from simnmt.kernels import registry
from simnmt.kernels.cases import Case, Kernel, Memory, Run, last_cache_bytes, one_after_another
from simnmt.kernels.native_library import processor
from simnmt.nmt.devices import library_threads

SIZES_BYTES = tuple(2**power for power in range(18, 25, 2))
"""Sizes of the copies within the cache: 256 KiB to 16 MiB."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates of one box, each the best of a few runs."""

    threads: int
    """Threads of the copies."""
    cache_bytes: int
    """Size of the last-level cache; data beyond it are several times as large."""
    copies: tuple[tuple[int, float], ...]
    """(bytes read and written, bytes/s) of copies that fit into the cache, ascending; the last one fills it."""
    copy_bytes_per_s: float
    """Rate of a copy larger than the cache; bytes read and bytes written both count, as in STREAM."""

    def bytes_per_s(self, size_bytes: float) -> float:
        """Return the rate of a copy of this size, in the cache that holds it or in memory."""
        if size_bytes > self.cache_bytes:
            return self.copy_bytes_per_s
        return next((rate for size, rate in self.copies if size_bytes <= size), self.copies[-1][1])


def measure_roofline(threads: int = 1, rounds: int = 7) -> Roofline:
    """Measure the rates in one or two seconds."""
    cache_bytes = last_cache_bytes()
    with library_threads(threads):
        return Roofline(
            threads=threads,
            cache_bytes=cache_bytes,
            copies=tuple((size, _copy_rate(size, rounds)) for size in (*SIZES_BYTES, cache_bytes) if size <= cache_bytes),
            copy_bytes_per_s=_copy_rate(8 * cache_bytes, rounds),
        )


def _copy_rate(size_bytes: int, rounds: int) -> float:
    """Return the bytes read and written per second by the faster of the copies of numpy and torch."""
    source, target = np.ones(size_bytes // 8, np.float32), np.empty(size_bytes // 8, np.float32)
    copies: dict[str, Run] = {
        "numpy": partial(np.copyto, target, source),
        "torch": partial(torch.from_numpy(target).copy_, torch.from_numpy(source)),
    }
    repeats = max(1, 2**21 // size_bytes)
    cases = {name: one_after_another([copy] * repeats) for name, copy in copies.items()}
    return repeats * size_bytes / _least_s(cases, rounds)


def _least_s(cases: dict[str, Run], rounds: int) -> float:
    return float(harness.rounds(cases, rounds, least_s=0.02)["seconds"].min())


ROUNDS = 15
LEAST_S = 0.1
"""Least time for which each run is timed; a short one gets more rounds than requested."""


@dataclass(frozen=True, slots=True)
class Result:
    """One kernel in one case against one baseline."""

    kernel: str
    case: str
    baseline: str
    baseline_run: str
    """The baseline's fastest run here."""
    ratio: float
    """How many times as fast as the baseline: the median over the rounds."""
    target: float | None
    """Least ratio on one thread; None if the ratio is only reported."""
    reached: bool | None
    """True if the ratio reaches the target and the error is within its bound."""
    roofline_share: float
    """Least time under the box's copy bandwidth, over ours. It may exceed 1 for a kernel that only reads,
    since reading is cheaper than copying."""
    median_us: float
    baseline_us: float
    memory: Memory
    rounds: int
    error: float
    error_bound: float


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All results, and the box that they were measured on."""

    processor: str
    """The processor and the vectors of the kernels."""
    threads: int
    roofline: Roofline
    results: tuple[Result, ...]


def bench(
    only: str | None = None, rounds: int = ROUNDS, threads: int = 1, say: Callable[[str], None] = lambda text: None
) -> BenchReport:
    """Measure all kernels that can run here, or one.

    `threads`: for the output layer, unpacking and all baselines; the other kernels use one. Raises `InputError` for rounds or
    threads out of range, and `UnknownKernel`.
    """
    kernels = [registry.kernel(only)] if only is not None else list(registry.KERNELS)
    if rounds < 1 or threads < 1:
        raise InputError(f"{rounds} rounds, {threads} threads: give one or more of each")
    if threads > (os.cpu_count() or 1):
        raise InputError(f"{threads} threads: this box has {os.cpu_count() or 1} CPUs", remedy="give no more threads than CPUs")
    say("the box: copies")
    roofline = measure_roofline(threads)
    results: list[Result] = []
    with library_threads(threads):
        for measured_kernel in kernels:
            for case in measured_kernel.cases(threads):
                say(f"{measured_kernel.name}: {case.text}")
                results += measure_case(measured_kernel, case, roofline, rounds)
    return BenchReport(processor(), threads, roofline, tuple(results))


def measure_case(kernel: Kernel, case: Case, roofline: Roofline, rounds: int) -> Iterator[Result]:
    """Yield the results of one case."""
    warm = case.memory != "beyond"
    runs = {name: harness.Case(run, case.before.get(name), warm) for name, run in case.runs.items()}
    frame = harness.rounds(runs, rounds, least_s=LEAST_S)
    median_s = {name: float(np.median(times_s)) for name, times_s in harness.by_round(frame).items()}
    for comparison in case.comparisons:
        target = comparison.target if roofline.threads == 1 else None
        fastest = min(comparison.baseline_runs or (comparison.baseline,), key=median_s.__getitem__)
        ratio, ours_s = harness.ratio(frame, fastest, comparison.ours), median_s[comparison.ours]
        least_s = comparison.bytes_moved / roofline.bytes_per_s(comparison.bytes_moved)
        yield Result(
            kernel=kernel.name,
            case=", ".join(filter(None, [case.text, comparison.what])),
            baseline=comparison.baseline,
            baseline_run=fastest,
            ratio=ratio.value,
            target=target,
            reached=None if target is None else ratio.value >= target and comparison.error <= comparison.error_bound,
            roofline_share=least_s / ours_s,
            median_us=1e6 * ours_s,
            baseline_us=1e6 * median_s[fastest],
            memory=case.memory,
            rounds=ratio.rounds,
            error=comparison.error,
            error_bound=comparison.error_bound,
        )
