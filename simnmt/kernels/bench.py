"""The registry of kernels, its listing, and the benchmark of every kernel against the box and its baselines.

A new kernel is its cases and one entry in `KERNELS`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.kernels import native_library
from simnmt.kernels.bench_cases import (
    COPY,
    DENSE,
    FEWEST_BITS,
    IN_PLACE,
    OWN_KERNEL,
    argmax_cases,
    best_cases,
    gathered_cases,
    unpack_cases,
)
from simnmt.kernels.bench_cases import TORCH as TORCH_UNPACKED
from simnmt.kernels.compile import library_path
from simnmt.kernels.measurement import (
    Case,
    Comparison,
    Kernel,
    Memory,
    Roofline,
    Times,
    interleaved,
    library_threads,
    measure_roofline,
)
from simnmt.kernels.native_library import REMEDY, level_name, library, load, processor_features
from simnmt.kernels.sharp_cases import (
    BASELINE,
    BEFORE,
    LIBRARY,
    LINEAR,
    PACKED,
    TORCH,
    activation_cases,
    float32_cases,
    int16_cases,
    ladder_cases,
    product_rates,
)
from simnmt.kernels.sharp_cases import MATH_LIBRARY as C_LIBRARY

KERNELS = (
    Kernel(
        name="fused_best",
        meaning="bias, softmax and the best n columns of each row in one pass",
        source="FNI-03, FNI-05",
        reference="kernels.reference_output.reference_best",
        bound="1e-5 of a log-probability; the same columns, the lowest of equals",
        cost="reads V products a row and V biases; 2 V elements (FNI-02)",
        baselines=(IN_PLACE, COPY),
        cases=best_cases,
    ),
    Kernel(
        name="fused_argmax",
        meaning="bias and the best column of each row, without its probability",
        source="FNI-06",
        reference="kernels.reference_output.reference_best",
        bound="none: the same column, the lowest of equals",
        cost="reads V products a row and V biases; 2 V elements",
        baselines=(IN_PLACE, "torch add and argmax"),
        cases=argmax_cases,
    ),
    Kernel(
        name="int16_product",
        meaning="a few rows times packed weights in 16-bit fixed point",
        source="SHARP-05, SHARP-18",
        reference="numpy in float64",
        bound="kernels.scales.Scales.error_bound, by weights and inputs",
        cost="reads 2 bytes a weight; rows x weights multiply-adds",
        baselines=(LIBRARY, PACKED),
        cases=int16_cases,
    ),
    Kernel(
        name="float32_product",
        meaning="the same in float32, packed alike: what 16 bits are held against",
        source="SHARP-05",
        reference="numpy in float64",
        bound="inner size x 2^-24 x the sum of magnitudes",
        cost="reads 4 bytes a weight; rows x weights multiply-adds",
        baselines=(LIBRARY, LINEAR),
        cases=float32_cases,
    ),
    Kernel(
        name="gathered_product",
        meaning="nearest centroids, union, product with the active columns alone, search",
        source="FVP-05 to FVP-07, XP-02",
        reference="torch in float64",
        bound="inner size x 2^-24 x the sum of magnitudes",
        cost="reads 4 bytes a weight of the active columns and of the centroids (FVP-09)",
        baselines=(DENSE, OWN_KERNEL),
        cases=gathered_cases,
    ),
    *(
        Kernel(
            name=function,
            meaning=f"{function} of many values by table or polynomial",
            source="SHARP-08",
            reference=f"{function} in float64",
            bound="kernels.activations.ERROR_BOUNDS, absolute",
            cost="reads and writes 4 bytes a value",
            baselines=(C_LIBRARY, TORCH),
            cases=partial(activation_cases, function),
        )
        for function in ("tanh", "sigmoid")
    ),
    Kernel(
        name="sharp_decoder",
        meaning="a sentence's whole beam search, technique upon technique",
        source="SHARP-01, SHARP-11",
        reference="kernels.sharp.reference, in numpy and float64",
        bound="0.05 of a word's log-probability along a given translation; identities find the same words as the rung before",
        cost="every matrix once a step, beam x matrix multiply-adds (SHARP-13)",
        baselines=(BASELINE, BEFORE),
        cases=ladder_cases,
    ),
    Kernel(
        name="unpack",
        meaning="a shard's codes of 2 to 6 bits to float32 weights in their places, outliers laid over them",
        source="STI-06",
        reference="numpy, bit by bit",
        bound="none: the same weights",
        cost="reads bits / 8 bytes and writes 4 bytes a weight",
        baselines=(TORCH_UNPACKED, FEWEST_BITS),
        cases=unpack_cases,
    ),
    Kernel(
        name="triton_best",
        meaning="fused_best and fused_argmax on a GPU, in float32, float16 and bfloat16",
        source="FNI-03 to FNI-06",
        reference="torch in float64",
        bound="1e-6 of a row's log-sum, relative; the same columns",
        cost="reads V products a row and V biases",
        baselines=("torch's own sequence, in one graph", "copy of as many bytes"),
        cases=lambda threads: iter(()),
        device="cuda",
    ),
)


@dataclass(frozen=True, slots=True)
class Listing:
    """The registry, and where it stands on this box."""

    level: str | None
    """Compiled level in use; None: the fallbacks in torch and numpy are."""
    compiled: tuple[str, ...]
    """Levels that lie beside the package."""
    supported: tuple[str, ...]
    """Levels that the processor could run; empty where no library is there to ask it."""
    masked: str | None
    """What SIMNMT_KERNELS says."""
    notes: tuple[str, ...]
    """Why compiled kernels that are there are not used."""
    triton: bool
    """Whether Triton is installed, which the kernels for CUDA need."""
    kernels: tuple[Kernel, ...] = KERNELS

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        of_kernels = [
            {name: getattr(kernel, name) for name in _FIELDS} | {"baselines": list(kernel.baselines)} for kernel in self.kernels
        ]
        return {
            "level": self.level or native_library.NONE,
            "compiled": list(self.compiled),
            "supported": list(self.supported),
            "masked": self.masked,
            "notes": list(self.notes),
            "triton": self.triton,
            "kernels": of_kernels,
        }

    def text(self) -> str:
        """For a person."""
        if self.level is None:
            why = (
                f"{native_library.VARIABLE}={self.masked}"
                if self.masked == native_library.NONE
                else f"nothing was compiled: {REMEDY}"
            )
            lines = [
                "level: none, the fallbacks in torch and numpy are used" + ("" if self.notes else f" ({why})"),
                *self.notes,
            ]
        else:
            masked = f"; {native_library.VARIABLE}={self.masked}" if self.masked else ""
            lines = [f"level: {self.level} of the compiled {', '.join(self.compiled)}{masked}"]
            lines.append(f"the processor has what these need: {', '.join(self.supported)}")
        lines.append(f"CUDA: {'Triton is installed' if self.triton else 'Triton is not installed'}")
        for kernel in self.kernels:
            where = " (CUDA)" if kernel.device == "cuda" else ""
            lines += ["", f"{kernel.name}{where}: {kernel.meaning} ({kernel.source})"]
            lines += [f"  against {kernel.baselines[0]}; {kernel.baselines[1]}"]
            lines += [f"  reference: {kernel.reference}", f"  error: {kernel.bound}", f"  cost: {kernel.cost}"]
        return "\n".join(lines)


_FIELDS = ("name", "meaning", "source", "reference", "bound", "cost", "device")


def listing() -> Listing:
    """Look at this box; loads the compiled kernels."""
    native = library()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        portable = load("portable")
    return Listing(
        level=None if native is None else native.level,
        compiled=tuple(level for level in native_library.LEVELS if library_path(level).is_file()),
        supported=() if portable is None else native_library.supported(processor_features(portable.cdll)),
        masked=os.environ.get(native_library.VARIABLE),
        notes=tuple(str(warning.message) for warning in caught),
        triton=find_spec("triton") is not None,
    )


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
    baseline_run: str
    """The baseline's fastest run here."""
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
class BenchReport:
    """All results, and the box they were taken on."""

    level: str
    threads: int
    roofline: Roofline
    results: tuple[Result, ...]

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        results = [asdict(result) for result in self.results]
        for result in results:
            result["way"] = result.pop("baseline_run")
        return {"level": self.level, "threads": self.threads, "roofline": self.roofline.as_json(), "results": results}


def bench(
    only: str | None = None, rounds: int = ROUNDS, threads: int = 1, say: Callable[[str], None] = lambda text: None
) -> BenchReport:
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
        for measured_kernel in kernels:
            for case in measured_kernel.cases(threads):
                say(f"{measured_kernel.name}: {case.text}")
                results += measure_case(measured_kernel, case, roofline, rounds)
    return BenchReport(level_name(), threads, roofline, tuple(results))


def kernel(name: str) -> Kernel:
    """The kernel of that name; raises `UnknownKernel`."""
    known = {registered.name: registered for registered in KERNELS}
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


def measure_case(kernel: Kernel, case: Case, roofline: Roofline, rounds: int) -> Iterator[Result]:
    """Results of one case."""
    contest = case.build()
    # What is cold runs ahead too, on other weights: else the interpreter's cold start, some 40 us, would count as the kernel's.
    times = interleaved(contest.runs, rounds, contest.before, warm=case.memory != "beyond")
    for comparison in contest.comparisons:
        yield _result(kernel, case, comparison, times, roofline)


def _result(kernel: Kernel, case: Case, comparison: Comparison, times: Times, roofline: Roofline) -> Result:
    target = comparison.target if roofline.threads == 1 else None
    fastest = min(comparison.ways, key=times.median_s)
    ratio, ours_s, work = times.ratio(fastest, comparison.ours), times.median_s(comparison.ours), comparison.work
    least_s = work.steps * roofline.least_s(work.bytes_moved, work.multiply_adds, cold=case.memory != "hot", number=work.number)
    return Result(
        kernel=kernel.name,
        case=", ".join(filter(None, [case.text, comparison.what])),
        baseline=comparison.baseline,
        baseline_run=fastest,
        ratio=ratio,
        target=target,
        reached=None if target is None else ratio >= target and comparison.error <= comparison.error_bound,
        roofline_share=least_s / ours_s,
        level=case.level,
        median_us=1e6 * ours_s,
        baseline_us=1e6 * times.median_s(fastest),
        memory=case.memory,
        rounds=times.rounds,
        error=comparison.error,
        error_bound=comparison.error_bound,
        remark=comparison.remark,
    )
