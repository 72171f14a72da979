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

CACHED_BYTES = 2**18
ROUNDS, ROOFLINE_ROUNDS = 15, 7
LEAST_S = 0.1
"""Least time for which each run is timed; a short one gets more rounds than requested."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates of copies on one box, each the best of a few runs; bytes read and bytes written both count, as in STREAM."""

    cache_bytes: int
    """Size of the last-level cache; data beyond it are several times as large."""
    cached_bytes_per_s: float
    copy_bytes_per_s: float
    """Rate of a copy larger than the cache."""

    def least_s(self, bytes_moved: int) -> float:
        """Return the least time to move so many bytes, within the cache if they fit."""
        return bytes_moved / (self.copy_bytes_per_s if bytes_moved > self.cache_bytes else self.cached_bytes_per_s)


def measure_roofline(threads: int = 1, rounds: int = ROOFLINE_ROUNDS) -> Roofline:
    """Measure the rates in one or two seconds."""
    cache_bytes = last_cache_bytes()
    with library_threads(threads):
        return Roofline(cache_bytes, *(_copy_rate(size, rounds) for size in (CACHED_BYTES, 8 * cache_bytes)))


def _copy_rate(size_bytes: int, rounds: int) -> float:
    """Return the bytes read and written per second by the faster of the copies of numpy and torch."""
    source, target = np.ones(size_bytes // 8, np.float32), np.empty(size_bytes // 8, np.float32)
    copies: dict[str, Run] = {
        "numpy": partial(np.copyto, target, source),
        "torch": partial(torch.from_numpy(target).copy_, torch.from_numpy(source)),
    }
    repeats = max(1, 2**21 // size_bytes)
    cases = {name: one_after_another([copy] * repeats) for name, copy in copies.items()}
    return repeats * size_bytes / float(harness.rounds(cases, rounds, least_s=0.02)["seconds"].min())


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
    """Least time under the box's copy bandwidth, over ours; above 1 for a kernel that only reads, which is cheaper."""
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

    `threads`: for the output layer, unpacking and all baselines; the other kernels use one. Raises `InputError` for more
    threads than CPUs, and `UnknownKernel`.
    """
    kernels = registry.KERNELS if only is None else (registry.kernel(only),)
    if threads > (cpus := os.cpu_count() or 1):
        raise InputError(f"{threads} threads: this box has {cpus} CPUs", remedy="give no more threads than CPUs")
    say("the box: copies")
    roofline, results = measure_roofline(threads), list[Result]()
    with library_threads(threads):
        for measured_kernel in kernels:
            for case in measured_kernel.cases(threads):
                say(f"{measured_kernel.name}: {case.text}")
                results += measure_case(measured_kernel, case, roofline, rounds, threads)
    return BenchReport(processor(), threads, roofline, tuple(results))


def measure_case(kernel: Kernel, case: Case, roofline: Roofline, rounds: int, threads: int) -> Iterator[Result]:
    """Yield the results of one case."""
    warm = case.memory != "beyond"
    runs = {name: harness.Case(run, case.before.get(name), warm) for name, run in case.runs.items()}
    frame = harness.rounds(runs, rounds, least_s=LEAST_S)
    median_us = {name: 1e6 * float(np.median(times_s)) for name, times_s in harness.by_round(frame).items()}
    for comparison in case.comparisons:
        target = comparison.target if threads == 1 else None
        fastest = min(comparison.baseline_runs or (comparison.baseline,), key=median_us.__getitem__)
        ratio, ours_us = harness.ratio(frame, fastest, comparison.ours), median_us[comparison.ours]
        yield Result(
            kernel=kernel.name,
            case=", ".join(filter(None, [case.text, comparison.what])),
            baseline=comparison.baseline,
            baseline_run=fastest,
            ratio=ratio.value,
            target=target,
            reached=None if target is None else ratio.value >= target and comparison.error <= comparison.error_bound,
            roofline_share=1e6 * roofline.least_s(comparison.bytes_moved) / ours_us,
            median_us=ours_us,
            baseline_us=median_us[fastest],
            memory=case.memory,
            rounds=ratio.rounds,
            error=comparison.error,
            error_bound=comparison.error_bound,
        )
