"""Measures the kernels on this box: against what it can do at best, and against the named baselines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from simnmt.errors import InputError
from simnmt.kernels.cases import KERNELS
from simnmt.kernels.cases_product import product_rates
from simnmt.kernels.contract import Case, Comparison, Kernel, Memory
from simnmt.kernels.interleaved import Times, interleaved
from simnmt.kernels.library_threads import library_threads
from simnmt.kernels.native_at import level_name
from simnmt.kernels.roofline import Roofline, measure_roofline
from simnmt.names import did_you_mean

ROUNDS = 15


class UnknownKernel(InputError):
    """No kernel of that name."""


class UnmeasurableKernel(InputError):
    """A kernel asked for alone that this command cannot measure here."""


@dataclass(frozen=True, slots=True)
class Result:
    """One kernel in one case against one baseline."""

    kernel: str
    case: str
    baseline: str
    way: str
    """The baseline's fastest way here."""
    ratio: float
    """Times as fast as the baseline: the median over the rounds."""
    target: float | None
    """What the project asks of one thread; None where the figure is only reported."""
    reached: bool | None
    """Whether it is as fast as that and its error within the bound."""
    roofline_share: float
    """The least time that the box's copy bandwidth and product rate allow, over ours; above 1 where only reading, which is
    cheaper than copying, was counted."""
    level: str
    median_us: float
    baseline_us: float
    memory: Memory
    rounds: int
    error: float
    error_bound: float
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Benched:
    """All results, and the box they were taken on."""

    level: str
    threads: int
    roofline: Roofline
    results: tuple[Result, ...]

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        results = [asdict(result) for result in self.results]
        return {"level": self.level, "threads": self.threads, "roofline": self.roofline.as_json(), "results": results}


def bench(
    only: str | None = None, rounds: int = ROUNDS, threads: int = 1, say: Callable[[str], None] = lambda text: None
) -> Benched:
    """Measure all kernels that can run here, or one.

    `threads`: of the output layer and of all baselines; the other kernels use one. Raises `UnknownKernel`, and
    `UnmeasurableKernel` for a single one that has nothing to be measured here.
    """
    kernels = [kernel(only)] if only is not None else list(KERNELS)
    if rounds < 1 or threads < 1:
        raise InputError(f"{rounds} rounds, {threads} threads: give one or more of each")
    if threads > (os.cpu_count() or 1):
        raise InputError(f"{threads} threads: this box has {os.cpu_count() or 1} CPUs", remedy="give no more threads than CPUs")
    if only is not None and next(kernels[0].cases(threads), None) is None:
        raise _unmeasurable(kernels[0])
    say("the box: copies and products")
    roofline = measure_roofline(threads, product_rates)
    results: list[Result] = []
    with library_threads(threads):
        for each in kernels:
            for case in each.cases(threads):
                say(f"{each.name}: {case.text}")
                results += measured(each, case, roofline, rounds)
    return Benched(level_name(), threads, roofline, tuple(results))


def kernel(name: str) -> Kernel:
    """The kernel of that name; raises `UnknownKernel`."""
    known = {each.name: each for each in KERNELS}
    if name not in known:
        raise UnknownKernel(f"{name}: no such kernel", remedy=did_you_mean(name, known))
    return known[name]


def _unmeasurable(kernel: Kernel) -> UnmeasurableKernel:
    if kernel.device == "cuda":
        what, remedy = (
            "a CUDA device and Triton: this measures on the CPU",
            "run `python -m benchmarks.kernels_cuda` where both are",
        )
    else:
        what, remedy = "compiled kernels: none are in use", "`simnmt kernels` says why"
    return UnmeasurableKernel(f"{kernel.name} needs {what}", remedy=remedy)


def measured(kernel: Kernel, case: Case, roofline: Roofline, rounds: int) -> Iterator[Result]:
    """Results of one case."""
    contest = case.build()
    # What is cold runs ahead too, on other weights: else the interpreter's cold start, some 40 us, would count as the kernel's.
    times = interleaved(contest.runs, rounds, contest.before, warm=case.memory != "beyond")
    for comparison in contest.comparisons:
        yield _result(kernel, case, comparison, times, roofline)


def _result(kernel: Kernel, case: Case, comparison: Comparison, times: Times, roofline: Roofline) -> Result:
    target = comparison.target if roofline.threads == 1 else None
    way = min(comparison.ways, key=times.median_s)
    ratio, ours_s, work = times.ratio(way, comparison.ours), times.median_s(comparison.ours), comparison.work
    least_s = work.steps * roofline.least_s(work.bytes_moved, work.multiply_adds, cold=case.memory != "hot", number=work.number)
    return Result(
        kernel=kernel.name,
        case=", ".join(filter(None, [case.text, comparison.what])),
        baseline=comparison.baseline,
        way=way,
        ratio=ratio,
        target=target,
        reached=None if target is None else ratio >= target and comparison.error <= comparison.error_bound,
        roofline_share=least_s / ours_s,
        level=case.level,
        median_us=1e6 * ours_s,
        baseline_us=1e6 * times.median_s(way),
        memory=case.memory,
        rounds=times.rounds,
        error=comparison.error,
        error_bound=comparison.error_bound,
        remark=comparison.remark,
    )
