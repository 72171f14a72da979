"""`kernels bench`: every kernel's cases against named baselines, and against the copy and product rates of the box."""

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
from simnmt.kernels.cases import Case, Kernel, Memory, Run, Work, last_cache_bytes, one_after_another
from simnmt.kernels.native_library import native, processor
from simnmt.kernels.packed_products import INPUT_LIMIT, PackedMatrix, random_matrix
from simnmt.nmt.devices import library_threads


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates of one box, each the best of a few runs. Bytes read and bytes written both count, as in STREAM."""

    threads: int
    """Threads of the copies."""
    cache_bytes: int
    """Size of the last-level cache; data called cold or beyond it are several times as large."""
    cached_bytes_per_s: float
    """Rate of a copy within the cache."""
    copy_bytes_per_s: float
    """Rate of a copy larger than the cache."""
    float32_per_s: float
    """Multiply-adds per second of one thread with data in the cache, by the faster of the library's product and ours."""
    int16_per_s: float | None
    """Multiply-adds per second of our int16 product; None without compiled kernels."""

    def least_s(self, work: Work, *, cold: bool) -> float:
        """Return the least time on this box: the longer of moving the bytes and of multiplying."""
        from_memory = cold or work.bytes_moved > self.cache_bytes
        bytes_per_s = self.copy_bytes_per_s if from_memory else self.cached_bytes_per_s
        per_s = (self.int16_per_s if work.number == "int16" else None) or self.float32_per_s
        return max(work.bytes_moved / bytes_per_s, work.multiply_adds / per_s)


def measure_roofline(threads: int = 1, rounds: int = 7) -> Roofline:
    """Measure the rates in one or two seconds."""
    cache_bytes, x, out = last_cache_bytes(), random_matrix(24, 512), np.empty((24, 256), np.float32)
    left, right, product = torch.rand(256, 256), torch.rand(256, 256), torch.empty(256, 256)
    with library_threads(1):
        float32_per_s = left.numel() * 256 / _least_s({"torch": lambda: torch.mm(left, right, out=product)}, rounds)
        int16_per_s = None
        if native() is not None:
            weight = random_matrix(256, 512, 0.1)
            packed = {"float32": PackedMatrix.of(weight), "int16": PackedMatrix.of(weight, INPUT_LIMIT)}
            ours_per_s, int16_per_s = (
                24 * weight.size / _least_s({name: partial(matrix.multiply, x, out)}, rounds) for name, matrix in packed.items()
            )
            float32_per_s = max(float32_per_s, ours_per_s)
    with library_threads(threads):
        cached_bytes_per_s, copy_bytes_per_s = _copy_rate(min(2**18, cache_bytes), rounds), _copy_rate(8 * cache_bytes, rounds)
    return Roofline(threads, cache_bytes, cached_bytes_per_s, copy_bytes_per_s, float32_per_s, int16_per_s)


def _copy_rate(size_bytes: int, rounds: int) -> float:
    """Return the bytes read and written per second by the faster of the copies of numpy and torch."""
    source, target = np.ones(size_bytes // 8, np.float32), np.empty(size_bytes // 8, np.float32)
    copies: dict[str, Run] = {
        "numpy": partial(np.copyto, target, source),
        "torch": partial(torch.from_numpy(target).copy_, torch.from_numpy(source)),
    }
    repeats = max(1, 2**21 // size_bytes)
    return repeats * size_bytes / _least_s({name: one_after_another([copy] * repeats) for name, copy in copies.items()}, rounds)


def _least_s(cases: dict[str, Run], rounds: int) -> float:
    return float(harness.rounds(cases, rounds, least_s=0.02)["seconds"].min())


ROUNDS = 15
LEAST_S = 0.1
"""Least time for which each run is timed; a short one gets more rounds than requested."""


class UnmeasurableKernel(InputError):
    """The one requested kernel cannot be measured by this command on this box."""


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
    """Least time under the box's copy bandwidth and product rate, over ours. It may exceed 1 for a kernel that only reads,
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

    `threads`: for the output layer, unpacking and all baselines; the other kernels use one. Raises `InputError` for more
    threads than CPUs, `UnknownKernel`, and `UnmeasurableKernel` for one kernel that cannot be measured here.
    """
    kernels = registry.KERNELS if only is None else (registry.kernel(only),)
    if threads > (cpus := os.cpu_count() or 1):
        raise InputError(f"{threads} threads: this box has {cpus} CPUs", remedy="give no more threads than CPUs")
    if only is not None and kernels[0].device == "cuda":
        what = f"{only} needs a CUDA device and Triton: this measures on the CPU"
        raise UnmeasurableKernel(what, remedy="run `python -m benchmarks.kernels_cuda` where both are")
    say("the box: copies and products")
    roofline, results = measure_roofline(threads), list[Result]()
    with library_threads(threads):
        for measured_kernel in kernels:
            for case in measured_kernel.cases(threads):
                say(f"{measured_kernel.name}: {case.text}")
                results += measure_case(measured_kernel, case, roofline, rounds)
    return BenchReport(processor(), threads, roofline, tuple(results))


def measure_case(kernel: Kernel, case: Case, roofline: Roofline, rounds: int) -> Iterator[Result]:
    """Yield the results of one case."""
    # A cold case also runs untimed first, on other weights: the interpreter's cold start of some 40 us would count otherwise.
    warm = case.memory != "beyond"
    runs = {name: harness.Case(run, case.before.get(name), warm) for name, run in case.runs.items()}
    frame = harness.rounds(runs, rounds, least_s=LEAST_S)
    median_us = {name: 1e6 * float(np.median(times_s)) for name, times_s in harness.by_round(frame).items()}
    for comparison in case.comparisons:
        target = comparison.target if roofline.threads == 1 else None
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
            roofline_share=1e6 * roofline.least_s(comparison.work, cold=case.memory != "hot") / ours_us,
            median_us=ours_us,
            baseline_us=median_us[fastest],
            memory=case.memory,
            rounds=ratio.rounds,
            error=comparison.error,
            error_bound=comparison.error_bound,
        )
